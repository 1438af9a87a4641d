"""Server-sent events are read back as they were written, whatever pieces they come in, in bounded memory (O4)."""

import json
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.sse import EVENT_LIMIT, HEARTBEAT, Event, EventReader, EventTooLong, event_bytes
from murmur.domain.stream_frames import task_frame

# A line break ends a field, and JSON has none; a lone surrogate has no UTF-8.
TEXT = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=40)
EVENTS = st.lists(st.builds(Event, TEXT, TEXT, st.none() | st.integers(0, 10**20 - 1)), max_size=12)


def in_pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Cut bytes into pieces of those sizes, again and again."""
    at = 0
    for size in cycle(sizes):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


def read(data: bytes, *, sizes: list[int] | None = None, limit: int = EVENT_LIMIT) -> list[Event]:
    reader = EventReader(limit)
    return [event for piece in in_pieces(data, sizes or [len(data) or 1]) for event in reader.feed(piece)]


@pytest.mark.spec("O4")
@settings(max_examples=120, derandomize=True, deadline=None, database=None)
@given(EVENTS, st.lists(st.integers(1, 50), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_what_was_written_is_read_in_whatever_pieces(
    events: list[Event], sizes: list[int], crlf: bool, beating: bool
) -> None:
    written = [event_bytes(event.kind, event.data.encode(), event.number) for event in events]
    data = (HEARTBEAT if beating else b"").join([b"", *written, b""])
    assert read(data.replace(b"\n", b"\r\n") if crlf else data, sizes=sizes) == events


@pytest.mark.spec("O4")
def test_an_event_has_its_number_before_its_kind_and_data_and_a_blank_line_behind() -> None:
    assert event_bytes("status", b'{"a":1}', 7) == b'id: 7\nevent: status\ndata: {"a":1}\n\n'
    assert event_bytes("gap", b"{}") == b"event: gap\ndata: {}\n\n"


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    ("written", "event"),
    [
        (b"data: a\ndata: b\ndata:\ndata: d\n\n", Event("message", "a\nb\n\nd")),
        (b"data:a\n\n", Event("message", "a")),
        (b"data:  a \n\n", Event("message", " a ")),
        (b"data\n\n", Event("message", "")),
        (b"data: a: b\n\n", Event("message", "a: b")),
        (b"event: one\nevent: two\ndata: a\n\n", Event("two", "a")),
        (b"data: a\nid: 3\nevent: late\n\n", Event("late", "a", 3)),
        (b": a comment\ndata: a\n:\n:data: b\n\n", Event("message", "a")),
        (b"retry: 5\nfield\nDATA: b\n data: c\ndata: a\nEvent: x\n\n", Event("message", "a")),
        (b"data: \xff\xc3\xa9\xe2\x82\n\n", Event("message", "\ufffd\xe9\ufffd")),
        (b"data: \xe2\x80\xa8\xc2\x85\x0b\x0c\n\n", Event("message", "\u2028\x85\x0b\x0c")),
    ],
)
def test_fields_are_read_as_the_standard_says_and_unknown_ones_mean_nothing(written: bytes, event: Event) -> None:
    for size in (1, 2, len(written)):
        assert read(written, sizes=[size]) == [event]
        assert read(written.replace(b"\n", b"\r\n"), sizes=[size]) == [event]


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "number",
    [
        b"",
        b" ",
        b"x",
        b"-1",
        b"+1",
        b"1.0",
        b"1_0",
        b" 1",
        b"1 ",
        b"0x1",
        "\u00b2".encode(),
        "\u0661".encode(),
        b"1" * 21,
    ],
)
def test_an_id_that_is_no_number_is_none_and_leaves_the_one_before_it(number: bytes) -> None:
    assert read(b"id: %b\ndata: a\n\n" % number) == [Event("message", "a")]
    assert read(b"id: 4\nid: %b\ndata: a\n\n" % number) == [Event("message", "a", 4)]


@pytest.mark.spec("O4")
@pytest.mark.parametrize("number", [0, 7, 2**63, 10**20 - 1])
def test_an_id_of_up_to_twenty_digits_is_a_number(number: int) -> None:
    assert read(b"id: %d\ndata: a\n\n" % number) == [Event("message", "a", number)]


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "written", [b"", HEARTBEAT * 3, b"\n\n\r\n", b"event: a\nid: 1\n\n", b"retry: 1\n\n", b"data: a\n"]
)
def test_without_data_and_a_blank_line_there_is_no_event(written: bytes) -> None:
    assert read(written) == []


@pytest.mark.spec("O4")
def test_nothing_of_an_event_is_left_for_the_next() -> None:
    written = b"event: a\nid: 1\n\ndata: x\n\nevent: b\nid: 2\ndata: y\n\ndata: z\n\n"
    assert read(written) == [Event("message", "x"), Event("b", "y", 2), Event("message", "z")]


@pytest.mark.spec("O4")
def test_an_event_is_given_with_the_piece_that_ends_it_and_not_later() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\r") == []
    assert reader.feed(b"\ndata: b\n\nda") == [Event("message", "a"), Event("message", "b")]
    assert reader.feed(b"ta: c\n\n") == [Event("message", "c")]


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "endless",
    [
        b"x",
        b"data: " + b"x" * 400,
        b"data: x\n",
        b"data\n",
        b":\n",
        b": comment\r\n",
        b"unknown: x\n",
        b"id: 1\n",
        b"\r",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_an_event_without_an_end_is_too_long_whatever_it_is_made_of(endless: bytes, size: int) -> None:
    reader, fed = EventReader(1000), 0
    with pytest.raises(EventTooLong):  # noqa: PT012 - how much was taken before is what this is about
        for piece in in_pieces(endless * 3000, [size]):
            fed += len(piece)
            reader.feed(piece)
    assert 1000 < fed <= 3000  # Line ends are not counted, so lines of one byte are twice or three times their size.


@pytest.mark.spec("O4")
def test_an_event_of_the_limit_is_read() -> None:
    written = b"data: " + b"x" * 994 + b"\n\n"
    for size in (1, 7, 1002):
        assert read(written, sizes=[size], limit=1000) == [Event("message", "x" * 994)]
    with pytest.raises(EventTooLong):
        read(b"data: " + b"x" * 995 + b"\n\n", sizes=[1], limit=1000)


@pytest.mark.spec("O4")
@pytest.mark.parametrize("size", [1, 13, 65536, 10**6])
def test_small_events_are_never_too_long_however_many_there_are(size: int) -> None:
    written = (event_bytes("status", b"x" * 60, 12345) + HEARTBEAT) * 2000
    assert read(written, sizes=[size], limit=100) == [Event("status", "x" * 60, 12345)] * 2000


@pytest.mark.spec("O4")
def test_a_task_with_the_largest_result_there_may_be_is_read() -> None:
    # Every character of this one is written as six.
    document = {"artifacts": [{"parts": [{"kind": "text", "text": "\x01" * 1024 * 1024}]}]}
    (event,) = read(task_frame("tsk_1", document).written(b"1"), sizes=[65536])
    assert json.loads(event.data)["result"] == document
