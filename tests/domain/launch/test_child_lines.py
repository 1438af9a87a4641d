"""Where lines end in whatever a child writes, and how much of it is kept (X4, X5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.launch.lines import LINE_LIMIT, TAIL_LINES, FirstLine, Lines, Tail

CUT = b" [...]"
PIECES = st.lists(st.text(alphabet="ab\n\r ", max_size=12).map(str.encode), max_size=12)


def first(pieces: list[bytes], limit: int) -> tuple[FirstLine, bytes]:
    line = FirstLine(limit)
    return line, b"".join(line.feed(piece) for piece in pieces)


@pytest.mark.spec("X4")
@given(PIECES)
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    lines = Lines()
    seen = [line for piece in pieces for line in lines.feed(piece)] + lines.end()
    whole = b"".join(pieces).split(b"\n")
    last = whole.pop()
    assert seen == [line.removesuffix(b"\r") for line in (*whole, *([last] if last else []))]


@pytest.mark.spec("X4")
@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b"x" * LINE_LIMIT, b"x" * LINE_LIMIT),
        (b"x" * (LINE_LIMIT + 1), b"x" * LINE_LIMIT + CUT),
        (b"x" * (LINE_LIMIT * 20), b"x" * LINE_LIMIT + CUT),
    ],
    ids=["64 KiB", "a byte more", "twenty times as much"],
)
@pytest.mark.parametrize("piece", [1000, 65536, 10**9])
def test_a_line_is_cut_at_its_limit_and_the_next_one_is_not(written: bytes, kept: bytes, piece: int) -> None:
    stream = written + b"\nnext\n"
    lines = Lines()
    seen = [line for at in range(0, len(stream), piece) for line in lines.feed(stream[at : at + piece])]
    assert seen == [kept, b"next"]
    assert lines.end() == []


@pytest.mark.spec("X4")
def test_a_line_without_end_takes_no_more_memory_than_the_limit() -> None:
    lines = Lines(limit=10)
    for _ in range(1000):
        assert lines.feed(b"x" * 100) == []
        assert len(lines._begun) <= 10
    assert lines.end() == [b"x" * 10 + CUT]


@pytest.mark.spec("X5")
@given(PIECES)
def test_the_first_line_is_the_same_however_it_arrives_and_nothing_after_it_is_lost(pieces: list[bytes]) -> None:
    line, rest = first(pieces, limit=1000)
    head, newline, after = b"".join(pieces).partition(b"\n")
    if newline:
        assert line.line == head.rstrip()
        assert rest == after
        assert not line.end()
    else:
        assert line.line is None
        assert line.end() == bool(head)
        assert line.line == (head.rstrip() if head else None)


@pytest.mark.spec("X5")
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_first_line_beyond_the_limit_never_comes_and_is_not_kept(piece: int) -> None:
    stream = b"x" * 101 + b"\n"
    line, _ = first([stream[at : at + piece] for at in range(0, len(stream), piece)], limit=100)
    assert line.is_known
    assert line.too_long
    assert line.line is None
    assert not line._begun
    assert not line.end()


@pytest.mark.spec("X5")
def test_a_first_line_of_exactly_the_limit_is_taken() -> None:
    line, _ = first([b"x" * 60, b"x" * 40 + b"\n"], limit=100)
    assert line.line == b"x" * 100


@pytest.mark.spec("X5")
def test_an_empty_first_line_is_one() -> None:
    line, rest = first([b"\n{}\n"], limit=100)
    assert line.line == b""
    assert rest == b"{}\n"


@pytest.mark.spec("X4")
def test_the_tail_is_the_last_twenty_lines_with_what_is_no_text_replaced() -> None:
    tail = Tail()
    for number in range(TAIL_LINES + 5):
        tail.add(b"%d \xff" % number)
    assert tail.lines() == [f"{number} �" for number in range(5, TAIL_LINES + 5)]
