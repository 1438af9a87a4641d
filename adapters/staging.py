"""How is a file written so that a reader sees all of it or nothing? (H4).

The one place that writes staged files: exclusive creation beside the target, mode, contents, fsync, rename,
fsync of the directory.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from murmur.adapters.identifiers import fresh_hex
from murmur.domain.staged_names import staged_name

PRIVATE_FILE = 0o600


def write_staged(  # noqa: PLR0913 - what is written where, and four things that may matter to its writer
    directory: int,
    name: str,
    content: bytes,
    *,
    mode: int = PRIVATE_FILE,
    durable: bool = True,
    before_rename: Callable[[int], None] | None = None,
    on_unsynced: Callable[[OSError], None] | None = None,
) -> None:
    """Put `content` under `name` in the directory of that descriptor, whole or not at all.

    What is not `durable` is not fsynced: it means nothing after a crash of the machine.
    `before_rename` gets the descriptor of the written file, still private to this process, to read and write.
    `on_unsynced` hears of a directory that could not be fsynced, by when the file is in place.
    Raises `OSError` with the old target intact and no staged file left.
    """
    staged = staged_name(name, os.getpid(), fresh_hex())
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(staged, flags, mode, dir_fd=directory)
    try:
        try:
            os.fchmod(descriptor, mode)  # Whatever the umask made of it.
            _write_all(descriptor, content)
            if durable:
                os.fsync(descriptor)
            if before_rename is not None:
                before_rename(descriptor)
        finally:
            os.close(descriptor)
        os.rename(staged, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged, dir_fd=directory)
        raise
    if not durable:
        return
    try:
        os.fsync(directory)
    except OSError as error:
        if on_unsynced is not None:
            on_unsynced(error)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
