"""Which signals end a session, and how is none of them missed, nor acted on at the wrong moment? (M1)."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_COUNTING = 2


class EndingSignals:
    """The signals that end a session, from the moment this is made to the end of the process.

    They do nothing else to this process any more: one that comes while the session is put together, or while the
    last of it is put away, must not cut that short. Two of them count: the first asks, the second forces. The rest
    say nothing new and cost nothing: a storm of signals must not keep a session from its end.
    """

    def __init__(self) -> None:
        self._listener: Callable[[signal.Signals], None] | None = None
        self._taken = 0
        self._untold: deque[signal.Signals] = deque()
        self._before = {number: signal.getsignal(number) for number in _ENDING_SIGNALS}
        for number in _ENDING_SIGNALS:
            # What was ignored when we were started stays ignored: that is what `nohup` and a shell's `&` mean.
            # Held back is something else, which a launcher's thread may have handed on without meaning it.
            if signal.getsignal(number) is not signal.SIG_IGN or number is signal.SIGTERM:
                signal.signal(number, self._take)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING_SIGNALS)

    def tell(self, listener: Callable[[signal.Signals], None]) -> None:
        """Tell of every signal that counts from now on, and of those that came before."""
        self._listener = listener
        self._pass_on(listener)

    @contextmanager
    def runner(self) -> Iterator[asyncio.Runner]:
        """Give what runs a loop that signals wake; when that is left, they do nothing any more.

        Raises `OSError`, with nothing begun, for want of a descriptor.
        """
        with ExitStack() as opened:
            opened.callback(self.ignore)
            runner = opened.enter_context(asyncio.Runner())
            opened.enter_context(self.waking(runner.get_loop()))
            yield runner

    @staticmethod
    @contextmanager
    def waking(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Have every signal wake that loop while this lasts. In the main thread. Raises `OSError`.

        A handler runs between two steps of Python: after a signal that comes right before the loop begins to wait, or
        that the kernel gives to another thread, when it next wakes by itself. A session at rest never does.
        """
        with ExitStack() as opened:
            ends = os.pipe()
            for end in ends:
                opened.callback(os.close, end)
                os.set_blocking(end, False)
            loop.add_reader(ends[0], os.read, ends[0], 4096)
            opened.callback(loop.remove_reader, ends[0])
            opened.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(ends[1], warn_on_full_buffer=False))
            yield

    def ignore(self) -> None:
        """Do nothing any more: the session is over. Also while Python itself ends, which forgets its own handlers."""
        # Held back first: Python complains aloud of one that it took before its handler went.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def give_back(self) -> None:
        """Let signals do what they did before this was made: there is nothing left that must be put away in order."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _: FrameType | None) -> None:
        """Take in a signal. Called between any two steps of the main thread."""
        # A closing terminal sends several SIGHUP; they are one wish.
        if self._taken == _COUNTING or (self._taken and number == signal.SIGHUP):
            return
        self._taken += 1
        self._untold.append(signal.Signals(number))
        if self._listener is not None:
            self._pass_on(self._listener)

    def _pass_on(self, listener: Callable[[signal.Signals], None]) -> None:
        while self._untold:
            with suppress(IndexError):  # A signal taken between these two lines has passed it on.
                listener(self._untold.popleft())
