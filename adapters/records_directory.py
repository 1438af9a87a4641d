"""Where does a session keep its trace, logs and results, and how is that place made private? (M1)."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from murmur.adapters.murmur_home import PRIVATE_DIRECTORY, murmur_home, open_home
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import RecordsUnusable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_TAIL = 64 * 1024
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
        """Write a task into `task.md` of the work folder; open it for reading, which the caller closes."""
        path = (workdir or Path()) / "task.md"
        content = text.encode("utf-8", "replace")
        path.write_bytes(content)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def link(self, name: str, alias: str, unique: str) -> None:
        """Let `alias` be the file of that name, whole at every moment. Raises `OSError`."""
        staged = f"{alias}.{unique}"
        os.link(name, staged, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor, follow_symlinks=False)
        os.rename(staged, alias, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def head(self, name: str, limit: int) -> tuple[bytes, bool]:
        """Return a file's first bytes and whether that is all of it; nothing for a file that cannot be read."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        except OSError:
            return b"", True
        try:
            content = os.pread(descriptor, limit, 0)
            return content, os.fstat(descriptor).st_size <= limit
        finally:
            os.close(descriptor)

    def log_tail(self, name: str, lines: int, since: int = 0) -> list[str]:
        """Return the last lines of `logs/<name>` after that many bytes, read from its last 64 KiB."""
        try:
            descriptor = os.open(f"logs/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        except OSError:
            return []
        try:
            size = os.fstat(descriptor).st_size
            content = os.pread(descriptor, _TAIL, max(since, size - _TAIL))
        finally:
            os.close(descriptor)
        return content.decode("utf-8", "replace").splitlines()[-lines:]

    def trace(self, event_type: str, **fields: object) -> None:
        """Append one event to `trace.jsonl`. Raises `OSError`."""
        event = {
            "event_type": event_type,
            "session_id": self._session_id,
            "timestamp": time.time_ns() // 1_000_000,
        }
        line = json.dumps(event | fields).encode() + b"\n"
        descriptor = self._append_to("trace.jsonl")
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _append_to(self, name: str) -> int:
        return self._open_private(name, _APPEND)

    def _open_private(self, name: str, flags: int) -> int:
        with ExitStack() as opened:
            descriptor = os.open(name, flags, _PRIVATE_FILE, dir_fd=self._descriptor)
            opened.callback(os.close, descriptor)
            os.fchmod(descriptor, _PRIVATE_FILE)  # Whatever the umask made of it.
            opened.pop_all()
            return descriptor


def _unusable(path: Path, error: OSError) -> RecordsUnusable:
    return RecordsUnusable(f"cannot make {path}: {reason_of(error)}")


def _make_new(name: str, directory: int) -> None:
    os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=directory)
    os.chmod(name, PRIVATE_DIRECTORY, dir_fd=directory)  # Whatever the umask made of it.
