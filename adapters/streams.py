"""What do those who watch a session get, and when? (the door's streams; ADR 14).

Commands write into files, never to a reader. Here the files are read on as fast as somebody follows, into one log of
events that all readers share. So no reader, and no number of them, makes a command wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from murmur.adapters.command_output import Output
from murmur.adapters.door_events import EventSource
from murmur.adapters.growth import Growth
from murmur.adapters.streamed_job import StreamedJob
from murmur.domain.event_log import EventLog
from murmur.domain.stream_frames import (
    Frame,
    ack_bytes,
    caller_id,
    closed_bytes,
    status_frame,
    task_frame,
)
from murmur.domain.stream_pace import LetGo, ReadMore, StreamPace, Wait
from murmur.domain.stream_reader import LEFT_BEHIND, StreamReader

if TYPE_CHECKING:
    from murmur.domain.served_door import OpenStream
    from murmur.domain.task_board import Task

PACE = 0.02
"""Seconds between two rounds of reading: what a command says meanwhile goes out together."""
_REST = 9
"""While a command is at work, this many times as long as a round took is nothing read: it needs the processor more."""
_LATEST = 0.25
"""Seconds of that at most."""
_ROUND = 16
"""Pieces of output that are read in one round."""
ROOM = 64 * 1024
"""Bytes that a connection takes at once."""
WAITING_JOBS = 32
"""Pieces of work whose output is still read on for those who are behind; of older ones only the end is told."""
KEPT_JOBS = 4
"""The same while nobody watches, for those who come back."""
_FINISH_TIMEOUT = 2.0
"""Seconds that readers get at the session's end to take what is left."""
_STALLED = 0.5
"""Seconds without anybody taking anything, after which nobody is waited for at the session's end."""

CUT_SHORT = "the session has ended, and this reader had not read everything"


class Stream(EventSource):
    """One reader's stream, as a connection carries it."""

    def __init__(self, reader: StreamReader, streams: "Streams") -> None:
        self.reader = reader
        self._streams = streams
        self.wake = lambda: None
        self.moved_at = 0.0
        """When it last took something, in the loop's time."""

    def take(self) -> bytes:
        """Return the next events to be written, none when there are none now."""
        taken = self.reader.take(ROOM)
        if taken:
            self.moved_at = self._streams.taken()
        elif self.reader.has_all:
            self._streams.wanted()  # It has only stepped over what other tasks said, and is ready for more.
        return taken

    @property
    def is_over(self) -> bool:
        """Whether everything was taken and nothing comes any more."""
        return self.reader.is_over

    def cut(self, reason: str) -> None:
        """End it with that reason."""
        self.is_cut = True
        self.reader.cut(reason)
        self.wake()

    def close(self) -> None:
        """Forget the reader: its connection is gone. Idempotent."""
        self._streams.forget(self)


class Streams:
    """The streams of one session. Made by its first; everything happens in its event loop."""

    def __init__(self, log: Callable[[str, str], None], *, threaded: bool, is_over: bool = False) -> None:
        """`is_over` is for a session that has ended: whoever comes is told so."""
        self._note = log
        self._ack = ack_bytes(threaded=threaded)
        self._loop = asyncio.get_running_loop()
        self._log = EventLog()
        self._pace = StreamPace()
        self._streams: dict[StreamReader, Stream] = {}
        self._jobs: deque[StreamedJob] = deque()
        self._growth: Growth | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_round = 0.0
        self._in_round = self._wished = False
        self._moved = asyncio.Event()
        self._closed = is_over

    def open(self, asked: "OpenStream") -> Stream:
        """Begin one more stream. Whatever happens from now on reaches it."""
        task, caller = asked.task, caller_id(asked.id)
        opening = self._ack if task is None else _shown(task).written(caller)
        # A new task has no past; whoever comes without a number wants what there is.
        after = self._log.last if asked.submitted else asked.after or 0
        task_id = None if task is None else task.id
        reader = StreamReader(self._log, caller, opening, after, task_id, with_errors=asked.with_errors)
        if not self._streams and after == 0 and task is None:
            # Nobody has followed it meanwhile, and nobody asks for it: the present is what counts.
            for job in self._jobs:
                job.skip_to_tail()
        if task is not None and task.state.is_terminal and all(job.task_id != task.id for job in self._jobs):
            # Its end may not be among the events: those are not kept for ever, and a rejection never was one.
            reader.end(_ended_frame(task).written(caller))
        stream = self._streams[reader] = Stream(reader, self)
        if self._growth is None:
            self._follow()
        self._soon()
        return stream

    def began(self, task_id: str, context_id: str, outputs: Sequence[Output], *, from_tail: bool = False) -> None:
        """Take in that work has begun and where it writes. With `from_tail` only the last part of that is read back."""
        self._jobs.append(StreamedJob(task_id, context_id, outputs, from_tail=from_tail))
        self._soon()

    def ended(self, task_id: str, context_id: str, state: str, message: str | None) -> None:
        """Take in how work has ended, also that of a task which never began."""
        end = status_frame(task_id, context_id, state, message, is_final=True)
        job = next((job for job in self._jobs if job.task_id == task_id), None)
        if job is None:
            self._add([end])
            return
        job.ended(end)
        while len(self._jobs) > (WAITING_JOBS if self._streams else KEPT_JOBS):
            self._finish_job(self._jobs[0])
        self._soon()

    async def finish(self) -> None:
        """Let the readers have what is left, and the end. Bounded: one that takes nothing is not waited for."""
        now = self._loop.time()
        self._closed, deadline = True, now + _FINISH_TIMEOUT
        self._pace.hurry(_STALLED / 2)
        for reader, stream in list(self._streams.items()):
            if reader.has_all:
                stream.moved_at = now
            elif stream.moved_at + _STALLED < now:
                stream.cut(CUT_SHORT)
        for job in self._jobs:
            if job.end is None:
                job.ended(status_frame(job.task_id, job.context_id, "failed", "it was cut short", is_final=True))
        self._soon()
        await self._taken_until(deadline)
        # What could not be read in that time is left out, and said to be. How everything has ended is told in any case.
        while self._jobs:
            self._finish_job(self._jobs[0])
        self._end_all()
        await self._taken_until(self._loop.time() + _STALLED)
        for stream in list(self._streams.values()):
            if not stream.reader.is_ended:
                stream.cut(CUT_SHORT)

    async def _taken_until(self, deadline: float) -> None:
        """Wait until all have taken everything, nobody takes anything any more, or until then."""
        while (patience := min(deadline, self._last_moved() + _STALLED) - self._loop.time()) > 0:
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._moved.wait()

    def _last_moved(self) -> float:
        """Return when one of the readers that are left has last taken something; long ago when none is left."""
        return max((stream.moved_at for stream in self._streams.values() if not stream.is_cut), default=0.0)

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._unfollow()
        for job in self._jobs:
            job.close()
        self._jobs.clear()

    def taken(self) -> float:
        """Note that a reader has taken something; return the time."""
        self._moved.set()
        self.wanted()
        return self._loop.time()

    def wanted(self) -> None:
        """Note that a reader may be ready for more."""
        self._soon()

    def forget(self, stream: Stream) -> None:
        """Forget a reader."""
        if self._streams.pop(stream.reader, None) is not None:
            self._moved.set()
            self._soon()
            if not self._streams:
                self._unfollow()

    def _follow(self) -> None:
        """Have the kernel tell of the files that are read now, for as long as anybody reads."""
        if self._growth is None:
            self._growth = Growth(self._soon)
        self._growth.follow(self._jobs[0].descriptors if self._jobs else [])

    def _unfollow(self) -> None:
        if self._growth is not None:
            self._growth.close()
            self._growth = None

    def _soon(self) -> None:
        """Have another round, now or when its time has come."""
        if self._in_round:
            self._wished = True
        else:
            self._round_at(max(self._next_round, self._loop.time()))

    def _round_at(self, when: float) -> None:
        if self._timer is not None and self._timer.when() > when:
            self._timer.cancel()
            self._timer = None
        self._timer = self._timer or self._loop.call_at(when, self._round)

    def _round(self) -> None:
        self._timer, self._in_round, self._wished = None, True, False
        began = self._loop.time()
        try:
            due = self._read_round()
        finally:
            self._in_round = False
        ended = self._loop.time()
        at_work = bool(self._jobs) and self._jobs[-1].end is None
        self._next_round = ended + (min(max(PACE, _REST * (ended - began)), _LATEST) if at_work else PACE / 10)
        if self._wished or due is not None:
            self._round_at(self._next_round if self._wished or due is None else max(due, self._next_round))

    def _read_round(self) -> float | None:
        """Read on as far as it goes; return when there is more to be done, `None` when somebody will tell."""
        for _ in range(_ROUND):
            readers = [reader for reader in self._streams if not reader.is_ended]
            step = self._pace.step(readers, self._loop.time())
            match step:
                case ReadMore():
                    if not self._read():
                        return None
                case Wait(until):
                    return until
                case LetGo():
                    self._let_go(step)
                case _:
                    assert_never(step)
        return 0.0

    def _let_go(self, step: LetGo) -> None:
        for reader, stream in list(self._streams.items()):
            if reader in step.readers:
                self._note("stream", LEFT_BEHIND)
                stream.cut(LEFT_BEHIND)

    def _read(self) -> bool:
        """Read a piece of what comes next and pass it on; say whether there may be more."""
        if not self._jobs:
            if self._closed:
                self._end_all()
            return False
        job = self._jobs[0]
        if not job.is_begun:
            self._follow()
            self._add(job.begin())
        elif not self._read_on(job):
            if job.end is None:
                # Armed first: what is written before the second look is not missed.
                assert self._growth is not None  # Somebody reads.
                self._growth.arm()
                return self._read_on(job)
            self._finish_job(job)
        return True

    def _read_on(self, job: StreamedJob) -> bool:
        any_read, frames = job.read_on()
        self._add(frames)
        return any_read

    def _finish_job(self, job: StreamedJob) -> None:
        frames = job.finish()
        self._jobs.remove(job)
        if self._growth is not None:
            self._follow()
        job.close()
        self._add(frames)

    def _add(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._log.add(frame)
            for stream in list(self._streams.values()):
                stream.wake()

    def _end_all(self) -> None:
        for reader, stream in list(self._streams.items()):
            reader.end(closed_bytes() if reader.task_id is None else b"")
            stream.wake()


def _shown(task: "Task") -> Frame:
    # Its models are there already: who asked about a task has needed them.
    from murmur.domain.task_calls import task_document  # noqa: PLC0415

    return task_frame(task.id, task_document(task))


def _ended_frame(task: "Task") -> Frame:
    return status_frame(task.id, task.context_id, task.state.value, task.message, is_final=True)
