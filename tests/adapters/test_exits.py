"""Waiting for processes that are not our children ends at their exit or at the deadline (K5)."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from murmur.adapters import exits, procfs
from murmur.adapters.exits import SystemExits, wait_for_any_exit
from murmur.domain.process import Claim, ProcessIdentity
from tests.adapters.processes_for_tests import (
    NO_PIDFDS,
    Process,
    exhaust_pidfds,
    open_descriptors,
    running,
    without_leader,
    zombie,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about pidfds and their absence on Linux")

LONG = 30.0


def claim_on(process: Process) -> Claim:
    return Claim(ProcessIdentity(process.pid, procfs._stat_line(process.pid).start_token or ""))


@pytest.fixture(params=("pidfds", *NO_PIDFDS))
def with_or_without_pidfds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "pidfds":
        exhaust_pidfds(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each wait for an event was to last."""
    recorded: list[float] = []
    wait = exits._Watch.wait

    def record(watch: exits._Watch, seconds: float) -> list[int]:
        recorded.append(seconds)
        return wait(watch, seconds)

    monkeypatch.setattr(exits._Watch, "wait", record)
    return recorded


def at_the_first_wait(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when the waiting has begun."""
    wait = exits._Watch.wait

    def act_first(watch: exits._Watch, seconds: float) -> list[int]:
        monkeypatch.setattr(exits._Watch, "wait", wait)
        act()
        return wait(watch, seconds)

    monkeypatch.setattr(exits._Watch, "wait", act_first)


@contextmanager
def several(count: int) -> Iterator[list[Process]]:
    with ExitStack() as opened:
        yield [opened.enter_context(running()) for _ in range(count)]


@pytest.mark.spec("K5")
def test_the_wait_ends_at_the_exit_of_one_process(with_or_without_pidfds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with several(3) as processes:
        claims = [claim_on(process) for process in processes]
        at_the_first_wait(monkeypatch, processes[1].kill)
        started = time.monotonic()
        assert SystemExits().wait_any(claims, started + LONG) == [1]
        assert time.monotonic() - started < LONG / 6


@pytest.mark.spec("K5")
def test_the_wait_ends_empty_at_the_deadline(with_or_without_pidfds: str) -> None:
    with several(2) as processes:
        deadline = time.monotonic() + 0.08
        assert not SystemExits().wait_any([claim_on(process) for process in processes], deadline)
        assert deadline <= time.monotonic() < deadline + 0.5


@pytest.mark.spec("K5")
def test_with_pidfds_one_event_is_waited_for_until_the_deadline(waits: list[float]) -> None:
    with several(2) as processes:
        SystemExits().wait_any([claim_on(process) for process in processes], time.monotonic() + 0.2)
    assert waits[0] == pytest.approx(0.2, abs=0.1)
    assert len(waits) <= 2


@pytest.mark.spec("K5")
def test_without_pidfds_the_processes_are_looked_at_in_short_ticks(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust_pidfds("ENOSYS", monkeypatch)
    with running() as process:
        SystemExits().wait_any([claim_on(process)], time.monotonic() + 0.2)
    assert len(waits) > 2
    assert max(waits) <= exits._TICK


@pytest.mark.spec("K5")
def test_a_process_that_is_gone_already_is_returned_without_waiting(
    with_or_without_pidfds: str, waits: list[float]
) -> None:
    with running("true") as process:
        claim = claim_on(process)
        process.wait()
        assert SystemExits().wait_any([claim], time.monotonic() + LONG) == [0]
    assert waits == []


@pytest.mark.spec("K5", "L2")
def test_a_zombie_and_a_pid_of_another_start_are_gone(with_or_without_pidfds: str, waits: list[float]) -> None:
    with zombie() as dead, running() as alive:
        claims = [claim_on(alive), claim_on(dead), Claim(ProcessIdentity(os.getpid(), "1")), claim_on(alive)]
        assert sorted(SystemExits().wait_any(claims, time.monotonic() + LONG)) == [1, 2]
    assert waits == []


@pytest.mark.spec("K5")
def test_what_is_gone_is_told_although_the_deadline_has_passed() -> None:
    with zombie() as dead:
        assert SystemExits().wait_any([claim_on(dead)], time.monotonic() - 1) == [0]
    with running() as alive:
        assert not SystemExits().wait_any([claim_on(alive)], time.monotonic() - 1)


@pytest.mark.spec("K5", "L7")
def test_the_end_of_the_leader_thread_alone_is_no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_leader() as process:
        claim = claim_on(process)
        assert not SystemExits().wait_any([claim], time.monotonic() + 0.02)
        assert process.stdin is not None
        at_the_first_wait(monkeypatch, process.stdin.close)
        assert SystemExits().wait_any([claim], time.monotonic() + LONG) == [0]


@pytest.mark.spec("K5")
@pytest.mark.parametrize("ending", [0, 1, 2])
def test_a_process_beyond_the_descriptor_limit_is_waited_for_as_well(
    ending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exits, "spare_descriptors", lambda most: 1)
    with several(3) as processes:
        claims = [claim_on(process) for process in processes]
        at_the_first_wait(monkeypatch, processes[ending].kill)
        assert SystemExits().wait_any(claims, time.monotonic() + LONG) == [ending]


_FEW_DESCRIPTORS = """
import os, resource, sys, time
from murmur.adapters.exits import SystemExits, wait_for_any_exit, kernel
from murmur.domain.process import Claim, ProcessIdentity
claims = [Claim(ProcessIdentity(int(pid), kernel.read_process(int(pid)).start_token)) for pid in sys.argv[1:]]
limit = len(os.listdir("/proc/self/fd")) + 10
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
before = os.listdir("/proc/self/fd")
print("ready", flush=True)
print(SystemExits().wait_any(claims, time.monotonic() + 30))
print(os.listdir("/proc/self/fd") == before)
"""


@pytest.mark.spec("K5")
def test_more_processes_than_descriptors_are_waited_for() -> None:
    with several(20) as processes:
        pids = [str(process.pid) for process in processes]
        with running(sys.executable, "-c", _FEW_DESCRIPTORS, *pids, stdout=subprocess.PIPE) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"ready\n"
            processes[19].kill()
            processes[19].wait()
            assert waiting.stdout.read() == b"[19]\nTrue\n"


@pytest.mark.spec("K5")
def test_waiting_for_nobody_lasts_until_the_deadline() -> None:
    deadline = time.monotonic() + 0.05
    assert not SystemExits().wait_any([], deadline)
    assert time.monotonic() >= deadline


@pytest.mark.spec("K5")
def test_waiting_leaves_no_descriptor_open(with_or_without_pidfds: str) -> None:
    with several(3) as processes, zombie() as dead:
        claims = [claim_on(process) for process in processes]
        SystemExits().wait_any(claims, time.monotonic())
        before = open_descriptors()
        SystemExits().wait_any(claims, time.monotonic() + 0.01)
        SystemExits().wait_any([*claims, claim_on(dead)], time.monotonic() + 0.01)
        assert open_descriptors() == before


@pytest.mark.spec("K5")
def test_the_wait_for_any_of_several_pids_ends_at_an_exit(
    with_or_without_pidfds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with several(3) as processes:
        at_the_first_wait(monkeypatch, processes[2].kill)
        started = time.monotonic()
        assert wait_for_any_exit([process.pid for process in processes], started + LONG)
        assert time.monotonic() - started < LONG / 6


@pytest.mark.spec("K5")
def test_the_wait_for_any_of_several_pids_ends_at_once_for_the_dead(
    with_or_without_pidfds: str, waits: list[float]
) -> None:
    with running() as alive, zombie() as dead:
        assert wait_for_any_exit([alive.pid, dead.pid], time.monotonic() + LONG)
    assert waits == []


@pytest.mark.spec("K5")
def test_the_wait_for_any_of_several_pids_ends_false_at_the_deadline(with_or_without_pidfds: str) -> None:
    with running() as alive:
        deadline = time.monotonic() + 0.05
        assert not wait_for_any_exit([alive.pid], deadline)
        assert time.monotonic() >= deadline
