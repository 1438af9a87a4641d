"""Where does a session keep its trace, logs and results, and how is that place made private? (M1)."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from murmur.adapters.murmur_home import PRIVATE_DIRECTORY, murmur_home, open_home
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
            os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=descriptor)

    @classmethod
    def create(cls, environment: Mapping[str, str], workdir: Path, session_id: str) -> Self:
        """Make `~/.murmur/records/<workdir without its leading />/<session id>`, following no link beneath `~/.murmur`.

        Raises `RegistryUnusable` when there is no Murmur home, `RecordsUnusable` naming the directory otherwise.
        """
        parts = ("records", *workdir.parts[1:], session_id)
        path = murmur_home(environment).joinpath(*parts)
        descriptor = open_home(environment)
        try:
            for part in parts:
                _make(part, descriptor)
                inner = os.open(part, _OPEN, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            return cls(path, descriptor, session_id)
        except OSError as error:
            os.close(descriptor)
            raise RecordsUnusable(
                f"cannot make the records directory {path}: {(error.strerror or str(error)).lower()}"
            ) from error

    @classmethod
    def elsewhere(cls, path: Path, session_id: str) -> Self:
        """Use an existing private directory for a session that runs unrecorded."""
        return cls(path, os.open(path, _OPEN), session_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def open_log(self, name: str) -> int:
        """Open `logs/<name>` for appending; the caller closes it."""
        return os.open(f"logs/{name}", _APPEND, _PRIVATE_FILE, dir_fd=self._descriptor)

    def log_tail(self, name: str, lines: int) -> list[str]:
        """Return the last lines of `logs/<name>`, read from its last 64 KiB."""
        try:
            descriptor = os.open(f"logs/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        except OSError:
            return []
        try:
            size = os.fstat(descriptor).st_size
            content = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
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
        descriptor = os.open("trace.jsonl", _APPEND, _PRIVATE_FILE, dir_fd=self._descriptor)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _make(name: str, directory: int) -> None:
    try:
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=directory)
        os.chmod(name, PRIVATE_DIRECTORY, dir_fd=directory)  # Whatever the umask made of it.
    except FileExistsError:
        pass
