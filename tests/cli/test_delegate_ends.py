"""However a `mur delegate`, or the session around it, ends: the child ends with it (E1-E6, M3, W2)."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.capsules_for_tests import (
    Delegating,
    Family,
    Project,
    completion,
    event,
    events,
    outstanding,
    trace,
)  # fmt: skip
from tests.cli.conftest import MUR, Hosted, Hosts, mur, mur_json

AT_ONCE = 2.0
"""Seconds in which everything has ended that obeys."""
GRACE = 5.0


def at_work(project: Project, script: str = "exec sleep 1000", *options: str, trap: str = ":") -> Delegating:
    """Start a delegation whose child is in the middle of its task, its trap set, with a grandchild of its own."""
    up = project.fifo()
    project.put("worker", "sh", "-c", f"{trap}; sleep 1001 & echo up >{up}; {script}")
    delegating = project.start("worker@1.0", "--task", "x", *options)
    up.line()
    return delegating


def assert_all_is_over(project: Project, family: Family, seconds: float = AT_ONCE) -> None:
    assert family.left(seconds) == {}
    assert mur_json("ps") == []
    assert project.recorded == []
    assert project.processes == {}


@pytest.mark.spec("E1", "E6", "W2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("to_group", [False, True])
def test_a_signal_ends_the_child_in_order_and_its_outcome_is_terminated(
    project: Project, number: signal.Signals, to_group: bool
) -> None:
    delegating = at_work(project, "exec sleep 1000", "--json")
    with Family.of(delegating.pid) as family:
        assert len(family.pidfds) >= 5
        if to_group:  # As a terminal does to everything in its foreground.
            os.killpg(delegating.pid, number)
        else:
            delegating.signal(number)
        status, stdout, _ = delegating.wait()
        assert_all_is_over(project, family)
    assert status == 1
    document = json.loads(stdout)
    assert (document["status"], document["code"]) == ("terminated", "E-RUN-915")
    assert f"was ended by {number.name}" in document["detail"]
    child, parent = project.child("worker"), project.child("delegate")
    told = completion(child)
    assert (told["status"], told["reported_by"], told["delivered"]) == ("terminated", "launcher", False)
    assert told["detail"] == "the parent ended this delegation"
    assert events(child)[-1] == "session_end"
    assert "spawner_ended" not in events(child)
    assert events(parent) == ["session_start", "session_end"]
    assert event(parent, "session_end")["exit_status"] == 1
    assert event(child, "session_end")["timestamp"] <= event(parent, "session_end")["timestamp"]
    assert outstanding(parent) == []


@pytest.mark.slow  # The child keeps its grace up to the second signal.
@pytest.mark.spec("E1", "M3")
def test_a_second_signal_does_not_wait_for_a_child_that_ignores_the_first(project: Project) -> None:
    told = project.fifo()
    delegating = at_work(project, "while :; do sleep 0.01; done", trap=f"trap 'echo told >{told}' TERM")
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        told.line()
        delegating.signal(signal.SIGTERM)
        assert delegating.wait()[0] == 1
        assert_all_is_over(project, family)
    assert completion(project.child("worker"))["status"] == "terminated"


@pytest.mark.slow  # The whole grace is waited for.
@pytest.mark.spec("E1", "E3", "W2")
@pytest.mark.parametrize("who", ["command", "host"])
def test_a_child_that_does_not_obey_is_killed_after_its_grace(project: Project, who: str) -> None:
    if who == "command":
        delegating = at_work(project, "while :; do sleep 1000; done", trap="trap '' TERM")
    else:
        # Its own command ends; the host itself would need nothing but to be continued, so it is one that never obeys.
        stubborn = project.program(
            "trap '' TERM; d=$HOME/.murmur/records/x/ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051; mkdir -p $d\n"
            'printf \'{"session_id":"%s","records_dir":"%s","url":""}\\n\' "${d##*/}" "$d"\n'
            "echo up; while :; do sleep 1000; done"
        )
        project.put("once", "true", lifecycle={"task_acceptance": "none"})
        delegating = project.start("once@1.0", MURMUR_MUR_BINARY=str(stubborn))
        # Passed on to us after the readiness line was taken in.
        assert delegating.line() == "once: up\n"
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        status, _, stderr = delegating.wait()
        assert status == 1, stderr
        left = family.left(AT_ONCE)
    # What a foreign program starts and leaves behind is its own affair.
    assert [line for line in left.values() if "sleep" not in line or who == "command"] == []
    (found,) = (project.home / ".murmur" / "records").rglob("completion.json")
    assert json.loads(found.read_text())["status"] == "terminated"


@pytest.mark.spec("E1")
def test_a_frozen_child_is_continued_so_that_it_ends_in_order(project: Project) -> None:
    delegating = at_work(project)
    (child,) = [row for row in mur_json("ps") if row["capsule_name"] == "worker"]
    os.kill(child["pid"], signal.SIGSTOP)
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        assert delegating.wait()[0] == 1
        assert_all_is_over(project, family)
    assert events(project.child("worker"))[-1] == "session_end"


@pytest.mark.spec("E5", "M3", "X2")
@pytest.mark.parametrize("authenticated", [False, True])
def test_sigkill_at_work_ends_the_whole_tree_and_the_child_says_why(project: Project, authenticated: bool) -> None:
    up = project.fifo()
    bearer: dict[str, Any] = {"authentication": {"scheme": "bearer", "credentials": {}}}
    project.put(
        "worker", "sh", "-c", f"sleep 1001 & echo up >{up}; exec sleep 1000",
        **({"network": bearer} if authenticated else {}),
    )  # fmt: skip
    delegating = project.start("worker@1.0", "--task", "x")
    up.line()
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGKILL)
        assert_all_is_over(project, family)
    child, parent = project.child("worker"), project.child("delegate")
    assert events(child)[-1] == "session_end"
    assert event(child, "spawner_ended")["spawned_by"] == parent.name
    assert event(child, "spawner_ended")["delegation_id"] == completion(child)["delegation_id"]
    told = completion(child)
    assert (told["status"], told["reported_by"], told["delivered"]) == ("error", "child", False)
    assert told["delivery_error"]


@pytest.mark.spec("E5", "M3", "X3")
def test_sigkill_before_the_child_is_ready_leaves_no_session(project: Project) -> None:
    up, gate = project.fifo(), project.fifo()
    project.put("worker", "cat")
    slow = project.program(f'echo up >{up}; read -r _ <{gate}; exec {MUR} "$@"')
    delegating = project.start("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(slow))
    up.line()
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGKILL)
        gate.let_on()
        assert family.left(AT_ONCE + 1) == {}  # It is a whole interpreter that starts to find out.
    assert mur_json("ps") == []
    assert [trace(each)[0]["capsule_name"] for each in project.records] == ["delegate"]
    assert project.processes == {}


@pytest.mark.spec("E1", "X3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_child_is_ready_ends_it(project: Project, number: signal.Signals) -> None:
    up = project.fifo()
    project.put("worker", "cat")
    slow = project.program(f"echo up >{up}; exec sleep 1000")
    delegating = project.start("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(slow))
    up.line()
    with Family.of(delegating.pid) as family:
        delegating.signal(number)
        status, _, stderr = delegating.wait()
        assert family.left(AT_ONCE) == {}
    assert status == 1
    assert f"was ended by {number.name}" in stderr
    assert outstanding(project.child("delegate")) == []


@pytest.mark.slow  # What ignores SIGTERM keeps its grace when its launcher is gone.
@pytest.mark.spec("E5", "M3")
def test_sigkill_during_the_grace_leaves_the_child_to_end_by_itself(project: Project) -> None:
    told = project.fifo()
    delegating = at_work(project, "while :; do sleep 0.01; done", trap=f"trap 'echo told >{told}' TERM")
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        told.line()
        delegating.signal(signal.SIGKILL)
        assert_all_is_over(project, family, GRACE + AT_ONCE)
    child = project.child("worker")
    # It was asked to end before its launcher was gone, which then changes nothing.
    assert "spawner_ended" not in events(child)
    assert events(child)[-1] == "session_end"
    assert completion(child)["status"] == "error"


def around(project: Project, hosts: Hosts) -> Hosted:
    """Start a session whose command delegates, with a child in the middle of its task."""
    up = project.fifo()
    project.put("worker", "sh", "-c", f"sleep 1001 & echo up >{up}; exec sleep 1000")
    boss = hosts.start("sh", "-c", f"{MUR} delegate worker@1.0 --task x; echo over")
    up.line()
    return boss


@pytest.mark.spec("E5", "M3", "X2")
def test_sigkill_of_the_session_around_ends_its_delegations(project: Project, hosts: Hosts) -> None:
    boss = around(project, hosts)
    with Family.of(boss.process.pid) as family:
        boss.kill(signal.SIGKILL)
        assert_all_is_over(project, family)
    child = project.child("worker")
    assert event(child, "spawner_ended")["spawned_by"] == boss.session_id
    assert events(child)[-1] == "session_end"
    assert completion(child)["status"] == "error"


@pytest.mark.spec("M3", "E2")
def test_sigterm_of_the_session_around_ends_its_delegations_first(project: Project, hosts: Hosts) -> None:
    boss = around(project, hosts)
    with Family.of(boss.process.pid) as family:
        boss.kill(signal.SIGTERM)
        assert boss.wait() == 0
        assert_all_is_over(project, family)
    child = project.child("worker")
    assert event(child, "session_end")["timestamp"] <= event(boss.records, "session_end")["timestamp"]
    told = completion(child)
    assert (told["status"], told["reported_by"]) == ("terminated", "launcher")
    assert "completion" not in events(boss.records)
    assert outstanding(boss.records) == []


@pytest.mark.spec("O2")
def test_mur_stop_all_ends_a_delegation_and_its_child(project: Project) -> None:
    delegating = at_work(project)
    with Family.of(delegating.pid) as family:
        stopped = mur("stop", "--all")
        assert stopped.returncode == 0, stopped.stderr
        assert delegating.wait()[0] == 1
        assert_all_is_over(project, family)
    # Its door is asked to end its task, too: whichever comes first.
    assert completion(project.child("worker"))["status"] in ("terminated", "error")


@pytest.mark.spec("O2")
def test_mur_stop_of_the_child_alone_is_a_delegation_that_failed(project: Project) -> None:
    delegating = at_work(project, "exec sleep 1000", "--json")
    (child,) = [row["session_id"] for row in mur_json("ps") if row["capsule_name"] == "worker"]
    assert mur("stop", child).returncode == 0
    status, stdout, _ = delegating.wait()
    assert status == 1
    assert json.loads(stdout)["status"] == "error"
    assert completion(project.child("worker"))["delivered"] is True
    assert project.processes == {}


FOREIGN = """\
read -r grant
d=$HOME/.murmur/records/foreign/ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051
mkdir -p "$d"
printf '{"session_id":"%s","records_dir":"%s","url":""}\\n' "${d##*/}" "$d"
echo up
while read -r _; do :; done <"/dev/fd/$MURMUR_SPAWNER_LIFELINE"
echo ended >"$UP"
"""


@pytest.mark.spec("C4", "X2", "M3")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_small_foreign_program_works_as_a_child_lifeline_and_all(project: Project, number: signal.Signals) -> None:
    up = project.fifo()
    foreign = project.program(f"UP={up}\n{FOREIGN}")
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    delegating = project.start("once@1.0", MURMUR_MUR_BINARY=str(foreign))
    assert delegating.line() == "once: up\n"
    with Family.of(delegating.pid) as family:
        delegating.signal(number)
        delegating.wait()
        if number == signal.SIGKILL:
            assert up.line() == "ended"
        assert family.left(AT_ONCE) == {}
    assert mur_json("ps") == []


def test_a_signal_that_was_ignored_from_the_start_stays_ignored(project: Project) -> None:
    up, gate = project.fifo(), project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; read -r _ <{gate}; cat")
    process = subprocess.Popen(
        ["sh", "-c", f"trap '' HUP INT; exec {MUR} delegate worker@1.0 --task hello"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    up.line()
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    gate.let_on()
    stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "hello\n")


@pytest.mark.spec("W5", "M5")
@pytest.mark.parametrize("acceptance", ["none", "single"])
def test_work_that_is_cut_short_by_somebody_else_is_not_told_of_as_done(project: Project, acceptance: str) -> None:
    up = project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; exec sleep 1000", lifecycle={"task_acceptance": acceptance})
    delegating = project.start("worker@1.0", *(("--task", "x") if acceptance == "single" else ()))
    up.line()
    (child,) = [row for row in mur_json("ps") if row["capsule_name"] == "worker"]
    assert mur("stop", child["session_id"]).returncode == 0
    assert delegating.wait()[0] == 1
    assert completion(project.child("worker"))["status"] == ("terminated" if acceptance == "none" else "error")


SILENT = """
read -r grant
d=$HOME/.murmur/records/x/ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051; mkdir -p "$d"
printf '{"session_id":"%s","records_dir":"%s","url":"127.0.0.1:%s"}\\n' "${d##*/}" "$d" "$PORT"
"""


@pytest.mark.slow  # What a child that has ended left to say gets two seconds.
@pytest.mark.spec("X6", "W2")
def test_an_answer_of_a_child_that_has_ended_is_not_waited_for(project: Project) -> None:
    project.put("worker", "true")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        foreign = project.program(f"PORT={silent.getsockname()[1]}\n{SILENT}\nexit 7")
        done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(foreign))
    assert done.returncode == 1
    assert "crashed" in done.stderr
    assert "exit status: 7" in done.stderr


UNSENT = """
import sys
from murmur.cli import delegated_child
from murmur.cli.main import main
from murmur.domain.errors import OutOfDescriptors
def fails(*_):
    raise {"descriptor": OutOfDescriptors("no descriptor"), "thread": RuntimeError("no thread"),
           "unforeseen": ZeroDivisionError("unforeseen")}[how]
how = sys.argv.pop(1)
if how == "thread":
    delegated_child.start_thread = fails
else:
    delegated_child.HttpDoors = type("Doors", (), {"__init__": lambda *_: None, "probe": fails})
main()
"""


@pytest.mark.parametrize(
    ("how", "why"),
    [("descriptor", "no descriptor"), ("thread", "no thread can be started"), ("unforeseen", "it was not sent")],
)
def test_a_child_whose_task_cannot_be_sent_is_not_waited_for(project: Project, how: str, why: str) -> None:
    project.put("worker", "cat")
    words = [sys.executable, "-c", UNSENT, how, "delegate", "worker@1.0", "--task", "x"]
    began = time.monotonic()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - began < 2 * GRACE
    assert done.returncode == 1
    assert f"worker@1.0 did not take the task: {why}" in done.stderr
    assert completion(project.child("worker"))["status"] == "terminated"
    assert project.processes == {}


@pytest.mark.slow  # That its door is closed may mean that it is about to end: it gets two seconds.
def test_a_child_whose_door_is_closed_is_not_waited_for(project: Project) -> None:
    project.put("worker", "true")
    foreign = project.program(f"PORT=1\n{SILENT}\nexec sleep 1000")
    began = time.monotonic()
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(foreign))
    assert time.monotonic() - began < 2 * GRACE
    assert done.returncode == 1
    assert "worker@1.0 did not take the task: connection refused" in done.stderr
    assert project.processes == {}


def test_a_child_that_ends_before_its_task_comes_has_crashed(project: Project) -> None:
    project.put("worker", "true")
    foreign = project.program(f"PORT=1\n{SILENT}\nsleep 0.3; exit 7")
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(foreign))
    assert "exit status: 7" in done.stderr


@pytest.mark.spec("M5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_referee_that_does_not_answer_holds_up_no_signal(project: Project, number: signal.Signals) -> None:
    project.put("worker", "true")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        delegating = project.start("worker@1.0", "--task", "x", MURMUR_ROOST_URL=url)
        asked, _ = silent.accept()
        with asked:
            delegating.signal(number)
            status, _, stderr = delegating.wait()
    assert status == 1
    assert f"was not launched: {number.name} came first" in stderr
    assert project.recorded == []


@pytest.mark.spec("M4")
def test_a_result_that_nobody_reads_can_be_cut_short(project: Project) -> None:
    project.script("flood", "head", "-c", "900000", "/dev/zero")
    delegating = project.start("flood@1.0")
    assert delegating.process.stdout is not None
    assert select.select([delegating.process.stdout], [], [], 30)[0]  # It has begun to print, and the pipe is full.
    os.kill(delegating.pid, signal.SIGTERM)
    assert delegating.process.wait(30) == -signal.SIGTERM


@pytest.mark.spec("W2", "X5")
def test_a_script_that_is_ended_at_its_deadline_is_told_of_to_its_session(project: Project) -> None:
    project.script("slow", "sleep", "1000")
    done = project.delegate("slow@1.0", "--deadline", "1s")
    assert done.returncode == 5
    (session,) = [each for each in project.records if each.parent.name != "children" and "children" not in each.parts]
    (told,) = [each for each in trace(session) if each["event_type"] == "completion"]
    assert "still running after 1s and was ended at the delegation deadline" in told["text"]
    assert trace(session)[-1]["exit_status"] == 5


@pytest.mark.spec("X6", "R2")
def test_a_folder_whose_name_is_not_utf_8_is_told_before_anything_is_started(project: Project) -> None:
    started = project.path / "started"
    project.script("toucher", "touch", str(started))
    odd = os.fsencode(project.path) + b"/w\xff"
    Path(os.fsdecode(odd)).mkdir()
    done = subprocess.run(
        [MUR, "delegate", "toucher@1.0"], cwd=odd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "it is not UTF-8" in done.stderr
    assert not started.exists()
