"""A reader that runs out of descriptors must not delete live records, nor take anything for gone (S3)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Each program runs in a process of its own, whose descriptor limit is its own. `READ` is one whole pass.
_PRELUDE = """
import json, os, resource, sys, time
from murmur.adapters.clock import SystemClock
from murmur.adapters.murmur_home import open_running, running_location
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.domain.errors import MurmurError
from murmur.domain.listing import list_sessions
from murmur.domain.record import RunningRecord, render_record
from murmur.domain.sweep import Sweep

processes = SystemProcesses()
place = os.path.join(os.environ["HOME"], ".murmur", "running")
taken = []

def put(number, pid, start):
    record = RunningRecord(f"ses_{number:032x}", "localhost:1", pid, start, "kestrel", "1", "/srv", False, "now")
    with open(os.path.join(place, f"{record.session_id}.json"), "wb") as file:
        file.write(render_record(record))

def put_broken(name):
    with open(os.path.join(place, name), "wb") as file:
        file.write(b"broken")
    os.utime(os.path.join(place, name), (0, 0))

def limit(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def take_all(but=0):
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for _ in range(but):
            os.close(taken.pop())

def give_back():
    while taken:
        os.close(taken.pop())

class Starved(OpenRunningDirectory):
    # Its descriptors are taken by somebody else once the directory was listed.
    left = 0
    def batches(self, only=None):
        for batch in super().batches(only):
            take_all(self.left)
            yield batch

def read(kind=OpenRunningDirectory):
    result = {"error": None}
    with kind(open_running(os.environ, create=True), running_location(os.environ)) as directory:
        try:
            listing = list_sessions(directory, processes, prune=True)
            Sweep(directory, processes, SystemClock(), listing, True).run()
            result |= {
                "sessions": [[row.stem, type(row.state).__name__] for row in listing.sessions],
                "kept": listing.kept, "removed": listing.removed, "pruned": listing.pruned,
                "vanished": listing.vanished,
            }
        except MurmurError as error:
            result |= {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    give_back()
    return result

own = processes.own_origin()
for number in range(200):
    put(number, own.pid, own.process_start)
limit(20)
"""


@pytest.fixture
def running(home: Path) -> Path:
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, mode=0o700)
    return place


def run(home: Path, program: str, *, before: str = "") -> Any:
    """Run the prelude and a program; return the document it printed."""
    script = _PRELUDE + before + program + "\nprint(json.dumps(result))\n"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"HOME": str(home)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.stderr == ""
    return json.loads(finished.stdout)


def names(running: Path) -> set[str]:
    return set(os.listdir(running))


LIVE = {f"ses_{number:032x}.json" for number in range(200)}
ROWS = [[f"ses_{number:032x}", "Alive"] for number in reversed(range(200))]


@pytest.mark.spec("S3")
def test_two_hundred_live_records_are_listed_within_twenty_descriptors(home: Path, running: Path) -> None:
    result = run(home, "result = read()")
    assert result["error"] is None
    assert result["sessions"] == ROWS
    assert (result["kept"], result["removed"], result["pruned"], result["vanished"]) == ([], [], [], [])
    assert names(running) == LIVE


@pytest.mark.spec("S2", "S3", "H5")
def test_what_evidence_allows_is_still_removed_within_twenty_descriptors(home: Path, running: Path) -> None:
    result = run(
        home,
        "put_broken('x.json'); put(500, 2**31 - 1, '1')\n"
        "put_broken('.a.json.' + str(2**31 - 1) + '.' + '0' * 32 + '.tmp')\n"
        "result = read()",
    )
    assert result["sessions"] == ROWS
    assert sorted(name for name, _ in result["removed"]) == [f".a.json.{2**31 - 1}.{'0' * 32}.tmp", "x.json"]
    assert [name for name, _ in result["pruned"]] == [f"ses_{500:032x}.json"]
    assert names(running) == LIVE


@pytest.mark.spec("S3")
def test_records_that_no_descriptor_is_left_for_are_kept_with_that_reason(home: Path, running: Path) -> None:
    # What is asked of the kernel once and for all was asked before: only the records are in want.
    result = run(home, "put_broken('x.json'); put(500, 2**31 - 1, '1'); result = read(Starved)")
    assert result["error"] is None
    assert result["sessions"] == []
    assert {name for name, _ in result["kept"]} == LIVE | {"x.json", f"ses_{500:032x}.json"}
    assert {reason for _, reason in result["kept"]} == {"this process has no file descriptor left to read it with"}
    assert (result["removed"], result["pruned"], result["vanished"]) == ([], [], [])
    assert names(running) == LIVE | {"x.json", f"ses_{500:032x}.json"}


@pytest.mark.spec("S3", "L9")
@pytest.mark.parametrize("left", [1, 2, 3, 5])
def test_no_session_is_judged_when_no_descriptor_is_left_to_look_at_processes(
    home: Path, running: Path, left: int
) -> None:
    # The records read take all the descriptors that were left.
    result = run(home, f"put(500, 2**31 - 1, '1'); Starved.left = {left}; result = read(Starved)")
    assert result["error"] == "OutOfDescriptors"
    assert "file descriptor" in result["message"]
    assert "ulimit -n" in result["hint"]
    # The one of a pid that nobody holds may have been looked at, and pruned, before: the order is the directory's.
    assert names(running) - {f"ses_{500:032x}.json"} == LIVE


@pytest.mark.spec("S3")
def test_a_first_look_at_the_kernel_without_descriptors_is_an_error_and_removes_nothing(
    home: Path, running: Path
) -> None:
    result = run(
        home,
        "from murmur.adapters import procfs\n"
        "for asked in (procfs.here, procfs.proc_is_ours, procfs.inodes_are_unique): asked.cache_clear()\n"
        "put_broken('x.json'); result = read(Starved)",
    )
    assert result["error"] == "OutOfDescriptors"
    assert names(running) == LIVE | {"x.json"}


@pytest.mark.spec("H3", "S3")
@pytest.mark.parametrize(("left", "named"), [(0, ".murmur"), (1, ".murmur/running")])
def test_a_directory_that_no_descriptor_is_left_for_is_an_error_naming_it(
    home: Path, running: Path, left: int, named: str
) -> None:
    result = run(
        home,
        f"put_broken('x.json'); take_all({left})\n"
        "try: open_running(os.environ, create=True)\n"
        "except MurmurError as error: result = [type(error).__name__, error.message]\n"
        f"again = [os.open(os.devnull, os.O_RDONLY) for _ in range({left})]\n"
        "give_back()",
    )
    assert result == ["RegistryUnusable", f"{home / named}: Too many open files"]
    assert names(running) == LIVE | {"x.json"}


@pytest.mark.spec("H3", "S3")
def test_a_directory_that_can_be_opened_and_not_listed_is_an_error_naming_it(home: Path, running: Path) -> None:
    result = run(
        home,
        "with OpenRunningDirectory(open_running(os.environ, create=True), running_location(os.environ)) as directory:\n"
        "    take_all()\n"
        "    try: list_sessions(directory, processes, prune=True)\n"
        "    except MurmurError as error: result = [type(error).__name__, error.message]\n"
        "give_back()",
    )
    assert result == ["RegistryUnusable", f"{running}: Too many open files"]
    assert names(running) == LIVE


@pytest.mark.spec("S3", "H5")
def test_leftovers_that_no_descriptor_is_left_for_are_kept(home: Path, running: Path) -> None:
    leftovers = {f".a.json.{2**31 - 1}.{'0' * 32}.tmp", "a.control", "a.origin"}
    result = run(
        home,
        f"for name in {sorted(leftovers)!r}: put_broken(name)\n"
        "from murmur.domain.origin import Origin, render_origin\n"
        "gone = Origin(2**31 - 1, '1', own.machine_id, own.boot_id, own.pid_namespace, own.time_namespace)\n"
        "with open(os.path.join(place, 'a.origin'), 'wb') as file:\n"
        "    file.write(render_origin(gone))\n"
        "result = read(Starved)",
    )
    assert result["error"] is None
    assert result["removed"] == []
    assert {name for name, _ in result["kept"]} >= leftovers
    assert names(running) == LIVE | leftovers


@pytest.mark.spec("S3", "H5")
def test_the_same_leftovers_go_once_there_are_descriptors_again(home: Path, running: Path) -> None:
    name = f".a.json.{2**31 - 1}.{'0' * 32}.tmp"
    result = run(home, f"put_broken({name!r}); first = read(Starved); result = [first, read()]")
    assert [[note[0] for note in each["removed"]] for each in result] == [[], [name]]
    assert names(running) == LIVE
