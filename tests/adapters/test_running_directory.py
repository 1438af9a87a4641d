"""The running directory on a real file system: what is read, what is removed, and what is left alone."""

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

from murmur.adapters import running_directory
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.errors import RegistryUnusable
from murmur.domain.files import Kept, Leftover, OriginFile, ReadFile, RecordFile, Removed, UnreadFile, Vanished
from murmur.domain.listing import Listing, list_sessions, prune_session
from murmur.domain.origin import LockReading, Origin, UnreadOrigin, render_origin
from murmur.domain.record import RECORD_LIMIT, RunningRecord, render_record

PROCESSES = SystemProcesses()
NOBODY = 65534
GONE_PID = 2**31 - 1
"""A pid above every `pid_max`."""
Fields = TypeVar("Fields")


def changed(value: Fields, **changes: object) -> Fields:
    """The same value with some of its fields other."""
    kind: Any = type(value)
    made: Fields = kind(**({name: getattr(value, name) for name in kind.__match_args__} | changes))
    return made


class TappedOs:
    """The `os` module as one module sees it: every call noted with its first argument, some replaced."""

    def __init__(self, **replaced: Callable[..., object]) -> None:
        self.calls: list[tuple[str, object]] = []
        self._replaced = replaced

    def __getattr__(self, name: str) -> object:
        found = self._replaced.get(name, getattr(os, name))
        if not callable(found):
            return found

        def noted(*arguments: object, **named: object) -> object:
            self.calls.append((name, arguments[0] if arguments else None))
            return found(*arguments, **named)

        return noted


def session_id(number: int) -> str:
    return f"ses_{number:032x}"


def a_record(number: int = 1, *, alive: bool = True) -> RunningRecord:
    """A record of this very process, or of one that is gone."""
    origin = PROCESSES.own_origin()
    return RunningRecord(
        session_id=session_id(number),
        url="localhost:1",
        pid=os.getpid() if alive else GONE_PID,
        process_start=origin.process_start or "",
        capsule_name="kestrel",
        capsule_version="1.0.0",
        workdir="/srv",
        outlives_launcher=False,
        started_at="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def running(home: Path) -> Path:
    """An empty running directory. No descriptor may be left when the test is over."""
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, mode=0o700)
    return place


@pytest.fixture(autouse=True)
def every_descriptor_is_closed() -> Iterator[None]:
    PROCESSES.own_origin()  # Whatever is opened once and for all is open now.
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


@pytest.fixture
def within_a_second() -> Iterator[None]:
    """Interrupt a reader that hangs, rather than hang with it."""

    def too_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the reader hung")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, 1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def put(running: Path, record: RunningRecord, stem: str | None = None) -> Path:
    path = running / f"{stem or record.session_id}.json"
    path.write_bytes(render_record(record))
    return path


def opened(running: Path) -> OpenRunningDirectory:
    return OpenRunningDirectory(os.open(running, os.O_RDONLY | os.O_DIRECTORY), running)


@contextmanager
def read(running: Path) -> Iterator[tuple[OpenRunningDirectory, dict[str, RecordFile]]]:
    """Everything that one batch read, still open."""
    with opened(running) as directory:
        for batch in directory.batches():
            with batch as files:
                yield directory, {file.name: file for file in files}
            return
        yield directory, {}


def listed(running: Path, *, prune: bool = True) -> Listing:
    with opened(running) as directory:
        return list_sessions(directory, PROCESSES, prune=prune)


def names(running: Path) -> set[str]:
    return {entry.name for entry in running.iterdir()}


def open_inodes() -> set[tuple[int, int]]:
    found = set()
    for name in os.listdir("/dev/fd"):
        try:
            entry = os.fstat(int(name))
        except OSError:  # The listing's own.
            continue
        found.add((entry.st_dev, entry.st_ino))
    return found


def inode(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino


@pytest.mark.spec("S1")
def test_exactly_the_entries_with_the_extension_json_are_records(running: Path) -> None:
    expected = {"a.json", ".x.json", "x.y.json", "..json", " .json"}
    others = {".json", "x.JSON", "x.json.tmp", "json", "xjson", "x.json~", "x.jsonl", "x.control", "x.origin"}
    for name in expected | others:
        (running / name).write_bytes(render_record(a_record()))
    with read(running) as (_, files):
        assert set(files) == expected


@pytest.mark.spec("S1")
def test_records_are_listed_newest_first(running: Path) -> None:
    for number in (3, 1, 4, 2):
        put(running, a_record(number))
    sessions = listed(running).sessions
    assert [session.record for session in sessions] == [a_record(number) for number in (4, 3, 2, 1)]
    assert [session.stem for session in sessions] == [session_id(number) for number in (4, 3, 2, 1)]


@pytest.mark.spec("S1")
def test_more_records_than_one_batch_holds_are_all_read_and_never_held_open_together(running: Path) -> None:
    for number in range(150):
        put(running, a_record(number))
    before, seen = len(os.listdir("/dev/fd")), []
    with opened(running) as directory:
        for batch in directory.batches():
            with batch as files:
                assert 0 < len(os.listdir("/dev/fd")) - before <= 65
                seen += [file.name for file in files]
            assert len(os.listdir("/dev/fd")) == before + 1
    assert sorted(seen) == sorted(names(running))


@pytest.mark.spec("S1")
def test_a_name_that_is_not_utf8_is_read_like_any_other(running: Path) -> None:
    odd = os.fsdecode(b"odd\xff\n.json")
    (running / odd).write_bytes(render_record(a_record()))
    listing = listed(running)
    assert [session.stem for session in listing.sessions] == [odd.removesuffix(".json")]
    (running / odd).write_bytes(b"broken")
    assert [note.name for note in listed(running).removed] == [odd]
    assert names(running) == set()


def _a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        here = os.open(".", os.O_RDONLY)
        os.chdir(path.parent)  # The whole path may be longer than a socket's can be.
        try:
            door.bind(path.name)
        finally:
            os.fchdir(here)
            os.close(here)


def _a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes a device")


def _a_link_to_a_record(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(render_record(a_record()))
    path.symlink_to(target)


def _a_link_to_broken_content(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(b"broken")
    path.symlink_to(target)


IRREGULAR: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "it is a FIFO"),
    "socket": (_a_socket, "it is a socket"),
    "directory": (Path.mkdir, "it is a directory"),
    "device": (_a_device, "it is a device"),
    "link to a record": (_a_link_to_a_record, "it is a symbolic link"),
    "link to broken content": (_a_link_to_broken_content, "it is a symbolic link"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "it is a symbolic link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "it is a symbolic link"),
    "link to itself": (lambda path: path.symlink_to(path.name), "it is a symbolic link"),
}


@pytest.mark.spec("R5", "S3")
@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_is_no_regular_file_is_kept_unopened_with_its_reason(
    running: Path, monkeypatch: pytest.MonkeyPatch, within_a_second: None, kind: str
) -> None:
    make, reason = IRREGULAR[kind]
    path = running / "x.json"
    make(path)
    good = put(running, a_record())
    before = names(running), names(running.parent)
    tapped = TappedOs()
    monkeypatch.setattr(running_directory, "os", tapped)
    listing = listed(running)
    assert [tuple(note) for note in listing.kept] == [("x.json", reason)]
    assert [session.record for session in listing.sessions] == [a_record()]
    assert listing.removed == []
    assert {path for call, path in tapped.calls if call == "open"} == {good.name}
    assert (names(running), names(running.parent)) == before
    if (running.parent / "target").exists():
        assert path.read_bytes() in (render_record(a_record()), b"broken")


@pytest.mark.spec("R5", "S3")
@pytest.mark.parametrize("kind", ["fifo", "link to a record", "directory"])
def test_what_takes_a_files_place_after_the_look_is_neither_waited_for_nor_followed(
    running: Path, monkeypatch: pytest.MonkeyPatch, within_a_second: None, kind: str
) -> None:
    make, reason = IRREGULAR[kind]
    path = put(running, a_record(), "x")

    def look_then_swap(name: str, **named: int) -> os.stat_result:
        found = os.stat(name, dir_fd=named["dir_fd"], follow_symlinks=False)
        path.unlink()
        make(path)
        return found

    monkeypatch.setattr(running_directory, "os", TappedOs(stat=look_then_swap))
    with read(running) as (_, files):
        assert files == {"x.json": UnreadFile("x.json", reason)}
    assert path.is_symlink() or not path.is_file()


@pytest.mark.spec("R5", "S3")
@pytest.mark.parametrize(
    ("size", "read_whole"), [(RECORD_LIMIT, True), (RECORD_LIMIT + 1, False), (2 * RECORD_LIMIT, False)]
)
def test_a_file_over_the_limit_is_kept_without_being_read(
    running: Path, monkeypatch: pytest.MonkeyPatch, size: int, read_whole: bool
) -> None:
    path = put(running, a_record())
    path.write_bytes(path.read_bytes().ljust(size))
    tapped = TappedOs()
    monkeypatch.setattr(running_directory, "os", tapped)
    listing = listed(running)
    assert [session.record for session in listing.sessions] == ([a_record()] if read_whole else [])
    reasons = [f"it is larger than {RECORD_LIMIT} bytes"]
    assert [note.reason for note in listing.kept] == ([] if read_whole else reasons)
    assert ("read" in [call for call, _ in tapped.calls]) is read_whole
    assert path.stat().st_size == size


@pytest.mark.spec("R5")
def test_a_file_that_outgrows_the_limit_while_it_is_read_is_kept(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(running, a_record())

    def read_more(descriptor: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(b" " * size)
        return os.read(descriptor, size)

    monkeypatch.setattr(running_directory, "os", TappedOs(read=read_more))
    with read(running) as (_, files):
        assert files[path.name] == UnreadFile(path.name, f"it is larger than {RECORD_LIMIT} bytes")


@pytest.mark.spec("H4")
def test_a_file_that_the_kernel_returns_in_pieces_is_read_whole(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(running, a_record())
    monkeypatch.setattr(running_directory, "os", TappedOs(read=lambda fd, size: os.read(fd, min(size, 50))))
    assert [session.record for session in listed(running).sessions] == [a_record()]


@pytest.mark.spec("S2", "S3")
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"null", b"\x00" * 100, b'{"pid": 1}'], ids=lambda content: repr(content)[:9]
)
def test_content_that_was_read_and_does_not_parse_is_removed_and_reported(running: Path, content: bytes) -> None:
    (running / "x.json").write_bytes(content)
    put(running, a_record())
    listing = listed(running)
    assert [note.name for note in listing.removed] == ["x.json"]
    assert names(running) == {f"{session_id(1)}.json"}


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b"9" * 10_000, render_record(a_record())[:-1] + b', "x": ' + b"1" * 5000 + b"}", b"[1, 2]"],
    ids=["nesting", "digits", "digits within", "positional"],
)
def test_content_that_only_this_parser_cannot_hold_is_kept(running: Path, content: bytes) -> None:
    (running / "x.json").write_bytes(content)
    put(running, a_record())
    listing = listed(running)
    assert [note.name for note in listing.kept] == ["x.json"]
    assert [session.record for session in listing.sessions] == [a_record()]
    assert (running / "x.json").read_bytes() == content


@pytest.mark.spec("H3", "S3")
def test_a_listing_that_must_leave_no_trace_reports_the_same_and_removes_nothing(running: Path) -> None:
    (running / "x.json").write_bytes(b"broken")
    put(running, a_record(2, alive=False))
    (running / f"{session_id(2)}.control").write_text("token")
    before = {path: path.read_bytes() for path in running.iterdir()}
    looked = listed(running, prune=False)
    assert {path: path.read_bytes() for path in running.iterdir()} == before
    done = listed(running)
    assert (looked.removed, looked.pruned) == (done.removed, done.pruned)
    assert names(running) == set()


@pytest.mark.spec("S3")
@pytest.mark.parametrize("call", ["stat", "open", "fstat", "read"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("content", [b"broken", render_record(a_record(alive=False))], ids=["broken", "gone"])
def test_a_file_that_could_not_be_read_is_kept_whatever_it_holds(
    running: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, content: bytes
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    (running / "x.json").write_bytes(content)
    monkeypatch.setattr(running_directory, "os", TappedOs(**{call: fail}))
    listing = listed(running)
    descriptor_lost = number in (errno.EMFILE, errno.ENFILE)
    reason = "no file descriptor left" if descriptor_lost else os.strerror(number).lower()
    assert [(note.name, reason in note.reason) for note in listing.kept] == [("x.json", True)]
    assert (listing.removed, listing.pruned, names(running)) == ([], [], {"x.json"})


@pytest.mark.spec("S3")
def test_a_record_that_vanishes_before_it_is_read_is_a_session_that_just_ended(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_directory, "os", TappedOs(listdir=lambda _: ["x.json"]))
    listing = listed(running)
    assert (listing.vanished, listing.kept, listing.removed) == (["x.json"], [], [])


@pytest.mark.spec("H3")
def test_a_directory_that_cannot_be_listed_is_an_error_naming_path_and_cause(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(running_directory, "os", TappedOs(listdir=fail))
    with pytest.raises(RegistryUnusable) as refused:
        listed(running)
    assert refused.value.message == f"{running}: Input/output error"


@pytest.mark.spec("S3", "S2")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_another_user_may_not_read_or_remove_is_kept_with_its_reason() -> None:
    script = (
        "import os, sys\n"
        "from murmur.adapters.processes import SystemProcesses\n"
        "from murmur.adapters.running_directory import OpenRunningDirectory\n"
        "from murmur.domain.listing import list_sessions\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "with OpenRunningDirectory(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1]) as directory:\n"
        "    listing = list_sessions(directory, SystemProcesses(), prune=True)\n"
        "print(*sorted(f'{note.name}: {note.reason}' for note in listing.kept), sep='\\n')\n"
        "print(listing.removed, listing.pruned)\n"
    )
    with tempfile.TemporaryDirectory(prefix="murmur-running-") as place:
        running = Path(place)
        running.chmod(0o755)
        for name, mode in (("broken.json", 0o644), ("secret.json", 0o600)):
            (running / name).write_bytes(b"broken")
            (running / name).chmod(mode)
        put(running, a_record(alive=False), "ended").chmod(0o644)
        command = [sys.executable, "-W", "error", "-c", script, place]
        finished = subprocess.run(command, check=True, capture_output=True, text=True)
        assert finished.stdout.splitlines() == [
            "broken.json: it could not be removed: permission denied",
            "ended.json: it could not be removed: permission denied",
            "secret.json: permission denied",
            "[] []",
        ]
        assert names(running) == {"broken.json", "secret.json", "ended.json"}


@pytest.mark.spec("S4")
def test_a_judged_files_descriptor_is_open_until_its_batch_is_left(running: Path) -> None:
    path = put(running, a_record())
    judged = inode(path)
    with read(running) as (directory, files):
        assert judged in open_inodes()
        assert directory.remove(files[path.name]) == Removed()
        assert judged in open_inodes(), "its number must not go to another file yet"
    assert judged not in open_inodes()


@pytest.mark.spec("S4")
def test_a_file_that_was_renamed_over_the_judged_one_is_kept(running: Path) -> None:
    path = put(running, a_record(alive=False))
    newcomer = render_record(a_record())
    with read(running) as (directory, files):
        (running / "new").write_bytes(newcomer)
        (running / "new").replace(path)
        assert directory.remove(files[path.name]) == Kept("it changed while it was looked at")
    assert path.read_bytes() == newcomer


@pytest.mark.spec("S4")
def test_a_file_of_the_same_time_and_size_renamed_over_the_judged_one_is_kept(running: Path) -> None:
    path = put(running, a_record())
    with read(running) as (directory, files):
        twin = put(running, a_record(), "twin")
        judged = path.stat()
        os.utime(twin, ns=(judged.st_atime_ns, judged.st_mtime_ns))
        twin.replace(path)
        assert isinstance(directory.remove(files[path.name]), Kept)
    assert path.exists()


@pytest.mark.spec("S4")
@pytest.mark.parametrize("change", ["size", "time"])
def test_a_file_that_was_rewritten_in_place_is_kept(running: Path, change: str) -> None:
    path = running / "x.json"
    path.write_bytes(b"broken")
    with read(running) as (directory, files):
        before = path.stat()
        if change == "size":
            path.write_bytes(b"rewritten")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        else:
            path.write_bytes(b"BROKEN")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert directory.remove(files["x.json"]) == Kept("it changed while it was looked at")
    assert path.read_bytes() == (b"rewritten" if change == "size" else b"BROKEN")


@pytest.mark.spec("S4")
def test_a_file_that_changed_while_it_was_read_is_kept(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = running / "x.json"
    path.write_bytes(b"half a rec")

    def read_then_written_on(descriptor: int, size: int) -> bytes:
        content = os.read(descriptor, size)
        path.write_bytes(render_record(a_record()))
        return content

    monkeypatch.setattr(running_directory, "os", TappedOs(read=read_then_written_on))
    listing = listed(running)
    assert listing.removed == []
    assert path.read_bytes() == render_record(a_record())


@pytest.mark.spec("S4", "R5")
def test_a_link_that_took_the_judged_files_place_is_kept_and_not_followed(running: Path) -> None:
    path = put(running, a_record())
    with read(running) as (directory, files):
        target = running.parent / "target"
        path.rename(target)
        path.symlink_to(target)
        assert isinstance(directory.remove(files[path.name]), Kept)
    assert path.is_symlink()
    assert target.read_bytes() == render_record(a_record())


@pytest.mark.spec("S4")
def test_a_file_that_somebody_else_removed_has_vanished(running: Path) -> None:
    path = put(running, a_record())
    with read(running) as (directory, files):
        path.unlink()
        assert directory.remove(files[path.name]) == Vanished()
    (running / "x.tmp").touch()
    with opened(running) as directory:
        (leftover,) = directory.leftovers()
        (running / "x.tmp").unlink()
        assert directory.remove(leftover) == Vanished()
        assert directory.remove_companion("x.tmp") == Vanished()


@pytest.mark.spec("S4")
def test_only_the_last_look_lies_between_the_judgement_and_the_unlink(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(running, a_record(), "x")
    tapped = TappedOs()
    with read(running) as (directory, files):
        monkeypatch.setattr(running_directory, "os", tapped)
        assert directory.remove(files["x.json"]) == Removed()
    assert tapped.calls[:2] == [("stat", "x.json"), ("unlink", "x.json")]


@pytest.mark.spec("S2")
def test_a_file_whose_unlink_failed_is_not_reported_as_removed(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str, **__: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (running / "x.json").write_bytes(b"broken")
    put(running, a_record(2, alive=False), "y")
    (running / "y.control").write_text("token")
    monkeypatch.setattr(running_directory, "os", TappedOs(unlink=fail))
    listing = listed(running)
    reason = "it could not be removed: operation not permitted"
    assert sorted(listing.kept) == [("x.json", reason), ("y.json", reason)]
    assert (listing.removed, listing.pruned) == ([], [])


@pytest.mark.spec("S3")
def test_a_file_that_was_not_read_is_never_removed(running: Path) -> None:
    os.mkfifo(running / "x.json")
    os.mkfifo(running / "x.tmp")
    with read(running) as (directory, files):
        assert directory.remove(files["x.json"]) == Kept("it was not read")
        assert directory.remove(Leftover("x.tmp", None)) == Kept("it was not read")
    assert names(running) == {"x.json", "x.tmp"}


@pytest.mark.spec("S4", "H5")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_leftover_that_changed_since_the_look_is_kept(running: Path, kind: str) -> None:
    path = running / "x.tmp"
    path.write_bytes(b"abandoned")
    with opened(running) as directory:
        (leftover,) = directory.leftovers()
        path.rename(running / "moved")
        if kind == "file":
            path.write_bytes(b"newcomer!")
        else:
            path.symlink_to(running / "moved")
        assert isinstance(directory.remove(leftover), Kept)
    assert names(running) == {"x.tmp", "moved"}


@pytest.mark.spec("H5")
def test_leftovers_are_what_is_staged_and_what_lies_beside_records(running: Path) -> None:
    for name in ("a.tmp", "a.control", "a.origin", "a.json", "notes.txt", "control"):
        (running / name).write_bytes(b"some text")
    os.mkfifo(running / "b.tmp")
    with opened(running) as directory:
        found = {leftover.name: leftover.mark for leftover in directory.leftovers()}
    assert set(found) == {"a.tmp", "a.control", "a.origin", "b.tmp"}
    mark, entry = found["a.tmp"], (running / "a.tmp").stat()
    assert mark == (entry.st_dev, entry.st_ino, entry.st_mtime_ns, len("some text"))
    assert found["b.tmp"] is None


@pytest.mark.spec("S4", "S5")
def test_a_directory_swapped_under_the_reader_leads_it_nowhere_else(running: Path) -> None:
    put(running, a_record(alive=False), "x")
    with opened(running) as directory:
        running.rename(running.parent / "moved")
        running.mkdir()
        decoy = put(running, a_record(alive=False), "x")
        listing = list_sessions(directory, PROCESSES, prune=True)
    assert [note.name for note in listing.pruned] == ["x.json"]
    assert decoy.exists()
    assert names(running.parent / "moved") == set()


@pytest.mark.spec("S5", "G1")
@pytest.mark.parametrize("said", ["../../x", "/x", "ses_another", "", "x.json"])
def test_what_a_record_says_never_names_a_path(running: Path, said: str) -> None:
    outside = [running / "ses_another.control", running / "ses_another.origin"]
    outside += [running.parent.parent / f"x.{extension}" for extension in ("json", "control", "origin")]
    for path in outside:
        path.write_text("kept")
    put(running, changed(a_record(alive=False), session_id=said), "stem")
    for extension in ("control", "origin"):
        (running / f"stem.{extension}").write_text("goes")
    assert [note.name for note in listed(running).pruned] == ["stem.json"]
    assert not [name for name in names(running) if name.startswith("stem")]
    assert [path.read_text() for path in outside] == ["kept"] * len(outside)


@pytest.mark.spec("S5")
def test_of_two_files_with_one_id_the_one_named_after_it_counts(running: Path) -> None:
    put(running, changed(a_record(), url="localhost:2"), "another")
    put(running, a_record())
    put(running, a_record(2), "misnamed")
    listing = listed(running)
    assert [(row.stem, row.record.url) for row in listing.sessions] == [
        ("misnamed", "localhost:1"),
        (session_id(1), "localhost:1"),
    ]
    assert sorted(listing.kept) == [
        ("another.json", f"it names the session of {session_id(1)}.json"),
        ("misnamed.json", f"it is not named after its session {session_id(2)}"),
    ]
    assert len(names(running)) == 3


@pytest.mark.spec("G1", "L9")
def test_pruning_takes_a_gone_sessions_three_files_and_nobody_elses(running: Path) -> None:
    for number, alive in ((1, True), (2, False)):
        put(running, a_record(number, alive=alive))
        (running / f"{session_id(number)}.control").write_text("token")
        (running / f"{session_id(number)}.origin").write_bytes(b"no origin at all")
    listing = listed(running)
    assert [tuple(note) for note in listing.pruned] == [
        (f"{session_id(2)}.json", f"no process holds pid {GONE_PID}"),
    ]
    assert names(running) == {f"{session_id(1)}.{extension}" for extension in ("json", "control", "origin")}


@pytest.mark.spec("G1", "L9")
def test_a_session_that_is_not_gone_is_not_pruned(running: Path) -> None:
    path = put(running, a_record())
    (session,) = listed(running).sessions
    with opened(running) as directory:
        assert prune_session(directory, session, PROCESSES) == Kept("its session is not gone")
    assert path.exists()


@pytest.mark.spec("L8")
def test_an_origin_is_read_and_its_lock_tried(running: Path) -> None:
    origin = PROCESSES.own_origin()
    path = running / "x.origin"
    path.write_bytes(render_origin(origin))
    with opened(running) as directory:
        assert directory.origin_of("x") == OriginFile(origin, LockReading.FREE)
        with path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert directory.origin_of("x") == OriginFile(origin, LockReading.HELD)
        assert directory.origin_of("x") == OriginFile(origin, LockReading.FREE)


@pytest.mark.spec("L8")
def test_a_reader_keeps_no_lock_of_its_own(running: Path) -> None:
    path = running / "x.origin"
    path.write_bytes(render_origin(Origin()))
    with opened(running) as directory, path.open("rb") as session:
        assert directory.origin_of("x").lock is LockReading.FREE
        fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.spec("L8")
def test_a_file_system_without_locks_cannot_tell(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (running / "x.origin").write_bytes(render_origin(Origin()))
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with opened(running) as directory:
        assert directory.origin_of("x").lock is LockReading.UNREADABLE


@pytest.mark.spec("L8", "R5")
@pytest.mark.parametrize("kind", IRREGULAR)
def test_an_origin_that_is_no_regular_file_is_not_read(running: Path, within_a_second: None, kind: str) -> None:
    make, reason = IRREGULAR[kind]
    make(running / "x.origin")
    with opened(running) as directory:
        assert directory.origin_of("x").origin == UnreadOrigin(reason)
        assert directory.origin_of("missing").origin is None


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("locked", [True, False])
def test_a_session_of_another_namespace_is_gone_when_nothing_holds_its_lock(running: Path, locked: bool) -> None:
    record = a_record(alive=False)
    path = put(running, record)
    elsewhere = changed(PROCESSES.own_origin(), pid=record.pid, pid_namespace="pid:[1]")
    origin = running / f"{path.stem}.origin"
    origin.write_bytes(render_origin(elsewhere))
    with origin.open("rb") as held:
        if locked:
            fcntl.flock(held, fcntl.LOCK_EX)
        listing = listed(running)
    reasons = [note.reason for note in listing.pruned]
    assert reasons == ([] if locked else ["nothing holds the session's lock"])
    assert [session.stem for session in listing.sessions] == ([path.stem] if locked else [])
    assert path.exists() is locked
    assert origin.exists() is locked


@pytest.mark.spec("L8", "L9", "S3")
@pytest.mark.parametrize(("number", "shown"), [(errno.EIO, True), (errno.EACCES, True), (errno.EMFILE, False)])
def test_an_origin_that_could_not_be_read_keeps_its_record(
    running: Path, monkeypatch: pytest.MonkeyPatch, number: int, shown: bool
) -> None:
    def fail(name: str, flags: int, **named: int) -> int:
        if name.endswith(".origin"):
            raise OSError(number, os.strerror(number))
        return os.open(name, flags, dir_fd=named["dir_fd"])

    path = put(running, a_record(alive=False))
    path.with_suffix(".origin").write_bytes(render_origin(PROCESSES.own_origin()))
    monkeypatch.setattr(running_directory, "os", TappedOs(open=fail))
    listing = listed(running)
    # Our own limit says nothing about a session: it is not called unreachable for it.
    assert [session.stem for session in listing.sessions] == ([path.stem] if shown else [])
    assert [note.name for note in listing.kept] == ([] if shown else [path.name])
    assert (listing.removed, listing.pruned, len(names(running))) == ([], [], 2)


@pytest.mark.spec("S1")
def test_one_record_can_be_read_alone(running: Path) -> None:
    for number in (1, 2):
        put(running, a_record(number))
    wanted = f"{session_id(2)}.json"
    with opened(running) as directory:
        for batch in directory.batches(only=wanted):
            with batch as files:
                assert [file.name for file in files if isinstance(file, ReadFile)] == [wanted]
        assert list(directory.batches(only="../running/" + wanted)) == []
