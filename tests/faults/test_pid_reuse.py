"""A pid that really was given to another process is never signalled (K2, L5, L8).

The functions that run inside a pid namespace of their own choose the next pid there, and report in JSON.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters import procfs
from murmur.adapters.processes import SystemProcesses
from murmur.adapters.registration import RunningGuard
from murmur.domain.origin import Origin
from murmur.domain.process import Claim, ProcessIdentity, StatLine
from murmur.domain.record import RunningRecord
from murmur.domain.signals import AlreadyGone, StopSignal
from tests.adapters.processes_for_tests import MUR, call_inside, changed, fresh_pid_namespace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pids can be chosen on Linux only")

REUSES = 200
SESSION = "ses_0198c0de0000700080000000000000a1"
PROCESSES = SystemProcesses()


def newcomer() -> int:
    """Start a process that waits for a signal; return its pid."""
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 1024)  # A connection that this process should close, among others.
        while True:
            signal.pause()
    return pid


def replace(pid: int) -> None:
    """End a child, and start another one under its pid."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    take(pid)


def take(pid: int) -> None:
    """Start a child under a pid that is free."""
    try:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOENT):
            raise Unsupported(f"the next pid cannot be chosen: {error}") from error
        raise
    found = newcomer()
    assert found == pid, f"{found} instead of {pid}"


class Unsupported(Exception):
    """What this kernel does not let a test do."""


Inside = Callable[[], dict[str, object]]


def or_why_not(function: Inside) -> Inside:
    """Let a function that runs inside say what this kernel does not support."""

    @wraps(function)
    def run() -> dict[str, object]:
        try:
            return function()
        except Unsupported as reason:
            return {"unsupported": str(reason)}

    return run


def is_running(pid: int) -> bool:
    """Whether a child is there, unharmed and not even stopped."""
    return os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED) == (0, 0)


def claim_on(pid: int) -> Claim:
    """Claim what a session of that process would have recorded of itself."""
    (reading,) = PROCESSES.readings([ProcessIdentity(pid, "")])
    assert reading.start_token is not None
    origin = changed(
        PROCESSES.own_origin(), pid=pid, process_start=reading.start_token, pidfd_inode=reading.pidfd_inode
    )
    return Claim(ProcessIdentity(pid, reading.start_token), origin)


def same_tick(claim: Claim) -> bool:
    """Whether the pid's holder has the very start token that is claimed."""
    return procfs._stat_line(claim.identity.pid).start_token == claim.identity.process_start


@or_why_not
def signal_recorded_sessions() -> dict[str, object]:
    """Reuse the pid of a recorded session again and again; signal the session each time."""
    pid = newcomer()
    reuses = within = 0
    wrong: list[str] = []
    while reuses < REUSES or (within == 0 and reuses < 20 * REUSES):
        claim = claim_on(pid)
        replace(pid)
        reuses += 1
        equal = same_tick(claim)
        within += equal
        if equal and not procfs.inodes_are_unique():
            continue
        for number in StopSignal:
            outcome = PROCESSES.signal(claim, number)
            if outcome != AlreadyGone():
                wrong.append(f"{outcome} (equal start token: {equal})")
        if not is_running(pid):
            wrong.append("the newcomer was hit")
            take(pid)
    return {"reuses": reuses, "within a tick": within, "wrong": wrong}


@or_why_not
def signal_while_the_pid_is_reused() -> dict[str, object]:
    """Reuse the pid in the middle of the verification, with no origin to tell; signal the session each time."""
    pid = newcomer()
    read = procfs._stat_line
    wrong: list[str] = []
    counts: list[int] = []
    for moment in (before_reading, after_reading):
        reuses = within = 0
        while reuses < REUSES // 4 or (within == 0 and reuses < 20 * REUSES):
            reuses += 1
            claim = claim_on(pid)._replace(origin=None)
            vars(procfs)["_stat_line"] = moment(read)
            # In turn, since the signal alone would be safe: the pidfd names a process that is not there any more.
            if reuses % 2:
                outcome: object = PROCESSES.signal(claim, StopSignal.KILL)
            else:
                (reading,) = PROCESSES.readings([claim.identity])
                outcome = AlreadyGone() if reading == procfs.NOBODY else reading
            vars(procfs)["_stat_line"] = read
            within += same_tick(claim)
            if outcome != AlreadyGone():
                wrong.append(repr(outcome))
            if not is_running(pid):
                wrong.append("the newcomer was hit")
                take(pid)
        counts.append(within)
    return {"within a tick": counts, "wrong": wrong}


Reader = Callable[[int], StatLine]


def before_reading(read: Reader) -> Reader:
    """Read the newcomer's line."""

    def reader(pid: int) -> StatLine:
        replace(pid)
        return read(pid)

    return reader


def after_reading(read: Reader) -> Reader:
    """Read the line of the process that is then replaced."""

    def reader(pid: int) -> StatLine:
        line = read(pid)
        replace(pid)
        return line

    return reader


def mur(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([MUR, *arguments], capture_output=True, text=True, timeout=30, check=False)


def running_directory() -> Path:
    return Path(os.environ["HOME"]) / ".murmur" / "running"


@or_why_not
def stop_a_session_whose_pid_is_reused() -> dict[str, object]:
    """Host a session, kill it, give its pid to another process, then stop the session by command."""
    with subprocess.Popen([MUR, "run", "--json", "--", "sleep", "1000"], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        ready: dict[str, Any] = json.loads(host.stdout.readline())
        host.kill()
    take(host.pid)
    recorded = (running_directory() / f"{ready['session_id']}.json").exists()
    done = mur("stop", ready["session_id"], "--json")
    return {
        "recorded": recorded,
        "same pid": ready["pid"] == host.pid,
        "status": done.returncode,
        "outcome": json.loads(done.stdout)[0]["outcome"],
        "newcomer": is_running(host.pid),
        "listed": json.loads(mur("ps", "--json").stdout),
        "left": os.listdir(running_directory()),
    }


def recorded_as(opened: ExitStack, claim: Claim, url: str) -> None:
    """Write the record of a session, and its origin if the claim has one."""
    record = RunningRecord(
        session_id=SESSION,
        url=url,
        pid=claim.identity.pid,
        process_start=claim.identity.process_start,
        capsule_name="worker",
        capsule_version="1.0.0",
        workdir="/work",
        outlives_launcher=True,
        started_at="2026-01-01T00:00:00Z",
    )
    origin = claim.origin if isinstance(claim.origin, Origin) else Origin()
    opened.enter_context(RunningGuard(os.environ, record, origin, warn=lambda text: None))
    if claim.origin is None:
        (running_directory() / f"{SESSION}.origin").unlink()


@or_why_not
def stop_a_session_whose_pid_was_reused_within_a_tick() -> dict[str, object]:
    """Record a session, with the pid reused so fast that the start tokens are equal; stop it by command."""
    if not procfs.inodes_are_unique():
        raise Unsupported("pidfds share one inode on this kernel")
    pid = newcomer()
    claim = claim_on(pid)
    replace(pid)
    while not same_tick(claim):
        claim = claim_on(pid)
        replace(pid)
    with ExitStack() as opened:
        recorded_as(opened, claim, "localhost:1")
        done = mur("stop", SESSION, "--json")
        return {
            "equal": same_tick(claim),
            "status": done.returncode,
            "outcome": json.loads(done.stdout)[0]["outcome"],
            "newcomer": is_running(pid),
        }


def stop_while_the_pid_is_reused(*, with_origin: bool) -> dict[str, object]:
    """Stop a session by command; give its pid to another process while its door is being asked."""
    pid = newcomer()
    claim = claim_on(pid) if with_origin else claim_on(pid)._replace(origin=None)
    with ExitStack() as opened:
        door = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        recorded_as(opened, claim, f"localhost:{door.getsockname()[1]}")
        command = opened.enter_context(
            subprocess.Popen([MUR, "stop", SESSION, "--json"], stdout=subprocess.PIPE, text=True)
        )
        caller, _ = door.accept()
        with caller:
            caller.recv(65536)
            replace(pid)
        output, _ = command.communicate(timeout=20)
        return {
            "status": command.returncode,
            "outcome": json.loads(output)[0]["outcome"],
            "newcomer": is_running(pid),
            "left": (running_directory() / f"{SESSION}.json").exists(),
        }


@or_why_not
def stop_while_the_pid_is_reused_with_origin() -> dict[str, object]:
    return stop_while_the_pid_is_reused(with_origin=True)


@or_why_not
def stop_while_the_pid_is_reused_without_origin() -> dict[str, object]:
    return stop_while_the_pid_is_reused(with_origin=False)


def inside(function: Inside) -> dict[str, Any]:
    """Run one of the functions above in a pid namespace of its own, or skip the test with the reason."""
    found: dict[str, Any] = call_inside(fresh_pid_namespace(), "tests.faults.test_pid_reuse", function.__name__)
    if "unsupported" in found:
        pytest.skip(found["unsupported"])
    return found


@pytest.mark.slow  # Two hundred real reuses, each with a process to start and one to reap.
@pytest.mark.spec("K2", "L5", "L8")
def test_two_hundred_reused_pids_of_recorded_sessions_are_never_signalled() -> None:
    found = inside(signal_recorded_sessions)
    assert found["wrong"] == []
    assert found["reuses"] >= REUSES
    assert found["within a tick"] > 0


@pytest.mark.slow  # A hundred real reuses, each with a process to start and one to reap.
@pytest.mark.spec("K2", "L5")
def test_a_pid_that_is_reused_while_it_is_verified_is_never_signalled() -> None:
    found = inside(signal_while_the_pid_is_reused)
    assert found["wrong"] == []
    assert all(found["within a tick"])


@pytest.mark.slow  # Three commands one after the other, in a namespace that has to be made first.
@pytest.mark.spec("K2", "O2", "L5")
def test_mur_stop_leaves_a_newcomer_under_a_session_s_pid_alone() -> None:
    assert inside(stop_a_session_whose_pid_is_reused) == {
        "recorded": True,
        "same pid": True,
        "status": 3,
        "outcome": "not_found",
        "newcomer": True,
        "listed": [],
        "left": [],
    }


@pytest.mark.slow  # A command in a namespace that has to be made first.
@pytest.mark.spec("K2", "O2", "L8")
def test_mur_stop_leaves_a_newcomer_of_the_same_clock_tick_alone() -> None:
    found = inside(stop_a_session_whose_pid_was_reused_within_a_tick)
    assert found == {"equal": True, "status": 3, "outcome": "not_found", "newcomer": True}


@pytest.mark.slow  # A command in a namespace that has to be made first.
@pytest.mark.spec("K1", "K2", "O2")
@pytest.mark.parametrize(
    "stop", [stop_while_the_pid_is_reused_with_origin, stop_while_the_pid_is_reused_without_origin]
)
def test_mur_stop_leaves_a_newcomer_alone_that_came_while_the_door_was_asked(
    stop: Inside,
) -> None:
    assert inside(stop) == {"status": 0, "outcome": "already_gone", "newcomer": True, "left": False}
