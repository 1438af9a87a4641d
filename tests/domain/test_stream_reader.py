"""A reader gets the events behind its position once each, in order, and knows when it does not get all (M1)."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.event_log import EventLog
from murmur.domain.sse import Event, EventReader
from murmur.domain.stream_frames import Frame, ack_bytes, closed_bytes
from murmur.domain.stream_reader import LEFT_BEHIND, StreamReader

ALL = 10**9
OPENING = ack_bytes(threaded=False)
ACK, GAP, CLOSED, ERROR = "connection-ack", "gap", "capsule-closed", "error"


def frame(task: int = 1, size: int = 0, *, is_final: bool = False) -> Frame:
    return Frame("status", f"tsk_{task}", is_final, b'{"a":', b',"b":"%b"}' % (b"x" * size))


def log_of(*frames: Frame, most: int = ALL) -> EventLog:
    log = EventLog(most)
    for each in frames:
        log.add(each)
    return log


def reader_of(log: EventLog, after: int = 0, task: int | None = None) -> StreamReader:
    return StreamReader(log, b"1", OPENING, after, None if task is None else f"tsk_{task}")


def taken(reader: StreamReader, room: int = ALL) -> list[Event]:
    return EventReader().feed(reader.take(room))


def seen(reader: StreamReader, room: int = ALL) -> list[int | str]:
    """Take what there is: numbers of numbered events, kinds of the others."""
    return [event.kind if event.number is None else event.number for event in taken(reader, room)]


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("after", "numbers"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, []), (4, []), (10**20, [])])
def test_a_reader_begins_behind_the_event_that_it_names(after: int, numbers: list[int]) -> None:
    log = log_of(frame(), frame(), frame())
    reader = reader_of(log, after)
    assert seen(reader) == [ACK, *numbers]
    assert seen(reader) == []
    log.add(frame())
    # A number that was never given, of another session perhaps, is no reason to leave anything out from now on.
    assert seen(reader) == [4]


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("after", "has_gap"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_reader_is_told_what_is_not_kept_any_more_between_its_position_and_the_first(
    after: int, has_gap: bool
) -> None:
    log = log_of(*[frame(size=50)] * 4, most=2 * frame(size=50).size)
    events = taken(reader_of(log, after))
    assert [event.kind for event in events] == [ACK, *[GAP] * has_gap, *["status"] * (4 - max(after, 2))]
    assert [event.number for event in events if event.number] == list(range(max(after, 2) + 1, 5))
    assert [event.data for event in events if event.kind == GAP] == ['{"first_available_id":3}'] * has_gap


@pytest.mark.spec("M1")
def test_a_reader_whose_next_event_is_pushed_out_gets_the_reason_and_nothing_more() -> None:
    log = log_of(frame(size=50), most=2 * frame(size=50).size)
    reader = reader_of(log)
    assert seen(reader, 1) == [ACK]
    for _ in range(2):
        log.add(frame(size=50))
    assert [(event.kind, event.data) for event in taken(reader)] == [
        (ERROR, json.dumps({"error": LEFT_BEHIND}, separators=(",", ":")))
    ]
    assert reader.is_over
    log.add(frame())
    assert seen(reader) == []


@pytest.mark.spec("M1")
def test_a_reader_that_has_read_what_was_pushed_out_is_not_left_behind() -> None:
    log = log_of(frame(size=50), most=2 * frame(size=50).size)
    reader = reader_of(log)
    assert seen(reader) == [ACK, 1]
    for _ in range(2):
        log.add(frame(size=50))
    assert (log.first, seen(reader)) == (2, [2, 3])


@pytest.mark.spec("M1")
def test_about_as_much_is_taken_as_there_is_room_for_but_whole_events() -> None:
    log = log_of(*[frame(size=100)] * 5)
    size = len(log.get(1).written(b"1", 1))
    reader = reader_of(log)
    assert seen(reader, 1) == [ACK]
    assert seen(reader, 1) == [1]
    assert seen(reader, size) == [2]
    assert seen(reader, size + 1) == [3, 4]
    assert seen(reader, size + 1) == [5]


@pytest.mark.spec("M1")
def test_a_reader_of_one_task_gets_its_events_and_is_over_with_the_last_of_them() -> None:
    log = log_of(frame(1), frame(2), frame(3), frame(2))
    reader = reader_of(log, task=2)
    assert seen(reader) == [ACK, 2, 4]
    assert reader.has_all
    log.add(frame(3, is_final=True))
    assert (seen(reader), reader.is_over) == ([], False)
    for each in (frame(2, is_final=True), frame(2), frame(3)):
        log.add(each)
    assert seen(reader) == [6]
    assert reader.is_over
    assert seen(reader) == []


@pytest.mark.spec("M1")
def test_a_reader_of_all_is_not_over_with_a_tasks_last_event() -> None:
    reader = reader_of(log_of(frame(is_final=True), frame(2)))
    assert seen(reader) == [ACK, 1, 2]
    assert not reader.is_over


@pytest.mark.spec("M1")
def test_a_reader_that_is_to_end_gets_what_there_was_then_and_its_last_words() -> None:
    log = log_of(frame(), frame())
    reader = reader_of(log)
    reader.end(closed_bytes())
    log.add(frame())
    assert (seen(reader, 1), reader.is_over) == ([ACK], False)
    assert (seen(reader), reader.is_over) == ([1, 2, CLOSED], True)
    assert seen(reader) == []


@pytest.mark.spec("M1")
def test_a_reader_that_has_all_and_no_last_words_is_over_as_soon_as_it_looks() -> None:
    reader = reader_of(log_of(frame()), task=1)
    assert seen(reader) == [ACK, 1]
    reader.end(b"")
    assert (reader.take(ALL), reader.is_over) == (b"", True)


@pytest.mark.spec("M1")
def test_a_tasks_last_event_is_not_said_twice_to_a_reader_that_is_to_end() -> None:
    reader = reader_of(log_of(frame(1), frame(1, is_final=True)), task=1)
    reader.end(frame(1, is_final=True).written(b"1"))
    assert seen(reader) == [ACK, 1, 2]
    assert reader.is_over


@pytest.mark.spec("M1")
def test_a_reader_that_is_cut_gets_the_reason_and_nothing_more() -> None:
    log = log_of(frame(), frame())
    reader = reader_of(log)
    assert seen(reader, 1) == [ACK]
    reader.cut('too "slow"')
    assert (reader.is_ended, reader.is_over) == (True, False)
    assert [(event.kind, event.data) for event in taken(reader)] == [(ERROR, '{"error":"too \\"slow\\""}')]
    assert reader.is_over
    log.add(frame())
    assert seen(reader) == []


@pytest.mark.spec("M1")
def test_a_reader_that_is_cut_before_it_took_anything_gets_its_opening_first() -> None:
    reader = reader_of(log_of(frame()))
    reader.cut("why")
    assert seen(reader) == [ACK, ERROR]


@pytest.mark.spec("M1")
def test_how_far_behind_a_reader_is_is_counted_in_bytes() -> None:
    log = log_of(frame(size=10), frame(2, size=20))
    reader = reader_of(log, task=1)
    assert (reader.has_all, reader.backlog) == (False, log.get(1).size + log.get(2).size)
    reader.take(ALL)
    assert (reader.has_all, reader.backlog) == (True, 0)
    log.add(frame(2, size=30))
    assert (reader.has_all, reader.backlog) == (False, log.get(3).size)


@pytest.mark.spec("M1")
def test_each_reader_gets_its_own_id_back_whoever_reads_the_same_besides() -> None:
    log = log_of(frame(), frame())
    ids = ["1", '"two"', "1", "null"]
    readers = [StreamReader(log, id_.encode(), b"", 0) for id_ in ids]
    for number in (1, 2):
        found = [taken(reader, 1) for reader in readers]
        assert [[event.number for event in events] for events in found] == [[number]] * 4
        assert [event.data for events in found for event in events] == [f'{{"a":{id_},"b":""}}' for id_ in ids]


class Reader:
    """A reader under test, with all that it was given and what it should be."""

    def __init__(self, history: "History", after: int, task: int | None) -> None:
        self.read = reader_of(history.log, after, task)
        self.task = task
        self.given: list[Event] = []
        self.first_wanted = max(min(after, history.log.last) + 1, history.log.first)
        self.has_gap = after + 1 < history.log.first
        self.until: int | None = None
        self.was_cut = False

    def wanted(self, history: "History") -> list[int]:
        """Return the numbers that it is to get, if it is not cut or left behind."""
        numbers: list[int] = []
        for number in range(self.first_wanted, (history.log.last if self.until is None else self.until) + 1):
            frame = history.frames[number - 1]
            if self.task is None or frame.task_id == f"tsk_{self.task}":
                numbers.append(number)
                if frame.is_final and self.task is not None:
                    break
        return numbers

    def take(self, history: "History", room: int) -> None:
        before = len(self.given)
        position, over = self.read.position, self.read.is_over
        data = self.read.take(room)
        events = EventReader().feed(data)
        self.given += events
        assert not (over and data)
        last = data.rfind(b"\n\n", 0, len(data) - 2) + 2
        assert len(data) <= room or last < room or before == 0  # Its opening is taken whole.
        for event in events:
            if event.number is not None:
                written = history.frames[event.number - 1].written(b"1", event.number)
                assert EventReader().feed(written) == [event]
        if events and events[-1].kind == ERROR and not self.was_cut:
            # Only whose next event was gone by then.
            missing = max([position, *(event.number or 0 for event in events)]) + 1
            assert missing < history.log.first

    def check(self, history: "History") -> None:
        kinds = [event.kind for event in self.given]
        numbers = [event.number for event in self.given if event.number is not None]
        wanted = self.wanted(history)
        assert numbers == wanted[: len(numbers)]
        opening = [ACK, *[GAP] * self.has_gap]
        assert kinds[: len(opening)] == opening[: len(kinds)]
        ends = [kind for kind in kinds[len(opening) :] if kind != "status"]
        assert ends in ([], [ERROR], [CLOSED])
        if ends:
            assert kinds[-1] in (ERROR, CLOSED)
        if ends == [CLOSED]:
            assert self.until is not None
            assert numbers == wanted


class History:
    """A log that pushes out, and everything that was ever added to it."""

    def __init__(self) -> None:
        self.log = EventLog(1500)
        self.frames: list[Frame] = []
        self.readers: list[Reader] = []

    def happen(self, what: str, first: int, second: int) -> None:
        reader = self.readers[first % len(self.readers)] if self.readers else None
        match what:
            case "add":
                self.frames.append(frame(first % 3, second % 300, is_final=second % 9 == 0))
                self.log.add(self.frames[-1])
            case "open":
                self.readers.append(Reader(self, first, None if second % 4 == 3 else second % 4))
            case "take" if reader is not None:
                reader.take(self, second)
            case "cut" if reader is not None and not reader.was_cut and not reader.read.is_ended:
                reader.was_cut = True
                reader.read.cut("why")
            case "end" if reader is not None and reader.until is None:
                reader.until = self.log.last
                reader.read.end(closed_bytes())
        for each in self.readers:
            each.check(self)

    def finish(self) -> None:
        """See that who takes everything has everything, or knows that it has not."""
        for reader in self.readers:
            reader.take(self, ALL)
            reader.check(self)
            numbers = [event.number for event in reader.given if event.number is not None]
            if reader.given[-1].kind != ERROR:
                assert numbers == reader.wanted(self)
                assert reader.read.has_all or reader.read.is_over
                assert reader.read.backlog == 0 or reader.read.is_over
            reader.take(self, ALL)
            assert len(reader.given) >= 1
            assert not reader.was_cut or reader.read.is_over


STEPS = st.tuples(
    st.sampled_from(["add"] * 6 + ["take"] * 6 + ["open"] * 3 + ["end", "cut"]),
    st.integers(0, 40),
    st.integers(1, 1200),
)


@pytest.mark.spec("M1")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(st.lists(STEPS, max_size=80))
def test_whatever_happens_a_reader_has_a_row_without_holes_or_knows_of_them(
    steps: Iterable[tuple[str, int, int]],
) -> None:
    history = History()
    for step in steps:
        history.happen(*step)
    history.finish()


@pytest.mark.spec("M1")
def test_a_tasks_own_end_is_its_last_word_also_when_the_session_ends_meanwhile() -> None:
    reader = reader_of(log_of(frame()), task=1)
    reader.end(b"event: status\ndata: {}\n\n")
    reader.end(closed_bytes())
    assert seen(reader) == [ACK, 1, "status"]
    assert reader.is_over
