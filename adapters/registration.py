"""How does a session enter the registry, and leave it by any way out? (G2, G3, L8)."""

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from murmur.adapters.murmur_home import open_running, running_location
from murmur.adapters.reasons import reason_of
from murmur.adapters.staging import write_staged
from murmur.domain.errors import RegistryUnusable
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
    """A session's `.control` file alone, for a session whose record could not be written (G3)."""

    def __init__(self, environment: Mapping[str, str], session_id: str, token: ControlToken) -> None:
        """Write the token; raise `RegistryUnusable`, which never holds it."""
        super().__init__()
        with ExitStack() as opened:
            place = _Place(environment, opened)
            place.write(f"{session_id}.control", lambda: token.expose().encode())
            self._opened = opened.pop_all()


class RunningGuard(_Guard):
    """A session's record and what belongs to it, there for exactly as long as the guard is held (G2, L8).

    Leaving it removes the record, then the control token, then the origin: a reader that still finds the record
    finds the origin as well.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        record: RunningRecord,
        origin: Origin,
        warn: Warn,
        control: ControlToken | None = None,
    ) -> None:
        """Write origin, control token and record, in this order; raise `MurmurError` with none of them left behind.

        An origin that cannot be written is a warning: the record alone still names the session.
        """
        super().__init__()
        render_record(record)  # What cannot be written at all is said before anything is.
        session_id = record.session_id
        with ExitStack() as opened:
            place = _Place(environment, opened, warn)
            try:
                place.write(f"{session_id}.origin", lambda: render_origin(origin), hold_lock=True)
            except RegistryUnusable as error:
                warn(error.message)
            if control is not None:
                place.write(f"{session_id}.control", lambda: control.expose().encode())
            with ExitStack() as mine:
                place.write(f"{session_id}.json", lambda: render_record(record), removed_by=mine)
                # Whoever wrote the control token, it goes with the record, and only once there was one.
                opened.callback(_unlink, place.directory, f"{session_id}.control")
                opened.push(mine.pop_all())
            self._opened = opened.pop_all()


class _Place:
    """The running directory, open for one guard's writes."""

    def __init__(self, environment: Mapping[str, str], opened: ExitStack, warn: Warn | None = None) -> None:
        directory = open_running(environment, create=True)
        assert directory is not None
        opened.callback(os.close, directory)
        self.directory = directory
        self._location = running_location(environment)
        self._opened = opened
        self._warn = warn

    def write(
        self, name: str, content: Callable[[], bytes], *, hold_lock: bool = False, removed_by: ExitStack | None = None
    ) -> None:
        """Put a file in place until the guard is left. `content` is called here, so that no frame above holds it.

        Raises `RegistryUnusable`, with the file removed on every other way out as well.
        """
        # Left last: a reader that still finds the file finds its lock held as well.
        lock = self._opened.enter_context(ExitStack())
        # Before it is written: an interrupt right after the rename must not leave it.
        (removed_by or self._opened).callback(_unlink, self.directory, name)
        try:
            write_staged(
                self.directory,
                name,
                content(),
                before_rename=partial(_hold_lock, lock) if hold_lock else None,
                on_unsynced=self._tell_unsynced,
            )
        except OSError as error:
            # `from None`: the frames below hold what was to be written.
            raise RegistryUnusable(f"failed to write {self._location / name}: {reason_of(error)}") from None

    def _tell_unsynced(self, error: OSError) -> None:
        if self._warn is not None:
            self._warn(f"{self._location} could not be flushed to disk: {reason_of(error)}")
            self._warn = None  # Once is enough for one directory.


def _hold_lock(opened: ExitStack, written: int) -> None:
    """Take the session's lock before the file has its name, and keep it until `opened` is left (L8)."""
    # A duplicate shares the lock, and keeps it when the writer closes its own descriptor.
    held = os.dup(written)
    opened.callback(os.close, held)
    with suppress(OSError):  # No locks on this file system: a reader elsewhere will not be able to tell.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlink(directory: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)
