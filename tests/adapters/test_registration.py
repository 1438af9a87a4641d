"""A session's files in the registry: written in order, locked while it lives, gone by any way out."""

import errno
import os
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from murmur.adapters import registration, staging
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.registration import ControlTokenGuard, RunningGuard
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.errors import RegistryUnusable, UnwritableRecord
from murmur.domain.listing import list_sessions
from murmur.domain.origin import LockReading, Origin, parse_origin
from murmur.domain.record import RunningRecord, parse_record
from murmur.domain.secret import ControlToken, DoorToken

SESSION = f"ses_{7:032x}"
RECORD, CONTROL, ORIGIN = (f"{SESSION}.{extension}" for extension in ("json", "control", "origin"))
SECRET = "kestrel-in-a-thermal"
TOKEN = ControlToken(SECRET)
PROCESSES = SystemProcesses()
Fields = TypeVar("Fields")


def changed(value: Fields, **changes: object) -> Fields:
    """The same value with some of its fields other."""
    kind: Any = type(value)
    made: Fields = kind(**({name: getattr(value, name) for name in kind.__match_args__} | changes))
    return made


class TappedOs:
    """The `os` module as one module sees it: some calls replaced."""

    def __init__(self, **replaced: Callable[..., object]) -> None:
        self._replaced = replaced

    def __getattr__(self, name: str) -> object:
        return self._replaced.get(name, getattr(os, name))


class Steps:
    """Names of files in the order in which they were put in place and removed, some of them failing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: str = "nothing") -> None:
        self.taken: list[str] = []
        self._refused = refused
        monkeypatch.setattr(staging, "os", TappedOs(rename=self._rename))
        monkeypatch.setattr(registration, "os", TappedOs(unlink=self._unlink))

    def _rename(self, source: str, name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if name.endswith(self._refused):
            raise OSError(errno.ENOSPC, "No space left on device")
        os.rename(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self.taken.append(f"+{name.rpartition('.')[2]}")

    def _unlink(self, name: str, *, dir_fd: int) -> None:
        os.unlink(name, dir_fd=dir_fd)
        self.taken.append(f"-{name.rpartition('.')[2]}")


@pytest.fixture(autouse=True)
def every_descriptor_is_closed() -> Iterator[None]:
    PROCESSES.own_origin()  # Whatever is opened once and for all is open now.
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


@pytest.fixture
def running(home: Path) -> Path:
    return home / ".murmur" / "running"


def a_record() -> RunningRecord:
    return RunningRecord(
        session_id=SESSION,
        url="localhost:1",
        pid=os.getpid(),
        process_start=PROCESSES.own_origin().process_start or "",
        capsule_name="kestrel",
        capsule_version="1.0.0",
        workdir="/srv",
        outlives_launcher=False,
        started_at="2026-01-01T00:00:00Z",
    )


def refuse_to_warn(message: str) -> None:
    raise AssertionError(message)


def guard(
    record: RunningRecord | None = None,
    environment: Mapping[str, str] = os.environ,
    warn: Callable[[str], None] = refuse_to_warn,
    origin: Origin | None = None,
) -> RunningGuard:
    return RunningGuard(environment, record or a_record(), origin or PROCESSES.own_origin(), warn)


def names(running: Path) -> set[str]:
    return {entry.name for entry in running.iterdir()}


def lock_on(running: Path) -> LockReading:
    with OpenRunningDirectory(os.open(running, os.O_RDONLY), running) as directory:
        return directory.origin_of(SESSION).lock


@contextmanager
def a_session(home: Path, *statements: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process holding a guard, after it said so; statements run once it does."""
    script = "\n".join(
        (
            "import os, subprocess, sys",
            "from murmur.adapters.processes import SystemProcesses",
            "from murmur.adapters.registration import RunningGuard",
            "from murmur.domain.record import RunningRecord",
            "origin = SystemProcesses().own_origin()",
            f"record = RunningRecord({SESSION!r}, 'localhost:1', os.getpid(), origin.process_start, 'kestrel', '1',",
            "    '/srv', False, '2026-01-01T00:00:00Z')",
            "with RunningGuard(os.environ, record, origin, print):",
            *(f"    {statement}" for statement in statements),
            "    os.write(1, b'held\\n')",
            "    sys.stdin.read()",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={"HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as session:
        try:
            assert session.stdout is not None
            assert session.stdout.readline() == b"held\n"
            yield session
        finally:
            session.kill()


@pytest.mark.spec("G2", "L8")
def test_a_session_is_recorded_for_exactly_as_long_as_the_guard_is_held(running: Path) -> None:
    held = guard()
    assert names(running) == {RECORD, ORIGIN}
    assert parse_record((running / RECORD).read_bytes()) == a_record()
    assert parse_origin((running / ORIGIN).read_bytes()) == PROCESSES.own_origin()
    held.close()
    assert names(running) == set()
    held.close()


@pytest.mark.spec("G2", "L8")
def test_the_origin_is_there_before_the_record_and_after_it(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    with guard():
        (running / CONTROL).write_text("token")
    assert steps.taken == ["+origin", "+json", "-json", "-control", "-origin"]


@pytest.mark.spec("G2", "L8")
def test_the_lock_is_held_until_the_last_file_is_gone(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[LockReading] = []

    def unlink(name: str, *, dir_fd: int) -> None:
        readings.append(lock_on(running))
        os.unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(registration, "os", TappedOs(unlink=unlink))
    guard().close()
    assert readings == [LockReading.HELD] * 3


@pytest.mark.spec("G2")
@pytest.mark.parametrize("way_out", [ValueError("x"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_the_files_go_by_any_way_out(running: Path, way_out: BaseException) -> None:
    def leave() -> None:
        (running / CONTROL).write_text("token")
        raise way_out

    with pytest.raises(type(way_out)), guard():
        leave()
    assert names(running) == set()


@pytest.mark.spec("G3")
@pytest.mark.parametrize("way_out", [ValueError("x"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_the_control_token_goes_by_any_way_out(running: Path, way_out: BaseException) -> None:
    def leave() -> None:
        assert names(running) == {CONTROL}
        raise way_out

    with pytest.raises(type(way_out)), ControlTokenGuard(os.environ, SESSION, TOKEN):
        leave()
    assert names(running) == set()


@pytest.mark.spec("G3")
def test_the_control_guard_removes_only_its_token(running: Path) -> None:
    with ControlTokenGuard(os.environ, SESSION, TOKEN) as control:
        assert (running / CONTROL).read_text() == SECRET
        with guard():
            control.close()
            assert names(running) == {RECORD, ORIGIN}


@pytest.mark.spec("G2", "G3")
def test_it_does_not_matter_which_guard_is_left_first(running: Path) -> None:
    control = ControlTokenGuard(os.environ, SESSION, TOKEN)
    guard().close()
    assert names(running) == set()
    control.close()
    assert names(running) == set()


@pytest.mark.spec("G2")
def test_a_guard_ends_quietly_when_its_files_are_gone_already(running: Path) -> None:
    with guard():
        for name in names(running):
            (running / name).unlink()


@pytest.mark.spec("G2")
@pytest.mark.parametrize("step", ["rename", "fsync", "write", "open"])
def test_a_record_that_could_not_be_written_leaves_no_origin_behind(
    running: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    writes: list[str] = []

    def fresh_hex() -> str:
        # Asked once for each staged file: from the second on, which is the record's, the step fails.
        writes.append(step)
        if len(writes) == 2:
            monkeypatch.setattr(staging, "os", TappedOs(**{step: fail}))
        return f"{len(writes):032x}"

    def fail(*_: object, **__: object) -> object:
        assert names(running) >= {ORIGIN}
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staging, "fresh_hex", fresh_hex)
    with pytest.raises(RegistryUnusable) as refused:
        guard()
    assert refused.value.message == f"failed to write {running / RECORD}: no space left on device"
    assert names(running) == set()


@pytest.mark.spec("G2", "G3")
def test_a_session_whose_record_could_not_be_written_keeps_its_control_token(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Steps(monkeypatch, refused=".json")
    with ControlTokenGuard(os.environ, SESSION, TOKEN):
        with pytest.raises(RegistryUnusable):
            guard()
        assert names(running) == {CONTROL}


@pytest.mark.spec("G2", "R2")
def test_a_record_that_cannot_be_encoded_is_not_written(running: Path) -> None:
    with pytest.raises(UnwritableRecord):
        guard(changed(a_record(), workdir=os.fsdecode(b"/srv/\xff"), door_token=DoorToken(SECRET)))
    assert not running.exists()


@pytest.mark.spec("G2", "L8")
def test_an_origin_that_cannot_be_written_is_a_warning_and_the_record_stands(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Steps(monkeypatch, refused=".origin")
    warnings: list[str] = []
    with guard(warn=warnings.append):
        assert names(running) == {RECORD}
    assert warnings == [f"failed to write {running / ORIGIN}: no space left on device"]
    assert names(running) == set()


@pytest.mark.spec("G2", "H2")
def test_an_unusable_directory_is_an_error_that_leaves_nothing(home: Path) -> None:
    (home / ".murmur").write_text("in the way")
    with pytest.raises(RegistryUnusable):
        guard()
    with pytest.raises(RegistryUnusable):
        ControlTokenGuard(os.environ, SESSION, TOKEN)
    assert (home / ".murmur").read_text() == "in the way"


@pytest.mark.spec("H4")
def test_a_directory_that_cannot_be_flushed_is_a_warning_and_the_record_stands(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        os.fsync(descriptor)

    monkeypatch.setattr(staging, "os", TappedOs(fsync=fsync))
    warnings: list[str] = []
    with guard(warn=warnings.append):
        assert names(running) == {RECORD, ORIGIN}
    assert warnings == [f"{running} could not be flushed to disk: invalid argument"]


@pytest.mark.spec("G2", "G3")
@pytest.mark.parametrize("interrupted", [RECORD, CONTROL])
def test_an_interrupt_right_after_the_rename_leaves_no_file(
    running: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and (running / interrupted).exists():
            raise KeyboardInterrupt
        os.fsync(descriptor)

    monkeypatch.setattr(staging, "os", TappedOs(fsync=fsync))
    with pytest.raises(KeyboardInterrupt), ControlTokenGuard(os.environ, SESSION, TOKEN):
        guard()
    assert names(running) == set()


@pytest.mark.spec("G3", "I3")
@pytest.mark.parametrize("captured", [False, True], ids=["plain", "with local variables"])
def test_an_error_about_the_control_token_never_holds_it(running: Path, captured: bool) -> None:
    (running / CONTROL).mkdir(parents=True)
    with pytest.raises(RegistryUnusable) as refused:
        ControlTokenGuard(os.environ, SESSION, TOKEN)
    assert refused.value.message == f"failed to write {running / CONTROL}: is a directory"
    report = traceback.TracebackException.from_exception(refused.value, capture_locals=captured)
    assert SECRET not in "".join(report.format())
    assert SECRET not in repr(refused.value.args)
    assert names(running) == {CONTROL}


@pytest.mark.spec("I3")
@pytest.mark.parametrize("captured", [False, True], ids=["plain", "with local variables"])
def test_an_error_about_the_record_never_holds_a_door_token(
    running: Path, monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    Steps(monkeypatch, refused=".json")
    with pytest.raises(RegistryUnusable) as refused:
        guard(changed(a_record(), door_token=DoorToken(SECRET)))
    report = traceback.TracebackException.from_exception(refused.value, capture_locals=captured)
    assert SECRET not in "".join(report.format())


@pytest.mark.spec("H2", "H4", "L8")
@pytest.mark.parametrize("umask", [0o000, 0o777], ids=oct)
def test_the_files_are_private_whatever_the_umask(home: Path, running: Path, umask: int) -> None:
    # In a process of its own, since the umask is the whole process's.
    control = (
        f"os.umask({umask}); from murmur.adapters.registration import ControlTokenGuard;"
        f"from murmur.domain.secret import ControlToken;"
        f"token = ControlTokenGuard(os.environ, {SESSION!r}, ControlToken('token'));"
        f"again = RunningGuard(os.environ, record, origin, print)"
    )
    with a_session(home, control):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in running.iterdir()}
    assert modes == dict.fromkeys((RECORD, CONTROL, ORIGIN), 0o600)


@pytest.mark.spec("L8")
def test_a_session_holds_its_lock_from_before_its_origin_has_its_name(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[LockReading] = []

    def rename(source: str, name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if name == ORIGIN:
            os.link(source, ORIGIN, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            readings.append(lock_on(running))
        os.rename(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(staging, "os", TappedOs(rename=rename))
    with guard():
        pass
    assert readings == [LockReading.HELD]


@pytest.mark.spec("L8")
def test_the_lock_is_held_while_the_session_lives_and_free_once_it_was_killed(home: Path, running: Path) -> None:
    with a_session(home) as session:
        assert lock_on(running) is LockReading.HELD
        session.send_signal(signal.SIGKILL)
        session.wait()
        assert lock_on(running) is LockReading.FREE
    assert names(running) == {RECORD, ORIGIN}


@pytest.mark.spec("L8")
def test_a_child_of_the_session_does_not_keep_its_lock(home: Path, running: Path) -> None:
    # The child lives on the pipes it inherits, so that its answer afterwards shows that it is still there.
    with a_session(home, "subprocess.Popen(['cat'], close_fds=False)") as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.send_signal(signal.SIGKILL)
        session.wait()
        assert lock_on(running) is LockReading.FREE
        session.stdin.write(b"still here\n")
        session.stdin.flush()
        assert session.stdout.readline() == b"still here\n"
        session.stdin.close()
        assert session.stdout.read() == b""


@pytest.mark.spec("G1", "G2", "H5")
def test_what_a_killed_session_left_is_pruned_by_the_next_reader(home: Path, running: Path) -> None:
    with a_session(home) as session:
        with OpenRunningDirectory(os.open(running, os.O_RDONLY), running) as directory:
            assert [row.stem for row in list_sessions(directory, PROCESSES, prune=True).sessions] == [SESSION]
        session.send_signal(signal.SIGKILL)
        session.wait()
        with OpenRunningDirectory(os.open(running, os.O_RDONLY), running) as directory:
            assert [note.name for note in list_sessions(directory, PROCESSES, prune=True).pruned] == [RECORD]
    assert names(running) == set()
