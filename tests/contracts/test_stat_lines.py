"""Stat lines captured from real processes with odd names, and a few broken ones (L3)."""

import json
from pathlib import Path

import pytest

from murmur.domain.process import parse_stat_line

LINES = Path(__file__).parents[2] / "fixtures" / "stat_lines"
EXPECTED = json.loads((LINES / "expected.json").read_text())


@pytest.mark.spec("L3")
@pytest.mark.parametrize("case", EXPECTED)
def test_state_and_start_token_are_counted_from_the_last_parenthesis(case: str) -> None:
    line = parse_stat_line((LINES / f"{case}.stat").read_bytes())
    assert line.state == EXPECTED[case]["state"]
    assert line.start_token == EXPECTED[case]["start_token"]
