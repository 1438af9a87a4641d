"""A session of another pid namespace, boot or machine is kept until its end is proven, and never signalled (L6, L8).

The homes are shared, as a volume of a container would be; the pids mean nothing on the other side.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters import procfs
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.registration import RunningGuard
from murmur.domain.origin import Origin
from murmur.domain.process import Claim, ProcessIdentity, Unverified, judge
from murmur.domain.record import RunningRecord
from murmur.domain.signals import Refused, StopSignal
from tests.adapters.processes_for_tests import MUR, call_inside, changed, fresh_pid_namespace, is_running, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")

SESSION = "ses_0198c0de0000700080000000000000a1"
PROCESSES = SystemProcesses()


def mur(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([MUR, *arguments], capture_output=True, text=True, timeout=30, check=False)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mur("ps", "--json").stdout)
    return found


def stop(session_id: str) -> tuple[int, str]:
    done = mur("stop", session_id, "--json", "--timeout", "0.1")
    return done.returncode, json.loads(done.stdout)[0]["outcome"]


@dataclasses.dataclass
class Container:
    """A session in a pid namespace of its own, where its host is process 1."""

    ready: dict[str, Any]
    host: int
    """The host's pid out here."""
    unshare: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """End the whole namespace from out here, and wait for that."""
        os.kill(self.host, signal.SIGKILL)
        self.unshare.wait()


@contextmanager
def container() -> Iterator[Container]:
    prefix = fresh_pid_namespace()
    with running(*prefix, str(MUR), "run", "--json", "--", "sleep", "1000", stdout=subprocess.PIPE) as unshare:
        assert unshare.stdout is not None
        ready = json.loads(unshare.stdout.readline())
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        yield Container(ready, int(children[0]), unshare)


@pytest.mark.slow  # Several commands one after the other, in a namespace that has to be made first.
@pytest.mark.spec("L8", "L9", "O1", "O2")
def test_a_session_of_another_pid_namespace_is_unverified_while_it_lives_and_pruned_after_its_end(home: Path) -> None:
    running_directory = home / ".murmur" / "running"
    with container() as inside:
        session_id = inside.ready["session_id"]
        assert inside.ready["pid"] == 1
        files = sorted(os.listdir(running_directory))
        assert files == [f"{session_id}.json", f"{session_id}.origin"]

        (row,) = rows()
        assert (row["session_id"], row["status"]) == (session_id, "unreachable")
        assert row["reason"] == "the session runs in another pid namespace"
        assert stop(session_id) == (4, "refused")
        assert inside.unshare.poll() is None
        assert procfs.read_process(inside.host).pid_alive
        assert sorted(os.listdir(running_directory)) == files

        inside.kill()
        assert rows() == []
        assert os.listdir(running_directory) == []


@pytest.mark.slow  # Several commands one after the other, in a namespace that has to be made first.
@pytest.mark.spec("L8")
def test_a_session_out_here_is_unverified_from_within_a_pid_namespace(home: Path) -> None:
    prefix = fresh_pid_namespace()
    with running(str(MUR), "run", "--json", "--", "sleep", "1000", stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        session_id = json.loads(host.stdout.readline())["session_id"]
        listed = subprocess.run([*prefix, MUR, "ps", "--json"], capture_output=True, text=True, timeout=30, check=True)
        (row,) = json.loads(listed.stdout)
        assert (row["session_id"], row["reason"]) == (session_id, "the session runs in another pid namespace")
        (row,) = rows()
        assert row["status"] == "running"
        host.send_signal(signal.SIGTERM)
        assert host.wait(timeout=20) == 0
    assert os.listdir(home / ".murmur" / "running") == []


def told(found: object) -> list[str]:
    """Write a state or an outcome so that JSON can carry it."""
    assert isinstance(found, Unverified | Refused), found
    return [type(found).__name__, found.reason]


def look_around() -> dict[str, object]:
    """Look at processes where `/proc` is of another pid namespace."""
    own = os.getpid()
    reading = procfs.read_process(own)
    identity = ProcessIdentity(own, "1")
    outcome = PROCESSES.signal(Claim(identity), StopSignal.KILL)
    state = judge(Claim(identity), reading, PROCESSES.here())
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = procfs.read_process(child.pid)
    child.wait()
    return {
        "pid": own,
        "ours": procfs.proc_is_ours(),
        "alive": reading.pid_alive,
        "token": reading.start_token,
        "state": told(state),
        "outcome": told(outcome),
        "zombie": zombie.pid_alive,
        "nobody": procfs.read_process(2**22 - 1).pid_alive,
        "members": procfs.group_members(os.getpgrp()),
        "process_start": PROCESSES.own_origin().process_start,
    }


@pytest.mark.spec("L6", "L7")
def test_a_foreign_proc_makes_start_times_unreadable_and_exits_are_still_seen() -> None:
    found = call_inside(fresh_pid_namespace(mount_proc=False), "tests.faults.test_namespaces", "look_around")
    reason = "pid 1's start time could not be read"
    assert found == {
        "pid": 1,
        "ours": False,
        "alive": True,
        "token": None,
        "state": ["Unverified", reason],
        "outcome": ["Refused", reason],
        "zombie": False,
        "nobody": False,
        "members": None,
        "process_start": None,
    }


def look_past_hidden_processes() -> dict[str, object]:
    """Look, as another user, at a process of root that `/proc` does not show to others."""
    # `mount` through the C library, so that no shell is needed between.
    subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
    child = subprocess.Popen(["sleep", "1000"])
    procfs.here()
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    reading = procfs.read_process(child.pid)
    with_pidfd = judge(Claim(ProcessIdentity(child.pid, "1")), reading, PROCESSES.here())
    outcome = PROCESSES.signal(Claim(ProcessIdentity(child.pid, "1")), StopSignal.TERM)
    del os.pidfd_open
    without = judge(Claim(ProcessIdentity(child.pid, "1")), procfs.read_process(child.pid), PROCESSES.here())
    shown = os.path.exists(f"/proc/{child.pid}/stat")  # noqa: PTH110 - one name is asked for
    return {
        "pid": child.pid,
        "shown": shown,
        "with": told(with_pidfd),
        "without": told(without),
        "outcome": told(outcome),
    }


@pytest.mark.spec("L2", "L7", "L9")
def test_a_process_that_proc_hides_from_others_is_unverified_and_not_gone() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a /proc that hides processes")
    prefix = (*fresh_pid_namespace(), "--mount")
    found = call_inside(prefix, "tests.faults.test_namespaces", "look_past_hidden_processes")
    reason = f"pid {found['pid']}'s start time could not be read"
    assert found == {
        "pid": found["pid"],
        "shown": False,
        "with": ["Unverified", reason],
        "without": ["Unverified", reason],
        "outcome": ["Refused", reason],
    }


@contextmanager
def recorded(origin: Origin, pid: int, process_start: str) -> Iterator[None]:
    """Record a session whose origin says that it was started elsewhere, and hold its lock."""
    record = RunningRecord(
        session_id=SESSION,
        url="localhost:1",
        pid=pid,
        process_start=process_start,
        capsule_name="worker",
        capsule_version="1.0.0",
        workdir="/work",
        outlives_launcher=True,
        started_at="2026-01-01T00:00:00Z",
    )
    origin = changed(origin, pid=pid, process_start=process_start, pidfd_inode=None)
    with RunningGuard(os.environ, record, origin, warn=lambda text: None):
        yield


ELSEWHERE: dict[str, dict[str, str | None]] = {
    "another machine": {"machine_id": "another", "boot_id": "another"},
    "a machine and boot that could not be read": {"machine_id": None, "boot_id": None},
    "another boot": {"boot_id": "another"},
    "another pid namespace": {"pid_namespace": "pid:[1]"},
    "another time namespace": {"time_namespace": "time:[1]"},
    "a pid namespace that could not be read": {"pid_namespace": None},
}


@pytest.mark.slow  # Several commands one after the other.
@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_session_started_elsewhere_is_kept_and_not_signalled_while_its_lock_is_held(place: str, home: Path) -> None:
    origin = changed(PROCESSES.own_origin(), **ELSEWHERE[place])
    with running() as process:
        (reading,) = PROCESSES.readings([ProcessIdentity(process.pid, "")])
        # As if the pid and the token were even this process's: they mean nothing here.
        with recorded(origin, process.pid, reading.start_token or ""):
            (row,) = rows()
            assert row["status"] == "unreachable"
            assert stop(SESSION) == (4, "refused")
            assert sorted(os.listdir(home / ".murmur" / "running")) == [f"{SESSION}.json", f"{SESSION}.origin"]
        assert is_running(process)


@pytest.mark.slow  # Several commands one after the other.
@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_session_started_elsewhere_goes_with_its_lock_unless_it_was_on_another_machine(
    place: str, home: Path
) -> None:
    origin = changed(PROCESSES.own_origin(), **ELSEWHERE[place])
    running_directory = home / ".murmur" / "running"
    with recorded(origin, os.getpid(), "1"):
        files = {name: (running_directory / name).read_bytes() for name in os.listdir(running_directory)}
    assert os.listdir(running_directory) == []
    for name, content in files.items():  # As a killed host leaves them: nobody holds the lock.
        (running_directory / name).write_bytes(content)
        (running_directory / name).chmod(0o600)
    kept = "machine" in place
    assert [row["status"] for row in rows()] == (["unreachable"] if kept else [])
    assert sorted(os.listdir(running_directory)) == (sorted(files) if kept else [])
