"""Staged writes on a real file system, with each of their steps failing in turn."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from murmur.adapters import staging
from murmur.adapters.staging import write_staged

OLD, NEW = b"the old content", b"the new content, which is longer"


class TappedOs:
    """The `os` module as one module sees it: every call noted, some replaced."""

    def __init__(self, **replaced: Callable[..., object]) -> None:
        self.calls: list[str] = []
        self._replaced = replaced

    def __getattr__(self, name: str) -> object:
        found = self._replaced.get(name, getattr(os, name))
        if not callable(found):
            return found

        def noted(*arguments: object, **named: object) -> object:
            self.calls.append(name)
            return found(*arguments, **named)

        return noted


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory holding an older target."""
    directory = tmp_path / "place"
    directory.mkdir()
    (directory / "target").write_bytes(OLD)
    return directory


@pytest.fixture
def directory(place: Path) -> Iterator[int]:
    """The descriptor of `place`; no other may be left when the test is over."""
    before = sorted(os.listdir("/dev/fd"))
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)
    assert sorted(os.listdir("/dev/fd")) == before


def contents(place: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in place.iterdir()}


@pytest.mark.spec("H4")
def test_a_staged_file_replaces_the_target_whole(place: Path, directory: int) -> None:
    write_staged(directory, "target", NEW)
    assert contents(place) == {"target": NEW}
    write_staged(directory, "another", b"")
    assert contents(place) == {"target": NEW, "another": b""}


@pytest.mark.spec("H4")
def test_the_staged_name_tells_target_pid_and_a_fresh_id(place: Path, directory: int) -> None:
    seen: list[str] = []
    for _ in range(2):
        write_staged(directory, "x.json", NEW, before_rename=lambda _: seen.extend(os.listdir(place)))
        (place / "x.json").unlink()
    staged = [name for name in seen if name != "target"]
    assert len(set(staged)) == 2
    for name in staged:
        assert re.fullmatch(rf"\.x\.json\.{os.getpid()}\.[0-9a-f]{{12}}7[0-9a-f]{{3}}[89ab][0-9a-f]{{15}}\.tmp", name)


@pytest.mark.spec("H4")
def test_mode_and_contents_are_on_disk_before_the_name_is_taken(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == len(NEW)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600
        assert (place / "target").read_bytes() == OLD
        tapped.calls.append("before_rename")

    tapped = TappedOs()
    monkeypatch.setattr(staging, "os", tapped)
    write_staged(directory, "target", NEW, before_rename=look)
    steps = ["open", "fchmod", "write", "fsync", "before_rename", "close", "rename", "fsync"]
    assert [call for call in tapped.calls if call != "getpid"] == steps


@pytest.mark.spec("H4")
@pytest.mark.parametrize("mode", [0o600, 0o640])
@pytest.mark.parametrize("umask", [0o000, 0o777], ids=oct)
def test_the_mode_is_the_wanted_one_whatever_the_umask(place: Path, mode: int, umask: int) -> None:
    # In a process of its own, since the umask is the whole process's.
    script = (
        "import os, sys; from murmur.adapters.staging import write_staged; os.umask(int(sys.argv[1]));"
        "d = os.open(sys.argv[2], os.O_RDONLY); write_staged(d, 'target', b'new', mode=int(sys.argv[3])); os.close(d)"
    )
    arguments = [str(umask), str(place), str(mode)]
    subprocess.run([sys.executable, "-W", "error", "-c", script, *arguments], check=True)
    assert stat.S_IMODE((place / "target").stat().st_mode) == mode
    assert contents(place) == {"target": b"new"}


@pytest.mark.spec("H4")
@pytest.mark.parametrize("step", ["fchmod", "write", "fsync", "before_rename", "close", "rename"])
@pytest.mark.parametrize("raised", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["EIO", "^C"])
def test_a_write_that_fails_before_the_rename_leaves_the_old_target_and_nothing_else(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch, step: str, raised: BaseException
) -> None:
    def fail(*arguments: int, **named: int) -> object:
        if step == "close":
            os.close(arguments[0])  # A failed close has closed all the same.
        raise raised

    def look(_: int) -> None:
        if step == "before_rename":
            raise raised

    if step != "before_rename":
        monkeypatch.setattr(staging, "os", TappedOs(**{step: fail}))
    with pytest.raises(type(raised)):
        write_staged(directory, "target", NEW, before_rename=look)
    assert contents(place) == {"target": OLD}


@pytest.mark.spec("H4")
def test_a_disk_that_fills_up_midway_leaves_the_old_target_and_nothing_else(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: bytes) -> int:
        if os.fstat(descriptor).st_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(descriptor, content[:5])

    monkeypatch.setattr(staging, "os", TappedOs(write=full))
    with pytest.raises(OSError, match="No space left"):
        write_staged(directory, "target", NEW)
    assert contents(place) == {"target": OLD}


# Run in a mount namespace of its own, whose file systems end with it.
_ON_A_FULL_DISK = """
import json, os, subprocess, sys
from murmur.adapters.staging import write_staged
place = sys.argv[1]
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True).returncode:
    sys.exit(77)
directory = os.open(place, os.O_RDONLY)
write_staged(directory, "target", b"old")
try:
    write_staged(directory, "target", b"n" * 262144)
    failed = None
except OSError as error:
    failed = error.errno
with open(os.path.join(place, "target"), "rb") as file:
    print(json.dumps([failed, os.listdir(place), file.read().decode()]))
os.close(directory)
"""


@pytest.mark.spec("H4")
def test_a_file_system_that_is_really_full_leaves_the_old_target_and_nothing_else(tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, "-W", "error", "-c", _ON_A_FULL_DISK, str(tmp_path)]
    try:
        finished = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare to mount a small file system with")
    if finished.returncode == 77 or b"unshare failed" in finished.stderr:
        pytest.skip("no file system may be mounted here")
    assert finished.stderr == b""
    assert json.loads(finished.stdout) == [errno.ENOSPC, ["target"], "old"]


@pytest.mark.spec("H4")
def test_a_target_that_cannot_be_replaced_leaves_no_staged_file(place: Path, directory: int) -> None:
    (place / "in the way").mkdir()
    with pytest.raises(IsADirectoryError):
        write_staged(directory, "in the way", NEW)
    assert sorted(entry.name for entry in place.iterdir()) == ["in the way", "target"]


@pytest.mark.spec("H4")
def test_a_write_that_the_kernel_takes_in_pieces_is_continued(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapped = TappedOs(write=lambda descriptor, content: os.write(descriptor, content[:5]))
    monkeypatch.setattr(staging, "os", tapped)
    write_staged(directory, "target", NEW)
    assert contents(place) == {"target": NEW}
    assert tapped.calls.count("write") == 7


@pytest.mark.spec("H4")
@pytest.mark.parametrize("told", [True, False])
def test_a_directory_that_cannot_be_flushed_is_told_and_no_failure(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    def fsync(descriptor: int) -> None:
        if descriptor == directory:
            raise OSError(errno.EINVAL, "Invalid argument")
        os.fsync(descriptor)

    warnings: list[OSError] = []
    monkeypatch.setattr(staging, "os", TappedOs(fsync=fsync))
    write_staged(directory, "target", NEW, on_unsynced=warnings.append if told else None)
    assert contents(place) == {"target": NEW}
    assert [error.errno for error in warnings] == ([errno.EINVAL] if told else [])


@pytest.mark.spec("H4")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_staged_name_that_is_taken_is_neither_written_nor_removed(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(staging, "fresh_hex", lambda: "0" * 32)
    taken = place / f".target.{os.getpid()}.{'0' * 32}.tmp"
    if kind == "file":
        taken.write_bytes(b"somebody's")
    else:
        taken.symlink_to(place / "target")
    with pytest.raises(FileExistsError):
        write_staged(directory, "target", NEW)
    assert taken.is_symlink() is (kind == "link")
    assert (place / "target").read_bytes() == OLD
    assert taken.read_bytes() == (OLD if kind == "link" else b"somebody's")


def test_what_means_nothing_after_a_crash_of_the_machine_is_not_flushed(
    place: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapped = TappedOs()
    monkeypatch.setattr(staging, "os", tapped)
    write_staged(directory, "target", NEW, durable=False)
    assert contents(place) == {"target": NEW}
    assert "fsync" not in tapped.calls


@pytest.mark.spec("H4")
def test_no_program_started_meanwhile_inherits_the_staged_file(directory: int) -> None:
    inheritable: list[bool] = []
    write_staged(directory, "target", NEW, before_rename=lambda fd: inheritable.append(os.get_inheritable(fd)))
    assert inheritable == [False]
