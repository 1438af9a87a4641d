"""How does a folder come into a store, or leave it, so that a reader sees all of it or nothing? (H4, H5).

It is made, or taken apart, beside all others under a name that no capsule can have. A rename does the rest. Whoever
works on it holds a lock on it, by which others tell what a crashed one has left.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from murmur.adapters.clock import SystemClock
from murmur.adapters.folder_copy import make_directory
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.processes import SystemProcesses
from murmur.domain.origin import LockReading
from murmur.domain.process import ProcessIdentity
from murmur.domain.staged_names import staged_by, staged_name
from murmur.domain.sweep import is_abandoned

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def staged_folder(store: int, mode: int) -> Iterator[tuple[str, int]]:
    """Make a folder in an open store; give its name and a descriptor. It is removed unless it was renamed by then."""
    name = staged_name("install", os.getpid(), fresh_hex())
    make_directory(name, mode, store)
    try:
        descriptor = os.open(name, _OPEN, dir_fd=store)
        try:
            _try_lock(descriptor)
            yield name, descriptor
        finally:
            os.close(descriptor)
    finally:
        with suppress(OSError):
            remove_staged(store, name)


def take_away(store: int, parent: int, name: str, folder: int) -> str:
    """Rename a folder so that it is staged, and return what it is called then.

    `folder` is a descriptor of it, which holds the lock on it until it is closed. Raises `OSError` with the folder
    where it was.
    """
    _try_lock(folder)
    staged = staged_name("uninstall", os.getpid(), fresh_hex())
    os.rename(name, staged, src_dir_fd=parent, dst_dir_fd=store)
    return staged


def remove_staged(store: int, name: str) -> None:
    """Remove a staged folder with all that is in it; raise `OSError` for what stays, which a later sweep finds."""
    try:
        shutil.rmtree(name, dir_fd=store)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "its directories are nested too deep") from None


def sweep_staged(store: int) -> None:
    """Remove what crashed writers left in an open store. What cannot be looked at or removed stays."""
    with os.scandir(store) as entries:
        staged = [(entry.name, pid) for entry in entries if (pid := staged_by(entry.name)) is not None]
    for name, pid in staged:
        with suppress(OSError):
            _sweep(store, name, pid)


def _sweep(store: int, name: str, pid: int) -> None:
    descriptor = os.open(name, _OPEN, dir_fd=store)
    try:
        (reading,) = SystemProcesses().readings([ProcessIdentity(pid, "")])
        lock = _try_lock(descriptor)
        age = SystemClock().now() - os.fstat(descriptor).st_mtime
        if is_abandoned(lock, age=age, pid_alive=reading.pid_alive):
            remove_staged(store, name)  # The lock is ours by now, so nobody else does it too.
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> LockReading:
    """Take the lock if it is free; say what it was."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return LockReading.HELD
    except OSError:
        return LockReading.UNREADABLE
    return LockReading.FREE
