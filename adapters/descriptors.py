"""How many more files may this process open, and was it that limit that failed? (S3, P6)."""

import errno
import os
import resource

from murmur.domain.errors import OutOfDescriptors

_FULL = (errno.EMFILE, errno.ENFILE)
_RESERVED = 8
"""Left to whatever else needs one meanwhile: a selector, a `/proc` file, a pidfd, a lazily imported module."""


def spare_descriptors(most: int) -> int:
    """Return how many descriptors may be held at once without starving the rest of the program, at least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    try:
        # A directory listing numbers what is open now, itself included.
        in_use = len(os.listdir("/dev/fd"))
    except OSError as error:
        in_use = soft if is_exhaustion(error) else _RESERVED
    return max(1, min(most, soft - in_use - _RESERVED))


def is_exhaustion(error: OSError) -> bool:
    """Whether a call failed because this process, or the machine, has no descriptor left."""
    return error.errno in _FULL


def exhausted(what: str) -> OutOfDescriptors:
    """Make the error for a reading that our own limit prevented: it says nothing about any session."""
    return OutOfDescriptors(
        f"this process has no file descriptor left to {what}",
        hint="raise the limit (`ulimit -n`) or close something, then try again",
    )
