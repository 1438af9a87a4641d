"""When has one of these files grown? The kernel tells: inotify on Linux, kqueue on macOS.

Where it does not, for want of a descriptor or of a watch, they are looked at again after a while.
"""

import asyncio
import ctypes
import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

_IN_MODIFY = 0x2
_AGAIN = 0.25
"""Seconds until another look where nothing tells."""


class Growth:
    """Tells once of files that have grown since it was armed. Made and used in one event loop."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._source: _Inotify | _Kqueue | None = None
        self._followed: list[int] = []
        self._armed = False
        self._timer: asyncio.TimerHandle | None = None
        with suppress(OSError):
            self._source = _Kqueue() if sys.platform == "darwin" else _Inotify()

    def follow(self, descriptors: Sequence[int]) -> None:
        """Follow these open files instead of what was followed before."""
        if self._source is not None:
            try:
                for descriptor in self._followed:
                    self._source.leave(descriptor)
                for descriptor in descriptors:
                    self._source.follow(descriptor)
            except OSError:  # As many as may be are watched on this machine already.
                self._disarm()
                self._source.close()
                self._source = None
        self._followed = list(descriptors)

    def arm(self) -> None:
        """Tell once, as soon as one of them grows from now on. Look at them again after this: they may have already."""
        if self._armed:
            return
        self._armed = True
        if self._source is None:
            self._timer = self._loop.call_later(_AGAIN, self._tell)
        else:
            self._source.drain()
            self._loop.add_reader(self._source.descriptor, self._tell)

    def close(self) -> None:
        """Follow nothing any more. Idempotent."""
        self._disarm()
        if self._source is not None:
            self._source.close()
            self._source = None

    def _tell(self) -> None:
        self._disarm()
        self._told()

    def _disarm(self) -> None:
        self._armed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._source is not None:
            self._loop.remove_reader(self._source.descriptor)


class _Inotify:
    """Linux's own. Python has no module for it."""

    def __init__(self) -> None:
        """Raise `OSError`."""
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watches: dict[int, int] = {}

    def follow(self, descriptor: int) -> None:
        """Raise `OSError`."""
        # By descriptor, so that it is this very file whatever has its name by now.
        path = f"/proc/self/fd/{descriptor}".encode()
        watch = self._library.inotify_add_watch(self.descriptor, path, _IN_MODIFY)
        self._watches[descriptor] = self._checked(watch)

    def leave(self, descriptor: int) -> None:
        watch = self._watches.pop(descriptor, None)
        if watch is not None and watch not in self._watches.values():
            self._library.inotify_rm_watch(self.descriptor, watch)

    def drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self.descriptor, 65536):
                pass

    def close(self) -> None:
        os.close(self.descriptor)

    @staticmethod
    def _checked(number: int) -> int:
        if number < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return number


if sys.platform == "darwin":

    class _Kqueue:
        """macOS's own."""

        def __init__(self) -> None:
            """Raise `OSError`."""
            self._queue = select.kqueue()
            self.descriptor = self._queue.fileno()

        def follow(self, descriptor: int) -> None:
            """Raise `OSError`."""
            self._change(descriptor, select.KQ_EV_ADD | select.KQ_EV_CLEAR)

        def leave(self, descriptor: int) -> None:
            with suppress(OSError):
                self._change(descriptor, select.KQ_EV_DELETE)

        def drain(self) -> None:
            while self._queue.control(None, 64, 0):
                pass

        def close(self) -> None:
            self._queue.close()

        def _change(self, descriptor: int, flags: int) -> None:
            notes = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND
            self._queue.control([select.kevent(descriptor, select.KQ_FILTER_VNODE, flags, notes)], 0)

else:
    _Kqueue = _Inotify
