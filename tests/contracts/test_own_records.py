"""Further records, with verdicts worked out from serde's rules rather than from this reader (R1-R4, S3)."""

import json
from pathlib import Path

import pytest

from murmur.domain.record import UnreadableRecord, parse_record, render_record

RECORDS = Path(__file__).parents[2] / "fixtures" / "records_own"
EXPECTED = json.loads((RECORDS / "expected.json").read_text())
READABLE = sorted(case for case in EXPECTED if EXPECTED[case]["reads"])
UNREADABLE = sorted(case for case in EXPECTED if not EXPECTED[case]["reads"])


@pytest.mark.spec("R1", "R2", "R3")
@pytest.mark.parametrize("case", READABLE)
def test_a_record_that_serde_takes_is_written_back_in_the_exact_form(case: str) -> None:
    content = (RECORDS / f"{case}.json").read_bytes()
    assert render_record(parse_record(content)) == EXPECTED[case]["written"].encode()


@pytest.mark.spec("R3", "R4", "S3")
@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_is_refused_and_removable_only_where_no_reader_could_take_it(case: str) -> None:
    with pytest.raises(UnreadableRecord) as refused:
        parse_record((RECORDS / f"{case}.json").read_bytes())
    assert refused.value.removable is EXPECTED[case]["removable"]


@pytest.mark.spec("R3")
def test_every_record_file_has_a_verdict_and_every_verdict_a_file() -> None:
    files = {path.stem for path in RECORDS.glob("*.json")} - {"expected"}
    assert files == set(EXPECTED)
