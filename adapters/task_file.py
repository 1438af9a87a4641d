"""Which task does `--task` give? The text itself, or what the file of that name holds.

A file is whatever can be read to its end: a FIFO, `/dev/stdin` and a shell's `<(…)` too.
"""

import errno
import os
import stat
import sys

from murmur.adapters.reasons import reason_of
from murmur.domain.errors import CommandNotStarted

TASK_LIMIT = 1024 * 1024
"""Bytes of a task's file: what a door takes."""

_NO_FILE = (errno.ENOENT, errno.ENAMETOOLONG)
_HINT = "--task takes the name of a file that can be read, or a text that names no file"


def read_task(given: str) -> tuple[str, bool]:
    """Return the task, and whether its file was UTF-8 all through; what is not is replaced.

    Text is what names no file, or cannot be the name of one. Raises `CommandNotStarted`, which names the path, for
    everything else that is not read.
    """
    try:
        descriptor = os.open(given, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:
        return given, True
    except OSError as error:
        # A link that leads nowhere is a name that is there, such as `/dev/stdin` where stdin is closed.
        if error.errno in _NO_FILE and not os.path.lexists(given):
            return given, True
        raise _unread(given, reason_of(error)) from error
    try:
        content = _read(descriptor, given)
    except OSError as error:
        raise _unread(given, reason_of(error)) from error
    finally:
        os.close(descriptor)
    try:
        return content.decode(), True
    except UnicodeDecodeError:
        return content.decode("utf-8", "replace"), False


def take_task() -> str:
    """Return the task that `as_handed_on` wrote to what is our standard input, and leave nothing there."""
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    nowhere = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nowhere, sys.stdin.fileno(), inheritable=False)
    os.close(nowhere)
    return text


def as_handed_on(text: str) -> bytes:
    """Write a task down for `take_task`."""
    return text.encode("utf-8", "surrogateescape")


def _read(descriptor: int, given: str) -> bytes:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise _unread(given, "it is a directory")
    content = bytearray()
    while part := os.read(descriptor, TASK_LIMIT + 1 - len(content)):
        content += part
        if len(content) > TASK_LIMIT:
            raise CommandNotStarted(
                f"the task {given} is larger than {TASK_LIMIT // 1024 // 1024} MiB",
                hint="put it into a file of the work folder, and let the task name that file",
            )
    return bytes(content)


def _unread(given: str, reason: str) -> CommandNotStarted:
    return CommandNotStarted(f"the task {given} cannot be read: {reason}", hint=_HINT)
