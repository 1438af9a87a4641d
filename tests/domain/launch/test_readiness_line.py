"""What may be believed of a child's first line (Y1-Y3). The cases are in `tests/contracts/test_readiness_lines.py`."""

import json
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.ids import FormationId
from murmur.domain.launch.readiness import Readiness, ReadinessRefused, parse_readiness
from murmur.domain.secret import DoorToken

ROOT = PurePosixPath("/home/u/.murmur/records")
SESSION = "ses_0199c4e2f1b7712a9d3e4f5061728394"
FORMATION = "frm_" + "0a" * 16
REPORT = {
    "formation_id": FORMATION,
    "records_dir": f"{ROOT}/srv/{SESSION}",
    "session_id": SESSION,
    "tokens": {"operator": "mdt1.swordfish.mac"},
    "url": "localhost:40123",
}


def refusal(line: str | bytes, root: PurePosixPath = ROOT) -> str:
    with pytest.raises(ReadinessRefused) as refused:
        parse_readiness(line, root)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__
    return str(refused.value)


@pytest.mark.spec("Y1", "Y3")
def test_a_line_becomes_a_value_of_the_right_kinds() -> None:
    readiness = parse_readiness(json.dumps(REPORT), ROOT)
    assert readiness == Readiness(
        session_id=SESSION,
        records_dir=ROOT / "srv" / SESSION,
        capsule_url="http://localhost:40123",
        door_token=DoorToken("mdt1.swordfish.mac"),
        formation_id=FormationId(FORMATION),
    )
    assert isinstance(readiness.formation_id, FormationId)
    assert isinstance(readiness.records_dir, PurePosixPath)


@pytest.mark.spec("I3", "Y1")
def test_no_print_of_what_a_child_reported_shows_its_token() -> None:
    shown = repr(parse_readiness(json.dumps(REPORT), ROOT))
    assert "swordfish" not in shown
    assert "DoorToken(<redacted>)" in shown


@pytest.mark.spec("X6", "Y1")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("murmur 0.8.0", "Expecting value: column 1"),
        ('{"a": "b', "Unterminated string starting at: column 7"),
        ('{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": "\xff"}', "it is not UTF-8 at byte 7"),
        ('{"a": "\\ud800"}', "a string holds a lone surrogate"),
        ('{"a": "\udcff"}', "a string holds a lone surrogate"),
        ('{"a": 1e999}', "a number is out of range"),
        ('{"a": ' + "9" * 5000 + "}", "a number is out of range"),
        ("[" * 128 + "]" * 128, "it is nested too deeply"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "it is nested too deeply"),
    ],
    ids=range(11),
)
def test_what_did_not_parse_is_told_with_why(line: str | bytes, why: str) -> None:
    assert refusal(line) == f"the child capsule's first --json line did not parse: {why}"


@pytest.mark.spec("I3", "X6")
@pytest.mark.parametrize("line", [json.dumps(REPORT)[:-1], json.dumps(REPORT) + "x", '"swordfish', "swordfish"])
def test_what_did_not_parse_is_not_repeated_since_it_may_hold_a_token(line: str) -> None:
    assert "swordfish" not in refusal(line)
    assert "swordfish" not in refusal(line.encode())


@pytest.mark.spec("X6", "Y1")
@pytest.mark.parametrize("line", ["{}", "[]", "null", '{"session_id": 5}'])
def test_a_line_without_a_session_id_is_refused_in_these_words(line: str) -> None:
    assert refusal(line) == "the child capsule's --json line carried no session_id"


@pytest.mark.spec("Y2")
def test_a_line_without_a_records_dir_is_refused_in_these_words() -> None:
    assert refusal('{"session_id": "ses_x"}') == (
        "the child capsule's --json line carried no records_dir, so its outcome has nowhere to be read from"
    )


@pytest.mark.spec("Y2")
def test_a_records_dir_elsewhere_is_refused_with_both_places() -> None:
    assert refusal('{"session_id": "ses_x", "records_dir": "//tmp/./ses_x/"}') == (
        "the child capsule's --json line named //tmp/./ses_x/ as its records directory, which is not "
        "/home/u/.murmur/records/<workdir root>/ses_x, so its outcome has nowhere to be read from"
    )


@pytest.mark.spec("Y2")
@pytest.mark.parametrize("root", ["//home/u/.murmur/records", "/home/u/.murmur/records/", "/home//u/./.murmur/records"])
def test_the_root_is_compared_part_by_part_however_it_is_written(root: str) -> None:
    readiness = parse_readiness(json.dumps(REPORT), PurePosixPath(root))
    assert str(readiness.records_dir).lstrip("/") == f"home/u/.murmur/records/srv/{SESSION}"


@pytest.mark.spec("Y2")
def test_nothing_is_beneath_a_root_that_goes_up() -> None:
    line = json.dumps(REPORT | {"records_dir": f"/home/v/../u/.murmur/records/{SESSION}"})
    assert " named /home/v/../u/" in refusal(line, PurePosixPath("/home/v/../u/.murmur/records"))


@pytest.mark.spec("Y1")
def test_a_number_of_any_length_is_read_where_nobody_looks_at_it() -> None:
    line = json.dumps(REPORT)[:-1] + ', "x": 0.' + "1" * 5000 + "}"
    assert parse_readiness(line, ROOT).session_id == SESSION


PATHS = st.lists(st.sampled_from(["", ".", "..", "home", "u", ".murmur", "records", "records-evil", SESSION, "a\0"]))


@pytest.mark.spec("Y2", "Y3")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(start=st.sampled_from(["", "/", f"{ROOT}/", f"/{ROOT}//"]), parts=PATHS, session=st.sampled_from([SESSION, ""]))
def test_whatever_path_is_named_only_one_strictly_beneath_the_root_is_taken(
    start: str, parts: list[str], session: str
) -> None:
    try:
        readiness = parse_readiness(json.dumps({"session_id": session, "records_dir": start + "/".join(parts)}), ROOT)
    except ReadinessRefused:
        return
    assert ROOT in readiness.records_dir.parents
    assert readiness.records_dir.name == session == SESSION
    assert ".." not in readiness.records_dir.parts
    assert "\0" not in str(readiness.records_dir)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["session_id", "records_dir", "url", "tokens", "formation_id", "x"])


@pytest.mark.spec("Y1", "Y3")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(
    line=st.binary(max_size=40)
    | st.text('[]{}":,0123456789eE.+-truefalsn \\u', max_size=20)
    | st.dictionaries(KEYS, JSON).map(json.dumps)
)
def test_any_line_is_taken_or_refused_and_raises_nothing_else(line: str | bytes) -> None:
    try:
        readiness = parse_readiness(line, ROOT)
    except ReadinessRefused:
        return
    assert ROOT in readiness.records_dir.parents
