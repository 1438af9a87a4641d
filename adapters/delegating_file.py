"""What does a session tell a `mur delegate` that its own command runs? A file in its records directory.

It is no secret and no permission: whoever can write there is the user, and can start anything.
"""

import os
import stat
from collections.abc import Sequence
from typing import TypeGuard

from murmur.adapters.staging import write_staged
from murmur.domain.json_text import NotJson, json_bytes, read_json
from murmur.domain.value import Value

DELEGATING_FILE = "delegating.json"
_LIMIT = 256 * 1024


class Delegating(Value):
    """How a session delegates."""

    session_id: str
    context_id: str
    url: str | None
    """Its door, which takes completions; `None` for a script, which has none."""
    spawn_allow: Sequence[str] | None
    """The capsules that its manifest lets it launch; `None` without a manifest: any."""
    deadline_unix_ms: int | None = None
    formation_id: str | None = None
    depth_remaining: int | None = None
    """How many launches may follow from one another beneath it; `None`: as many as anywhere."""
    depth_limit: int | None = None
    """How many may beneath a session that nobody launched; `None`: as a referee has it that nobody told."""


def write_delegating(directory: int, delegating: Delegating) -> None:
    """Put the file into a records directory. Raises `OSError`."""
    document = {name: getattr(delegating, name) for name in Delegating.__match_args__}
    write_staged(directory, DELEGATING_FILE, json_bytes(document), durable=False)


def read_delegating(directory: int) -> Delegating | None:
    """Read the file of a records directory; `None` where there is none, or something else than is written there.

    An allow-list that is damaged must not read as one that is not there, which allows everything.
    """
    try:
        descriptor = os.open(
            DELEGATING_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = os.read(descriptor, _LIMIT)
        finally:
            os.close(descriptor)
        document = read_json(content)
    except (OSError, NotJson):
        return None
    return _delegating(document) if isinstance(document, dict) else None


def _delegating(document: dict[str, object]) -> Delegating | None:
    session_id, context_id, url, allow, deadline, formation, depth, most = map(document.get, Delegating.__match_args__)
    if not document.keys() >= set(Delegating.__match_args__):
        return None
    if not isinstance(session_id, str) or not isinstance(context_id, str):
        return None
    if not isinstance(url, str | None) or not isinstance(formation, str | None):
        return None
    if not isinstance(allow, list | None) or not _is_count(deadline):
        return None
    if not _is_count(depth) or not _is_count(most):
        return None
    names = None if allow is None else [each for each in allow if isinstance(each, str)]
    return Delegating(session_id, context_id, url, names, deadline, formation, depth, most)


def _is_count(value: object) -> TypeGuard[int | None]:
    return value is None or type(value) is int
