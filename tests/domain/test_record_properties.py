"""What holds for every record, tried on ten thousand damaged ones (R2, R3, S3)."""

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.record import UnreadableRecord, parse_record, render_record

FIXTURES = Path(__file__).parents[2] / "fixtures"
MARK = "Qz9Qz9"
"""Part of every token in the documents below, and of nothing else."""

VALID: dict[str, Any] = {
    "session_id": "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
    "url": "localhost:40123",
    "pid": 7331,
    "process_start": "5550123",
    "capsule_name": "wëaver 中 \U0001f600",
    "capsule_version": "2.4.0",
    "workdir": "/srv/murmur/weaver",
    "outlives_launcher": False,
    "started_at": "2026-03-09T08:07:06Z",
    "door_token": f"mdt1.{MARK}.operator",
    "credentials": {"reader": f"mdt1.{MARK}.reader", "writer": f"mdt1.{MARK}.writer"},
    "formation_id": "frm_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
    "formation_lifeline": True,
    "formation_launcher": {"pid": 99, "process_start": "77"},
    "spawned_by": "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4000",
    "later": {"a": [1, -2.5e3, None, "x\\"]},
}
SEEDS = [
    json.dumps(VALID, indent=2, ensure_ascii=False).encode(),
    json.dumps(VALID, separators=(",", ":")).encode(),
    json.dumps(dict(list(VALID.items())[:9])).encode(),
]

# Bytes and pieces that JSON readers disagree about.
PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-", b"0", b"e", b".", b"\x00", b"\t", b"\n", b"\x7f", b"\xff",
    b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\u", b"\\ud800", b"\\ud83d\\ude00", b"\\x", b"NaN", b"null",
    b"true", b"-0", b"1e999", b'"pid":1,', b'"door_token":null,', b'"later":', b"\xc2\xa0", b"9" * 4400, b"[" * 1200,
]  # fmt: skip

# Members' values as they are written in a file: some that fit a record's keys, some that fit none.
VALUES = [
    "null", "true", "false", "0", "-0", "7", "-1", "1.0", "1e3", "1e999", "4294967295", "4294967296",
    "18446744073709551616", "01", "NaN", '""', '"ses_a"', '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"',
    '"\x7f\u2028\U0010ffff"', '"\t"', "[]", "{}", '["a",1]',
    '[1,"9"]', '{"pid":1,"process_start":"9"}', '{"pid":1,"process_start":"9","pid":1}', '{"a":"b","a":"c"}', '{"a":1}',
    '{"\\udc00":"x"}', '"frm_0198a7b3c4d57e6f8a9b0c1d2e3f4052"', '"frm_"', "9" * 4400, "[" * 1200 + "]" * 1200,
]  # fmt: skip
NAMES = [*VALID, "Pid", "", "\\ud800", "\\u0070id", "\U0001f600", "x"]


def damage_bytes(random: Random) -> bytes:
    """Return a valid record with one to four bits flipped, pieces put in, or ranges cut out or repeated."""
    content = bytearray(random.choice(SEEDS))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content))
        match random.choice("fiidr"):
            case "f":
                content[at] ^= 1 << random.randrange(8)
            case "i":
                content[at:at] = random.choice(PIECES)
            case "d":
                del content[at : at + random.randint(1, 12)]
            case _:
                content[at:at] = content[at : at + random.randint(1, 40)]
    return bytes(content)


def damage_members(random: Random) -> bytes:
    """Return a valid record with members changed, left out, added, repeated or moved: still JSON, mostly."""
    escaped = random.random() < 0.5
    members = [(name, json.dumps(value, ensure_ascii=escaped)) for name, value in VALID.items()]
    for _ in range(random.randint(0, 3)):
        at = random.randrange(len(members))
        match random.choice("ccalrm"):
            case "c":
                members[at] = (members[at][0], random.choice(VALUES))
            case "a":
                members.insert(at, (random.choice(NAMES), random.choice(VALUES)))
            case "l":
                del members[at]
            case "r":
                members.append(random.choice(members))
            case _:
                members.append(members.pop(at))
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members) + "}").encode()


def reads_to_a_fixed_point(content: bytes) -> bool:
    """Whether `content` reads; hold that it is written to a fixed point then, and refused without a token else."""
    try:
        record = parse_record(content)
    except UnreadableRecord as error:
        shown = "".join(traceback.format_exception(error)) + repr(error) + error.reason
        assert MARK not in shown, content
        return False
    written = render_record(record)
    again = parse_record(written)
    assert again == record, content
    assert render_record(again) == written, content
    return True


RECORDS, A_TIME = 10_000, 20
TRIED = settings(max_examples=RECORDS // 2 // A_TIME, derandomize=True, deadline=None, database=None)
DAMAGES = st.randoms(use_true_random=True)
"""A seeded source of damage: hypothesis draws the seed, and the twenty records made of it cost no draws."""


@pytest.mark.slow  # five thousand records take some seconds on a busy machine: the number is the point
@pytest.mark.spec("R2", "R3", "S3", "I3")
@TRIED
@given(random=DAMAGES)
def test_a_record_with_damaged_bytes_is_refused_or_written_to_a_fixed_point(random: Random) -> None:
    for _ in range(A_TIME):
        reads_to_a_fixed_point(damage_bytes(random))


@pytest.mark.slow  # the other five thousand
@pytest.mark.spec("R2", "R3", "S3", "I3")
@TRIED
@given(random=DAMAGES)
def test_a_record_with_damaged_members_is_refused_or_written_to_a_fixed_point(random: Random) -> None:
    for _ in range(A_TIME):
        reads_to_a_fixed_point(damage_members(random))


@pytest.mark.spec("R3")
@pytest.mark.parametrize("damage", [damage_bytes, damage_members])
def test_the_damage_leaves_some_records_readable_and_others_not(damage: Callable[[Random], bytes]) -> None:
    random = Random(1)
    readable = sum(reads_to_a_fixed_point(damage(random)) for _ in range(300))
    assert 30 < readable < 270


@pytest.mark.spec("R3")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(content=st.binary(max_size=64))
def test_bytes_of_any_kind_are_refused_and_nothing_else(content: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        parse_record(content)


@pytest.mark.spec("R2", "R3")
@pytest.mark.parametrize("folder", ["records", "records_own"])
def test_every_recorded_file_that_reads_is_written_to_a_fixed_point(folder: str) -> None:
    files = sorted((FIXTURES / folder).glob("*.json"))
    assert len(files) > 50
    for file in files:
        try:
            written = render_record(parse_record(file.read_bytes()))
        except UnreadableRecord:
            continue
        assert render_record(parse_record(written)) == written
