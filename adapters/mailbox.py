"""How does a main thread wait for what other threads tell it, and for signals, and miss neither?

Python runs a signal's handler between two steps of the main thread. A wait for a lock or a queue is interrupted for
that if it has begun; a signal that comes in the moment before is left until the wait ends by itself. A byte in a pipe,
which is written when the signal comes, is there whenever the wait begins.
"""

import os
import signal
import threading
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

_Item = TypeVar("_Item")


class Mailbox(Generic[_Item]):
    """What is put in by any thread, or by a signal's handler, and taken out by the main thread. A context manager."""

    def __init__(self) -> None:
        """Make the pipe, and have signals write to it. In the main thread. Raises `OSError` with nothing left open."""
        self._items: deque[_Item] = deque()
        # A signal's handler may put something in while the main thread is at it, and waits for no other thread longer
        # than a write takes.
        self._lock = threading.RLock()
        self._is_open = True
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._before)
        with self._lock:
            self._is_open = False
            os.close(self._read_end)
            os.close(self._write_end)

    def put(self, item: _Item) -> None:
        """Put something in; what comes after the end is dropped."""
        with self._lock, suppress(BlockingIOError):  # Full of bytes: one of them will do.
            if self._is_open:
                self._items.append(item)
                os.write(self._write_end, b"\0")

    def take(self) -> _Item:
        """Wait for something, and take it out. Signals are acted on meanwhile."""
        while not self._items:
            os.read(self._read_end, 4096)
        return self._items.popleft()
