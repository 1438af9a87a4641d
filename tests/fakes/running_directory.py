"""A running directory in memory."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count

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
from murmur.domain.ports import RunningDirectory

_LEFTOVERS = (".tmp", ".control", ".origin")


class FakeRunningDirectory:
    """Names with their content, or with the reason why it cannot be read."""

    def __init__(self, *, batch_size: int = 64) -> None:
        self.unreadable: dict[str, str] = {}
        """Entries that are there and cannot be read, each for its reason."""
        self.vanishing: set[str] = set()
        """Entries that are listed and gone when they are opened."""
        self.locks: dict[str, LockReading] = {}
        """What trying the lock of a stem's origin file tells; free unless said otherwise."""
        self.removals: dict[str, Removal] = {}
        """What comes of removing these instead of their removal."""
        self.removed: list[str] = []
        """The names that were unlinked, in order."""
        self._batch_size = batch_size
        self._inodes = count(1)
        self._files: dict[str, tuple[bytes, FileMark]] = {}
        self._open: set[str] = set()

    @property
    def names(self) -> list[str]:
        """What is in the directory."""
        return [*self._files, *self.unreadable, *self.vanishing]

    def put(self, name: str, content: bytes = b"", *, modified: float = 0.0) -> None:
        """Write a file, as a new one, last modified at that Unix time."""
        self._files[name] = content, FileMark(1, next(self._inodes), round(modified * 1e9), len(content))

    def batches(self, only: str | None = None) -> Iterator[AbstractContextManager[Sequence[RecordFile]]]:
        names = [name for name in self.names if name.endswith(".json") and name != ".json" and only in (None, name)]
        for start in range(0, len(names), self._batch_size):
            yield self._batch(names[start : start + self._batch_size])

    @contextmanager
    def _batch(self, names: Sequence[str]) -> Iterator[Sequence[RecordFile]]:
        self._open.update(names)
        try:
            yield [self._read(name) for name in names]
        finally:
            self._open.clear()

    def _read(self, name: str) -> RecordFile:
        if name in self.unreadable:
            return UnreadFile(name, self.unreadable[name])
        if name not in self._files:
            return UnreadFile(name, "it vanished while it was read", vanished=True)
        content, mark = self._files[name]
        return ReadFile(name, content, mark, self.origin_of(name.removesuffix(".json")))

    def leftovers(self) -> Sequence[Leftover]:
        return [
            Leftover(name, self._files[name][1] if name in self._files else None)
            for name in self.names
            if name.endswith(_LEFTOVERS)
        ]

    def origin_of(self, stem: str) -> OriginFile:
        name = f"{stem}.origin"
        if name in self.unreadable:
            return OriginFile(UnreadOrigin(self.unreadable[name]))
        if name not in self._files:
            return OriginFile(None)
        return OriginFile(parse_origin(self._files[name][0]), self.locks.get(stem, LockReading.FREE))

    def remove(self, file: RecordFile | Leftover) -> Removal:
        if isinstance(file, UnreadFile) or file.mark is None:
            return Kept("it was not read")
        assert isinstance(file, Leftover) or file.name in self._open, "its descriptor is closed already (S4)"
        if file.name in self._files and self._files[file.name][1] != file.mark:
            return Kept("it changed while it was looked at")
        return self.remove_companion(file.name)

    def remove_companion(self, name: str) -> Removal:
        assert "/" not in name
        if name in self.removals:
            return self.removals[name]
        if self._files.pop(name, None) is None:
            return Vanished()
        self.removed.append(name)
        return Removed()


_PORT: type[RunningDirectory] = FakeRunningDirectory
