"""Which names lead into a store, and what stands for a folder."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.capsule_store import (
    LONGEST_VERSION,
    CapsuleReference,
    FolderDigest,
    capsule_reference,
    parse_reference,
    version_order,
)
from murmur.domain.errors import CapsuleNotFound

BAD_NAMES = [
    "",
    "/",
    "a/",
    "/a",
    "a/b/c",
    "a//b",
    "..",
    "a/..",
    "../a",
    "a/../b",
    "Worker",
    "wor ker",
    "worker\n",
    "worker\0",
    "w\u00f6rker",
    "a.b",
    "a_b",
    "\ud800",
]
BAD_VERSIONS = [
    "",
    ".",
    "..",
    "../1",
    "1/2",
    "/1",
    "1..2",
    "1\0",
    ".1",
    "\ud800",
    "1\udcff",
    "1" * (LONGEST_VERSION + 1),
]


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("worker@1.0.0", ("worker", "1.0.0")),
        ("local/worker@1.0.0", ("local", "worker", "1.0.0")),
        ("-@-", ("-", "-")),
        ("w@1@2", ("w", "1@2")),
        ("w@1.0.0-rc.1+b 7", ("w", "1.0.0-rc.1+b 7")),
        ("w@\u00e9", ("w", "\u00e9")),
        ("w@" + "1" * LONGEST_VERSION, ("w", "1" * LONGEST_VERSION)),
    ],
)
def test_a_name_and_a_version_lead_to_one_folder(text: str, levels: tuple[str, ...]) -> None:
    reference = parse_reference(text)
    assert reference.levels == levels
    assert f"{reference.name}@{reference.version}" == text


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_no_capsule_has_is_refused_by_name(name: str) -> None:
    with pytest.raises(CapsuleNotFound) as refused:
        capsule_reference(name, "1.0.0")
    assert refused.value.code == "E-RUN-008"
    assert refused.value.message.isprintable()
    with pytest.raises(CapsuleNotFound):
        parse_reference(f"{name}@1.0.0")


@pytest.mark.parametrize("version", BAD_VERSIONS)
def test_a_version_that_could_lead_elsewhere_is_refused(version: str) -> None:
    with pytest.raises(CapsuleNotFound) as refused:
        capsule_reference("worker", version)
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 200
    with pytest.raises(CapsuleNotFound):
        parse_reference(f"worker@{version}")


def test_a_capsule_without_a_version_is_refused_with_an_example() -> None:
    with pytest.raises(CapsuleNotFound, match="names no version") as refused:
        parse_reference("worker")
    assert refused.value.hint is not None
    assert "NAME@VERSION" in refused.value.hint


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(name=st.text(max_size=12), version=st.text(max_size=12))
def test_what_is_taken_stays_beneath_the_store(name: str, version: str) -> None:
    try:
        levels = capsule_reference(name, version).levels
    except CapsuleNotFound:
        return
    assert 2 <= len(levels) <= 3
    assert all(level and level not in (".", "..") and "/" not in level and "\0" not in level for level in levels)


def test_a_reference_is_shown_on_one_line() -> None:
    assert str(CapsuleReference("worker", "1\x1b[2J\u202e")) == "worker@1\\x1b[2J\\u202e"


def test_the_digest_is_made_of_the_documented_bytes() -> None:
    digest = FolderDigest()
    content = hashlib.sha256(b"print()").digest()
    digest.add_directory(b"bin")
    digest.add_file(b"bin/run", content, executable=True)
    digest.add_file(b"murmur.yaml", content, executable=False)
    entries = [b"d" + b"\0" * 7 + b"\x03bin", b"x" + b"\0" * 7 + b"\x07bin/run" + content]
    last = b"f" + b"\0" * 7 + b"\x0bmurmur.yaml" + content
    assert digest.hex() == hashlib.sha256(b"murmur-capsule-v1\n" + b"".join(entries) + last).hexdigest()


@given(st.lists(st.text("0123456789.-rcv", max_size=8)))
def test_versions_can_be_sorted_whatever_they_are_and_numbers_count(versions: list[str]) -> None:
    assert sorted(sorted(versions), key=version_order) == sorted(sorted(versions, reverse=True), key=version_order)
    assert version_order("1.9") < version_order("1.9-rc1") < version_order("1.10") < version_order("2")


def test_a_number_of_as_many_digits_as_a_version_has_sorts_too() -> None:
    assert version_order("9" * LONGEST_VERSION) > version_order("1" * LONGEST_VERSION)
