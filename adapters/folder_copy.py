"""Where does a copy of a folder go, so that it is on the disk when it is done?

Of each mode is kept who may read and execute, and never more than the umask leaves; the owner may always read and
write.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from murmur.adapters.descriptors import exhausted, is_exhaustion
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import StoreUnusable
from murmur.domain.visible_text import visible

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT = 0o755
_OWNER = stat.S_IRUSR | stat.S_IWUSR


class FolderCopy:
    """One open directory that a copy is written into. What cannot be written raises `StoreUnusable`."""

    def __init__(self, descriptor: int, store: Path) -> None:
        self._descriptor = descriptor
        self._store = store

    @contextmanager
    def file(self, name: bytes, mode: int) -> Iterator[Callable[[bytes], None]]:
        """Make a file and give what writes to it; it is on the disk when this is left."""
        wanted = mode & _KEPT | _OWNER
        with writing_to(self._store):
            descriptor = os.open(name, _NEW, wanted, dir_fd=self._descriptor)
        try:

            def write(data: bytes) -> None:
                with writing_to(self._store):
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]

            yield write
            with writing_to(self._store):
                _insist_on_owner(descriptor, wanted)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def directory(self, name: bytes, mode: int) -> Iterator["FolderCopy"]:
        """Make a directory and give it to be written into; it is on the disk when this is left."""
        wanted = directory_mode(mode)
        with writing_to(self._store):
            make_directory(name, wanted, self._descriptor)
            descriptor = os.open(name, _DIRECTORY, dir_fd=self._descriptor)
        try:
            with writing_to(self._store):
                _insist_on_owner(descriptor, wanted)
            yield FolderCopy(descriptor, self._store)
            with writing_to(self._store):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(name: str | bytes, mode: int, parent: int) -> None:
    """Make a directory that its owner may enter, whatever the umask. Raises `OSError`."""
    os.mkdir(name, mode, dir_fd=parent)
    made = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    if made & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, made | stat.S_IRWXU, dir_fd=parent)


def directory_mode(mode: int) -> int:
    """Return the mode that the copy of a directory gets, before the umask."""
    return mode & _KEPT | stat.S_IRWXU


@contextmanager
def writing_to(store: Path) -> Iterator[None]:
    """Turn what the system refuses into the error that names the store."""
    try:
        yield
    except OSError as error:
        if is_exhaustion(error):
            raise exhausted("write a capsule with") from error
        raise StoreUnusable(f"{visible(str(store))}: {reason_of(error)}") from error


def _insist_on_owner(descriptor: int, wanted: int) -> None:
    """Give the owner what a umask has taken: the digest tells a file that may be executed from one that may not."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    owner = wanted & stat.S_IRWXU
    if mode & stat.S_IRWXU != owner:
        os.fchmod(descriptor, mode | owner)
