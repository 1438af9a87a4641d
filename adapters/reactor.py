"""Who watches the children of this process? One thread, which sleeps until something happens (X7).

It owns the pipes, the exits and the timers of all children. It is started by the first launch, and never waits for
anything but its selector: whatever it calls has to return at once.
"""

import heapq
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

from murmur.adapters.threads import start_thread

Call = Callable[[], None]
_LONGEST = 86400.0
"""Seconds that the selector waits at once."""


class Timer:
    """A call that is due at a time. Cancel it in the reactor's thread."""

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        """Let it not be called. Idempotent."""
        self.call = None


class Reactor:
    """The one thread. `call` from any other; the rest in the thread itself."""

    def __init__(self) -> None:
        """Start the thread; raise `OSError` or `RuntimeError` with nothing left."""
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._selector = DefaultSelector()
        try:
            self._wake_read, self._wake_write = os.pipe()
        except OSError:
            self._selector.close()
            raise
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._selector.register(self._wake_read, EVENT_READ, self._woken)
        try:
            self._thread = start_thread("children", self._run)
        except RuntimeError:
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            raise

    def call(self, call: Call) -> None:
        """Have that called in the thread, soon."""
        self._calls.append(call)
        with suppress(BlockingIOError):  # Full of wake-ups: one of them will do.
            os.write(self._wake_write, b"\0")

    def on_readable(self, descriptor: int, call: Call) -> None:
        """Call whenever that descriptor can be read, until it is left alone. Raises `OSError`."""
        self._selector.register(descriptor, EVENT_READ, call)

    def on_writable(self, descriptor: int, call: Call) -> None:
        """Call whenever that descriptor can be written, until it is left alone.

        Raises `OSError` for what can always be written, such as a regular file.
        """
        self._selector.register(descriptor, EVENT_WRITE, call)

    def leave(self, descriptor: int) -> None:
        """Watch that descriptor no more; the caller closes it. Idempotent."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def call_at(self, when: float, call: Call) -> Timer:
        """Have that called at a monotonic time."""
        timer = Timer(call)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def is_this_thread(self) -> bool:
        """Whether the caller runs in the reactor's thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while True:
            while self._calls:
                self._calls.popleft()()
            self._fire()
            if not self._calls:
                for key, _ in self._selector.select(self._timeout()):
                    call: Call = key.data
                    if self._selector.get_map().get(key.fd) is key:  # Not left meanwhile by another's call.
                        call()

    def _fire(self) -> None:
        while self._timers and (self._timers[0][0] <= time.monotonic() or self._timers[0][2].call is None):
            _, _, timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()

    def _timeout(self) -> float | None:
        # A selector waits for no more than some weeks; too early is no harm.
        return min(_LONGEST, max(0.0, self._timers[0][0] - time.monotonic())) if self._timers else None

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)


_lock = threading.Lock()
_shared: Reactor | None = None


def shared_reactor() -> Reactor:
    """Return this process's reactor, started now if there is none. Raises `OSError` or `RuntimeError`."""
    global _shared  # noqa: PLW0603 - one thread a process is the point
    with _lock:
        if _shared is None:
            _shared = Reactor()
        return _shared


def _forget_after_fork() -> None:
    """Let a forked copy, which has no such thread, start its own when it launches."""
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
