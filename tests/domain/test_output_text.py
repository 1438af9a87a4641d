"""Output that is cut anywhere is the same text as the whole, in whole lines where there are any (M1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain import output_text
from murmur.domain.output_text import PIECE, OutputText

# UTF-8 and what is none: characters of every length, begun ones, lone continuations, surrogates, too long forms.
CHUNKS = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=8),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\xe2",
            b"\xe2\x82",
            b"\xf0\x9f\x98",
            b"\x80\x80\x80\x80",
            b"\xed\xa0\x80",
            b"\xc0\x80",
            b"\xf5\x80\x80\x80",
            b"\xff\xfe",
            "\u2028".encode(),
            "é€😀".encode(),
            b"x" * 30,
        ]
    ),
)


def fed(text: OutputText, pieces: list[bytes]) -> list[str]:
    return [*(text.feed(piece) for piece in pieces), text.end()]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("piece", [8, PIECE])
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.lists(CHUNKS, max_size=20))
def test_pieces_cut_anywhere_are_the_text_of_the_whole(piece: int, pieces: list[bytes]) -> None:
    whole = b"".join(pieces).decode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_text, "PIECE", piece)
        given_out = fed(OutputText(), pieces)
        assert "".join(given_out) == whole
        bytewise = b"".join(pieces)
        assert "".join(fed(OutputText(), [bytewise[at : at + 1] for at in range(len(bytewise))])) == whole
    if piece == PIECE:  # Nothing here is so long that a line would be cut.
        assert all(text.endswith("\n") for text in given_out[:-1] if text)


@pytest.mark.spec("M1")
def test_a_line_is_given_once_it_has_its_end_and_no_earlier() -> None:
    text = OutputText()
    assert text.feed(b"one\ntwo\nthr") == "one\ntwo\n"
    assert text.feed(b"ee") == ""
    assert text.feed(b"\n") == "three\n"
    assert text.feed(b"no end") == ""
    assert text.end() == "no end"
    assert text.end() == ""


@pytest.mark.spec("M1")
def test_a_carriage_return_ends_no_line() -> None:
    text = OutputText()
    assert text.feed(b"10%\r20%\r") == ""
    assert text.feed(b"30%\r\n") == "10%\r20%\r30%\r\n"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f600"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_line_is_passed_on_before_its_end_without_splitting_a_character(character: str, shift: int) -> None:
    whole = "a" * shift + character * PIECE
    data = whole.encode()
    text = OutputText()
    first = text.feed(data[:PIECE])
    assert first == data[:PIECE].decode("utf-8", "ignore")
    assert first + text.feed(data[PIECE:]) + text.end() == whole


@pytest.mark.spec("M1")
def test_a_line_of_a_byte_less_is_held_back() -> None:
    text = OutputText()
    assert text.feed(b"x" * (PIECE - 1)) == ""
    assert text.feed(b"x") == "x" * PIECE


@pytest.mark.spec("M1")
@pytest.mark.parametrize("junk", [b"\x80", b"\xc3", b"\xe2", b"\xf0", b"\xff", b"\xe2\x82", b"\xf0\x9f\x98"])
def test_junk_without_end_is_passed_on_as_what_it_is_not(junk: bytes) -> None:
    text = OutputText()
    data = junk * PIECE
    assert text.feed(data) + text.end() == data.decode("utf-8", "replace")


@pytest.mark.spec("M1")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(0, 3 * 8), st.booleans()), max_size=30))
def test_no_more_is_held_back_than_a_piece(sizes: list[tuple[int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_text, "PIECE", 8)
        text, held = OutputText(), 0
        for size, with_line_end in sizes:
            data = (b"\n" if with_line_end else b"") + b"x" * size
            held += len(data) - len(text.feed(data))
            assert held < max(8, len(data))
        assert len(text.end()) == held
