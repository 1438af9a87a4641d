"""What does macOS's `proc_bsdinfo` say about a process? Decoding its bytes, and nothing else (L4).

The struct is 136 bytes, in native byte order: ten 32-bit fields (flags, status, xstatus, pid, ppid, uid, gid, ruid,
rgid, svuid), two more (svgid, reserved), two names of 16 and 32 bytes, five 32-bit fields (nfiles, pgid, pjobc,
e_tdev, e_tpgid), the nice value, and two 64-bit ones: the start in seconds and microseconds.
"""

import struct
from typing import NamedTuple

_LAYOUT = struct.Struct("=12I16s32s5Ii2Q")
SIZE = _LAYOUT.size
_STATUS, _GROUP, _SECONDS, _MICROSECONDS = 1, 15, -2, -1

SSTOP = 4
SZOMB = 5


class BsdInfo(NamedTuple):
    """The fields this program reads."""

    status: int
    start_token: str
    group: int

    @property
    def is_zombie(self) -> bool:
        """Exited and not yet waited for."""
        return self.status == SZOMB

    @property
    def is_stopped(self) -> bool:
        """Held by a stop signal."""
        return self.status == SSTOP


def decode_bsdinfo(content: bytes) -> BsdInfo | None:
    """Decode one struct; `None` for anything but exactly one, which counts as "could not be read"."""
    if len(content) != SIZE:
        return None
    fields = _LAYOUT.unpack(content)
    return BsdInfo(fields[_STATUS], f"{fields[_SECONDS]}.{fields[_MICROSECONDS]:06d}", fields[_GROUP])
