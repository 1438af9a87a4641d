"""Completion files, with verdicts worked out from serde's rules rather than from this reader (W5)."""

import json
from pathlib import Path

import pytest

from murmur.domain.launch.completion import parse_completion, render_completion

COMPLETIONS = Path(__file__).parents[2] / "fixtures" / "completions"
EXPECTED = json.loads((COMPLETIONS / "expected.json").read_text())
READABLE = sorted(case for case in EXPECTED if EXPECTED[case]["reads"])
UNREADABLE = sorted(case for case in EXPECTED if not EXPECTED[case]["reads"])


@pytest.mark.spec("W5")
@pytest.mark.parametrize("case", READABLE)
def test_a_completion_that_serde_takes_is_written_back_in_the_exact_form(case: str) -> None:
    outcome = parse_completion((COMPLETIONS / f"{case}.json").read_bytes())
    assert outcome is not None
    assert render_completion(outcome) == EXPECTED[case]["written"].encode()


@pytest.mark.spec("W5")
@pytest.mark.parametrize("case", UNREADABLE)
def test_a_malformed_file_reads_as_no_completion(case: str) -> None:
    assert parse_completion((COMPLETIONS / f"{case}.json").read_bytes()) is None


@pytest.mark.spec("W5")
def test_every_completion_file_has_a_verdict_and_every_verdict_a_file() -> None:
    assert {path.stem for path in COMPLETIONS.glob("*.json")} - {"expected"} == set(EXPECTED)
