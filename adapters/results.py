"""What result did a child leave in its records directory?"""

import os
import stat
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.beneath import NotReached, open_beneath

RESULT_LIMIT = 1024 * 1024
"""Bytes of a result that are taken; the file holds all of it."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_result(records: int) -> str | None:
    """Return what `out/result.txt` says, its first 1 MiB; `None` where there is none, or no regular file."""
    with ExitStack() as opened:
        try:
            out = open_beneath(records, ["out"], Path("out"))
            opened.callback(os.close, out)
            descriptor = os.open("result.txt", _READ, dir_fd=out)
            opened.callback(os.close, descriptor)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            content = os.pread(descriptor, RESULT_LIMIT, 0)
        except (NotReached, OSError):
            return None
    text = content.decode("utf-8", "replace")
    return text if found.st_size <= RESULT_LIMIT else f"{text}\n[the whole result is in out/result.txt]"
