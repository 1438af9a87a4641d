"""The file that tells a command what was said before: where it is, and what it never touches (M1)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.conversation_file import write_conversation
from murmur.adapters.records_directory import RecordsDirectory
from murmur.domain.errors import RecordsUnusable


@pytest.fixture
def records(home: Path, tmp_path: Path) -> Iterator[RecordsDirectory]:
    with RecordsDirectory.create(os.environ, tmp_path, f"ses_{7:032x}") as made:
        yield made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("M1")
def test_the_file_and_its_folder_are_private_whatever_the_umask(records: RecordsDirectory) -> None:
    before = os.umask(0o777)
    try:
        path = write_conversation(records, "ctx", b"{}\n")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"{}\n"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("context_id", ["../../x", "/etc/passwd", "..", ".", "", "a\0b", "x" * 256, "\udc80", "a/b"])
def test_no_context_id_leads_anywhere_else(records: RecordsDirectory, context_id: str) -> None:
    path = write_conversation(records, context_id, b"")
    assert path.parent == records.path / "conversations"
    assert os.listdir(path.parent) == [path.name]
    assert sorted(os.listdir(records.path)) == ["conversations", "logs", "out"]


@pytest.mark.spec("M1")
def test_a_file_that_somebody_holds_open_or_linked_away_stays_as_it_was(
    records: RecordsDirectory, tmp_path: Path
) -> None:
    first = write_conversation(records, "ctx", b"first")
    target = tmp_path / "target"
    target.write_text("kept")
    with first.open("rb") as held:
        assert write_conversation(records, "ctx", b"second") == first
        assert held.read() == b"first"
    first.unlink()
    first.symlink_to(target)
    write_conversation(records, "ctx", b"third")
    assert (first.read_bytes(), first.is_symlink(), target.read_text()) == (b"third", False, "kept")


@pytest.mark.spec("M1")
@pytest.mark.parametrize("kind", ["link", "file", "directory"])
def test_what_is_in_the_way_is_named(records: RecordsDirectory, tmp_path: Path, kind: str) -> None:
    folder = records.path / "conversations"
    match kind:
        case "link":
            folder.symlink_to(tmp_path)
            expected = f"cannot make {folder}: it is a symbolic link"
        case "file":
            folder.touch()
            expected = f"cannot make {folder}: not a directory"
        case _:
            path = write_conversation(records, "ctx", b"")
            path.unlink()
            path.mkdir()
            expected = f"cannot make {path}: is a directory"
    with pytest.raises(RecordsUnusable) as unusable:
        write_conversation(records, "ctx", b"")
    assert unusable.value.message == expected
    assert not list(tmp_path.glob("*.jsonl"))
