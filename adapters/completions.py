"""Where is a delegation's completion kept, and how does its spawner hear of it? (W5, W6).

The file is named relative to the open records directory and no link is followed, neither by reading nor by writing.
"""

import os
import stat
from collections.abc import Callable

from murmur.adapters.descriptors import exhausted, is_exhaustion
from murmur.adapters.identifiers import mint
from murmur.adapters.reasons import reason_of
from murmur.adapters.staging import write_staged
from murmur.domain.door import NoSuchAddress
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.launch.completion import (
    COMPLETION_FILE,
    COMPLETION_LIMIT,
    DelegationOutcome,
    completion_ask,
    delivery_of,
    parse_completion,
    render_completion,
    shown_words,
)
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.ports import Doors

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Warn = Callable[[str], None]


class CompletionStore:
    """The `completion.json` of one records directory, by that directory's descriptor, which the caller keeps open."""

    def __init__(self, directory: int) -> None:
        self._directory = directory

    def read(self) -> DelegationOutcome | None:
        """Return the recorded completion; `None` where there is none, or something that is none (W5).

        Raises `OutOfDescriptors`: that this process has none left says nothing about what the child recorded.
        """
        try:
            content = self._content()
        except OSError as error:
            if is_exhaustion(error):
                raise exhausted("read a child's completion with") from error
            return None
        return None if content is None else parse_completion(content)

    def write(self, outcome: DelegationOutcome) -> None:
        """Put the completion in place, whole or not at all, over whatever file or link is there. Raises `OSError`."""
        write_staged(self._directory, COMPLETION_FILE, render_completion(outcome))

    def _content(self) -> bytes | None:
        # Looked at before it is opened, since opening a device has effects.
        if not _is_readable(os.stat(COMPLETION_FILE, dir_fd=self._directory, follow_symlinks=False)):
            return None
        descriptor = os.open(COMPLETION_FILE, _READ, dir_fd=self._directory)
        try:
            return _read(descriptor) if _is_readable(os.fstat(descriptor)) else None
        finally:
            os.close(descriptor)


def _is_readable(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size <= COMPLETION_LIMIT


def _read(descriptor: int) -> bytes:
    """Read the file, up to one byte beyond the limit: it may have grown meanwhile."""
    content = bytearray()
    while more := os.read(descriptor, COMPLETION_LIMIT + 1 - len(content)):
        content += more
    return bytes(content)


def post_completion(handle: SpawnerHandle, outcome: DelegationOutcome, doors: Doors) -> DelegationOutcome:
    """Post a completion to the spawner's door; return it with what became of that (W6). Never raises.

    `doors` are those with `POST_LIMITS`: it may take as long.
    """
    reason = _posted(handle, outcome, doors)
    return outcome.replaced(delivered=reason is None, delivery_error=reason)


def report(
    handle: SpawnerHandle, outcome: DelegationOutcome, store: CompletionStore, doors: Doors, warn: Warn
) -> DelegationOutcome:
    """Record a completion as undelivered, post it, and record it with the result, which is returned (W6).

    What fails is a warning. A spawner without a url is told nothing: then it is only recorded (W4).
    """
    outcome = outcome.replaced(delivered=False)
    _write(store, outcome, handle.delegation_id, warn)
    return deliver(handle, outcome, store, doors, warn)


def deliver(
    handle: SpawnerHandle, outcome: DelegationOutcome, store: CompletionStore, doors: Doors, warn: Warn
) -> DelegationOutcome:
    """Post a completion that is recorded as undelivered, and record it with the result: the rest of `report`."""
    if handle.url is None:
        return outcome
    outcome = post_completion(handle, outcome, doors)
    if outcome.delivery_error is not None:
        warn(f"the completion of delegation {handle.delegation_id} was not delivered: {outcome.delivery_error}")
    _write(store, outcome, handle.delegation_id, warn)
    return outcome


def record(outcome: DelegationOutcome, store: CompletionStore, warn: Warn) -> None:
    """Record an outcome over whatever is there, such as that the parent ended the delegation; post nothing (W2)."""
    _write(store, outcome, outcome.delegation_id, warn)


def _posted(handle: SpawnerHandle, outcome: DelegationOutcome, doors: Doors) -> str | None:
    try:
        ask = completion_ask(handle, outcome, mint("msg_"))
        (reading,) = doors.probe([ask])
    except NoSuchAddress as error:
        return shown_words(str(error))
    except OutOfDescriptors as error:
        return shown_words(error.message)
    return delivery_of(reading)


def _write(store: CompletionStore, outcome: DelegationOutcome, delegation_id: str, warn: Warn) -> None:
    try:
        store.write(outcome)
    except OSError as error:
        warn(f"the completion of delegation {delegation_id} could not be recorded: {reason_of(error)}")
