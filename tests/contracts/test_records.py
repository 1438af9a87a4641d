"""Every recorded verdict of the Rust reader and writer, byte for byte (R1-R4)."""

import json
from pathlib import Path

import pytest

from murmur.domain.record import UnreadableRecord, parse_record, render_record

RECORDS = Path(__file__).parents[2] / "fixtures" / "records"
EXPECTED = json.loads((RECORDS / "expected.json").read_text())


@pytest.mark.spec("R1", "R2", "R3", "R4")
@pytest.mark.parametrize("case", EXPECTED)
def test_a_record_reads_and_is_written_back_as_by_the_rust_runtime(case: str) -> None:
    content = (RECORDS / f"{case}.json").read_bytes()
    if EXPECTED[case]["reads"]:
        assert render_record(parse_record(content)) == EXPECTED[case]["written"].encode()
    else:
        with pytest.raises(UnreadableRecord) as refused:
            parse_record(content)
        assert refused.value.removable
