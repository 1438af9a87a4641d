"""A child is ended once, by whoever and however often it is asked for, and its own end is its own (E1-E6, X6, X7)."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from murmur.adapters import child_launch, lifelines, spawning
from murmur.adapters.child_process import ChildProcess
from murmur.adapters.launching import LaunchedChild
from murmur.adapters.lifelines import Lifeline
from murmur.adapters.reactor import shared_reactor
from murmur.adapters.relay import Outlet
from murmur.domain.errors import ChildNotLaunched
from murmur.domain.launch.watcher import Deliberate, Exited
from tests.adapters.launching.children_for_tests import (
    OBEDIENT,
    PATIENCE,
    STUBBORN,
    Launching,
    busy_reactor,
    own_children,
    request_from,
    wait_for_exit,
)
from tests.adapters.processes_for_tests import exhaust_pidfds

COUNTS = """
def count(number, frame):
    say(f"signal {number}")
signal.signal(signal.SIGTERM, count)
ready()
while True:
    signal.pause()
"""
"""In Python: it says every SIGTERM, and lives on."""


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


@pytest.mark.spec("E1")
def test_a_child_that_obeys_is_gone_well_before_its_grace(launching: Launching) -> None:
    launching.program(OBEDIENT)
    child = launching.launch()
    pid, begun = child.pid, time.monotonic()
    assert pid in own_children()
    child.shutdown()
    assert time.monotonic() - begun < 5.0
    assert (child.pid, child.has_exited, child.is_being_ended) == (0, True, False)
    assert child.status == "signal: 15 (SIGTERM)"
    assert child._process.ending == Deliberate()
    child.shutdown()
    child.close()
    child.close()
    assert pid not in own_children()


@pytest.mark.spec("E1")
def test_a_child_that_winds_down_has_the_status_that_it_chose(launching: Launching) -> None:
    launching.program("trap 'echo down >&2; exit 7' TERM; ready; orphaned")
    child = launching.launch()
    child.shutdown()
    assert child.status == "exit status: 7"
    child.close()
    assert child.stderr_tail() == ["down"]


@pytest.mark.spec("E1", "E4")
def test_a_child_that_ignores_sigterm_is_killed_at_the_grace_and_answers_meanwhile(launching: Launching) -> None:
    launching.program(STUBBORN)
    child = launching.launch(grace=0.4)
    pid, begun = child.pid, time.monotonic()
    child.begin_ending()
    assert (child.pid, child.has_exited, child.is_being_ended, child.status) == (pid, False, True, None)
    child.shutdown()
    assert 0.4 <= time.monotonic() - begun < 5.0
    assert child.status == "signal: 9 (SIGKILL)"


@pytest.mark.slow  # The grace of 5 s is the contract's.
@pytest.mark.spec("E1")
def test_the_grace_is_five_seconds_when_nobody_says_otherwise(launching: Launching) -> None:
    launching.program(STUBBORN)
    child = launching.launch()
    begun = time.monotonic()
    child.shutdown()
    assert 5.0 <= time.monotonic() - begun < 7.0


@pytest.mark.spec("E1", "K4")
def test_a_frozen_child_acts_on_its_sigterm(launching: Launching) -> None:
    launching.program(OBEDIENT)
    child = launching.launch()
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    child.shutdown()
    assert child.status == "signal: 15 (SIGTERM)"


@pytest.mark.spec("E1", "E2")
def test_however_often_and_by_whomever_it_is_ended_it_gets_one_sigterm(launching: Launching) -> None:
    launching.python(COUNTS)
    child = launching.launch(grace=0.5)
    together = threading.Barrier(6)

    def end() -> None:
        together.wait(PATIENCE)
        child.begin_ending()
        child.shutdown()

    enders = [threading.Thread(target=end) for _ in range(5)]
    for ender in enders:
        ender.start()
    together.wait(PATIENCE)
    assert launching.words.next() == "signal 15"
    for ender in enders:
        ender.join(PATIENCE)
    assert child.wait(PATIENCE)
    with pytest.raises(AssertionError, match="no word"):
        launching.words.next(timeout=0.05)
    assert child.status == "signal: 9 (SIGKILL)"


@pytest.mark.spec("E1")
def test_one_sigkill_at_most_is_sent_and_nothing_after_the_reap(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = signal.pidfd_send_signal

    def counting(pidfd: int, number: int) -> None:
        sent.append(number)
        send(pidfd, number)

    monkeypatch.setattr(signal, "pidfd_send_signal", counting)
    launching.program(STUBBORN)
    child = launching.launch(grace=0.1)
    for _ in range(3):
        child.begin_ending()
    forcing = [threading.Thread(target=child.force) for _ in range(4)]
    for thread in forcing:
        thread.start()
    for thread in forcing:
        thread.join(PATIENCE)
    child.shutdown()
    child.force()
    child.begin_ending()
    child.close()
    time.sleep(0.15)  # Past the moment at which the grace would have been over.
    assert sent == [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL]


@pytest.mark.spec("E1")
def test_a_second_call_during_the_grace_returns_at_once_and_leaves_the_reap_to_the_first(
    launching: Launching,
) -> None:
    launching.program(STUBBORN)
    child = launching.launch(grace=1.0)
    first = threading.Thread(target=child.shutdown)
    child.begin_ending()
    first.start()
    while not child._process._shutting_down:
        pass
    begun = time.monotonic()
    child.shutdown()
    assert time.monotonic() - begun < 0.5
    assert child.is_being_ended
    child.force()
    first.join(PATIENCE)
    assert child.has_exited


@pytest.mark.spec("E1")
def test_leaving_the_block_while_another_thread_ends_the_child_keeps_the_lifeline_until_the_reap(
    launching: Launching,
) -> None:
    # The child says what comes first: its lifeline's end would be the wrong one.
    launching.program(f"trap '' TERM; ready; orphaned; echo orphaned > {launching.words.path}; orphaned")
    child = launching.launch(grace=0.3)
    child.begin_ending()
    first = threading.Thread(target=child.shutdown)
    first.start()
    while not child._process._shutting_down:
        pass
    child.close()
    first.join(PATIENCE)
    assert child.status == "signal: 9 (SIGKILL)"
    with pytest.raises(AssertionError, match="no word"):
        launching.words.next(timeout=0.05)


@pytest.mark.spec("E2")
def test_several_that_are_asked_first_share_one_grace(launching: Launching) -> None:
    launching.program(STUBBORN)
    children = [launching.launch(grace=0.6) for _ in range(4)]
    begun = time.monotonic()
    for child in children:
        child.begin_ending()
    for child in children:
        child.shutdown()
    assert 0.6 <= time.monotonic() - begun < 1.8
    assert {child.status for child in children} == {"signal: 9 (SIGKILL)"}


@pytest.mark.spec("E1", "E3")
def test_a_child_that_exits_during_its_grace_was_ended_deliberately_and_is_not_killed(launching: Launching) -> None:
    launching.program("trap 'exit 0' TERM; ready; orphaned")
    child = launching.launch()
    child.begin_ending()
    assert child.wait(PATIENCE)
    assert child.status == "exit status: 0"
    assert child._process.ending == Deliberate()


@pytest.mark.spec("E3")
def test_a_child_that_had_exited_unseen_ended_on_its_own(launching: Launching) -> None:
    child = unseen_exit(launching, "ready; exit 3")
    child.shutdown()
    assert child._process.ending == Exited("exit status: 3")
    assert child.status == "exit status: 3"


def unseen_exit(launching: Launching, body: str) -> LaunchedChild:
    """Launch a child, and let it exit while the reactor is too busy to see it."""
    launching.program(f"{body.replace('exit', f'read -r _ < {launching.place}/go; exit')}")
    os.mkfifo(launching.place / "go")
    child = launching.launch()
    with busy_reactor():
        (launching.place / "go").write_text("go\n")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        child._process.begin_ending()
    return child


@pytest.mark.spec("E1", "E3")
def test_to_be_killed_at_once_is_as_deliberate_as_to_be_asked(launching: Launching) -> None:
    launching.program(STUBBORN)
    child = launching.launch()
    child.force()
    assert child.wait(PATIENCE)
    assert child._process.ending == Deliberate()
    assert child.status == "signal: 9 (SIGKILL)"


@pytest.mark.spec("E5")
def test_a_child_whose_launcher_thread_has_ended_lives_on(launching: Launching) -> None:
    launching.program(f"trap 'echo ended > {launching.words.path}; exit 0' TERM; ready; orphaned")
    thread = threading.Thread(target=launching.launch)
    thread.start()
    thread.join(PATIENCE)
    (child,) = launching.children
    assert not child.wait(0.2)
    child.shutdown()
    assert launching.words.next() == "ended"


@pytest.mark.spec("E5")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_leaving_the_block_by_an_exception_ends_the_child(error: type[BaseException], launching: Launching) -> None:
    launching.program(OBEDIENT)
    with pytest.raises(error), launching.launch() as child:
        raise error
    assert child.has_exited
    assert child.pid == 0


@pytest.mark.spec("E5", "E3")
def test_a_child_that_ends_on_its_own_is_reaped_by_its_end_and_its_lifeline_closed(launching: Launching) -> None:
    launching.program("ready; exit 0")
    child = launching.launch()
    assert child.wait(PATIENCE)
    assert child.pid == 0
    assert child._process._lifeline not in lifelines._held
    assert child.status == "exit status: 0"
    assert child._process.ending == Exited("exit status: 0")


@pytest.mark.spec("X6")
def test_a_status_that_another_reaper_took_is_unknown_and_never_zero(launching: Launching) -> None:
    launching.program(f"ready; read -r _ < {launching.place}/go; exit 0")
    os.mkfifo(launching.place / "go")
    child = launching.launch()
    with busy_reactor():
        pid = child.pid
        (launching.place / "go").write_text("go\n")
        assert os.waitpid(pid, 0) == (pid, 0)
    assert child.wait(PATIENCE)
    assert child.status is None
    assert child._process.ending == Exited(None)
    child.shutdown()


@pytest.mark.spec("X6")
def test_a_refusal_of_a_child_that_another_reaper_took_says_so(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reap(pid: int) -> None:
        os.waitpid(pid, 0)

    path = launching.program("")
    path.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(spawning, "_restore_limit", reap)
    with pytest.raises(ChildNotLaunched, match=r"\(unknown exit status\)"):
        launching.launch()


@pytest.mark.spec("E5", "X7")
def test_without_pidfds_a_thread_that_sleeps_waits_for_each_child(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust_pidfds("ENOSYS", monkeypatch)
    launching.program(STUBBORN)
    child = launching.launch(grace=0.2)
    assert "exit" in threads()
    child.shutdown()
    assert child.status == "signal: 9 (SIGKILL)"
    launching.program("ready; exit 4")
    other = launching.launch()
    assert other.wait(PATIENCE)
    assert other.status == "exit status: 4"


@pytest.mark.spec("X7")
def test_children_cost_no_thread(launching: Launching) -> None:
    launching.program(OBEDIENT)
    before = threads()
    for _ in range(5):
        launching.launch()
    assert threads() == before


@pytest.mark.spec("X3", "X4")
def test_what_a_child_said_last_is_passed_on_before_its_handle_is_let_go(
    launching: Launching, capfd: pytest.CaptureFixture[str]
) -> None:
    launching.program(f"ready; read -r _ < {launching.place}/go; echo out; echo err >&2; exit 0")
    os.mkfifo(launching.place / "go")
    child = launching.launch(stderr_prefix="[worker] ")
    with busy_reactor():
        (launching.place / "go").write_text("go\n")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.has_exited
    child.close()
    assert capfd.readouterr() == ("out\n", "[worker] err\n")
    assert child.stderr_tail() == ["err"]


@pytest.mark.spec("X5", "X8")
def test_what_a_child_prints_goes_to_stderr_behind_a_prefix_where_stdout_is_for_something_else(
    launching: Launching, capfd: pytest.CaptureFixture[str]
) -> None:
    launching.program("ready; echo out; echo last >&2")
    child = launching.launch(stdout_prefix="worker: ", stderr_prefix="worker: ")
    assert child.wait(10)
    child.close()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert sorted(captured.err.splitlines()) == ["worker: last", "worker: out"]


@pytest.mark.spec("X3")
def test_a_process_that_a_child_leaves_behind_holds_no_descriptor_of_ours(launching: Launching) -> None:
    launching.program(f"sleep 1000 & echo $! > {launching.words.path}; ready; orphaned")
    launching.launch().close()
    left = int(launching.words.next())
    try:
        assert Path(f"/proc/{left}").exists()
    finally:
        os.kill(left, signal.SIGKILL)
        wait_for_exit(left)


@pytest.mark.spec("X5")
def test_a_launch_does_not_wait_for_who_reads_our_own_output(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    full = Outlet(shared_reactor(), writes)
    monkeypatch.setattr(child_launch, "outlets", lambda reactor: (full, full))
    shared_reactor().call(lambda: full.write(b"x" * 1_000_000))
    launching.python(
        "line = json.dumps({'session_id': os.path.basename(records), 'records_dir': records})\n"
        "os.makedirs(records)\nprint(line[:10], end='', flush=True)\nsignal.sigtimedwait([], 0.2)\n"
        "print(line[10:], flush=True)\norphaned()"
    )
    try:
        launching.launch(ready_timeout=10.0).close()
    finally:
        ended = threading.Event()
        shared_reactor().call(full._end)
        shared_reactor().call(ended.set)
        assert ended.wait(PATIENCE)
        os.close(reads)
        os.close(writes)


def test_a_process_that_became_another_users_does_not_end_the_reactor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pidfd: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    child = subprocess.Popen(("sleep", "1000"))
    process = ChildProcess(child, Lifeline(), shared_reactor(), grace=0.05)
    process.watch()
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    assert process.begin_ending()
    assert not process.wait(0.2)
    monkeypatch.undo()
    os.kill(child.pid, signal.SIGKILL)
    assert process.wait(PATIENCE)
    finished = threading.Event()
    process.when_exited(finished.set)
    assert finished.wait(PATIENCE)


@pytest.mark.spec("C1")
def test_a_launched_child_says_what_it_was_given_and_shows_no_secret(launching: Launching) -> None:
    launching.program(OBEDIENT)
    child = launching.launch(request_from(launching.parent))
    assert child.argv[1:4] == ["run", "--capsule", "local/worker"]
    assert dict(child.env)["MURMUR_HOST_WARNINGS_REPORTED"] == "1"
    assert child.session_id == f"ses_{child.pid}"
    assert child.capsule_url == "http://localhost:1"
    assert child.delegation_id is None
    assert child.watcher_finished
    assert child.workdir.parent == launching.parent / "children"
    assert "secret" not in repr(child) + repr(child.argv) + repr(child.env)
