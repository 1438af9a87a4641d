"""What files are in `~/.murmur/running`, read and removed without ever following a link? (R5, S1-S5, L8).

Every call goes through the directory's descriptor and a bare name, so that no text inside a record, and no
rename of a directory above, can lead it elsewhere.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from murmur.adapters.descriptors import is_exhaustion, spare_descriptors
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import RegistryUnusable
from murmur.domain.files import (
    FileMark,
    Kept,
    Leftover,
    OriginFile,
    ReadFile,
    RecordFile,
    Removal,
    Removed,
    UnreadFile,
    Vanished,
)
from murmur.domain.origin import LockReading, UnreadOrigin, parse_origin
from murmur.domain.record import RECORD_LIMIT
from murmur.domain.secret import ControlToken

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BATCH = 64
_ORIGIN_LIMIT = 64 * 1024

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "it is a symbolic link"),
    (stat.S_ISDIR, "it is a directory"),
    (stat.S_ISFIFO, "it is a FIFO"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


class _Opened(NamedTuple):
    descriptor: int
    mark: FileMark
    content: bytes


class OpenRunningDirectory:
    """The running directory behind one descriptor, or an empty machine where there is none.

    A context manager: leaving it closes the descriptor it was given.
    """

    def __init__(self, descriptor: int | None, location: Path) -> None:
        self._descriptor = descriptor
        self._location = location
        self._held: dict[str, int] = {}
        self._names: list[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def batches(self, only: str | None = None) -> Iterator[AbstractContextManager[Sequence[RecordFile]]]:
        """Read every `*.json` entry, or `only` that one, some at a time.

        A batch's files stay open until its context is left. Raises `RegistryUnusable` when the directory cannot be
        listed.
        """
        names = [name for name in self._listed() if name.endswith(".json") and name != ".json"]
        names = names if only is None else [name for name in names if name == only]
        size = spare_descriptors(_BATCH)
        for start in range(0, len(names), size):
            yield self._batch(names[start : start + size])

    @contextmanager
    def _batch(self, names: Sequence[str]) -> Iterator[Sequence[RecordFile]]:
        with ExitStack() as opened:
            opened.callback(self._held.clear)
            yield [self._read_record(name, opened) for name in names]

    def leftovers(self) -> Sequence[Leftover]:
        """Look at every `*.tmp`, `*.control` and `*.origin`: what crashed writers may have left."""
        return [
            Leftover(name, self._look(name))
            for name in self._listed()
            if name.endswith((".tmp", ".control", ".origin"))
        ]

    def origin_of(self, stem: str) -> OriginFile:
        """Read the origin file of that stem and try its lock; what cannot be read is no evidence (L8)."""
        try:
            return self._read_origin(stem)
        except OSError as error:
            return OriginFile(UnreadOrigin(_reason(error)))

    def control_token(self, stem: str) -> ControlToken | None:
        """Return a session's control token; `None` when it has none that can be read."""
        with ExitStack() as opened:
            try:
                file = self._open(f"{stem}.control", _ORIGIN_LIMIT, opened)
            except OSError:
                return None
            return None if isinstance(file, str) else ControlToken(file.content.decode("utf-8", "replace").strip())

    def remove(self, file: RecordFile | Leftover) -> Removal:
        """Unlink that file if its name still holds what was judged (S4).

        The descriptor it was read through is open until its batch is left, so that its inode cannot be another
        file's; a leftover is opened for the same reason. Between the last look and the unlink lie two system
        calls and nothing else.
        """
        if self._descriptor is None:
            return Vanished()
        if isinstance(file, UnreadFile) or file.mark is None:
            return Kept("it was not read")
        with ExitStack() as opened:
            if file.name not in self._held:
                try:
                    descriptor = os.open(file.name, _READ, dir_fd=self._descriptor)
                except FileNotFoundError:
                    return Vanished()
                except OSError as error:
                    return Kept(_reason(error))
                opened.callback(os.close, descriptor)
                if _mark(os.fstat(descriptor)) != file.mark:
                    return Kept("it changed while it was looked at")
            try:
                if _mark(os.stat(file.name, dir_fd=self._descriptor, follow_symlinks=False)) != file.mark:
                    return Kept("it changed while it was looked at")
                os.unlink(file.name, dir_fd=self._descriptor)
            except FileNotFoundError:
                return Vanished()
            except OSError as error:
                return Kept(f"it could not be removed: {_reason(error)}")
        return Removed()

    def remove_companion(self, name: str) -> Removal:
        """Unlink the `.control` or `.origin` of a session judged gone (G1)."""
        if self._descriptor is None:
            return Vanished()
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return Vanished()
        except OSError as error:
            return Kept(f"it could not be removed: {_reason(error)}")
        return Removed()

    def _listed(self) -> list[str]:
        if self._descriptor is None:
            return []
        if self._names is None:
            try:
                self._names = os.listdir(self._descriptor)
            except OSError as error:
                raise RegistryUnusable(f"{self._location}: {error.strerror}") from error
        return self._names

    def _look(self, name: str) -> FileMark | None:
        try:
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None
        return _mark(found) if stat.S_ISREG(found.st_mode) else None

    def _read_record(self, name: str, opened: ExitStack) -> RecordFile:
        try:
            file = self._open(name, RECORD_LIMIT, opened)
        except FileNotFoundError:
            return UnreadFile(name, "it vanished while it was read", vanished=True)
        except OSError as error:
            return UnreadFile(name, _reason(error))
        if isinstance(file, str):
            return UnreadFile(name, file)
        self._held[name] = file.descriptor
        # After the record: an origin is written before its record and removed after it, so that it is missing
        # here only for a session that has none.
        try:
            origin = self._read_origin(name.removesuffix(".json"))
        except OSError as error:
            if is_exhaustion(error):  # Our own limit: the session is not to be called unreachable for it.
                return UnreadFile(name, _reason(error))
            origin = OriginFile(UnreadOrigin(_reason(error)))
        return ReadFile(name, file.content, file.mark, origin)

    def _read_origin(self, stem: str) -> OriginFile:
        if self._descriptor is None:
            return OriginFile(None, present=False)
        with ExitStack() as opened:
            try:
                file = self._open(f"{stem}.origin", _ORIGIN_LIMIT, opened)
            except FileNotFoundError:
                return OriginFile(None, present=False)
            if isinstance(file, str):
                return OriginFile(UnreadOrigin(file))
            return OriginFile(parse_origin(file.content), _try_lock(file.descriptor))

    def _open(self, name: str, limit: int, opened: ExitStack) -> _Opened | str:
        """Read a regular file of up to `limit` bytes; return why not for anything else.

        It is looked at before it is opened, since opening a device has effects, and again afterwards.
        """
        complaint = _irregular(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False))
        if complaint is not None:
            return complaint
        descriptor = os.open(name, _READ, dir_fd=self._descriptor)
        opened.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        complaint = _irregular(found)
        if complaint is not None:
            return complaint
        content = _read_all(descriptor, found.st_size, limit) if found.st_size <= limit else None
        if content is None:
            return f"it is larger than {limit} bytes"
        return _Opened(descriptor, _mark(found), content)


def _read_all(descriptor: int, size: int, limit: int) -> bytes | None:
    """Read to the end of the file; `None` when it outgrew the limit meanwhile."""
    content = os.read(descriptor, size + 1)
    if len(content) == size:
        return content
    while len(content) <= limit:
        more = os.read(descriptor, limit + 1 - len(content))
        if not more:
            return content
        content += more
    return None


def _irregular(found: os.stat_result) -> str | None:
    if stat.S_ISREG(found.st_mode):
        return None
    return next((text for is_kind, text in _KINDS if is_kind(found.st_mode)), "it is not a regular file")


def _mark(found: os.stat_result) -> FileMark:
    return FileMark(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def _try_lock(descriptor: int) -> LockReading:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return LockReading.HELD
    except OSError:
        return LockReading.UNREADABLE
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return LockReading.FREE


def _reason(error: OSError) -> str:
    if is_exhaustion(error):
        return "this process has no file descriptor left to read it with"
    if error.errno == errno.ELOOP:
        return "it is a symbolic link"
    return reason_of(error)
