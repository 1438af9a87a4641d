"""How does a session enter the registry, and leave it by any way out? (G2, G3, L8)."""

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from murmur.adapters.murmur_home import open_running, running_location
from murmur.adapters.staging import write_staged
from murmur.domain.errors import MurmurError, RegistryUnusable
from murmur.domain.origin import Origin, render_origin
from murmur.domain.record import RunningRecord, render_record
from murmur.domain.secret import ControlToken

Warn = Callable[[str], None]


class _Guard:
    """Files of the running directory that go when the guard is left."""

    def __init__(self) -> None:
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the files. Idempotent."""
        self._opened.close()


class ControlTokenGuard(_Guard):
    """A session's `.control` file, written before the record and removed with the guard (G3)."""

    def __init__(self, environment: Mapping[str, str], session_id: str, token: ControlToken) -> None:
        """Write the token; raise `RegistryUnusable`, which never holds it."""
        super().__init__()
        with ExitStack() as opened:
            directory = _directory(environment, opened)
            name = f"{session_id}.control"
            _written(environment, name, partial(write_staged, directory, name, token.expose().encode()))
            opened.callback(_unlink, directory, name)
            self._opened = opened.pop_all()


class RunningGuard(_Guard):
    """A session's record and the origin beside it, there for exactly as long as the guard is held (G2, L8).

    Leaving it removes the record, then its control token, then the origin: a reader that still finds the record
    finds the origin as well.
    """

    def __init__(self, environment: Mapping[str, str], record: RunningRecord, origin: Origin, warn: Warn) -> None:
        """Write origin and record, in this order; raise `MurmurError` with neither left behind.

        An origin that cannot be written is a warning: the record alone still names the session.
        """
        super().__init__()
        content = render_record(record)
        session_id = record.session_id
        with ExitStack() as opened:
            directory = _directory(environment, opened)
            unsynced = partial(_warn_unsynced, environment, warn)
            try:
                self._write_origin(environment, opened, directory, session_id, origin)
            except MurmurError as error:
                warn(error.message)
            name = f"{session_id}.json"
            _written(environment, name, partial(write_staged, directory, name, content, on_unsynced=unsynced))
            opened.callback(_unlink, directory, f"{session_id}.control")
            opened.callback(_unlink, directory, name)
            self._opened = opened.pop_all()

    @staticmethod
    def _write_origin(
        environment: Mapping[str, str], opened: ExitStack, directory: int, session_id: str, origin: Origin
    ) -> None:
        """Write the origin with its lock taken before it has its name, and hold the lock (L8)."""
        name = f"{session_id}.origin"

        def lock(written: int) -> None:
            # A duplicate shares the lock, and keeps it when the writer closes its own descriptor.
            held = os.dup(written)
            opened.callback(os.close, held)
            with suppress(OSError):  # No locks on this file system: a reader elsewhere will not be able to tell.
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)

        _written(
            environment,
            name,
            partial(write_staged, directory, name, render_origin(origin), before_rename=lock),
        )
        opened.callback(_unlink, directory, name)


def _directory(environment: Mapping[str, str], opened: ExitStack) -> int:
    directory = open_running(environment, create=True)
    assert directory is not None
    opened.callback(os.close, directory)
    return directory


def _written(environment: Mapping[str, str], name: str, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        # `from None`: the frames below hold what was to be written.
        raise RegistryUnusable(
            f"failed to write {running_location(environment) / name}: {(error.strerror or str(error)).lower()}"
        ) from None


def _unlink(directory: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)


def _warn_unsynced(environment: Mapping[str, str], warn: Warn, error: OSError) -> None:
    warn(f"{running_location(environment)} could not be flushed to disk: {(error.strerror or str(error)).lower()}")
