"""What was found in the running directory: files read, files that could not be, and what became of a removal."""

from typing import NamedTuple

from murmur.domain.origin import LockReading, OriginReading
from murmur.domain.value import Value


class OriginFile(NamedTuple):
    """What an origin file holds and whether the session's lock on it is held."""

    origin: OriginReading
    lock: LockReading = LockReading.UNREADABLE
    present: bool = True
    """Whether there was a file at all when its record had been read."""


class FileMark(NamedTuple):
    """What tells one file from another of the same name, and from itself rewritten (S4)."""

    device: int
    inode: int
    mtime_ns: int
    size: int


class ReadFile(Value):
    """A record file's content. `mark` is of the descriptor it was read from."""

    hidden = ("content",)
    name: str
    content: bytes
    mark: FileMark
    origin: OriginFile

    @property
    def stem(self) -> str:
        """The name without `.json`: the session the file is about, whatever it says inside."""
        return self.name.removesuffix(".json")


class UnreadFile(Value):
    """A record file that could not be read. That is no evidence of anything (S3)."""

    name: str
    reason: str
    vanished: bool = False
    """Whether it was gone by the time it was opened: a session that just ended."""


RecordFile = ReadFile | UnreadFile


class Leftover(Value):
    """An entry that is no record: a staged write, a control token, an origin."""

    name: str
    mark: FileMark | None
    """`None` when it is not a regular file, or could not be looked at."""


class Removed(Value):
    """The file was unlinked."""


class Kept(Value):
    """The file was not unlinked: it is still there, or changed meanwhile."""

    reason: str


class Vanished(Value):
    """Somebody else removed the file first."""


Removal = Removed | Kept | Vanished
