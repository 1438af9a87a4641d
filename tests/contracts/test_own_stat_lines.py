"""Further stat lines, with what field 3 and field 22 of each one are (L3)."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.process import parse_stat_line

LINES = Path(__file__).parents[2] / "fixtures" / "stat_lines_own"
EXPECTED = json.loads((LINES / "expected.json").read_text())


@pytest.mark.spec("L3")
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_state_is_field_3_and_the_token_field_22_whatever_the_name_holds(case: str) -> None:
    line = parse_stat_line((LINES / f"{case}.stat").read_bytes())
    assert (line.state, line.start_token) == (EXPECTED[case]["state"], EXPECTED[case]["start_token"])


@pytest.mark.spec("L3")
def test_every_stat_line_has_an_expectation_and_every_expectation_a_line() -> None:
    assert {path.stem for path in LINES.glob("*.stat")} == set(EXPECTED)


@pytest.mark.spec("L3")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(name=st.binary(max_size=64), token=st.integers(0, 2**64 - 1))
def test_no_name_of_any_bytes_hides_the_start_token(name: bytes, token: int) -> None:
    tail = b" ".join(b"%d" % number for number in range(4, 22))
    line = parse_stat_line(b"4711 (" + name + b") S " + tail + b" %d 23 24\n" % token)
    assert (line.state, line.start_token) == ("S", str(token))


@pytest.mark.spec("L3", "S3")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_stat_line_are_read_without_an_error(content: bytes) -> None:
    line = parse_stat_line(content)
    assert b")" in content or (line.state is None and line.start_token is None)


@pytest.mark.spec("L3")
def test_a_group_of_more_digits_than_python_converts_is_read_without_an_error() -> None:
    assert parse_stat_line(b"4711 (x) S 1 " + b"7" * 5000 + b" 3").state == "S"
