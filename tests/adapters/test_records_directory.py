"""A session's records directory on a real file system: private, and reached through no link."""

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.records_directory import RecordsDirectory
from murmur.domain.errors import RecordsUnusable, RegistryUnusable

SESSION = f"ses_{7:032x}"


@pytest.fixture(autouse=True)
def every_descriptor_is_closed() -> Iterator[None]:
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


@pytest.fixture
def place(home: Path) -> Path:
    """Where the records of a session that works in `/srv/here` belong."""
    return home / ".murmur" / "records" / "srv" / "here" / SESSION


def made() -> RecordsDirectory:
    return RecordsDirectory.create(os.environ, Path("/srv/here"), SESSION)


def modes(home: Path) -> dict[str, int]:
    entries = [home / ".murmur", *(home / ".murmur").rglob("*")]
    return {str(entry.relative_to(home)): stat.S_IMODE(entry.lstat().st_mode) for entry in entries}


_MAKE_ONE = f"""
import os, sys
from pathlib import Path
from murmur.adapters.records_directory import RecordsDirectory
os.umask(int(sys.argv[1]))
with RecordsDirectory.create(os.environ, Path("/srv/here"), {SESSION!r}) as records:
    os.close(records.open_log("host.log"))
    records.trace("session_start")
"""


@pytest.mark.spec("M1")
def test_the_directory_is_named_after_the_workdir_and_the_session(place: Path) -> None:
    with made() as records:
        assert records.path == place
        assert sorted(entry.name for entry in place.iterdir()) == ["logs", "out"]


@pytest.mark.spec("M1", "H2")
@pytest.mark.parametrize("umask", [0o000, 0o777], ids=oct)
def test_every_directory_and_file_of_it_is_private_whatever_the_umask(home: Path, umask: int) -> None:
    # In a process of its own, since the umask is the whole process's.
    command = [sys.executable, "-W", "error", "-c", _MAKE_ONE, str(umask)]
    subprocess.run(command, env={"HOME": str(home)}, check=True)
    files = {name: mode for name, mode in modes(home).items() if (home / name).is_file()}
    directories = {name: mode for name, mode in modes(home).items() if name not in files}
    assert directories == dict.fromkeys(directories, 0o700)
    assert files == dict.fromkeys(files, 0o600)
    assert {Path(name).name for name in files} == {"host.log", "trace.jsonl"}


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ["records", "records/srv", "records/srv/here", f"records/srv/here/{SESSION}"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_no_link_beneath_the_home_is_followed(home: Path, tmp_path: Path, place: Path, name: str, kind: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    way = home / ".murmur" / name
    way.parent.mkdir(parents=True)
    if kind == "link":
        way.symlink_to(target)
    else:
        way.write_text("kept")
    with pytest.raises(RecordsUnusable) as refused:
        made()
    # A session's own directory is new or nothing.
    reason = "file exists" if name.endswith(SESSION) else "not a directory"
    assert refused.value.message == f"cannot make {place}: {reason}"
    assert list(target.iterdir()) == []


@pytest.mark.spec("H1")
def test_without_a_home_there_is_no_records_directory() -> None:
    with pytest.raises(RegistryUnusable):
        RecordsDirectory.create({}, Path("/srv/here"), SESSION)


@pytest.mark.spec("G2")
def test_a_session_without_a_home_keeps_its_records_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir(mode=0o700)
    with RecordsDirectory.elsewhere(place, SESSION) as records:
        records.trace("session_start")
    assert sorted(entry.name for entry in place.iterdir()) == ["logs", "out", "trace.jsonl"]


@pytest.mark.spec("G2")
@pytest.mark.parametrize("kind", ["missing", "file", "link", "full"])
def test_a_place_elsewhere_that_cannot_be_used_is_an_error_naming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def full(name: str, mode: int, *, dir_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "elsewhere"
    match kind:
        case "file":
            place.write_text("")
        case "link":
            place.symlink_to(tmp_path)
        case "full":
            place.mkdir()
            monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(RecordsUnusable) as refused:
        RecordsDirectory.elsewhere(place, SESSION)
    assert refused.value.message.startswith(f"cannot make {place}: ")


@pytest.mark.spec("M1")
def test_the_trace_is_one_line_of_json_an_event(place: Path) -> None:
    with made() as records:
        records.trace("session_start", capsule_name="kestrel\nand more")
        records.trace("session_end", exit_status=0)
    first, second = ((json.loads(line)) for line in (place / "trace.jsonl").read_text().splitlines())
    assert (first["event_type"], first["session_id"]) == ("session_start", SESSION)
    assert first["capsule_name"] == "kestrel\nand more"
    assert (second["event_type"], second["exit_status"]) == ("session_end", 0)
    assert first["timestamp"] <= second["timestamp"]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ["logs/host.log", "trace.jsonl"])
def test_no_link_is_written_through(tmp_path: Path, place: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    with made() as records:
        (place / name).symlink_to(target)
        with pytest.raises((OSError, RecordsUnusable), match="symbolic links"):
            records.trace("session_start") if name == "trace.jsonl" else records.open_log("host.log")
        assert records.log_tail("host.log", 5) == []
    assert target.read_text() == "kept"


@pytest.mark.spec("M1")
def test_the_tail_of_a_log_is_its_last_lines(place: Path) -> None:
    with made() as records:
        assert records.log_tail("stderr.log", 2) == []
        log = records.open_log("stderr.log")
        os.write(log, b"first\nsecond\nthird \xff\n")
        os.close(log)
        assert records.log_tail("stderr.log", 2) == ["second", "third \N{REPLACEMENT CHARACTER}"]
        assert records.log_tail("stderr.log", 20)[0] == "first"


@pytest.mark.spec("M1")
def test_the_tail_of_a_huge_log_is_read_from_its_end(place: Path) -> None:
    with made() as records:
        with (place / "logs" / "stderr.log").open("wb") as log:
            log.truncate(1 << 40)
            log.seek(0, os.SEEK_END)
            log.write(b"\nthe last line\n")
        assert records.log_tail("stderr.log", 1) == ["the last line"]


@pytest.mark.spec("M1")
def test_a_log_is_appended_to(place: Path) -> None:
    with made() as records:
        for line in (b"one\n", b"two\n"):
            log = records.open_log("host.log")
            os.write(log, line)
            os.close(log)
    assert (place / "logs" / "host.log").read_bytes() == b"one\ntwo\n"
