"""What result a child left (O4, W2)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.results import RESULT_LIMIT, read_result
from tests.adapters.processes_for_tests import open_descriptors


@pytest.fixture
def out(tmp_path: Path) -> Path:
    place = tmp_path / "out"
    place.mkdir()
    return place


@pytest.fixture
def records(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_result_is_its_text_with_what_is_none_replaced(records: int, out: Path) -> None:
    (out / "result.txt").write_bytes("é\n".encode() + b"\xff\x00")
    assert read_result(records) == "é\n�\0"
    (out / "result.txt").write_bytes(b"")
    assert read_result(records) == ""


def test_a_large_result_is_cut_and_says_where_the_whole_is(records: int, out: Path) -> None:
    (out / "result.txt").write_bytes(b"x" * RESULT_LIMIT)
    assert read_result(records) == "x" * RESULT_LIMIT
    with (out / "result.txt").open("ab") as file:
        file.write(b"y")
    assert read_result(records) == "x" * RESULT_LIMIT + "\n[the whole result is in out/result.txt]"


@pytest.mark.parametrize("kind", ["nothing", "link", "directory", "fifo", "linked out", "no out"])
def test_what_is_no_file_of_the_child_s_is_no_result_and_holds_nobody_up(
    records: int, out: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "result.txt").write_text("not the child's to show")
    path = out / "result.txt"
    match kind:
        case "link":
            path.symlink_to(tmp_path / "secret" / "result.txt")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "linked out":
            out.rmdir()
            out.symlink_to(tmp_path / "secret")
        case "no out":
            out.rmdir()
    before = open_descriptors()
    assert read_result(records) is None
    assert open_descriptors() == before
