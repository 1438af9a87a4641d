"""What exactly is in a capsule's folder? Read entry by entry, through no link, and copied on the way if that is wanted.

Nothing is opened but directories and regular files.
"""

import hashlib
import os
import stat
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.descriptors import exhausted, is_exhaustion
from murmur.adapters.folder_copy import FolderCopy
from murmur.adapters.reasons import reason_of
from murmur.domain.capsule_store import (
    DEPTH_LIMIT,
    ENTRIES_LIMIT,
    FOLDER_LIMIT,
    MANIFEST,
    MANIFEST_LIMIT,
    FolderDigest,
)
from murmur.domain.errors import CapsuleUnreadable, MurmurError
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 256 * 1024


class FolderContents(Value):
    """What was in a folder when it was read."""

    hidden = ("manifest",)
    digest: str
    """What stands for everything in it: see `FolderDigest`."""
    manifest: bytes | None
    """What its `murmur.yaml` holds: the very bytes that are in the digest."""


def read_folder(folder: Path, descriptor: int, copy: FolderCopy | None = None) -> FolderContents:
    """Read the open directory of that path whole, and put what is in it into `copy` as it is read.

    Raises `CapsuleUnreadable`, and what `copy` raises.
    """
    reading = _FolderReading(folder)
    reading.take_in(descriptor, b"", 1, copy)
    return FolderContents(reading.digest.hex(), reading.manifest)


class _FolderReading:
    """One folder while it is read, entry by entry."""

    def __init__(self, folder: Path) -> None:
        self.digest = FolderDigest()
        self.manifest: bytes | None = None
        self._folder = os.fsencode(folder)
        self._entries = 0
        self._room = FOLDER_LIMIT

    def take_in(self, directory: int, path: bytes, depth: int, copy: FolderCopy | None) -> None:
        """Take in what an open directory holds. `path` is its own, relative to the folder, with a `/` at its end."""
        for name in self._names(directory, path):
            inner = path + name
            try:
                self._take_in_entry(directory, name, inner, depth, copy)
            except OSError as error:
                raise unread(self._place(inner), error) from error

    def _names(self, directory: int, path: bytes) -> list[bytes]:
        names = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > ENTRIES_LIMIT:
                        raise unreadable(
                            self._place(b""), f"it holds more than {ENTRIES_LIMIT:,} files and directories"
                        )
                    names.append(os.fsencode(entry.name))
        except OSError as error:
            raise unread(self._place(path), error) from error
        return sorted(names)

    def _take_in_entry(self, directory: int, name: bytes, path: bytes, depth: int, copy: FolderCopy | None) -> None:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISREG(mode):
            descriptor = os.open(name, _FILE, dir_fd=directory)
            try:
                self._take_in_file(descriptor, path, copy)
            finally:
                os.close(descriptor)
        elif stat.S_ISDIR(mode):
            if depth >= DEPTH_LIMIT:
                raise unreadable(self._place(path), f"it is nested more than {DEPTH_LIMIT} directories deep")
            self.digest.add_directory(path)
            descriptor = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            try:
                with ExitStack() as opened:
                    inner = opened.enter_context(copy.directory(name, mode)) if copy is not None else None
                    self.take_in(descriptor, path + b"/", depth + 1, inner)
            finally:
                os.close(descriptor)
        else:
            raise unreadable(self._place(path), f"it is {kind_of(mode)}; a capsule holds directories and regular files")

    def _take_in_file(self, file: int, path: bytes, copy: FolderCopy | None) -> None:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise unreadable(self._place(path), "it was replaced while the capsule was read")
        if found.st_size > self._room:
            raise self._too_large()
        kept = bytearray()
        content = hashlib.sha256()
        is_manifest = path == MANIFEST.encode()
        with ExitStack() as opened:
            written = None
            if copy is not None:
                written = opened.enter_context(copy.file(path.rpartition(b"/")[2], found.st_mode))
            while part := os.read(file, _CHUNK):
                self._room -= len(part)
                if self._room < 0:
                    raise self._too_large()
                content.update(part)
                if written is not None:
                    written(part)
                if is_manifest:
                    kept += part
                    if len(kept) > MANIFEST_LIMIT:
                        raise unreadable(self._place(path), f"it is larger than {MANIFEST_LIMIT // 1024} KiB")
        if is_manifest:
            self.manifest = bytes(kept)
        self.digest.add_file(path, content.digest(), executable=bool(found.st_mode & stat.S_IXUSR))

    def _too_large(self) -> CapsuleUnreadable:
        return unreadable(self._place(b""), f"its files have more than {FOLDER_LIMIT // 1024**2:,} MiB together")

    def _place(self, path: bytes) -> Path:
        return Path(os.fsdecode(self._folder + b"/" + path))


def kind_of(mode: int) -> str:
    """Say what it is that is neither a directory nor a regular file."""
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def unread(path: Path, error: OSError) -> MurmurError:
    """Make the error for what could not be read: our own limit, or something about that path."""
    if is_exhaustion(error):
        return exhausted("read a capsule with")
    return unreadable(path, reason_of(error))


def unreadable(path: Path, reason: str) -> CapsuleUnreadable:
    """Make the error that names the path and says why."""
    return CapsuleUnreadable(f"{visible(str(path))}: {reason}")
