"""Showing text that came from a file, so that it cannot pass for something else (section 15)."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.cli.table import width
from murmur.domain.visible_text import visible, visible_start

SOH_TO_US = [chr(code) for code in range(0x20)]
C1 = [chr(code) for code in range(0x7F, 0xA0)]
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad"


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "text", ["", "weaver", "a b  c ~ \\ \"'", "café", "中文", "e\u0301", "Ω≈ç√", "👍", "עברית", "العربية", "a\u3000b"]
)
def test_text_that_shows_as_itself_is_left_alone(text: str) -> None:
    assert visible(text) == text


@pytest.mark.spec("O1")
@pytest.mark.parametrize("character", SOH_TO_US + C1, ids=lambda character: f"{ord(character):02x}")
def test_a_control_character_is_shown_as_two_hex_digits(character: str) -> None:
    assert visible(f"a{character}b") == f"a\\x{ord(character):02x}b"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("character", BIDI, ids=lambda character: f"{ord(character):04x}")
def test_a_mark_that_turns_the_direction_of_text_is_shown_as_its_number(character: str) -> None:
    assert visible(f"a{character}b") == f"a\\u{ord(character):04x}b"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("character", ZERO_WIDTH, ids=lambda character: f"{ord(character):04x}")
def test_a_character_of_no_width_is_made_visible(character: str) -> None:
    shown = visible(f"a{character}b")
    assert character not in shown
    assert f"{ord(character):x}" in shown


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\r\nb\tc", "a\\x0d\\x0ab\\x09c"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\ud800x\udfff", "\\ud800x\\udfff"),
        ("caf\udce9", "caf\\udce9"),
        ("\ue000", "\\ue000"),
        ("\U000e0041", "\\U000e0041"),
        ("\U0010ffff", "\\U0010ffff"),
        ("\ufffe", "\\ufffe"),
    ],
)
def test_what_a_terminal_acts_on_is_shown_and_not_done(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.spec("O1")
@settings(max_examples=80, derandomize=True, deadline=None, database=None)
@given(
    text=st.text(alphabet=st.characters(), max_size=40)
    | st.text(alphabet=st.sampled_from(BIDI + ZERO_WIDTH + "a\x1b\n\ud800"))
)
def test_visible_text_is_one_line_that_can_be_encoded_and_holds_no_control(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert visible(shown) == shown
    assert width(shown) >= 0


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("weaver", 6),
        ("café", 4),
        ("cafe\u0301", 4),
        ("e\u0301\u0323\u0308", 1),
        ("中文", 4),
        ("한글", 4),
        ("カナ", 4),
        ("ｶﾅ", 2),
        ("\uff21\uff22", 4),
        ("a中b", 4),
        ("👍", 2),
        ("Ω", 1),
    ],
)
def test_the_width_is_counted_in_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.spec("O1")
@pytest.mark.parametrize("text", ["\x1b[31m", "a\u200bb", "\u202e", "\ud800", "\x85"])
def test_the_width_of_what_was_made_visible_is_its_length(text: str) -> None:
    shown = visible(text)
    assert shown.isascii()
    assert width(shown) == len(shown)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("text", ["é\x1b", "é\n", "é\x00\x07"])
def test_the_width_of_raw_controls_is_still_a_number(text: str) -> None:
    assert width(text) >= 1


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("abc", "abc"), ("abcd", "abc […]"), ("a\x1bb", "a\\x1bb"), ("\n" * 9, "\\x0a" * 3 + " […]")],
)
def test_of_a_long_text_the_start_is_shown_and_that_there_is_more(text: str, shown: str) -> None:
    assert visible_start(text, 3) == shown
