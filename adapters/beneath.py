"""How is a directory reached beneath another without following a link on the way? (C2, Y2)."""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from murmur.adapters.murmur_home import PRIVATE_DIRECTORY
from murmur.adapters.reasons import reason_of

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotReached(Exception):
    """A directory that is not there, or not without following a link. `str()` names the path and says why."""


def open_directory(path: Path) -> int:
    """Open a directory that is no link itself; the caller closes it. Raises `NotReached`."""
    try:
        return os.open(path, _OPEN)
    except OSError as error:
        raise _not_reached(path, None, error) from error


def open_beneath(top: int, parts: Sequence[str], path: Path) -> int:
    """Open the directory at those steps beneath `top`; the caller closes it. `path` names it. Raises `NotReached`."""
    with ExitStack() as opened:
        inner = os.dup(top)
        opened.callback(os.close, inner)
        for number, part in enumerate(parts, 1):
            try:
                inner = os.open(part, _OPEN, dir_fd=inner)
            except OSError as error:
                left = len(parts) - number
                raise _not_reached(path.parents[left - 1] if left else path, (part, inner), error) from error
            opened.callback(os.close, inner)
        return os.dup(inner)


def make_private(directory: int, name: str, path: Path, *, fresh: bool) -> int:
    """Make a directory of mode 0700 in another and open it; the caller closes it. Raises `NotReached`.

    One that is there already is held to the same mode, or refused where it must be `fresh`.
    """
    try:
        try:
            os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=directory)
        except FileExistsError:
            if fresh:
                raise
        descriptor = _open_own(name, directory)
    except OSError as error:
        raise _not_reached(path, (name, directory), error) from error
    try:
        os.fchmod(descriptor, PRIVATE_DIRECTORY)  # Whatever the umask made of it.
    except OSError as error:
        os.close(descriptor)
        raise _not_reached(path, None, error) from error
    return descriptor


def _open_own(name: str, directory: int) -> int:
    """Open a directory that may be of any mode: a umask can take its owner's bits too."""
    try:
        return os.open(name, _OPEN, dir_fd=directory)
    except PermissionError:
        if sys.platform == "linux":
            # Named by what it is and not by its path, at which there may be a link by now.
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                os.chmod(f"/proc/self/fd/{handle}", PRIVATE_DIRECTORY)  # noqa: PTH101 - no path, but a descriptor
            finally:
                os.close(handle)
            return os.open(name, _OPEN, dir_fd=directory)
        raise


def _not_reached(path: Path, step: tuple[str, int] | None, error: OSError) -> NotReached:
    is_link = False
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        with suppress(OSError):
            os.readlink(step[0] if step else path, dir_fd=step[1] if step else None)
            is_link = True
    return NotReached(f"{path}: {'it is a symbolic link' if is_link else reason_of(error)}")
