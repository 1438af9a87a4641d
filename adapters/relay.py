"""How does what a child writes reach our own output, when nobody may be reading that? (X4, X5).

An outlet never blocks the reactor: what cannot be written waits, in bounded memory, and those who fill it are told to
stop reading. Once its reader is gone it swallows everything.
"""

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from murmur.adapters.reactor import Reactor

_MOST = 256 * 1024
"""Bytes that wait before those who fill the outlet are told to stop."""
_PIECE = 512
"""Bytes written at once: a pipe or a socket that says it can be written to takes as many without blocking."""
_AGAIN = 0.05
"""Seconds until another try at what says that it can be written to, and cannot."""


class Sink(Protocol):
    """Where what a child writes goes. Both are called by the reactor's thread, and return at once."""

    def write(self, data: bytes) -> None:
        """Take that."""
        ...

    def when_free(self, call: Callable[[], None]) -> bool:
        """Whether it is too full now; if so, `call` once it is not any more."""
        ...


class Outlet:
    """One of this process's own output descriptors. All calls come from the reactor's thread."""

    def __init__(self, reactor: Reactor, descriptor: int, *, is_open: bool = True) -> None:
        """One that was closed when this process began may be anything by now, and is never written to."""
        self._reactor = reactor
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._watched = False
        self._is_due = False
        self._gone = not is_open
        self._when_free: list[Callable[[], None]] = []

    def write(self, data: bytes) -> None:
        """Write that as soon as it can be."""
        if not self._gone and data:
            self._waiting.append(data)
            self._size += len(data)
            self._flush()

    def when_free(self, call: Callable[[], None]) -> bool:
        """Whether it is too full now; if so, `call` once it is not any more."""
        if self._size <= _MOST:
            return False
        self._when_free.append(call)
        return True

    def _flush(self) -> None:
        while self._waiting:
            if not self._is_ready():
                self._watch()
                return
            piece = self._waiting[0]
            try:
                written = _write(self._descriptor, piece)
            except BlockingIOError:
                self._try_again()
                return
            except OSError:
                # The reader is gone, the terminal too, or the disk is full: nothing that a child answers for.
                self._end()
                return
            self._size -= written
            self._waiting[0] = piece[written:]
            if not self._waiting[0]:
                self._waiting.popleft()
        self._unwatch()
        self._tell_who_waits()

    def _is_ready(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def _watch(self) -> None:
        if not self._watched:
            try:
                self._reactor.on_writable(self._descriptor, self._flush)
            except (OSError, ValueError, KeyError):  # It is something else by now than what this began with.
                self._try_again()
            else:
                self._watched = True

    def _try_again(self) -> None:
        """Flush after a while: no event tells when that can be done."""
        self._unwatch()
        if not self._is_due:
            self._is_due = True
            self._reactor.call_at(time.monotonic() + _AGAIN, self._due)

    def _due(self) -> None:
        self._is_due = False
        self._flush()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._reactor.leave(self._descriptor)

    def _tell_who_waits(self) -> None:
        if self._size <= _MOST:
            waiting, self._when_free = self._when_free, []
            for call in waiting:
                call()

    def _end(self) -> None:
        self._gone = True
        self._waiting.clear()
        self._size = 0
        self._unwatch()
        self._tell_who_waits()


def _write(descriptor: int, piece: bytes) -> int:
    """Write as much as that takes without blocking; return how much that was. Raises `OSError`."""
    if not os.isatty(descriptor):
        return os.write(descriptor, piece[:_PIECE])
    # A terminal, which a person may pause, says that it can be written to when there is room for one byte. Whether it
    # blocks is settled where it is opened, and this one is open in the shell as well: so it is opened once more.
    try:
        path = f"/dev/fd/{descriptor}" if sys.platform == "linux" else os.ttyname(descriptor)
        own = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # It is another user's, for one.
        return os.write(descriptor, piece[:1])
    try:
        return os.write(own, piece[:_PIECE])
    finally:
        os.close(own)


_outlets: dict[Reactor, tuple[Outlet, Outlet]] = {}


def outlets(reactor: Reactor) -> tuple[Outlet, Outlet]:
    """Return this process's own stdout and stderr, shared by all that is relayed there.

    Called in the reactor's thread, so that there is one of each.
    """
    if reactor not in _outlets:
        _outlets.clear()
        _outlets[reactor] = (
            Outlet(reactor, 1, is_open=sys.__stdout__ is not None),
            Outlet(reactor, 2, is_open=sys.__stderr__ is not None),
        )
    return _outlets[reactor]
