"""A child's work folder is where it says it is, private, and reached through no link (C2, C3, Y2)."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from murmur.adapters import child_workdir
from murmur.adapters.beneath import NotReached, open_beneath, open_directory
from murmur.adapters.child_workdir import ChildWorkdir, make_child_workdir
from murmur.domain.errors import ChildNotLaunched
from tests.adapters.processes_for_tests import ROOT, open_descriptors


@pytest.fixture
def records(parent: Path) -> Iterator[int]:
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def made(records: int, parent: Path, name: str = "local/worker") -> ChildWorkdir:
    with ExitStack() as opened:
        return make_child_workdir(opened, records, parent, name)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.spec("C2")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_both_levels_are_private_whatever_the_umask(umask: int, records: int, parent: Path) -> None:
    before = os.umask(umask)
    try:
        folder = made(records, parent)
    finally:
        os.umask(before)
    assert mode(parent / "children") == 0o700
    assert mode(folder.path) == 0o700


_UNPRIVILEGED = """
import os, stat, sys
from contextlib import ExitStack
from pathlib import Path
from murmur.adapters.child_workdir import make_child_workdir
if os.getuid() == 0:
    os.chown(sys.argv[1], 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.umask(0o777)
records = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
with ExitStack() as opened:
    folder = make_child_workdir(opened, records, Path(sys.argv[1]), "worker")
print(oct(stat.S_IMODE(folder.path.stat().st_mode)), oct(stat.S_IMODE(folder.path.parent.stat().st_mode)))
"""


@pytest.mark.spec("C2")
def test_a_umask_that_takes_the_owners_bits_too_is_no_hindrance_to_one_who_is_not_root() -> None:
    with tempfile.TemporaryDirectory() as place:  # Where others may go, unlike pytest's own.
        Path(place).chmod(0o755)
        records = Path(place, "records")
        records.mkdir(mode=0o700)
        done = subprocess.run(
            (sys.executable, "-c", _UNPRIVILEGED, str(records)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == "0o700 0o700\n", done.stderr


@pytest.mark.spec("C2")
def test_children_that_stood_open_are_closed_to_others(records: int, parent: Path) -> None:
    (parent / "children").mkdir()
    (parent / "children").chmod(0o777)
    made(records, parent)
    assert mode(parent / "children") == 0o700


@pytest.mark.spec("C2", "C3")
def test_each_child_has_a_folder_of_its_own_named_by_its_bare_name_and_known_by_identity(
    records: int, parent: Path
) -> None:
    before = open_descriptors()
    one, other = made(records, parent), made(records, parent)
    assert open_descriptors() == before
    assert one.path != other.path
    assert one.path.parent == parent / "children"
    name, _, digits = one.path.name.rpartition("-")
    assert name == "worker"
    assert len(digits) == 16
    assert set(digits) <= set("0123456789abcdef")
    found = one.path.stat()
    assert one.identity == (found.st_dev, found.st_ino)


@pytest.mark.spec("C2")
@pytest.mark.parametrize("target", ["directory", "file", "nothing"])
def test_a_link_for_the_children_is_refused_by_name_and_nothing_is_written_through_it(
    target: str, records: int, parent: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if target == "directory":
        elsewhere.mkdir(mode=0o755)
    elif target == "file":
        elsewhere.touch(mode=0o644)
    (parent / "children").symlink_to(elsewhere)
    before = open_descriptors()
    with pytest.raises(ChildNotLaunched) as refusal:
        made(records, parent)
    assert f"{parent / 'children'}: it is a symbolic link" in refusal.value.message
    assert open_descriptors() == before
    if target == "directory":
        assert list(elsewhere.iterdir()) == []
        assert mode(elsewhere) == 0o755


@pytest.mark.spec("C2")
def test_a_link_put_where_the_folder_was_just_made_is_refused_by_name(
    records: int, parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    mkdir = os.mkdir

    def swapped(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if name.startswith("worker-"):
            os.rmdir(name, dir_fd=dir_fd)
            os.symlink(elsewhere, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    before = open_descriptors()
    with pytest.raises(ChildNotLaunched, match=r"children/worker-[0-9a-f]{16}: it is a symbolic link"):
        made(records, parent)
    monkeypatch.undo()
    assert open_descriptors() == before
    assert mode(elsewhere) == 0o755


@pytest.mark.spec("C2")
def test_a_folder_that_is_there_already_is_not_taken(
    records: int, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_workdir, "random_hex", lambda count: "0" * 16)
    made(records, parent)
    with pytest.raises(ChildNotLaunched, match="worker-0000000000000000: file exists"):
        made(records, parent)


@pytest.mark.spec("C2")
def test_children_that_are_no_directory_are_refused(records: int, parent: Path) -> None:
    (parent / "children").touch()
    with pytest.raises(ChildNotLaunched, match="children: not a directory"):
        made(records, parent)


@pytest.mark.spec("C2")
def test_what_is_made_stays_what_it_was_when_its_path_is_swapped(records: int, parent: Path, tmp_path: Path) -> None:
    with ExitStack() as opened:
        folder = make_child_workdir(opened, records, parent, "worker")
        folder.path.rename(tmp_path / "away")
        folder.path.symlink_to(tmp_path)
        assert os.path.samestat(os.fstat(folder.descriptor), (tmp_path / "away").stat())
        assert folder.identity != (tmp_path.stat().st_dev, tmp_path.stat().st_ino)


@pytest.mark.spec("Y2")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_at_any_level_beneath_is_refused_by_name(level: int, tmp_path: Path) -> None:
    parts = ["one", "two", "three"]
    (tmp_path / "top" / "one" / "two" / "three").mkdir(parents=True)
    path = (tmp_path / "top").joinpath(*parts)
    at = (tmp_path / "top").joinpath(*parts[: level + 1])
    at.rename(tmp_path / "moved")
    at.symlink_to(tmp_path / "moved")
    top = open_directory(tmp_path / "top")
    try:
        before = open_descriptors()
        with pytest.raises(NotReached) as refusal:
            open_beneath(top, parts, path)
        assert str(refusal.value) == f"{at}: it is a symbolic link"
        assert open_descriptors() == before
        with pytest.raises(NotReached, match="it is a symbolic link"):
            open_directory(at)
    finally:
        os.close(top)


@pytest.mark.spec("Y2")
def test_a_missing_level_is_named(tmp_path: Path) -> None:
    top = open_directory(tmp_path)
    try:
        with pytest.raises(NotReached, match=f"{tmp_path}/a: no such file or directory"):
            open_beneath(top, ["a", "b"], tmp_path / "a" / "b")
        inner = open_beneath(top, [], tmp_path)
        assert os.path.samestat(os.fstat(inner), tmp_path.stat())
        os.close(inner)
    finally:
        os.close(top)
