"""Where does a session keep its trace, logs and results, and how is that place made private? (M1)."""

import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from murmur.adapters.murmur_home import PRIVATE_DIRECTORY, murmur_home, open_home
from murmur.adapters.reasons import reason_of
from murmur.adapters.staging import write_staged
from murmur.domain.errors import RecordsUnusable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Readable too, so that what was written is read from the same file, whatever has its name by then. Without blocking:
# a command may put a FIFO in a file's place. `O_NONBLOCK` means nothing to the regular file that is let through.
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TAIL = 16 * 1024
_TAIL_CHARACTERS = 4000
_CUT = "[…] "
_PRIVATE_FILE = 0o600


class RecordsDirectory:
    """One session's records directory, open by descriptor. A context manager."""

    def __init__(self, path: Path, descriptor: int, session_id: str) -> None:
        self.path = path
        self._descriptor = descriptor
        self._session_id = session_id
        for name in ("logs", "out"):
            _make_new(name, descriptor)

    @classmethod
    def create(cls, environment: Mapping[str, str], workdir: Path, session_id: str) -> Self:
        """Make `~/.murmur/records/<workdir without its leading />/<session id>`, following no link beneath `~/.murmur`.

        Raises `RegistryUnusable` when there is no Murmur home, `RecordsUnusable` naming the directory otherwise.
        """
        parts = ("records", *workdir.parts[1:], session_id)
        path = murmur_home(environment).joinpath(*parts)
        if ".." in parts:
            raise RecordsUnusable(f"cannot make {path}: its path leads back up")
        descriptor = open_home(environment)
        try:
            for part in parts:
                with suppress(FileExistsError) if part is not session_id else nullcontext():
                    _make_new(part, descriptor)
                inner = os.open(part, _OPEN, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            return cls(path, descriptor, session_id)
        except OSError as error:
            os.close(descriptor)
            raise _unusable(path, error) from error

    @classmethod
    def elsewhere(cls, path: Path, session_id: str) -> Self:
        """Use an existing private directory for a session that runs unrecorded. Raises `RecordsUnusable`."""
        with ExitStack() as opened:
            try:
                descriptor = os.open(path, _OPEN)
                opened.callback(os.close, descriptor)
                records = cls(path, descriptor, session_id)
            except OSError as error:
                raise _unusable(path, error) from error
            opened.pop_all()
            return records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def descriptor(self) -> int:
        """The directory itself, open for as long as this is."""
        return self._descriptor

    def open_log(self, name: str) -> int:
        """Open `logs/<name>` for appending; the caller closes it. Raises `RecordsUnusable`."""
        try:
            return self._append_to(f"logs/{name}")
        except OSError as error:
            raise _unusable(self.path / "logs" / name, error) from error

    def open_new(self, name: str) -> int:
        """Create a file of the directory for writing; the caller closes it. Raises `RecordsUnusable`."""
        try:
            return self._open_private(name, _APPEND | os.O_EXCL)
        except OSError as error:
            raise _unusable(self.path / name, error) from error

    def open_task(self, text: str, workdir: Path | None) -> int:
        """Put a task into `task.md` of the work folder; return that file, open at its start, for the caller to close.

        A new file takes the name, so that nothing which has the old one open, or that a link there leads to, changes:
        the work folder may be another session's too. Raises `RecordsUnusable`.
        """
        path = (workdir or Path()) / "task.md"
        kept: list[int] = []

        def keep(staged: int) -> None:
            kept.append(os.dup(staged))
            opened.callback(os.close, kept[0])
            os.lseek(staged, 0, os.SEEK_SET)

        with ExitStack() as opened:
            try:
                folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    write_staged(folder, path.name, text.encode("utf-8", "replace"), durable=False, before_rename=keep)
                finally:
                    os.close(folder)
            except OSError as error:
                raise _unusable(path, error) from error
            opened.pop_all()
        return kept[0]

    def link(self, name: str, descriptor: int, alias: str, unique: str) -> None:
        """Let `alias` be that open file, whole at every moment; not if something else has its name now.

        Raises `OSError`.
        """
        staged, here = f"{alias}.{unique}", self._descriptor
        os.link(name, staged, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        try:
            if os.path.samestat(os.stat(staged, dir_fd=here, follow_symlinks=False), os.fstat(descriptor)):
                os.rename(staged, alias, src_dir_fd=here, dst_dir_fd=here)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(staged, dir_fd=here)

    def trace(self, event_type: str, **fields: object) -> None:
        """Append one event to `trace.jsonl`, whole or not at all. Raises `OSError`."""
        event = {
            "event_type": event_type,
            "session_id": self._session_id,
            "timestamp": time.time_ns() // 1_000_000,
        }
        line = json.dumps(event | fields).encode() + b"\n"
        descriptor = self._append_to("trace.jsonl")
        try:
            append_line(descriptor, line)
        finally:
            os.close(descriptor)

    def _append_to(self, name: str) -> int:
        return self._open_private(name, _APPEND)

    def _open_private(self, name: str, flags: int) -> int:
        with ExitStack() as opened:
            descriptor = os.open(name, flags, _PRIVATE_FILE, dir_fd=self._descriptor)
            opened.callback(os.close, descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            os.fchmod(descriptor, _PRIVATE_FILE)  # Whatever the umask made of it.
            opened.pop_all()
            return descriptor


def append_line(descriptor: int, line: bytes) -> None:
    """Append a line in one write, whole or not at all, to a file that nobody else writes. Raises `OSError`."""
    before = os.fstat(descriptor).st_size
    if os.write(descriptor, line) < len(line):
        # The disk is full. A part of a line would spoil the next one as well.
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, "there is no space for a whole line")


def read_head(descriptor: int, limit: int) -> tuple[bytes, bool]:
    """Return an open file's first bytes and whether that is all of it. Raises `OSError`."""
    content = os.pread(descriptor, limit, 0)
    return content, os.fstat(descriptor).st_size <= limit


def read_tail(descriptor: int, lines: int, since: int = 0) -> list[str]:
    """Return an open log's last lines after that many bytes; none of one that cannot be read.

    At most 4,000 characters, with a mark where they are cut.
    """
    try:
        size = os.fstat(descriptor).st_size
        content = os.pread(descriptor, _TAIL, max(since, size - _TAIL))
    except OSError:
        return []
    last = content.decode("utf-8", "replace").splitlines()[-lines:]
    text = "\n".join(last)
    return last if len(text) <= _TAIL_CHARACTERS else (_CUT + text[-_TAIL_CHARACTERS:]).split("\n")


def _unusable(path: Path, error: OSError) -> RecordsUnusable:
    return RecordsUnusable(f"cannot make {path}: {reason_of(error)}")


def _make_new(name: str, directory: int) -> None:
    os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=directory)
    os.chmod(name, PRIVATE_DIRECTORY, dir_fd=directory)  # Whatever the umask made of it.
