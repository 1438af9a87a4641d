"""How does a child learn that its launcher is gone, by whatever means? (X2).

A pipe whose only write end the launcher holds. Nothing is ever written: the end of the pipe is the message.
"""

import fcntl
import os
import stat
import threading
from contextlib import ExitStack

from murmur.domain.errors import LaunchRefused

LIFELINE_VARIABLE = "MURMUR_SPAWNER_LIFELINE"
_FIRST_OWN = 3
_ACCESS = os.O_ACCMODE | getattr(os, "O_PATH", 0)
"""The flags that say what may be done with a descriptor: one of `O_PATH` looks readable and is not."""


class Lifeline:
    """One lifeline as its launcher holds it. Close it after the child was reaped."""

    _read_end: int | None
    _write_end: int | None

    def __init__(self) -> None:
        """Make the pipe; raise `OSError` with nothing left open."""
        with _no_fork, ExitStack() as opened:
            for end in (ends := os.pipe()):
                opened.callback(os.close, end)
            with ExitStack() as kept:
                self._read_end, self._write_end = (_own(end, kept) for end in ends)
                kept.pop_all()
            _held.add(self)

    @property
    def read_end(self) -> int:
        """The descriptor that the child is to inherit, under the same number."""
        assert self._read_end is not None
        return self._read_end

    def handed(self) -> None:
        """Close the read end: the child has it. Idempotent."""
        end, self._read_end = self._read_end, None
        if end is not None:
            os.close(end)

    def close(self) -> None:
        """Close what is open. Idempotent."""
        self.handed()
        with _no_fork:
            end, self._write_end = self._write_end, None
            if end is not None:
                os.close(end)
            _held.discard(self)


_held: set[Lifeline] = set()
_no_fork = threading.RLock()
"""Held while a write end is open and not in `_held`: a fork right then would copy it unseen."""


def _own(end: int, kept: ExitStack) -> int:
    """Return a copy of a descriptor that no standard stream can be, also where those are closed."""
    copy = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN)
    kept.callback(os.close, copy)
    return copy


def _let_go_after_fork() -> None:
    """Keep no child alive in a forked copy of its launcher. A fork made in C never comes by here."""
    _no_fork.release()
    for lifeline in list(_held):
        lifeline.close()


os.register_at_fork(before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_let_go_after_fork)


def accept_lifeline(value: str | None) -> int | None:
    """Take over the lifeline that the launcher named; `None` when it named none. The caller reads and closes it.

    Raises `LaunchRefused` for anything but an open pipe that can only be read (X2, M2).
    """
    if value is None:
        return None
    text = value.strip()
    refused = LaunchRefused(
        f"{LIFELINE_VARIABLE} does not name an open pipe that can only be read",
        hint=f"unset {LIFELINE_VARIABLE}: only a launcher sets it",
    )
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(2**31)) or int(text) < _FIRST_OWN:
        raise refused
    descriptor = int(text)
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        is_readable_only = fcntl.fcntl(descriptor, fcntl.F_GETFL) & _ACCESS == os.O_RDONLY
    except (OSError, OverflowError):
        raise refused from None
    if not (is_pipe and is_readable_only):
        raise refused
    os.set_inheritable(descriptor, False)
    return descriptor
