"""What do Linux's pidfds and `/proc` say about a process? (L2, L3, L5-L8)."""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from murmur.adapters.descriptors import exhausted, is_exhaustion
from murmur.domain.origin import Here
from murmur.domain.process import PID_MAX, ProcessReading, StatLine, group_of_stat_line, parse_stat_line

assert sys.platform != "darwin"

NOBODY = ProcessReading(pid_alive=False)
_STAT_LIMIT = 4096
_STOPPED = ("T", "t")
_THREAD = (errno.ENOENT, errno.EINVAL)
"""How `pidfd_open` answers for a number that is a thread's: by kernel version."""


def read_process(pid: int) -> ProcessReading:
    """Take one look at a pid, race-free where pidfds are (L5). Raises `OutOfDescriptors`."""
    if not 1 <= pid <= PID_MAX:
        return NOBODY
    try:
        pidfd = _pidfd_open(pid)
    except OSError as error:
        return _read_without(error, pid)
    try:
        return _read_through(pidfd, pid)
    finally:
        os.close(pidfd)


@contextmanager
def held(pid: int) -> Iterator[tuple[int | None, ProcessReading]]:
    """Take one look at a pid and keep its pidfd open: what it names cannot become another process (K2).

    The descriptor is `None` where pidfds cannot be used, and where nobody is there.
    """
    if not 1 <= pid <= PID_MAX:
        yield None, NOBODY
        return
    try:
        pidfd = _pidfd_open(pid)
    except OSError as error:
        yield None, _read_without(error, pid)
        return
    try:
        yield pidfd, _read_through(pidfd, pid)
    finally:
        os.close(pidfd)


def _pidfd_open(pid: int) -> int:
    """Open the pidfd of a pid; the caller closes it. A Python without the call reads as a kernel without it."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None


def _read_through(pidfd: int, pid: int) -> ProcessReading:
    """Look at the process of an open pidfd: read its stat line, then make sure that it was still there (L5, L7)."""
    line = _stat_line(pid)
    # Readable means exited, reaped or not; the end of its leader thread alone does not count.
    watched = select.poll()
    watched.register(pidfd, select.POLLIN)
    if watched.poll(0):
        return NOBODY
    inode = os.fstat(pidfd).st_ino if inodes_are_unique() else None
    return ProcessReading(True, line.start_token, line.state in _STOPPED, inode)


def _read_without(error: OSError, pid: int) -> ProcessReading:
    """Look at a pid whose pidfd could not be opened (L7)."""
    if error.errno == errno.ESRCH:
        return NOBODY
    if error.errno in _THREAD:
        # Held, but by a thread: its start time may show that the process is another, and it is never signalled.
        return ProcessReading(True, _stat_line(pid).start_token, thread=True)
    return _read_by_number(pid)


def _read_by_number(pid: int) -> ProcessReading:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return NOBODY
    except PermissionError:
        pass
    line = _stat_line(pid)
    if line.state == "Z":
        return NOBODY
    return ProcessReading(True, line.start_token, line.state in _STOPPED, thread=_is_thread(pid))


def _is_thread(pid: int) -> bool:
    """Whether that number is a thread's and not a process's, which `kill` would not say."""
    for line in _lines(f"/proc/{pid}/status") if proc_is_ours() else ():
        if line.startswith(b"Tgid:"):
            return line.split()[1:] != [str(pid).encode()]
    return False


_UNREADABLE = StatLine(None, None)


def _stat_line(pid: int) -> StatLine:
    content = _stat(pid)
    return _UNREADABLE if content is None else parse_stat_line(content)


def _stat(pid: int) -> bytes | None:
    """Return the content of a process's stat file; `None` when it cannot be read. Raises `OutOfDescriptors`."""
    if not proc_is_ours():
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _insist_on_descriptors(error)
        return None
    try:
        return os.read(descriptor, _STAT_LIMIT)
    except OSError:
        return None
    finally:
        os.close(descriptor)


@cache
def proc_is_ours() -> bool:
    """Whether `/proc` shows this process's own pid namespace (L6).

    A foreign one can name our pid by chance; the several numbers in `NSpid` give it away.
    """
    own, numbers = b"", []
    for line in _lines("/proc/self/stat"):
        own = line.split(None, 1)[0]
        break
    for line in _lines("/proc/self/status"):
        if line.startswith(b"NSpid:"):
            numbers = line.split()[1:]
    return own == str(os.getpid()).encode() and len(numbers) == 1


@cache
def inodes_are_unique() -> bool:
    """Whether pidfds live on pidfs, where an inode number is one process's for good (L8).

    Elsewhere all of them share the inode of every anonymous descriptor.
    """
    try:
        pidfd = _pidfd_open(os.getpid())
    except OSError as error:
        _insist_on_descriptors(error)
        return False
    try:
        anonymous = os.eventfd(0)
        try:
            return os.fstat(pidfd).st_dev != os.fstat(anonymous).st_dev
        finally:
            os.close(anonymous)
    except OSError as error:
        _insist_on_descriptors(error)
        return False
    finally:
        os.close(pidfd)


@cache
def here() -> Here:
    """Say which machine, boot and namespaces this process reads pids in; `None` for what cannot be read."""
    return Here(
        _line("/etc/machine-id") or _line("/var/lib/dbus/machine-id"),
        _line("/proc/sys/kernel/random/boot_id"),
        _link("/proc/self/ns/pid"),
        _link("/proc/self/ns/time"),
    )


def group_members(group: int) -> list[int] | None:
    """Return the pids of that process group, zombies left out; `None` where `/proc` cannot be read.

    Raises `OutOfDescriptors`.
    """
    if not proc_is_ours():
        return None
    try:
        names = os.listdir("/proc")
    except OSError as error:
        _insist_on_descriptors(error)
        return None
    members = []
    for name in names:
        content = (_stat(int(name)) if name.isdecimal() else None) or b""
        if group_of_stat_line(content) == str(group) and parse_stat_line(content).state not in ("Z", "X"):
            members.append(int(name))
    return members


def _line(path: str) -> str | None:
    for line in _lines(path):
        return line.decode("ascii", "replace").strip() or None
    return None


def _lines(path: str) -> list[bytes]:
    """Return the lines of a small kernel file; none when it cannot be read. Raises `OutOfDescriptors`."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not needed for anything else on the hot path
            return file.readlines()
    except OSError as error:
        _insist_on_descriptors(error)
        return []


def _insist_on_descriptors(error: OSError) -> None:
    """Raise `OutOfDescriptors` when it was our own limit that failed: that says nothing about any process."""
    if is_exhaustion(error):
        raise exhausted("look at processes with, so no session could be verified") from error


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text is wanted, not a path
    except OSError:
        return None
