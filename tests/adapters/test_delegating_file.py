"""What a session tells a `mur delegate` of its own command (O4)."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.delegating_file import DELEGATING_FILE, Delegating, read_delegating, write_delegating
from tests.adapters.processes_for_tests import open_descriptors

WHOLE = Delegating("ses_1", "ctx_1", "http://localhost:1", ["worker"], 1_700_000_000_000, "frm_1", 2, 5)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def fields(delegating: Delegating) -> list[object]:
    return [getattr(delegating, name) for name in Delegating.__match_args__]


@pytest.mark.parametrize(
    "delegating", [WHOLE, Delegating("ses_1", "ctx_1", None, None), Delegating("ses_1", "ctx_1", None, [])]
)
def test_what_is_written_is_read(records: int, delegating: Delegating) -> None:
    write_delegating(records, delegating)
    read = read_delegating(records)
    assert read is not None
    assert fields(read) == fields(delegating)


def test_the_file_is_private_and_replaces_a_link(records: int, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / DELEGATING_FILE).symlink_to("elsewhere")
    write_delegating(records, WHOLE)
    found = (tmp_path / DELEGATING_FILE).lstat()
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert (tmp_path / "elsewhere").read_text() == "theirs"


def damaged(**changes: object) -> bytes:
    document = {name: getattr(WHOLE, name) for name in Delegating.__match_args__} | changes
    return json.dumps({name: value for name, value in document.items() if value != "gone"}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        *(damaged(**{name: "gone"}) for name in Delegating.__match_args__),
        damaged(session_id=None),
        damaged(session_id=1),
        damaged(context_id=None),
        damaged(url=1),
        damaged(spawn_allow="worker"),
        damaged(spawn_allow={"worker": True}),
        damaged(spawn_allow=False),
        damaged(deadline_unix_ms="soon"),
        damaged(deadline_unix_ms=True),
        damaged(deadline_unix_ms=1.5),
        damaged(formation_id=1),
        damaged(depth_remaining="deep"),
        damaged(depth_remaining=False),
        damaged(depth_limit="deep"),
        b" " * 300_000 + damaged(),
    ],
)
def test_a_damaged_file_says_nothing_and_so_never_that_everything_is_allowed(
    records: int, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / DELEGATING_FILE).write_bytes(content)
    assert read_delegating(records) is None


def test_what_is_no_name_in_the_allow_list_allows_nothing(records: int, tmp_path: Path) -> None:
    (tmp_path / DELEGATING_FILE).write_bytes(damaged(spawn_allow=["worker", None, 1, ["other"]]))
    read = read_delegating(records)
    assert read is not None
    assert read.spawn_allow == ["worker"]


def test_keys_that_come_with_later_versions_are_not_read(records: int, tmp_path: Path) -> None:
    (tmp_path / DELEGATING_FILE).write_bytes(damaged(more={"a": 1}))
    read = read_delegating(records)
    assert read is not None
    assert fields(read) == fields(WHOLE)


@pytest.mark.parametrize("kind", ["nothing", "link", "directory", "fifo", "closed"])
def test_what_is_no_file_says_nothing_and_holds_nobody_up(records: int, tmp_path: Path, kind: str) -> None:
    path = tmp_path / DELEGATING_FILE
    match kind:
        case "link":
            (tmp_path / "real").write_bytes(damaged())
            path.symlink_to("real")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "closed":
            path.mkdir(mode=0)
    before = open_descriptors()
    assert read_delegating(records) is None
    assert open_descriptors() == before
