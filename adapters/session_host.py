"""Hosts a session: its door, its signals, its work, and everything's end (M1, M3-M5)."""

import asyncio
import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Protocol

from murmur.adapters.door_server import DoorServer
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import CommandNotStarted
from murmur.domain.served_door import AwaitTask, Door, DoorRequest, DoorResponse
from murmur.domain.task_board import Task
from murmur.domain.value import Value

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_COUNTING = 2


class SessionEnd(Value):
    """How a session ended: the host's exit status, and what to say about it."""

    exit_status: int
    reason: str | None = None


class Work(Protocol):
    """What a session does while it is there."""

    def start(self) -> None:
        """Begin, inside the running loop. Raises `CommandNotStarted` with nothing left."""
        ...

    def attend(self) -> None:
        """Look at what a request to the door may have changed."""
        ...

    async def wait_for(self, task: Task) -> None:
        """Wait until a task is over."""
        ...

    def ask_to_end(self) -> None:
        """End, in order; asking again ends at once."""
        ...

    async def finished(self) -> SessionEnd:
        """Wait for the end."""
        ...

    def close(self) -> None:
        """End whatever is left at once. Idempotent."""
        ...


class HostedSession(Value):
    """What is to be hosted, and whom to tell."""

    door: Door
    work: Work
    enter: Callable[[], Callable[[], None]]
    """Called once the door answers and the work has begun: records the session and returns what undoes it."""
    announce: Callable[[], None]
    """Called right after: the readiness line."""
    log: Callable[[str, str], None]
    """Called with an event and its detail, for the host's own log."""
    deadline: float | None = None
    """Seconds after which the session ends as if it had been asked to."""


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
        for number in _ENDING_SIGNALS:
            # What was ignored when we were started stays ignored: that is what `nohup` and a shell's `&` mean.
            if signal.getsignal(number) is not signal.SIG_IGN or number is signal.SIGTERM:
                signal.signal(number, self._take)

    def tell(self, listener: Callable[[signal.Signals], None]) -> None:
        """Tell of every signal that counts from now on, and of those that came before."""
        self._listener = listener
        self._pass_on(listener)

    def ignore(self) -> None:
        """Do nothing any more: the session is over. Also while Python itself ends, which forgets its own handlers."""
        # Held back first: Python complains aloud of one that it took before its handler went.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

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


def host(hosted: HostedSession, door: socket.socket | None, signals: EndingSignals) -> SessionEnd:
    """Run a session to its end. Raises `CommandNotStarted` with nothing left of it.

    Without a door, a script, it is announced when it has ended.
    """
    try:
        runner = asyncio.Runner()
        runner.get_loop()
    except OSError as error:
        raise CommandNotStarted(f"the session could not be set up: {reason_of(error)}") from error
    try:
        with runner:
            return runner.run(_Host(hosted, signals).run(door))
    finally:
        signals.ignore()


class _Host:
    def __init__(self, hosted: HostedSession, signals: EndingSignals) -> None:
        self._hosted = hosted
        self._signals = signals

    async def run(self, door: socket.socket | None) -> SessionEnd:
        hosted, work = self._hosted, self._hosted.work
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as opened:
            server = DoorServer(self._respond)
            opened.push_async_callback(server.close)
            if door is not None:
                await server.serve(door)
            opened.callback(work.close)
            work.start()
            opened.callback(hosted.enter())
            if door is not None:
                hosted.announce()
            if hosted.deadline is not None:
                opened.callback(loop.call_later(hosted.deadline, self._ended_by, "the deadline").cancel)
            self._signals.tell(lambda number: self._signalled(loop, number))
            work.attend()
            end = await work.finished()
            await server.flush()
            if door is None:
                hosted.announce()
        return end

    def _signalled(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        with suppress(RuntimeError):  # The loop is closed: the session is over.
            loop.call_soon_threadsafe(self._ended_by, number.name)

    def _ended_by(self, what: str) -> None:
        self._hosted.work.ask_to_end()
        self._hosted.log("asked to end", what)

    def _respond(self, request: DoorRequest) -> "DoorResponse | asyncio.Future[DoorResponse]":
        answer = self._hosted.door.answer(request)
        if request.method == "POST":
            self._hosted.work.attend()
        if isinstance(answer, AwaitTask):
            return asyncio.ensure_future(self._respond_later(answer))
        return answer

    async def _respond_later(self, answer: AwaitTask) -> DoorResponse:
        await self._hosted.work.wait_for(answer.task)
        return answer.respond()
