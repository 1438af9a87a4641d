"""Decoding macOS's process description from bytes (L4)."""

import json
import struct
from pathlib import Path

import pytest

from murmur.domain.bsdinfo import SIZE, decode_bsdinfo

STRUCTS = Path(__file__).parents[2] / "fixtures" / "bsdinfo"
EXPECTED = json.loads((STRUCTS / "expected.json").read_text())
ONE = (STRUCTS / "running.bin").read_bytes()


@pytest.mark.spec("L4")
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_status_group_and_start_are_read_from_their_places(case: str) -> None:
    info = decode_bsdinfo((STRUCTS / f"{case}.bin").read_bytes())
    assert info is not None
    expected = EXPECTED[case]
    assert info.start_token == expected["start_token"]
    assert info.status == expected["status"]
    assert info.group == expected["group"]
    assert info.is_zombie is expected["is_zombie"]
    assert info.is_stopped is expected["is_stopped"]


@pytest.mark.spec("L4")
def test_every_struct_has_an_expectation_and_every_expectation_a_struct() -> None:
    assert {path.stem for path in STRUCTS.glob("*.bin")} == set(EXPECTED)


@pytest.mark.spec("L4")
def test_a_struct_is_136_bytes() -> None:
    assert SIZE == 136


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "content",
    [b"", ONE[:-1], ONE + b"\0", ONE + ONE, ONE[:120], b"\0" * 135, b"\0" * 137],
    ids=["nothing", "one-short", "one-more", "two", "no-start", "135", "137"],
)
def test_anything_but_exactly_one_struct_could_not_be_read(content: bytes) -> None:
    assert decode_bsdinfo(content) is None


@pytest.mark.spec("L4")
@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 5, 6, 2**32 - 1])
def test_only_status_5_is_a_zombie_and_only_4_is_stopped(status: int) -> None:
    info = decode_bsdinfo(ONE[:4] + struct.pack("=I", status) + ONE[8:])
    assert info is not None
    assert info.is_zombie is (status == 5)
    assert info.is_stopped is (status == 4)


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    ("seconds", "microseconds", "token"),
    [
        (0, 0, "0.000000"),
        (1, 10, "1.000010"),
        (1772345678, 100000, "1772345678.100000"),
        (2**64 - 1, 999999, "18446744073709551615.999999"),
    ],
)
def test_the_start_token_is_seconds_a_dot_and_six_digits(seconds: int, microseconds: int, token: str) -> None:
    info = decode_bsdinfo(ONE[:120] + struct.pack("=2Q", seconds, microseconds))
    assert info is not None
    assert info.start_token == token
