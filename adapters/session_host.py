"""Hosts a session: its door, its signals, its work, and everything's end (M1, M3-M5)."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from murmur.adapters.door_server import DoorServer
from murmur.adapters.ending_signals import EndingSignals
from murmur.adapters.reasons import reason_of
from murmur.adapters.threads import start_thread
from murmur.domain.door_http import DoorRequest, DoorResponse, refused
from murmur.domain.errors import CommandNotStarted
from murmur.domain.served_door import AwaitTask, Door, OpenStream
from murmur.domain.task_board import Task
from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.adapters.streams import Stream, Streams


class SessionEnd(Value):
    """How a session ended: the host's exit status, and what to say about it."""

    exit_status: int
    reason: str | None = None
    cut_short: bool = False
    """Whether its command was ended before it had, by who asked the session to end: no failure, and not done."""


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

    def stream_to(self, streams: "Streams") -> None:
        """Tell there what runs now, and from now on what begins and ends."""
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


class Lifeline(Value):
    """What ends when the session's launcher does, and what follows from it (M3)."""

    descriptor: int
    ended: Callable[[], None]
    """Called when it has ended, before the session does."""
    patience: float = 20.0
    """Seconds that the session then gets to end in order."""


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
    threaded: bool = False
    """Whether it remembers conversations."""
    deadline: float | None = None
    """Seconds after which the session ends as if it had been asked to."""
    conclude: Callable[[SessionEnd], None] | None = None
    """Called with the end while the session is still recorded."""
    report: Callable[[SessionEnd, bool], None] | None = None
    """Called after that with the end, and whether it was asked for, in a thread of its own: it may take long.

    Nobody waits for it who forces the end.
    """
    lifeline: "Lifeline | None" = None
    """The launcher's, for a session that somebody launched."""


def host(hosted: HostedSession, door: socket.socket | None, signals: EndingSignals) -> SessionEnd:
    """Run a session to its end. Raises `CommandNotStarted` with nothing left of it.

    Without a door, a script, it is announced when it has ended.
    """
    with ExitStack() as opened:
        try:
            runner = opened.enter_context(signals.runner())
        except OSError as error:
            raise CommandNotStarted(f"the session could not be set up: {reason_of(error)}") from error
        return runner.run(_Host(hosted, signals).run(door))


class _Host:
    def __init__(self, hosted: HostedSession, signals: EndingSignals) -> None:
        self._hosted = hosted
        self._signals = signals
        self._asked = False
        self._forced = asyncio.Event()
        self._streams: Streams | None = None
        self._is_over = False

    async def run(self, door: socket.socket | None) -> SessionEnd:
        hosted, work = self._hosted, self._hosted.work
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as opened:
            server = DoorServer(self._respond)
            opened.push_async_callback(server.close)
            if door is not None:
                await server.serve(door)
            opened.callback(self._close_streams)
            opened.callback(work.close)
            work.start()
            opened.callback(hosted.enter())
            if door is not None:
                hosted.announce()
            if hosted.deadline is not None:
                opened.callback(loop.call_later(hosted.deadline, self._ended_by, "the deadline").cancel)
            if hosted.lifeline is not None:
                os.set_blocking(hosted.lifeline.descriptor, False)
                loop.add_reader(hosted.lifeline.descriptor, self._look_at_lifeline, hosted.lifeline, loop)
                opened.callback(loop.remove_reader, hosted.lifeline.descriptor)
            self._signals.tell(lambda number: self._signalled(loop, number))
            work.attend()
            end = await work.finished()
            self._is_over = True
            if self._streams is not None:
                await self._streams.finish()
            await server.flush()
            if door is None:
                hosted.announce()
            if hosted.conclude is not None:
                hosted.conclude(end)
            if hosted.report is not None:
                await self._report(partial(hosted.report, end, self._asked), loop)
        return end

    def _signalled(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        with suppress(RuntimeError):  # The loop is closed: the session is over.
            loop.call_soon_threadsafe(self._ended_by, number.name)

    def _look_at_lifeline(self, lifeline: Lifeline, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(BlockingIOError):
            if os.read(lifeline.descriptor, 4096):
                return  # Its end is the message: what is written means nothing.
            loop.remove_reader(lifeline.descriptor)
            if self._asked:
                return
            lifeline.ended()
            self._ended_by("the end of its launcher")
            loop.call_later(lifeline.patience, self._ended_by, "the end of its time")

    async def _report(self, report: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Have that done in a thread, and wait for it for as long as nobody forces the session to end."""
        reported = asyncio.Event()

        def work() -> None:
            report()
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(reported.set)

        start_thread("report", work)
        waits = [asyncio.ensure_future(each.wait()) for each in (reported, self._forced)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _ended_by(self, what: str) -> None:
        if self._asked:
            self._forced.set()
        self._asked = True
        self._hosted.work.ask_to_end()
        self._hosted.log("asked to end", what)

    def _respond(self, request: DoorRequest) -> "DoorResponse | asyncio.Future[DoorResponse] | Stream":
        try:
            answer = self._hosted.door.answer(request)
            # Opened before anything begins that it is to tell of.
            stream = self._open_stream(answer) if isinstance(answer, OpenStream) else None
        except (OSError, ImportError):
            # What a door needs for its first task is imported then, for which there was no descriptor, or no file.
            return refused(503, "unavailable", "the session's host could not load what this request needs")
        if request.method == "POST":
            self._hosted.work.attend()
        match answer:
            case AwaitTask():
                return asyncio.ensure_future(self._respond_later(answer))
            case OpenStream():
                assert stream is not None
                return stream
            case DoorResponse():
                return answer
            case _:
                assert_never(answer)

    def _open_stream(self, asked: OpenStream) -> "Stream":
        try:
            if self._streams is None:
                # What nobody watches costs nothing.
                from murmur.adapters.streams import Streams  # noqa: PLC0415

                self._streams = Streams(self._hosted.log, threaded=self._hosted.threaded, is_over=self._is_over)
                if not self._is_over:
                    self._hosted.work.stream_to(self._streams)
            return self._streams.open(asked)
        except (OSError, ImportError):
            self._hosted.door.withdraw(asked)
            self._hosted.work.attend()
            raise

    def _close_streams(self) -> None:
        if self._streams is not None:
            self._streams.close()

    async def _respond_later(self, answer: AwaitTask) -> DoorResponse:
        await self._hosted.work.wait_for(answer.task)
        return answer.respond()
