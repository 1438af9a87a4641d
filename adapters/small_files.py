"""What does a small text file that a person wrote say? Read whole, within a limit, without hanging on what is no file.

A link is followed: the person may keep the file elsewhere.
"""

import os
import stat
from pathlib import Path

from murmur.adapters.reasons import reason_of

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnreadFile(Exception):
    """The file was not read; the message says why, without its name and without any of its content."""


def read_small_file(path: Path, limit: int) -> bytes:
    """Return what the regular file holds; raise `FileNotFoundError`, or `UnreadFile` for whatever else prevents it.

    It is looked at before it is opened, since opening a device has effects and opening a FIFO waits.
    """
    try:
        _check(path.stat(), limit)
        descriptor = os.open(path, _READ)
        try:
            _check(os.fstat(descriptor), limit)
            return _read(descriptor, limit)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadFile(reason_of(error)) from None
    except ValueError:
        raise UnreadFile("a path holds no null character") from None


def line_at(content: bytes, position: int) -> int:
    """Return the number of the line, from 1, that the byte at that position is on."""
    return content.count(b"\n", 0, position) + 1


def _check(found: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise UnreadFile("it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise UnreadFile("it is not a regular file")
    if found.st_size > limit:
        raise UnreadFile(_too_large(limit))


def _read(descriptor: int, limit: int) -> bytes:
    content = bytearray()
    while part := os.read(descriptor, limit + 1 - len(content)):
        content += part
        if len(content) > limit:  # It grew meanwhile, or did not say its size, as files of `/proc` do not.
            raise UnreadFile(_too_large(limit))
    return bytes(content)


def _too_large(limit: int) -> str:
    return f"it is larger than {limit // 1024} KiB"
