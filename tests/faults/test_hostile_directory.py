"""A running directory full of everything that a record is not: one pass, in no time, losing nothing."""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from murmur.adapters.clock import SystemClock
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.listing import Listing, list_sessions
from murmur.domain.origin import Origin, render_origin
from murmur.domain.process import Alive
from murmur.domain.record import RECORD_LIMIT, RunningRecord, render_record
from murmur.domain.sweep import Sweep

PROCESSES = SystemProcesses()
GONE_PID = 2**31 - 1
"""A pid above every `pid_max`."""
HEX = "0123456789abcdef" * 2
Fields = TypeVar("Fields")


def changed(value: Fields, **changes: object) -> Fields:
    """The same value with some of its fields other."""
    kind: Any = type(value)
    made: Fields = kind(**({name: getattr(value, name) for name in kind.__match_args__} | changes))
    return made


@pytest.fixture
def running(home: Path) -> Path:
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, mode=0o700)
    return place


@pytest.fixture(autouse=True)
def every_descriptor_is_closed() -> Iterator[None]:
    PROCESSES.own_origin()  # Whatever is opened once and for all is open now.
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


def read(running: Path, *, prune: bool = True) -> Listing:
    with OpenRunningDirectory(os.open(running, os.O_RDONLY | os.O_DIRECTORY), running) as directory:
        listing = list_sessions(directory, PROCESSES, prune=prune)
        Sweep(directory, PROCESSES, SystemClock(), listing, prune).run()
    return listing


def a_record(number: int) -> RunningRecord:
    own = PROCESSES.own_origin()
    return RunningRecord(
        session_id=f"ses_{number:032x}",
        url="localhost:1",
        pid=os.getpid(),
        process_start=own.process_start or "",
        capsule_name="kestrel",
        capsule_version="1.0.0",
        workdir="/srv",
        outlives_launcher=False,
        started_at="2026-01-01T00:00:00Z",
    )


def put(running: Path, record: RunningRecord) -> Path:
    path = running / f"{record.session_id}.json"
    path.write_bytes(render_record(record))
    return path


def names(running: Path) -> set[str]:
    return {entry.name for entry in running.iterdir()}


def aged(path: Path, seconds: float) -> None:
    """Let the file be that many seconds old."""
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def origin_of(pid: int) -> Origin:
    return changed(PROCESSES.own_origin(), pid=pid, pidfd_inode=None)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:  # Not root: nobody else can have put one there either.
        os.mkfifo(path)


def sparse(size: int) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return make


@pytest.mark.spec("R5", "S1", "S3")
def test_good_records_beside_every_bad_thing_are_all_listed_within_a_second(running: Path) -> None:
    target = running.parent / "target"
    target.write_bytes(render_record(a_record(900)))
    kept: dict[str, Callable[[Path], object]] = {
        "fifo.json": os.mkfifo,
        "directory.json": Path.mkdir,
        "device.json": device,
        "link.json": lambda path: path.symlink_to(target),
        "zero.json": lambda path: path.symlink_to("/dev/zero"),
        "stdin.json": lambda path: path.symlink_to("/dev/stdin"),
        "dangling.json": lambda path: path.symlink_to("nowhere"),
        "loop.json": lambda path: path.symlink_to("loop.json"),
        "outside.json": lambda path: path.symlink_to("../../../../etc/hostname"),
        "large.json": sparse(RECORD_LIMIT * 2),
        "huge.json": sparse(1 << 40),
        "deep.json": lambda path: path.write_bytes(b'{"a":' * 100_000),
        "deeper.json": lambda path: path.write_bytes(b"[" * RECORD_LIMIT),
        "digits.json": lambda path: path.write_bytes(b"1" * 100_000),
        "positional.json": lambda path: path.write_bytes(b"[]"),
    }
    removed: dict[str, Callable[[Path], object]] = {
        "empty.json": Path.touch,
        "limit.json": sparse(RECORD_LIMIT),
        "text.json": lambda path: path.write_bytes(b"some text"),
        "bytes.json": lambda path: path.write_bytes(os.urandom(10_000)),
        os.fsdecode(b"\xff\n\x1b[31m.json"): lambda path: path.write_bytes(b"{"),
    }
    for name, make in (kept | removed).items():
        make(running / name)
    good = [put(running, a_record(number)) for number in range(5)]

    started = time.monotonic()
    listing = read(running)
    assert time.monotonic() - started < 1

    assert [row.record for row in listing.sessions] == [a_record(number) for number in reversed(range(5))]
    assert all(row.state == Alive() for row in listing.sessions)
    assert {note.name for note in listing.kept} == set(kept)
    assert {note.name for note in listing.removed} == set(removed)
    assert all(note.reason for note in (*listing.kept, *listing.removed))
    assert names(running) == set(kept) | {path.name for path in good}
    assert target.read_bytes() == render_record(a_record(900))
    again = read(running)
    assert ([row.record for row in again.sessions], again.removed) == ([row.record for row in listing.sessions], [])


@pytest.mark.spec("R5", "S3")
def test_a_thousand_links_and_fifos_hide_no_record(running: Path) -> None:
    for number in range(500):
        os.mkfifo(running / f"fifo{number}.json")
        (running / f"link{number}.json").symlink_to("/dev/zero")
    put(running, a_record(1))
    listing = read(running)
    assert [row.record for row in listing.sessions] == [a_record(1)]
    assert len(listing.kept) == 1000
    assert len(names(running)) == 1001


@pytest.mark.spec("H5")
@pytest.mark.parametrize("pid", [GONE_PID, 0, 4294967296], ids=["gone", "zero", "beyond"])
@pytest.mark.parametrize(("age", "goes"), [(0, False), (59, False), (62, True), (90_000, True)])
def test_a_staged_write_of_a_process_that_is_gone_goes_after_a_minute(
    running: Path, pid: int, age: float, goes: bool
) -> None:
    staged = running / f".{a_record(1).session_id}.json.{pid}.{HEX}.tmp"
    staged.write_bytes(b'{"session_id": ')
    aged(staged, age)
    listing = read(running)
    assert [note.name for note in listing.removed] == ([staged.name] if goes else [])
    assert staged.exists() is not goes


@pytest.mark.spec("H5")
@pytest.mark.parametrize(("age", "goes"), [(62, False), (86_300, False), (86_500, True)])
def test_a_staged_write_of_a_pid_that_is_held_goes_after_a_day(running: Path, age: float, goes: bool) -> None:
    staged = running / f".x.origin.{os.getpid()}.{HEX}.tmp"
    staged.touch()
    aged(staged, age)
    assert len(read(running).removed) == goes
    assert staged.exists() is not goes


@pytest.mark.spec("H5")
@pytest.mark.parametrize(
    "name",
    [
        f"x.json.{GONE_PID}.{HEX}.tmp",
        f".{GONE_PID}.{HEX}.tmp",
        f".x.json.{GONE_PID}.{HEX}",
        f".x.json.{GONE_PID}.{HEX.upper()}.tmp",
        f".x.json.{GONE_PID}.{HEX[1:]}.tmp",
        f".x.json.{GONE_PID}.{HEX}0.tmp",
        f".x.json.-1.{HEX}.tmp",
        f".x.json.\N{ARABIC-INDIC DIGIT ONE}.{HEX}.tmp",
        f".x.json.{GONE_PID}.{HEX}.tmp\n",
        f".x.json.{GONE_PID}.{HEX}.tmp.tmp",
        ".x.json.tmp",
        "notes.tmp",
    ],
)
def test_what_is_not_exactly_named_as_a_staged_write_stays(running: Path, name: str) -> None:
    (running / name).touch()
    aged(running / name, 1_000_000)
    assert read(running).removed == []
    assert names(running) == {name}


@pytest.mark.spec("H5", "R5")
@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_what_only_has_a_staged_writes_name_stays(running: Path, kind: str) -> None:
    path = running / f".x.json.{GONE_PID}.{HEX}.tmp"
    target = running.parent / "target"
    target.write_text("kept")
    aged(target, 1_000_000)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(target)
    os.utime(path, (0, 0), follow_symlinks=False)
    assert read(running).removed == []
    assert names(running) == {path.name}
    assert target.read_text() == "kept"


@pytest.mark.spec("H5")
@pytest.mark.parametrize("age", [0, 1_000_000])
def test_a_control_token_without_record_or_origin_is_reported_and_kept(running: Path, age: float) -> None:
    path = running / "ses_x.control"
    path.write_text("token")
    aged(path, age)
    listing = read(running)
    assert [tuple(note) for note in listing.kept] == [
        (path.name, "it has no record, and no origin file says whose it is")
    ]
    assert listing.removed == []
    assert path.read_text() == "token"


@pytest.mark.spec("H5", "L8")
@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"broken", render_origin(Origin(pid=GONE_PID)), b'{"pid": "1"}'],
    ids=["empty", "no pid", "broken", "no start", "wrong type"],
)
def test_an_origin_that_names_nobody_keeps_itself_and_its_control_token(running: Path, content: bytes) -> None:
    (running / "ses_x.control").write_text("token")
    (running / "ses_x.origin").write_bytes(content)
    listing = read(running)
    assert [note.name for note in listing.kept] == ["ses_x.control", "ses_x.origin"]
    assert names(running) == {"ses_x.control", "ses_x.origin"}


@pytest.mark.spec("H5", "L8")
@pytest.mark.parametrize("with_control", [True, False])
def test_what_a_session_that_is_gone_left_beside_no_record_is_swept(running: Path, with_control: bool) -> None:
    (running / "ses_x.origin").write_bytes(render_origin(origin_of(GONE_PID)))
    if with_control:
        (running / "ses_x.control").write_text("token")
    expected = ["ses_x.control", "ses_x.origin"] if with_control else ["ses_x.origin"]
    assert [note.name for note in read(running, prune=False).removed] == expected
    assert len(names(running)) == len(expected)
    assert [note.name for note in read(running).removed] == expected
    assert names(running) == set()


@pytest.mark.spec("H5", "L8", "L9")
def test_what_a_living_session_has_beside_no_record_stays(running: Path) -> None:
    (running / "ses_x.origin").write_bytes(render_origin(PROCESSES.own_origin()))
    (running / "ses_x.control").write_text("token")
    listing = read(running)
    assert (listing.removed, listing.sessions) == ([], [])
    assert names(running) == {"ses_x.origin", "ses_x.control"}


@pytest.mark.spec("H5", "L8", "L9")
@pytest.mark.parametrize(
    ("place", "locked", "goes"),
    [
        ({"pid_namespace": "pid:[1]"}, True, False),
        ({"pid_namespace": "pid:[1]"}, False, True),
        ({"boot_id": "another"}, False, True),
        ({"boot_id": "another", "machine_id": "another"}, False, False),
    ],
    ids=["locked elsewhere", "unlocked elsewhere", "an earlier boot", "another machine"],
)
def test_what_was_left_from_elsewhere_is_swept_when_its_lock_says_so(
    running: Path, place: dict[str, str], locked: bool, goes: bool
) -> None:
    if PROCESSES.here().machine_id is None:
        pytest.skip("this machine has no id to be another than")
    path = running / "ses_x.origin"
    path.write_bytes(render_origin(changed(origin_of(GONE_PID), **place)))
    (running / "ses_x.control").write_text("token")
    with ExitStack() as session:
        if locked:
            fcntl.flock(session.enter_context(path.open("rb")), fcntl.LOCK_EX)
        listing = read(running)
    assert {note.name for note in (listing.removed if goes else listing.kept)} == {"ses_x.origin", "ses_x.control"}
    assert names(running) == (set() if goes else {"ses_x.origin", "ses_x.control"})


@pytest.mark.spec("H5")
@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_a_control_token_that_is_no_file_stays_when_its_session_is_gone(running: Path, kind: str) -> None:
    path = running / "ses_x.control"
    target = running.parent / "target"
    target.write_text("kept")
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(target)
        case _:
            os.mkfifo(path)
    (running / "ses_x.origin").write_bytes(render_origin(origin_of(GONE_PID)))
    listing = read(running)
    assert [note.name for note in listing.kept] == ["ses_x.control"]
    assert names(running) == {"ses_x.control"}
    assert target.read_text() == "kept"


@pytest.mark.spec("H5", "S3")
def test_the_files_beside_a_record_that_could_not_be_read_stay(running: Path) -> None:
    os.mkfifo(running / "ses_x.json")
    (running / "ses_x.control").write_text("token")
    (running / "ses_x.origin").write_bytes(render_origin(origin_of(GONE_PID)))
    assert read(running).removed == []
    assert len(names(running)) == 3
