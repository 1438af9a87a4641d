"""Which store holds a capsule, and what exactly is in its folder?

The project's store is searched before one's own. Beneath a store no link is followed, and nothing is opened but
directories and regular files.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.descriptors import exhausted, is_exhaustion
from murmur.adapters.murmur_home import murmur_home
from murmur.adapters.reasons import reason_of
from murmur.domain.capsule_store import (
    DEPTH_LIMIT,
    ENTRIES_LIMIT,
    FOLDER_LIMIT,
    MANIFEST,
    MANIFEST_LIMIT,
    CapsuleReference,
    FolderDigest,
)
from murmur.domain.errors import CapsuleNotFound, CapsuleUnreadable, MurmurError, RegistryUnusable
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_STORE = Path(".murmur", "artifacts")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 256 * 1024
_ABSENT = (errno.ENOENT, errno.ENAMETOOLONG)


class StoredCapsule(Value):
    """A capsule that a store holds, as it was when it was read."""

    hidden = ("manifest",)
    name: str
    version: str
    folder: Path
    digest: str
    """What stands for everything in the folder: see `FolderDigest`."""
    manifest: bytes
    """What its `murmur.yaml` holds: the very bytes that are in the digest."""


def find_capsule(reference: CapsuleReference, start: Path, environment: Mapping[str, str]) -> StoredCapsule:
    """Find a capsule in the stores above `start`, the nearest first, then in `~/.murmur/artifacts`, and read it.

    Raises `CapsuleNotFound`, which says where it looked, and `CapsuleUnreadable`.
    """
    looked: list[str] = []
    for store in _stores(start, environment, looked):
        found = _capsule_in(store, reference)
        if found is not None:
            return found
    raise CapsuleNotFound(
        f"there is no capsule {reference}: looked in {'; '.join(looked)}",
        hint=f"a store holds it as .murmur/artifacts/{reference.name}/{visible(reference.version)}/{MANIFEST}",
    )


def capsule_at(folder: Path, reference: CapsuleReference) -> StoredCapsule:
    """Read a capsule in the very folder that was found for it; raise `CapsuleNotFound`, `CapsuleUnreadable`."""
    levels = reference.levels
    if not folder.is_absolute() or ".." in folder.parts or folder.parts[-len(levels) :] != levels:
        raise CapsuleNotFound(f"no store holds {reference} in {visible(str(folder))}")
    found = _capsule_in(folder.parents[len(levels) - 1], reference)
    if found is None:
        raise CapsuleNotFound(f"there is no capsule {reference} in {visible(str(folder))}")
    return found


def _stores(start: Path, environment: Mapping[str, str], looked: list[str]) -> Iterator[Path]:
    """Give the stores to look into; `looked` gets what to say of each, and of those passed over."""
    try:
        home = murmur_home(environment) / "artifacts"
    except RegistryUnusable as error:
        home, no_home = None, error.message
    else:
        no_home = ""
    own = None if home is None else _identity(home)
    before = len(looked)
    directory = Path(os.path.realpath(start))
    for above in (directory, *directory.parents):
        store = above / _STORE
        found = _identity(store)
        if found is None or found == own:
            continue
        if not _is_trusted(store):
            # In a directory that others may write to, such as /tmp, anybody can put a store above ours.
            looked.append(f"not in {visible(str(store))}, which belongs to another user")
            continue
        looked.append(visible(str(store)))
        yield store
    if len(looked) == before:
        looked.append(f"no {_STORE} in {visible(str(directory))} or above it")
    if home is None:
        looked.append(f"no store of yours ({no_home})")
    else:
        looked.append(visible(str(home)))
        yield home


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a directory from all others; `None` where there is none, or none that we may look at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _is_trusted(store: Path) -> bool:
    """Whether a store, and each link on the way into it, belongs to this user or to root."""
    try:
        owners = {found.st_uid for place in (store.parent, store) for found in (place.lstat(), place.stat())}
    except OSError:
        return False
    return owners <= {0, os.geteuid()}


def _capsule_in(store: Path, reference: CapsuleReference) -> StoredCapsule | None:
    """Read a capsule in one store; `None` where it has none of that name and version. Raises `CapsuleUnreadable`."""
    with ExitStack() as opened:
        path, descriptor = store, _open_store(store)
        for level in reference.levels:
            if descriptor is None:
                return None
            opened.callback(os.close, descriptor)
            path /= level
            descriptor = _open_level(path, level, descriptor)
        if descriptor is None:
            return None
        opened.callback(os.close, descriptor)
        if not _has_manifest(path, descriptor):
            return None
        reading = _FolderReading(path)
        reading.take_in(descriptor, b"", 1)
        if reading.manifest is None:
            raise _unreadable(path / MANIFEST, "it was removed while the capsule was read")
        return StoredCapsule(reference.name, reference.version, path, reading.digest.hex(), reading.manifest)


def _open_store(store: Path) -> int | None:
    try:
        return os.open(store, _DIRECTORY)
    except OSError as error:
        if error.errno in (*_ABSENT, errno.ENOTDIR):
            return None
        raise _unread(store, error) from error


def _open_level(path: Path, name: str, parent: int) -> int | None:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _unreadable(path, "it is a link or no directory, and a store holds directories") from None
        raise _unread(path, error) from error


def _has_manifest(path: Path, folder: int) -> bool:
    try:
        os.stat(MANIFEST, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unread(path / MANIFEST, error) from error
    return True


class _FolderReading:
    """One folder while it is read, entry by entry."""

    def __init__(self, folder: Path) -> None:
        self.digest = FolderDigest()
        self.manifest: bytes | None = None
        self._folder = os.fsencode(folder)
        self._entries = 0
        self._room = FOLDER_LIMIT

    def take_in(self, directory: int, path: bytes, depth: int) -> None:
        """Take in what an open directory holds. `path` is its own, relative to the folder, with a `/` at its end."""
        for name in self._names(directory, path):
            inner = path + name
            try:
                self._take_in_entry(directory, name, inner, depth)
            except OSError as error:
                raise _unread(self._place(inner), error) from error

    def _names(self, directory: int, path: bytes) -> list[bytes]:
        names = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > ENTRIES_LIMIT:
                        raise _unreadable(
                            self._place(b""), f"it holds more than {ENTRIES_LIMIT:,} files and directories"
                        )
                    names.append(os.fsencode(entry.name))
        except OSError as error:
            raise _unread(self._place(path), error) from error
        return sorted(names)

    def _take_in_entry(self, directory: int, name: bytes, path: bytes, depth: int) -> None:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISREG(mode):
            descriptor = os.open(name, _FILE, dir_fd=directory)
            try:
                self._take_in_file(descriptor, path)
            finally:
                os.close(descriptor)
        elif stat.S_ISDIR(mode):
            if depth >= DEPTH_LIMIT:
                raise _unreadable(self._place(path), f"it is nested more than {DEPTH_LIMIT} directories deep")
            self.digest.add_directory(path)
            descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            try:
                self.take_in(descriptor, path + b"/", depth + 1)
            finally:
                os.close(descriptor)
        else:
            raise _unreadable(self._place(path), f"it is {_kind(mode)}; a capsule holds directories and regular files")

    def _take_in_file(self, file: int, path: bytes) -> None:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise _unreadable(self._place(path), "it was replaced while the capsule was read")
        if found.st_size > self._room:
            raise self._too_large()
        kept = bytearray()
        content = hashlib.sha256()
        is_manifest = path == MANIFEST.encode()
        while part := os.read(file, _CHUNK):
            self._room -= len(part)
            if self._room < 0:
                raise self._too_large()
            content.update(part)
            if is_manifest:
                kept += part
                if len(kept) > MANIFEST_LIMIT:
                    raise _unreadable(self._place(path), f"it is larger than {MANIFEST_LIMIT // 1024} KiB")
        if is_manifest:
            self.manifest = bytes(kept)
        self.digest.add_file(path, content.digest(), executable=bool(found.st_mode & stat.S_IXUSR))

    def _too_large(self) -> CapsuleUnreadable:
        return _unreadable(self._place(b""), f"its files have more than {FOLDER_LIMIT // 1024**2:,} MiB together")

    def _place(self, path: bytes) -> Path:
        return Path(os.fsdecode(self._folder + b"/" + path))


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _unread(path: Path, error: OSError) -> MurmurError:
    if is_exhaustion(error):
        return exhausted("read a capsule with")
    return _unreadable(path, reason_of(error))


def _unreadable(path: Path, reason: str) -> CapsuleUnreadable:
    return CapsuleUnreadable(f"{visible(str(path))}: {reason}")
