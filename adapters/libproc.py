"""What does macOS's libproc say about a process? Thin calls; the bytes are decoded in `domain.bsdinfo` (L2, L4)."""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from murmur.domain.bsdinfo import SIZE, BsdInfo, decode_bsdinfo
from murmur.domain.origin import Here
from murmur.domain.process import PID_MAX, ProcessReading

NOBODY = ProcessReading(pid_alive=False)
_PROC_PIDTBSDINFO = 3
_GROUP_MAX = 4096


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)


def read_process(pid: int) -> ProcessReading:
    """Take one look at a pid: layer 1, then the kernel's description of it (L4)."""
    if not 1 <= pid <= PID_MAX:
        return NOBODY
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return NOBODY
    except PermissionError:
        pass
    return reading_from(*_bsdinfo(pid))


@contextmanager
def held(pid: int) -> Iterator[tuple[None, ProcessReading]]:
    """Take one look at a pid. There is nothing to hold it by: the signal goes right after the look (K2)."""
    yield None, read_process(pid)


def reading_from(info: BsdInfo | None, error: int) -> ProcessReading:
    """Say what a description, or the errno instead of one, makes of a pid that layer 1 found held (L4)."""
    if info is None:
        # ESRCH right after layer 1 held: a zombie, or an exit in between. Anything else says nothing.
        return NOBODY if error == errno.ESRCH else ProcessReading(pid_alive=True)
    if info.is_zombie:
        return NOBODY
    return ProcessReading(pid_alive=True, start_token=info.start_token, stopped=info.is_stopped)


def _bsdinfo(pid: int) -> tuple[BsdInfo | None, int]:
    buffer = ctypes.create_string_buffer(SIZE)
    written = _library().proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), buffer, SIZE)
    if written <= 0:
        return None, ctypes.get_errno()
    return decode_bsdinfo(buffer.raw[:written]), 0


@cache
def here() -> Here:
    """Say which machine and boot this is; macOS has no pid or time namespaces."""
    return Here(_sysctl(b"kern.uuid"), _sysctl(b"kern.bootsessionuuid"))


def _sysctl(name: bytes) -> str | None:
    size = ctypes.c_size_t(128)
    buffer = ctypes.create_string_buffer(size.value)
    if _library().sysctlbyname(name, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return None
    return buffer.value.decode("ascii", "replace") or None


def group_members(group: int) -> list[int] | None:
    """Return the pids of that process group, zombies left out; `None` when they cannot be read."""
    pids = (ctypes.c_int * _GROUP_MAX)()
    count = _library().proc_listpgrppids(group, pids, ctypes.sizeof(pids))
    if count < 0:
        return None
    return [pid for pid in pids[:count] if pid and read_process(pid).pid_alive]
