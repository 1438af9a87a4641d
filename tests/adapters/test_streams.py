"""Those who watch a session get what it says, in its order, and nobody waits for them for long (M1, X7)."""

import asyncio
import errno
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters.command_output import Output
from murmur.adapters.streams import CUT_SHORT, KEPT_JOBS, ROOM, WAITING_JOBS, Stream, Streams
from murmur.domain.event_log import EventLog
from murmur.domain.served_door import OpenStream
from murmur.domain.sse import Event, EventReader
from murmur.domain.stream_reader import LEFT_BEHIND
from murmur.domain.task_board import Task, TaskState
from tests.adapters.processes_for_tests import open_descriptors

WITHIN = 5.0
"""Seconds after which something counts as never happening; nothing here takes so long."""
FUTURE = 10**15
LINE = "x" * 999 + "\n"

Said = tuple[str, str, str]
"""An event: its kind, the number of its task, and its state or text."""


class Job:
    """A piece of work with files of its own."""

    def __init__(self, number: int, folder: Path, opened: ExitStack) -> None:
        self.task = Task(f"tsk_{number}", f"ctx_{number}", "do it")
        self.task.state = TaskState.WORKING
        self._descriptors: dict[str, int] = {}
        for channel in ("stdout", "stderr"):
            path = folder / f"{number}.{channel}"
            self._descriptors[channel] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            opened.callback(os.close, self._descriptors[channel])

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output(channel, each, f"logs/{channel}") for channel, each in self._descriptors.items()]

    def say(self, text: str, channel: str = "stdout") -> None:
        data = text.encode()
        assert os.write(self._descriptors[channel], data) == len(data)


class Connection:
    """Takes what a stream has, as the door's connection does; or not, as one whose client does not read."""

    def __init__(self, stream: Stream, *, reads: bool = True) -> None:
        self.stream = stream
        self.reads = reads
        self.lingers = False
        """Whether the connection stays for a while when the stream is over."""
        self.events: list[Event] = []
        self.said: list[Said] = []
        """What was said of tasks, with the text of one task's channel joined where it follows on itself."""
        self.is_over = False
        self._reader = EventReader()
        self._changed = asyncio.Event()
        stream.wake = self.pour
        self.pour()

    def pour(self) -> None:
        while (self.reads or self.stream.is_cut) and not self.is_over and (taken := self.stream.take()):
            self.take(self._reader.feed(taken))
        if not self.is_over and (self.reads or self.stream.is_cut) and self.stream.is_over:
            self.is_over = True
            if not self.lingers:
                # The connection is gone a little later.
                asyncio.get_running_loop().call_soon(self.stream.close)
        self._changed.set()

    def read(self) -> None:
        """Read from now on."""
        self.reads = True
        self.pour()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until that is so. It is looked at whenever something was taken."""
        async with asyncio.timeout(WITHIN):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def over(self) -> "Connection":
        """Wait until the stream has ended."""
        await self.until(lambda: self.is_over)
        return self

    async def has(self, *said: Said) -> None:
        """Wait until exactly that was said."""
        await self.until(lambda: len(self.said) >= len(said))
        assert self.said == list(said)

    async def ends_with(self, *said: Said) -> None:
        """Wait until that is what was said last."""
        await self.until(lambda: self.said[-len(said) :] == list(said))

    async def hears(self, number: int, text: str, channel: str = "stdout") -> None:
        """Wait until that is what a task has said by now."""
        await self.until(lambda: self.text(number, channel) == text)

    async def counts(self, count: int) -> None:
        """Wait for the event of that number, where there is none before its first."""
        await self.until(lambda: len(self.numbers) >= count)

    @property
    def numbers(self) -> list[int]:
        return [event.number for event in self.events if event.number is not None]

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events.append(event)
            if event.number is None:
                continue
            answer = json.loads(event.data)
            number = answer["result"]["taskId"].removeprefix("tsk_")
            if event.kind == "status":
                self.said.append(("status", number, answer["status"]["state"]))
                continue
            what, text = answer["artifact"]["tool_name"], answer["artifact"]["content"]
            if self.said and self.said[-1][:2] == (what, number):
                text = self.said.pop()[2] + text
            self.said.append((what, number, text))

    def text(self, number: int, channel: str = "stdout") -> str:
        return "".join(text for what, task, text in self.said if (what, task) == (channel, str(number)))

    @property
    def others(self) -> list[str]:
        """The kinds of the events that have no number."""
        return [event.kind for event in self.events if event.number is None]

    @property
    def reason(self) -> str:
        """Why it was ended before its time."""
        assert self.events[-1].kind == "error"
        return str(json.loads(self.events[-1].data)["error"])


class Session:
    """The streams of a session, and work for it to do."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.streams = Streams(lambda event, detail: self.noted.append((event, detail)), threaded=False)
        self.noted: list[tuple[str, str]] = []
        self._folder = folder
        self._opened = opened
        self._jobs = 0

    def job(self) -> Job:
        self._jobs += 1
        return Job(self._jobs, self._folder, self._opened)

    def begin(self, *, from_tail: bool = False) -> Job:
        job = self.job()
        self.streams.began(job.task.id, job.task.context_id, job.outputs, from_tail=from_tail)
        return job

    def end(self, job: Job, state: TaskState = TaskState.COMPLETED, message: str | None = None) -> None:
        job.task.state, job.task.message = state, message
        self.streams.ended(job.task.id, job.task.context_id, state.value, message)

    def work(self, text: str, channel: str = "stdout") -> Job:
        """Have a task that says that and ends, all before anybody can look."""
        job = self.begin()
        job.say(text, channel)
        self.end(job)
        return job

    def watch(
        self, task: Task | None = None, after: int | None = None, *, submitted: bool = False, reads: bool = True
    ) -> Connection:
        return Connection(self.streams.open(OpenStream("id", task, after, submitted)), reads=reads)


def timers() -> list[asyncio.TimerHandle]:
    """Return the timers that will wake the loop."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled()]


async def rounds(count: int) -> None:
    """Wait until the loop has had time for that many rounds of reading."""
    # No sleep for something to happen, but time for something that must not.
    await asyncio.sleep(count * 0.02)


async def rest() -> None:
    """Wait until nothing but an event can wake the loop. What looks again and again always has a timer."""
    begun = time.monotonic()
    while timers():
        assert time.monotonic() - begun < WITHIN
        await rounds(1)


Test = Callable[[Session], Awaitable[None]]
During = Callable[[Test], None]


@pytest.fixture
def during(tmp_path: Path) -> Iterator[During]:
    """Run a test in a session; nothing may go wrong in its loop, and no descriptor and no timer may be left."""
    complaints: list[dict[str, Any]] = []

    async def run(test: Test) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        with ExitStack() as opened:
            before = open_descriptors()
            session = Session(tmp_path, opened)
            try:
                await test(session)
            finally:
                session.streams.close()
            session.streams.close()
            opened.close()
            assert open_descriptors() <= before
            assert timers() == []

    yield lambda test: asyncio.run(run(test))
    assert complaints == []


@pytest.mark.spec("M1")
@pytest.mark.parametrize("readers", [1, 2, 100])
def test_everybody_gets_what_a_task_says_while_it_says_it(during: During, readers: int) -> None:
    async def test(session: Session) -> None:
        connections = [session.watch() for _ in range(readers)]
        job = session.begin()
        for connection in connections:
            await connection.has(("status", "1", "working"))
        job.say("one\n")
        for connection in connections:
            await connection.has(("status", "1", "working"), ("stdout", "1", "one\n"))
        job.say("why\n", "stderr")
        for connection in connections:
            await connection.hears(1, "why\n", "stderr")
        job.say("no end")
        session.end(job)
        for connection in connections:
            await connection.ends_with(("status", "1", "completed"))
            assert connection.said == [
                ("status", "1", "working"),
                ("stdout", "1", "one\n"),
                ("stderr", "1", "why\n"),
                ("stdout", "1", "no end"),
                ("status", "1", "completed"),
            ]
            assert connection.numbers == list(range(1, 6))
            assert connection.others == ["connection-ack"]

    during(test)


@pytest.mark.spec("M1", "X7")
def test_what_is_said_after_a_silence_is_told_of(during: During) -> None:
    async def test(session: Session) -> None:
        connection, job = session.watch(), session.begin()
        said = {"stdout": "", "stderr": ""}
        for channel in ("stdout", "stderr", "stdout", "stdout"):
            while timers():  # Until nothing but the file itself can tell.
                await rounds(1)
            job.say("line\n", channel)
            said[channel] += "line\n"
            await connection.hears(1, said[channel], channel)

    during(test)


@pytest.mark.spec("M1")
def test_the_session_s_end_comes_last_and_ends_every_stream(during: During) -> None:
    async def test(session: Session) -> None:
        connections = [session.watch() for _ in range(5)]
        session.work("one\n")
        begun = time.monotonic()
        await session.streams.finish()
        assert time.monotonic() - begun < 0.3
        for connection in connections:
            assert connection.is_over
            assert connection.said == [
                ("status", "1", "working"),
                ("stdout", "1", "one\n"),
                ("status", "1", "completed"),
            ]
            assert connection.others == ["connection-ack", "capsule-closed"]
            assert connection.events[-1].kind == "capsule-closed"

    during(test)


@pytest.mark.spec("M1", "X7")
def test_without_readers_nothing_is_read_and_the_end_takes_no_time(
    during: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_wants_it(*_: object) -> bytes:
        raise AssertionError("a file was read that nobody follows")

    async def test(session: Session) -> None:
        monkeypatch.setattr(os, "pread", nobody_wants_it)
        for _ in range(3):
            session.work("one\n")
        session.begin().say("two\n")
        await rounds(2)
        assert (session.streams._log.last, timers()) == (0, [])
        begun = time.monotonic()
        await session.streams.finish()
        assert time.monotonic() - begun < 0.1

    during(test)


@pytest.mark.spec("M1")
def test_a_task_s_output_stands_between_its_beginning_and_its_end_over_several_tasks(during: During) -> None:
    async def test(session: Session) -> None:
        connection = session.watch()
        wanted: list[Said] = []
        for number in range(1, 6):
            job = session.begin()
            job.say(LINE * 100)
            if number % 2:
                await connection.hears(number, LINE * 100)
            job.say("last")
            session.end(job, TaskState.FAILED if number == 3 else TaskState.COMPLETED, "why")
            wanted += [
                ("status", str(number), "working"),
                ("stdout", str(number), LINE * 100 + "last"),
                ("status", str(number), "failed" if number == 3 else "completed"),
            ]
        await connection.until(lambda: len(connection.said) == 15)
        assert connection.said == wanted
        assert connection.numbers == list(range(1, len(connection.numbers) + 1))

    during(test)


@pytest.mark.spec("M1")
def test_what_is_said_at_once_goes_out_together(during: During) -> None:
    async def test(session: Session) -> None:
        job = session.begin()
        for number in range(1000):
            job.say(f"{number}\n")
        connection = session.watch()
        await connection.hears(1, "".join(f"{number}\n" for number in range(1000)))
        assert len(connection.numbers) == 2

    during(test)


@pytest.mark.spec("M1")
def test_the_first_part_of_a_channel_is_said_to_be_the_first(during: During) -> None:
    async def test(session: Session) -> None:
        connection = session.watch()
        job = session.begin()
        for channel in ("stdout", "stderr"):
            for _ in range(2):
                count = max(2, len(connection.numbers) + 1)
                job.say("line\n", channel)
                await connection.counts(count)
        appended = [json.loads(event.data)["result"].get("append") for event in connection.events if event.number]
        assert appended == [None, False, True, False, True]

    during(test)


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("after", "numbers"), [(None, [1, 2, 3]), (0, [1, 2, 3]), (1, [2, 3]), (3, []), (FUTURE, [])])
def test_who_comes_late_gets_what_is_kept_behind_the_number_it_names(
    during: During, after: int | None, numbers: list[int]
) -> None:
    async def test(session: Session) -> None:
        first = session.watch()
        session.work("one\n")
        await first.counts(3)
        late = session.watch(after=after)
        assert late.numbers == numbers
        session.work("two\n")
        await late.counts(len(numbers) + 3)
        assert late.numbers == [*numbers, 4, 5, 6]
        assert late.others == ["connection-ack"]

    during(test)


@pytest.mark.spec("M1")
def test_who_comes_too_late_is_told_where_what_is_kept_begins(during: During) -> None:
    async def test(session: Session) -> None:
        session.streams._log = EventLog(20_000)
        first = session.watch()
        job = session.begin()
        job.say(LINE * 100)
        session.end(job)
        await first.ends_with(("status", "1", "completed"))
        late = session.watch(after=1)
        assert late.others == ["connection-ack", "gap"]
        assert json.loads(late.events[1].data)["first_available_id"] == late.numbers[0] > 2
        assert late.numbers == first.numbers[-len(late.numbers) :]

    during(test)


@pytest.mark.spec("M1")
def test_whoever_comes_first_to_a_task_under_way_gets_the_last_part_of_its_output(during: During) -> None:
    async def test(session: Session) -> None:
        job = session.job()
        job.say(LINE * 100)
        session.streams.began(job.task.id, job.task.context_id, job.outputs, from_tail=True)
        connection = session.watch()
        job.say("end\n")
        session.end(job)
        await connection.until(lambda: len(connection.said) == 3)
        note, _, shown = connection.text(1).partition("\n")
        assert note == "[35000 bytes are left out here; logs/stdout has them]"
        assert shown == LINE * 65 + "end\n"

    during(test)


@pytest.mark.spec("M1")
def test_a_new_task_s_caller_gets_that_task_alone_and_its_end_ends_the_stream(during: During) -> None:
    async def test(session: Session) -> None:
        watcher = session.watch()
        session.work("before\n")
        await watcher.counts(3)
        running, job = session.begin(), session.job()
        job.task.state = TaskState.SUBMITTED
        caller = session.watch(job.task, submitted=True)
        assert [event.kind for event in caller.events] == ["task"]
        assert json.loads(caller.events[0].data)["result"]["status"] == {"state": "submitted"}
        running.say("another's\n")
        session.end(running)
        session.streams.began(job.task.id, job.task.context_id, job.outputs)
        job.say("its own\n")
        session.end(job)
        await caller.over()
        assert caller.said == [
            ("status", "3", "working"),
            ("stdout", "3", "its own\n"),
            ("status", "3", "completed"),
        ]
        assert caller.others == ["task"]

    during(test)


@pytest.mark.spec("M1")
def test_a_task_that_was_rejected_is_shown_and_ended_at_once(during: During) -> None:
    async def test(session: Session) -> None:
        watcher = session.watch()
        session.work("one\n")
        await watcher.counts(3)
        for submitted in (True, False):
            task = Task("tsk_9", "ctx_9", "do it")
            task.state, task.message = TaskState.REJECTED, "the queue is full"
            caller = session.watch(task, submitted=submitted)
            assert caller.is_over
            assert [event.kind for event in caller.events] == ["task", "status"]
            end = json.loads(caller.events[1].data)
            assert (end["final"], end["id"]) == (True, "id")
            assert end["status"] == {"state": "rejected", "message": "the queue is full"}
        assert len(watcher.numbers) == 3

    during(test)


@pytest.mark.spec("M1")
def test_a_task_that_never_began_has_an_end_for_everybody(during: During) -> None:
    async def test(session: Session) -> None:
        watcher, job = session.watch(), session.job()
        job.task.state = TaskState.SUBMITTED
        caller = session.watch(job.task, submitted=True)
        session.end(job, TaskState.CANCELED, "nobody wants it any more")
        await watcher.has(("status", "1", "canceled"))
        await caller.over()
        assert caller.said == [("status", "1", "canceled")]

    during(test)


@pytest.mark.spec("M1")
def test_a_task_whose_events_are_not_kept_any_more_has_an_end_all_the_same(during: During) -> None:
    async def test(session: Session) -> None:
        session.streams._log = EventLog(2000)
        watcher = session.watch()
        first = session.work("one\n")
        session.work(LINE)
        await watcher.ends_with(("status", "2", "completed"))
        caller = session.watch(first.task)
        assert caller.is_over
        # The task shows its result whole, so nothing is missing.
        assert [event.kind for event in caller.events] == ["task", "status"]
        assert json.loads(caller.events[-1].data)["final"] is True

    during(test)


@pytest.mark.spec("M1")
def test_while_nobody_watches_the_newest_tasks_are_kept_whole_and_of_older_ones_the_end(during: During) -> None:
    async def test(session: Session) -> None:
        before = open_descriptors()
        for number in range(1, KEPT_JOBS + 4):
            session.work(f"said by {number}\n")
        running = session.begin()
        assert len(open_descriptors() - before) <= (KEPT_JOBS + 1) * 2 + 2 * (KEPT_JOBS + 4)
        connection = session.watch()
        running.say("now\n")
        await connection.hears(KEPT_JOBS + 4, "now\n")
        for number in range(1, KEPT_JOBS + 4):
            whole = [("status", str(number), "working"), ("status", str(number), "completed")]
            text = f"said by {number}\n"
            if number <= 3:
                text = "[10 bytes are left out here; logs/stdout has them]\n"
            whole.insert(1, ("stdout", str(number), text))
            assert [each for each in connection.said if each[1] == str(number)] == whole
        assert connection.numbers == list(range(1, len(connection.numbers) + 1))
        assert [int(each[1]) for each in connection.said] == sorted(int(each[1]) for each in connection.said)

    during(test)


@pytest.mark.spec("M1")
def test_for_one_that_is_behind_the_newest_tasks_are_kept_whole_and_of_older_ones_the_end(during: During) -> None:
    async def test(session: Session) -> None:
        silent = session.watch(reads=False)
        session.work("said by 1\n")
        await rounds(2)
        for number in range(2, WAITING_JOBS + 6):
            session.work(f"said by {number}\n")
        assert len(session.streams._jobs) == WAITING_JOBS
        silent.read()
        await silent.ends_with(("status", str(WAITING_JOBS + 5), "completed"))
        left = "[10 bytes are left out here; logs/stdout has them]\n"
        assert [silent.text(number) for number in range(1, WAITING_JOBS + 6)] == [
            *([left] * 5),
            *(f"said by {number}\n" for number in range(6, WAITING_JOBS + 6)),
        ]
        assert silent.numbers == list(range(1, len(silent.numbers) + 1))

    during(test)


@pytest.mark.spec("M1")
def test_a_task_that_is_being_read_says_how_much_is_left_out_when_nobody_waits_for_it_any_more(during: During) -> None:
    async def test(session: Session) -> None:
        reader = session.watch()
        job = session.begin()
        job.say("read\n")
        await reader.hears(1, "read\n")
        reader.stream.close()
        job.say("not read\n")
        session.end(job)
        for _ in range(KEPT_JOBS):
            session.work("later\n")
        late = session.watch(job.task)
        await late.over()
        assert late.text(1) == "read\n[9 bytes are left out here; logs/stdout has them]\n"

    during(test)


@pytest.mark.spec("M1")
def test_more_is_read_when_somebody_has_all_there_is_and_not_before(during: During) -> None:
    async def test(session: Session) -> None:
        slow = session.watch(reads=False)
        job = session.begin()
        job.say(LINE * 1500)
        await rounds(3)
        # It has its beginning alone to take: nobody has asked for more.
        assert session.streams._log.last == 1
        slow.read()
        await slow.hears(1, LINE * 1500)
        assert slow.numbers == list(range(1, len(slow.numbers) + 1))
        assert session.noted == []

    during(test)


@pytest.mark.spec("M1")
def test_a_silent_one_is_let_go_with_the_reason_and_the_others_lose_nothing(during: During) -> None:
    async def test(session: Session) -> None:
        session.streams._pace.hurry(0.2)
        silent, fast = [session.watch(reads=False) for _ in range(10)], session.watch()
        job, begun = session.begin(), time.monotonic()
        job.say(LINE * 1500)
        session.end(job)
        await fast.ends_with(("status", "1", "completed"))
        assert fast.text(1) == LINE * 1500
        assert time.monotonic() - begun >= 0.2
        for each in silent:
            await each.over()
            assert each.reason == LEFT_BEHIND
            assert each.numbers == []
        assert session.noted == [("stream", LEFT_BEHIND)] * 10
        assert session.streams._streams.keys() == {fast.stream.reader}

    during(test)


@pytest.mark.spec("M1")
def test_one_that_leaves_while_others_wait_for_it_is_not_waited_for_any_longer(during: During) -> None:
    async def test(session: Session) -> None:
        session.streams._pace.hurry(1000.0)
        silent, fast = session.watch(reads=False), session.watch()
        job = session.begin()
        job.say(LINE * 1500)
        # Until there is nothing but its time that would have the others go on.
        while min((timer.when() for timer in timers()), default=0.0) < asyncio.get_running_loop().time() + 100:
            await rounds(1)
        assert len(fast.text(1)) < 600_000
        silent.stream.close()
        silent.stream.close()
        await fast.hears(1, LINE * 1500)

    during(test)


@pytest.mark.spec("M1")
def test_a_task_s_reader_whose_opening_was_large_gets_the_end_also_when_it_reads_late(during: During) -> None:
    """What it takes when it reads on is another task's alone, so it takes nothing, and yet it wants more."""

    async def test(session: Session) -> None:
        passer_by = session.watch()
        first = session.begin()
        await passer_by.has(("status", "1", "working"))
        passer_by.stream.close()
        session.end(first)
        second = session.work("its own\n")
        second.task.result = LINE * 1000
        caller = session.watch(second.task, reads=False)
        opening = caller.stream.take()  # What a connection writes at once; then its client does not read for a while.
        assert len(opening) > ROOM
        await rounds(2)
        caller.read()
        await caller.over()
        assert caller.said == [
            ("status", "2", "working"),
            ("stdout", "2", "its own\n"),
            ("status", "2", "completed"),
        ]

    during(test)


async def with_one_that_stops_taking(session: Session, took: str) -> tuple[Connection, Connection]:
    """Have a task say more than others are let have before one that is behind; return that one and another."""
    silent, fast = session.watch(reads=took == "the beginning"), session.watch()
    job = session.begin()
    await fast.has(("status", "1", "working"))
    silent.reads = False
    if took == "its opening":
        silent.stream.take()
    job.say(LINE * 1500)
    session.end(job)
    return silent, fast


TOOK = ["nothing", "its opening", "the beginning"]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("took", TOOK)
def test_the_end_is_bounded_with_one_that_takes_nothing(during: During, took: str) -> None:
    async def test(session: Session) -> None:
        silent, _ = await with_one_that_stops_taking(session, took)
        begun = time.monotonic()
        await session.streams.finish()
        assert time.monotonic() - begun < 1.5
        assert silent.is_over
        # One that took nothing before the end either holds nobody up at all.
        assert silent.reason in ([CUT_SHORT] if took == "nothing" else [CUT_SHORT, LEFT_BEHIND])

    during(test)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("took", TOOK)
def test_at_the_end_one_that_takes_nothing_costs_those_who_read_nothing(during: During, took: str) -> None:
    async def test(session: Session) -> None:
        _, fast = await with_one_that_stops_taking(session, took)
        await session.streams.finish()
        assert fast.others == ["connection-ack", "capsule-closed"]
        assert fast.text(1) == LINE * 1500

    during(test)


@pytest.mark.spec("M1")
def test_the_end_is_bounded_with_silent_ones_alone(during: During) -> None:
    async def test(session: Session) -> None:
        silent = [session.watch(reads=False) for _ in range(3)]
        for each in silent:
            # A client that does not read keeps its connection until the door is closed.
            each.lingers = True
        session.work("one\n")
        await rounds(2)
        begun = time.monotonic()
        await session.streams.finish()
        assert time.monotonic() - begun < 0.3
        assert [each.reason for each in silent] == [CUT_SHORT] * 3

    during(test)


@pytest.mark.spec("M1")
@pytest.mark.slow  # Two seconds are what those who go on reading get at the end.
def test_the_end_is_bounded_with_one_that_reads_too_slowly(during: During) -> None:
    async def test(session: Session) -> None:
        trickler = session.watch(reads=False)
        job = session.begin()
        job.say(LINE * 1500)
        session.end(job)
        finishing = asyncio.ensure_future(session.streams.finish())
        begun = time.monotonic()
        while not finishing.done():
            if not trickler.stream.is_cut:
                trickler.take(EventReader().feed(trickler.stream.reader.take(1)))
                trickler.stream.moved_at = session.streams.taken()
            await asyncio.sleep(0.1)
        await finishing
        assert 1.9 < time.monotonic() - begun < 3.1
        # What could not be read in time is left out, and told; how the task has ended is told in any case.
        while not trickler.stream.is_over:
            trickler.take(EventReader().feed(trickler.stream.reader.take(1)))
        assert "bytes are left out here; logs/stdout has them]" in trickler.text(1)
        assert [event.kind for event in trickler.events[-2:]] == ["status", "capsule-closed"]

    during(test)


@pytest.mark.spec("M1")
def test_at_the_end_one_that_reads_on_gets_everything_that_is_left(during: During) -> None:
    async def test(session: Session) -> None:
        reader = session.watch(reads=False)
        for _ in range(3):
            session.work(LINE * 1000)
        finishing = asyncio.ensure_future(session.streams.finish())
        reader.read()
        await finishing
        assert [reader.text(number) for number in (1, 2, 3)] == [LINE * 1000] * 3
        assert reader.others == ["connection-ack", "capsule-closed"]

    during(test)


@pytest.mark.spec("M1")
def test_work_that_is_under_way_at_the_end_was_cut_short(during: During) -> None:
    async def test(session: Session) -> None:
        watcher, job = session.watch(), session.begin()
        caller = session.watch(job.task)
        job.say("one\nno end")
        await session.streams.finish()
        for each in (watcher, caller):
            assert each.said == [
                ("status", "1", "working"),
                ("stdout", "1", "one\nno end"),
                ("status", "1", "failed"),
            ]
        assert json.loads(watcher.events[-2].data)["status"]["message"] == "it was cut short"
        assert watcher.events[-1].kind == "capsule-closed"

    during(test)


@pytest.mark.spec("M1")
def test_a_reader_of_a_task_that_waits_is_let_go_without_a_word_at_the_end(during: During) -> None:
    async def test(session: Session) -> None:
        task = Task("tsk_9", "ctx_9", "do it")
        caller = session.watch(task, submitted=True)
        await session.streams.finish()
        assert caller.is_over
        assert caller.others == ["task"]

    during(test)


@pytest.mark.spec("M1")
def test_one_that_comes_during_the_end_gets_what_is_kept_and_is_ended(during: During) -> None:
    async def test(session: Session) -> None:
        first = session.watch()
        session.work("one\n")
        await first.counts(3)
        holding = session.watch(reads=False)
        holding.stream.take()  # Else nobody would be waited for.
        session.work("two\n")
        finishing = asyncio.ensure_future(session.streams.finish())
        await rounds(2)
        late = session.watch()
        await finishing
        assert late.is_over
        assert late.numbers == [1, 2, 3, 4, 5, 6]
        assert late.others == ["connection-ack", "capsule-closed"]

    during(test)


@pytest.mark.spec("M1")
def test_what_cannot_be_followed_is_told_of_and_its_end_as_well(
    during: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def test(session: Session) -> None:
        connection = session.watch()
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", none_left)
            job = session.begin()
        job.say("one\n")
        session.end(job)
        await connection.until(lambda: len(connection.said) == 3)
        assert connection.said[1][:2] == ("stderr", "1")
        assert connection.text(1, "stderr").splitlines() == [
            "[logs/stdout is not shown here: too many open files]",
            "[logs/stderr is not shown here: too many open files]",
        ]

    during(test)


@pytest.mark.spec("M1")
def test_a_file_that_cannot_be_read_does_not_keep_the_others_or_the_end(
    during: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(session: Session) -> None:
        connection, job = session.watch(), session.begin()
        await connection.has(("status", "1", "working"))
        broken, pread = session.streams._jobs[0].descriptors[0], os.pread

        def read(descriptor: int, size: int, position: int) -> bytes:
            if descriptor == broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return pread(descriptor, size, position)

        monkeypatch.setattr(os, "pread", read)
        job.say("one\n")
        job.say("why\n", "stderr")
        session.end(job)
        await connection.until(lambda: len(connection.said) == 4)
        assert connection.text(1, "stderr") == "why\n"
        assert connection.text(1) == "[4 bytes are left out here; logs/stdout has them]\n"

    during(test)


@pytest.mark.spec("X7")
@pytest.mark.parametrize("watched", [0, 1, 3])
def test_while_nothing_is_said_there_is_no_timer(during: During, watched: int) -> None:
    async def test(session: Session) -> None:
        connections = [session.watch() for _ in range(watched)]
        job = session.begin()
        job.say("one\n")
        for connection in connections:
            await connection.has(("status", "1", "working"), ("stdout", "1", "one\n"))
        await rest()
        session.end(job)
        for connection in connections:
            await connection.ends_with(("status", "1", "completed"))
        await rest()
        for connection in connections:
            connection.stream.close()
        await rest()

    during(test)


@pytest.mark.spec("X7")
def test_while_a_lone_reader_does_not_read_there_is_no_timer(during: During) -> None:
    async def test(session: Session) -> None:
        session.watch(reads=False)
        job = session.begin()
        for _ in range(3):
            job.say(LINE)
            await rounds(3)
            assert timers() == []

    during(test)


@pytest.mark.spec("X7")
def test_a_file_is_read_no_more_often_than_every_twenty_milliseconds(
    during: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(session: Session) -> None:
        connection, job = session.watch(), session.begin()
        begun = asyncio.get_running_loop().time()
        for number in range(200):
            job.say(f"{number}\n")
            await asyncio.sleep(0.001)
        await connection.until(lambda: connection.text(1).endswith("199\n"))
        taken = asyncio.get_running_loop().time() - begun
        assert len(connection.numbers) <= taken / 0.02 + 2

    during(test)


@pytest.mark.spec("M1")
def test_who_comes_back_without_a_number_gets_the_present_and_with_one_everything(during: During) -> None:
    async def test(session: Session) -> None:
        first, job = session.watch(), session.begin()
        job.say("one\n")
        await first.hears(1, "one\n")
        first.stream.close()
        job.say(LINE * 1500 + "now\n")
        whole = session.watch(after=first.numbers[-1])
        await whole.hears(1, LINE * 1500 + "now\n")
        whole.stream.close()
        job.say(LINE * 1500 + "later\n")
        present = session.watch(after=None)
        await present.until(lambda: present.text(1).endswith("later\n"))
        assert "bytes are left out here" in present.text(1)

    during(test)


@pytest.mark.spec("M1")
def test_while_nobody_watches_the_kernel_is_not_asked_to_tell(during: During) -> None:
    async def test(session: Session) -> None:
        before = open_descriptors()
        connection, job = session.watch(), session.begin()
        job.say("one\n")
        await connection.hears(1, "one\n")
        assert any("inotify" in name for name in open_descriptors() - before)
        connection.stream.close()
        assert not any("inotify" in name for name in open_descriptors() - before)

    during(test)


@pytest.mark.spec("M1")
def test_who_comes_when_the_session_is_over_is_told_so() -> None:
    async def test() -> None:
        streams = Streams(lambda *_: None, threaded=False, is_over=True)
        connection = Connection(streams.open(OpenStream(1, None, None)))
        await connection.over()
        assert [event.kind for event in connection.events] == ["connection-ack", "capsule-closed"]
        streams.close()

    asyncio.run(test())
