"""A session's records directory on a real file system: private, and reached through no link."""

import errno
import json
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from murmur.adapters.records_directory import RecordsDirectory, append_line, read_head, read_tail
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
    assert target.read_text() == "kept"


@contextmanager
def log_of(records: RecordsDirectory, said: bytes = b"") -> Iterator[int]:
    log = records.open_log("stderr.log")
    os.write(log, said)
    try:
        yield log
    finally:
        os.close(log)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("kind", ["fifo", "held fifo", "socket", "directory"])
@pytest.mark.parametrize("name", ["logs/host.log", "trace.jsonl"])
def test_what_is_no_file_is_refused_and_never_waited_for(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    with made() as records:
        held = None
        match kind:
            case "directory":
                (place / name).mkdir()
            case "socket":
                monkeypatch.chdir((place / name).parent)  # The path is too long for a socket's.
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind((place / name).name)
            case _:
                os.mkfifo(place / name)
                held = os.open(place / name, os.O_RDWR) if kind == "held fifo" else None
        with pytest.raises((OSError, RecordsUnusable)) as refused:
            records.trace("session_start") if name == "trace.jsonl" else records.open_log("host.log")
        if "fifo" in kind:
            assert "it is not a regular file" in str(refused.value)
        if held is not None:
            os.close(held)


@pytest.mark.spec("M1")
def test_the_tail_of_a_log_is_its_last_lines(place: Path) -> None:
    with made() as records, log_of(records) as log:
        assert read_tail(log, 2) == []
        os.write(log, b"first\nsecond\nthird \xff\n")
        (place / "logs" / "stderr.log").unlink()  # It is read where it was written, not by its name.
        assert read_tail(log, 2) == ["second", "third \N{REPLACEMENT CHARACTER}"]
        assert read_tail(log, 20)[0] == "first"
        assert read_tail(log, 20, since=len("first\n"))[0] == "second"


@pytest.mark.spec("M1")
def test_the_tail_of_a_huge_log_is_read_from_its_end(place: Path) -> None:
    with made() as records, log_of(records) as log:
        with (place / "logs" / "stderr.log").open("wb") as huge:
            huge.truncate(1 << 40)
            huge.seek(0, os.SEEK_END)
            huge.write(b"\nthe last line\n")
        assert read_tail(log, 1) == ["the last line"]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("line", [b"x" * 1000 + b"\n", "é".encode() * 500 + b"\n", b"\xff" * 100_000])
def test_the_tail_of_long_lines_is_cut_and_says_so(home: Path, line: bytes) -> None:
    with made() as records, log_of(records, line * 20) as log:
        tail = read_tail(log, 20)
    assert tail[0].startswith("[…] ")
    assert len("\n".join(tail)) == 4000 + len("[…] ")
    whole = (line * 20).decode("utf-8", "replace").splitlines()
    assert tail[1:] == (whole[-(len(tail) - 1) :] if len(tail) > 1 else [])
    assert whole[-len(tail)].endswith(tail[0].removeprefix("[…] "))


@pytest.mark.spec("M1")
def test_a_log_that_cannot_be_read_has_no_tail(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    assert read_tail(directory, 20) == []
    os.close(directory)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ["logs/host.log", "trace.jsonl"])
def test_a_line_that_the_disk_has_no_space_for_leaves_nothing_of_itself(place: Path, name: str) -> None:
    # A limit on the size of files ends a write as a full disk does: after a part of it.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with made() as records:

        def write(text: str) -> None:
            if name == "trace.jsonl":
                records.trace(text)
                return
            log = records.open_log("host.log")
            try:
                append_line(log, json.dumps({"event_type": text}).encode() + b"\n")
            finally:
                os.close(log)

        write("first")
        resource.setrlimit(resource.RLIMIT_FSIZE, ((place / name).stat().st_size + 5, hard))
        try:
            with suppress(OSError):  # What is said of it is in the next test.
                write("lost")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        write("second")
    events = [json.loads(line) for line in (place / name).read_text().splitlines()]
    assert [event["event_type"] for event in events] == ["first", "second"]


def test_an_event_that_was_not_written_is_an_error(place: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with made() as records:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
        try:
            with pytest.raises(OSError, match="no space for a whole line"):
                records.trace("lost")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a work folder."""
    made = tmp_path / "work"
    made.mkdir()
    return made


def read_all(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1000)
    finally:
        os.close(descriptor)


@pytest.mark.spec("M1")
def test_a_task_stays_what_it_was_when_another_takes_its_name(home: Path, folder: Path) -> None:
    with made() as records:
        first = records.open_task("first \ud800", folder)
        second = records.open_task("second", folder)
        assert not os.get_inheritable(first)
        assert (read_all(first), read_all(second)) == (b"first ?", b"second")
    assert [(entry.name, entry.read_text()) for entry in folder.iterdir()] == [("task.md", "second")]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("kind", ["nothing", "link", "dangling link", "hard link", "fifo"])
def test_a_task_takes_the_place_of_what_has_its_name_and_is_private(
    tmp_path: Path, home: Path, folder: Path, kind: str
) -> None:
    target, task = tmp_path / "target", folder / "task.md"
    if kind != "dangling link":
        target.write_text("kept")
    match kind:
        case "link" | "dangling link":
            task.symlink_to(target)
        case "hard link":
            task.hardlink_to(target)
        case "fifo":
            os.mkfifo(task)
    with made() as records:
        assert read_all(records.open_task("a task", folder)) == b"a task"
    assert (task.read_text(), stat.S_IMODE(task.lstat().st_mode)) == ("a task", 0o600)
    assert target.exists() is (kind != "dangling link")
    assert kind == "dangling link" or target.read_text() == "kept"


@pytest.mark.spec("M1")
def test_a_task_that_cannot_be_put_into_the_work_folder_is_an_error_naming_it(home: Path, folder: Path) -> None:
    with made() as records:
        (folder / "task.md").mkdir()
        with pytest.raises(RecordsUnusable, match=f"^cannot make {folder}/task.md: is a directory$"):
            records.open_task("x", folder)
        assert [entry.name for entry in folder.iterdir()] == ["task.md"]
        missing = folder / "missing"
        with pytest.raises(RecordsUnusable, match=f"^cannot make {missing}/task.md: no such file or directory$"):
            records.open_task("x", missing)


def names(place: Path) -> list[str]:
    return sorted(entry.name for entry in (place / "out").iterdir())


@pytest.mark.spec("M1")
def test_the_alias_of_a_result_is_the_newest_one(place: Path) -> None:
    with made() as records:
        for name in ("a", "b"):
            result = records.open_new(f"out/{name}")
            os.write(result, name.encode())
            for _ in range(2):  # A link to what has that name already.
                records.link(f"out/{name}", result, "out/result.txt", "unique")
            os.close(result)
    assert names(place) == ["a", "b", "result.txt"]
    assert (place / "out" / "result.txt").read_text() == "b"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("kind", ["link", "another file", "directory", "missing"])
def test_the_alias_of_a_result_is_never_what_took_its_name(place: Path, tmp_path: Path, kind: str) -> None:
    with made() as records:
        result = records.open_new("out/a")
        os.write(result, b"what was written")
        (place / "out" / "a").unlink()
        match kind:
            case "link":
                (place / "out" / "a").symlink_to(tmp_path)
            case "another file":
                (place / "out" / "a").write_text("other")
            case "directory":
                (place / "out" / "a").mkdir()
        with suppress(OSError):
            records.link("out/a", result, "out/result.txt", "unique")
        assert read_head(result, 8) == (b"what was", False)
        assert read_head(result, 16) == (b"what was written", True)
        os.close(result)
    assert names(place) == ([] if kind == "missing" else ["a"])


@pytest.mark.spec("M1")
def test_a_log_is_appended_to(place: Path) -> None:
    with made() as records:
        for line in (b"one\n", b"two\n"):
            log = records.open_log("host.log")
            os.write(log, line)
            os.close(log)
    assert (place / "logs" / "host.log").read_bytes() == b"one\ntwo\n"
