"""Writers killed at any moment, and many of them at once: no torn record is ever read, and none is lost."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from murmur.adapters.clock import SystemClock
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.listing import Listing, list_sessions
from murmur.domain.record import RunningRecord, parse_record, render_record
from murmur.domain.sweep import Sweep

PROCESSES = SystemProcesses()
STAGED = re.compile(r"\.ses_[0-9a-f]{32}\.json\.([0-9]+)\.[0-9a-f]{32}\.tmp")

# Started hundreds of times, so with as little as it takes: no `site`, and only the module that writes.
_INTERPRETER = (sys.executable, "-S", "-E", "-W", "error", "-c")
_PATHS = f"import sys; sys.path[:] = {sys.path!r}\n"


@pytest.fixture
def running(home: Path) -> Path:
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, mode=0o700)
    return place


def a_record(number: int, version: str = "0", workdir: str = "/srv") -> RunningRecord:
    """A record of this very process: none of them may ever be pruned."""
    return RunningRecord(
        session_id=f"ses_{number:032x}",
        url="localhost:1",
        pid=os.getpid(),
        process_start=PROCESSES.own_origin().process_start or "",
        capsule_name="kestrel",
        capsule_version=version,
        workdir=workdir,
        outlives_launcher=False,
        started_at="2026-01-01T00:00:00Z",
    )


def read(running: Path) -> Listing:
    with OpenRunningDirectory(os.open(running, os.O_RDONLY | os.O_DIRECTORY), running) as directory:
        listing = list_sessions(directory, PROCESSES, prune=True)
        Sweep(directory, PROCESSES, SystemClock(), listing, prune=True).run()
    return listing


def staged_files(running: Path) -> dict[str, int]:
    """The staged files there are, each with the pid in its name. Nothing else but records may lie there."""
    others = {name for name in os.listdir(running) if not name.endswith(".json")}
    found = {name: int(match[1]) for name in others if (match := STAGED.fullmatch(name))}
    assert set(found) == others
    return found


def age_all(running: Path, seconds: float) -> None:
    moment = time.time() - seconds
    for name in staged_files(running):
        os.utime(running / name, (moment, moment))


def is_held(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def assert_swept_once_old(running: Path) -> None:
    """Hold that staged files of dead writers stay while young, and go when they are old enough."""
    abandoned = staged_files(running)
    assert read(running).removed == []
    assert staged_files(running) == abandoned
    age_all(running, 61)
    swept = {note.name for note in read(running).removed}
    # A number of a dead writer may be another process's by now: that file goes a day later.
    assert all(is_held(abandoned[name]) for name in set(abandoned) - swept)
    age_all(running, 86_401)
    assert {note.name for note in read(running).removed} == set(abandoned) - swept
    assert staged_files(running) == {}


# Dies of its own SIGKILL right before or in the middle of one step of the second write.
_DIES_AT = """
import os, signal
from murmur.adapters import staging

directory = os.open(sys.argv[1], os.O_RDONLY)
name, old, new, step = sys.argv[2], sys.argv[3].encode(), sys.argv[4].encode(), sys.argv[5]
staging.write_staged(directory, name, old)

class Deadly:
    def __getattr__(self, called):
        real = getattr(os, called)
        if called != step.partition(" ")[0]:
            return real
        def die(*arguments, **named):
            if step == "fsync directory" and arguments[0] != directory:
                return real(*arguments)
            if called == "write":
                real(arguments[0], arguments[1][:len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return die

staging.os = Deadly()
staging.write_staged(directory, name, new)
"""


@pytest.mark.spec("H4", "H5")
@pytest.mark.parametrize(
    ("step", "replaced"),
    [
        ("open", False),
        ("fchmod", False),
        ("write", False),
        ("fsync", False),
        ("close", False),
        ("rename", False),
        ("fsync directory", True),
    ],
)
def test_a_writer_killed_at_any_step_leaves_the_old_record_or_the_new_one(
    running: Path, step: str, replaced: bool
) -> None:
    old, new = a_record(1, "old"), a_record(1, "new")
    name = f"{old.session_id}.json"
    arguments = [str(running), name, render_record(old).decode(), render_record(new).decode(), step]
    killed = subprocess.run([*_INTERPRETER, _PATHS + _DIES_AT, *arguments], check=False, stderr=subprocess.PIPE)
    assert (killed.returncode, killed.stderr) == (-9, b"")
    assert [row.record for row in read(running).sessions] == [new if replaced else old]
    assert len(staged_files(running)) == (step not in ("open", "fsync directory"))
    assert_swept_once_old(running)
    assert [row.record for row in read(running).sessions] == [new if replaced else old]


# Writes version after version of one record, each acknowledged by a line once it is in place. Where its staged names
# get their ids does not matter here, and is half of what starting it would cost.
_WRITES_ON = """
import os
sys.modules["murmur.adapters.identifiers"] = identifiers = type(sys)("identifiers")
identifiers.fresh_hex = lambda: os.urandom(16).hex()
from murmur.adapters.staging import write_staged

directory = os.open(sys.argv[1], os.O_RDONLY)
name, template, version = sys.argv[2], sys.argv[3], int(sys.argv[4])
while True:
    version += 1
    padding = "x" * (int.from_bytes(os.urandom(3), "big") >> version % 16 + 5)
    content = template.replace("VERSION", str(version)).replace("PADDING", padding)
    write_staged(directory, name, content.encode())
    os.write(1, b"%d\\n" % version)
"""


class EndlessWriter:
    """A process that rewrites one record until it is killed."""

    def __init__(self, running: Path, number: int, version: int) -> None:
        template = a_record(number, "VERSION", "/PADDING")
        self.number = number
        self._path = running / f"{template.session_id}.json"
        arguments = [str(running), self._path.name, render_record(template).decode(), str(version)]
        command = [*_INTERPRETER, _PATHS + _WRITES_ON, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)

    def kill(self, after: float) -> int:
        """Kill it that many seconds after its first write; return the version that it left in place."""
        with self._process as process:
            assert process.stdout is not None
            try:
                first = process.stdout.read(1)
                time.sleep(after)  # Not to wait for anything: it is what makes the moment of the kill random.
            finally:
                process.kill()
            acknowledged = int((first + process.stdout.read()).split(b"\n")[-2])
        version = int(parse_record(self._path.read_bytes()).capsule_version)
        assert version in (acknowledged, acknowledged + 1), "an acknowledged write was lost"
        return version


@pytest.mark.slow  # Three hundred processes are started and killed, most of them while they write to disk.
@pytest.mark.spec("H4", "H5")
def test_three_hundred_writers_killed_at_random_moments_tear_and_lose_nothing(running: Path) -> None:
    kills, slots = 300, 4
    moments = random.Random(20260101)
    with ExitStack() as started:
        writers: list[EndlessWriter] = []

        def start(number: int, version: int) -> None:
            writers.append(EndlessWriter(running, number, version))

        started.callback(lambda: [writer.kill(0) for writer in writers])
        for number in range(slots):
            start(number, 0)
        for kill in range(kills - slots):
            writer = writers.pop(0)
            start(writer.number, writer.kill(moments.uniform(0, 0.004)))
            if kill % 3 == 0:  # Read while the others write on.
                listing = read(running)
                assert (listing.removed, listing.pruned, listing.kept, listing.vanished) == ([], [], [], [])
    assert len(read(running).sessions) == slots
    assert len(staged_files(running)) > kills // 10, "hardly any of the kills came in the middle of a write"
    assert_swept_once_old(running)
    assert len(read(running).sessions) == slots


_WRITES_MANY = """
import os
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.staging import write_staged
from murmur.domain.record import RunningRecord, render_record

directory, writer, count = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]), int(sys.argv[3])
start = SystemProcesses().own_origin().process_start
for number in range(count):
    session_id = f"ses_{writer:016x}{number:016x}"
    record = RunningRecord(session_id, "localhost:1", os.getpid(), start, "kestrel", "1", "/srv", False, "now")
    write_staged(directory, session_id + ".json", render_record(record))
os.write(1, b"done\\n")
sys.stdin.read()
"""

_READS_ON = """
import json, os, select
from murmur.adapters.clock import SystemClock
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.listing import list_sessions
from murmur.domain.process import Alive
from murmur.domain.sweep import Sweep

processes, seen, wrong, passes, last = SystemProcesses(), set(), [], 0, False
while not last:
    last = bool(select.select([0], [], [], 0)[0])
    with OpenRunningDirectory(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1]) as directory:
        listing = list_sessions(directory, processes, prune=True)
        Sweep(directory, processes, SystemClock(), listing, True).run()
    now = {row.stem for row in listing.sessions}
    wrong += [*listing.removed, *listing.pruned, *listing.kept, *listing.vanished, *sorted(seen - now)]
    wrong += [row.state.reason for row in listing.sessions if not isinstance(row.state, Alive)]
    seen, passes = now, passes + 1
    if passes == 1:
        os.write(1, b"reading\\n")
os.write(1, json.dumps([passes, len(seen), wrong[:20]]).encode())
"""


class Worker:
    """A process that says one line when it got somewhere, and ends when its stdin is closed."""

    def __init__(self, script: str, *arguments: str) -> None:
        command = [*_INTERPRETER, _PATHS + script, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.__exit__(None, None, None)

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def finish(self) -> str:
        """Close its stdin and return what else it says."""
        said, _ = self._process.communicate()
        assert self._process.returncode == 0
        return said


@pytest.fixture
def workers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(workers: ExitStack, scripts: Sequence[tuple[str, ...]]) -> list[Worker]:
    return [workers.enter_context(Worker(*script)) for script in scripts]


@pytest.mark.slow  # Twenty processes write and read 3,200 records, each of which is flushed to disk.
@pytest.mark.spec("H4", "S2", "S3", "L9")
def test_sixteen_writers_against_four_pruning_readers_lose_no_record(running: Path, workers: ExitStack) -> None:
    place, each = str(running), 200
    readers = started(workers, [(_READS_ON, place)] * 4)
    assert [reader.line() for reader in readers] == ["reading"] * 4
    writers = started(workers, [(_WRITES_MANY, place, str(number), str(each)) for number in range(16)])
    assert [writer.line() for writer in writers] == ["done"] * 16
    reports: list[Any] = [json.loads(reader.finish()) for reader in readers]
    assert [(seen, wrong) for _, seen, wrong in reports] == [(16 * each, [])] * 4
    assert all(passes > 2 for passes, _, _ in reports), "the readers hardly read while the writers wrote"
    assert staged_files(running) == {}
    # Once the writers end, and only then, their records go.
    assert [writer.finish() for writer in writers] == [""] * 16
    assert len(read(running).pruned) == 16 * each
    assert list(running.iterdir()) == []
