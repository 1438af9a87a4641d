"""`mur delegate` of several capsules: side by side, within a bound, told in order, and ended together (O4, E2)."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from murmur.domain.spawn_terms import SpawnLimits
from tests.cli.capsules_for_tests import (
    LIMIT,
    Delegating,
    Family,
    Fifo,
    Project,
    completion,
    event,
    events,
    outstanding,
    until,
)  # fmt: skip
from tests.cli.conftest import MUR, Hosts, mur, mur_json

AT_ONCE = 2.0
"""Seconds in which everything has ended that obeys."""
GRACE = 5.0
NOT_LAUNCHED = {"delegation_id": None, "session_id": None, "result": None, "records_dir": None}


def gated(project: Project, name: str, end: str = "tr a-z A-Z", begin: str = ":") -> tuple[Fifo, Fifo]:
    """Put a capsule that says when it is at work, and goes on when it is let on."""
    up, gate = project.fifo(), project.fifo()
    project.put(name, "sh", "-c", f"{begin}; echo up >{up}; read -r _ <{gate}; {end}")
    return up, gate


def stubborn(project: Project, *names: str) -> list[Fifo]:
    """Put capsules that do not obey a SIGTERM."""
    return [gated(project, name, begin="trap '' TERM", end=":")[0] for name in names]


def printed(delegating: Delegating, length: int) -> str:
    """Read so much of its stdout."""
    assert delegating.process.stdout is not None
    descriptor, text = delegating.process.stdout.fileno(), b""
    while len(text) < length and select.select([descriptor], [], [], LIMIT)[0]:
        text += os.read(descriptor, length - len(text))
    return text.decode()


def rows(stderr: str) -> list[list[str]]:
    """The cells of the table."""
    heading, *table = stderr[stderr.index("CAPSULE ") :].partition("error[")[0].splitlines()
    starts = [heading.index(name) for name in ("CAPSULE", "STATUS", "TIME", "SESSION")]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in table]


# ---- what comes of it ----


def test_results_come_in_the_order_of_the_command_line_though_the_first_is_the_last_to_end(project: Project) -> None:
    up, gate = gated(project, "first")
    project.put("second", "cat")
    delegating = project.start("first@1.0", "second@1.0", "--task", "hello")
    up.line()
    until(lambda: "session_end" in [kind for each in project.records for kind in events(each)])
    gate.let_on()
    status, stdout, stderr = delegating.wait()
    assert (status, stdout) == (0, "== first@1.0 ==\nHELLO\n== second@1.0 ==\nhello\n")
    told = [(capsule, state, session) for capsule, state, _, session in rows(stderr)]
    assert told == [(f"{name}@1.0", "ok", project.child(name).name) for name in ("first", "second")]
    first, second = (project.child(name) for name in ("first", "second"))
    assert event(second, "session_end")["timestamp"] < event(first, "session_end")["timestamp"]


def test_a_result_is_printed_while_those_after_it_are_at_work(project: Project) -> None:
    project.put("first", "cat")
    _, gate = gated(project, "second")
    delegating = project.start("first@1.0", "second@1.0", "--task", "hello")
    first = "== first@1.0 ==\nhello\n"
    assert printed(delegating, len(first)) == first
    assert delegating.process.poll() is None
    gate.let_on()
    assert delegating.wait()[:2] == (0, "== second@1.0 ==\nHELLO\n")


def test_all_are_children_of_one_session_which_is_told_of_each(project: Project) -> None:
    for name in ("first", "second"):
        project.put(name, "cat")
    project.script("third", "cat")
    done = project.delegate("first@1.0", "second@1.0", "third@1.0", "--task", "x")
    assert done.returncode == 0, done.stderr
    parent = project.child("delegate")
    assert events(parent) == ["session_start", *["completion"] * 3, "session_end"]
    for name in ("first", "second", "third"):
        assert event(project.child(name), "session_start")["spawned_by"] == parent.name
    assert event(parent, "session_end")["exit_status"] == 0
    assert outstanding(parent) == []
    assert project.recorded == []
    assert project.processes == {}


def test_no_more_run_at_once_than_may_and_the_next_begins_when_one_is_over(project: Project) -> None:
    ups, gates = zip(*(gated(project, name) for name in ("one", "two", "three")), strict=True)
    delegating = project.start("one@1.0", "two@1.0", "three@1.0", "--task", "x", "--max-parallel", "2")
    ups[0].line()
    ups[1].line()
    assert {row["capsule_name"] for row in mur_json("ps")} == {"delegate", "one", "two"}
    gates[1].let_on()
    ups[2].line()
    gates[0].let_on()
    gates[2].let_on()
    assert delegating.wait()[0] == 0
    two, three = project.child("two"), project.child("three")
    assert event(two, "session_end")["timestamp"] <= event(three, "session_start")["timestamp"]


@pytest.mark.slow  # Three seconds of work, one after the other.
@pytest.mark.spec("W3")
def test_each_has_the_whole_deadline_from_its_own_launch(project: Project) -> None:
    project.put("worker", "sleep", "1.5")
    capsules = ("worker@1.0", "worker@1.0")
    done = project.delegate(*capsules, "--task", "x", "--deadline", "3s", "--max-parallel", "1")
    assert done.returncode == 0, done.stderr


def test_what_is_named_twice_runs_twice_and_is_told_apart(project: Project) -> None:
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    noisy = project.program(f'echo hello >&2; exec {MUR} "$@"')
    done = project.delegate("once@1.0", "once@1.0", MURMUR_MUR_BINARY=str(noisy))
    assert (done.returncode, done.stdout) == (0, "== once@1.0 ==\n== once@1.0 (2) ==\n")
    assert [capsule for capsule, *_ in rows(done.stderr)] == ["once@1.0", "once@1.0 (2)"]
    assert len({session for *_, session in rows(done.stderr)}) == 2
    assert {"once: hello", "once (2): hello"} <= set(done.stderr.splitlines())


def test_what_is_odd_about_a_manifest_is_told_once(project: Project) -> None:
    project.put("worker", "cat", surprise=1)
    done = project.delegate("worker@1.0", "worker@1.0", "--task", "x")
    # The children say so as well, each behind its name.
    assert [line for line in done.stderr.splitlines() if "surprise" in line and line.startswith("warning: ")][1:] == []


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (("fine", "wrong"), 1),
        (("wrong", "wrong"), 1),
        pytest.param(("late", "fine"), 5, marks=pytest.mark.slow),  # The deadline is a second away.
        pytest.param(("late", "wrong"), 1, marks=pytest.mark.slow),  # The same.
    ],
)
def test_one_that_fails_ends_no_other_and_the_exit_status_is_that_of_all_who_failed(
    project: Project, names: tuple[str, ...], status: int
) -> None:
    project.put("fine", "cat")
    project.put("wrong", "sh", "-c", "echo oops >&2; exit 3")
    project.put("late", "sleep", "1000")
    done = project.delegate(*(f"{name}@1.0" for name in names), "--task", "x", "--deadline", "1s")
    assert done.returncode == status, done.stderr
    said = {"fine": "ok", "wrong": "failed", "late": "terminated"}
    assert [state for _, state, *_ in rows(done.stderr)] == [said[name] for name in names]
    assert ("x\n" in done.stdout) == ("fine" in names)
    assert ("error[E-RUN-916]: late@1.0: " in done.stderr) == ("late" in names)
    assert ("error[E-RUN-915]: wrong@1.0: the task failed" in done.stderr) == ("wrong" in names)
    assert event(project.child("delegate"), "session_end")["exit_status"] == status


def test_with_json_there_is_one_array_also_of_what_was_not_launched(project: Project) -> None:
    project.put("fine", "cat")
    project.put("rude", "cat")
    picky = project.program(f'case "$*" in *rude*) read -r _; echo because >&2; exit 7;; esac; exec {MUR} "$@"')
    done = project.delegate("rude@1.0", "fine@1.0", "--task", "x", "--json", MURMUR_MUR_BINARY=str(picky))
    assert done.returncode == 1
    rude, fine = json.loads(done.stdout)
    assert done.stderr == "rude: because\n"
    assert rude.keys() == fine.keys()
    assert (fine["session_id"], fine["status"], fine["result"]) == (project.child("fine").name, "ok", "x")
    assert rude.items() >= NOT_LAUNCHED.items()
    assert (rude["capsule_name"], rude["capsule_version"]) == ("rude", "1.0")
    assert (rude["status"], rude["code"]) == ("not_launched", "E-RUN-914")
    assert rude["detail"].startswith("rude@1.0: the child capsule ")
    assert "(exit status: 7): because" in rude["detail"]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("capsule", "words", "status"),
    [
        ("nobody@1.0", "there is no capsule nobody@1.0", 4),
        ("worker", "'worker' names no version", 4),
        ("broken@1.0", "process", 1),
        ("once@1.0", "once@1.0 takes no task", 4),
        ("bare@1.0", "bare@1.0 does not declare DECLARED", 4),
    ],
)
def test_what_can_be_refused_is_refused_by_name_before_anything_is_launched(
    project: Project, capsule: str, words: str, status: int
) -> None:
    allow = {"env": {"allow": ["DECLARED"]}}
    project.put("worker", "touch", str(project.path / "ran"), capabilities=allow)
    project.put("once", "true", lifecycle={"task_acceptance": "none"}, capabilities=allow)
    project.put("bare", "cat")
    project.put("broken", process={})
    done = project.delegate("worker@1.0", capsule, "--task", "x", "--env", "DECLARED", DECLARED="yes")
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert done.stderr.startswith("error[")
    assert project.records == []


def test_more_at_once_than_our_own_referee_lets_through_is_a_usage_error_and_a_roost_decides_for_itself(
    project: Project,
) -> None:
    project.put("worker", "cat")
    limit = SpawnLimits().children
    for number in (0, -1, limit + 1):
        done = project.delegate("worker@1.0", "worker@1.0", "--task", "x", "--max-parallel", str(number))
        assert done.returncode == 2, number
        assert f"--max-parallel {number}: " in done.stderr
    assert project.records == []
    many, nowhere = str(limit + 1), "http://127.0.0.1:1"
    done = project.delegate("worker@1.0", "worker@1.0", "--task", "x", "--max-parallel", many, MURMUR_ROOST_URL=nowhere)
    assert done.returncode == 4
    assert [state for _, state, *_ in rows(done.stderr)] == ["not launched"] * 2


@pytest.mark.parametrize("capsules", [("worker@1.0",), ("worker@1.0", "worker@1.0")])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_password_in_the_url_of_the_referee_is_not_quoted(
    project: Project, capsules: tuple[str, ...], more: tuple[str, ...]
) -> None:
    project.put("worker", "cat")
    url = "http://kim:secret@127.0.0.1:7700"
    done = project.delegate(*capsules, "--task", "x", *more, MURMUR_ROOST_URL=url)
    assert done.returncode == 4
    assert "MURMUR_ROOST_URL names a user or a password" in done.stdout + done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert "kim" not in done.stdout + done.stderr
    assert project.recorded == []


def test_the_help_names_the_referee_s_own_limit() -> None:
    words = " ".join(mur("delegate", "--help").stdout.split())
    assert f"otherwise {SpawnLimits().children}." in words


def test_what_the_referee_does_not_allow_has_failed_and_the_others_go_on(hosts: Hosts, project: Project) -> None:
    ups, gates = zip(*(gated(project, name) for name in ("one", "two")), strict=True)
    project.put("other", "cat")
    capsules, place = "one@1.0 other@1.0 two@1.0", project.path
    words = f"{MUR} delegate {capsules} --task hello --json >{place}/out; echo $? >{place}/status"
    path = project.path / "murmur.yaml"
    document = {"name": "boss", "version": "1.0", "process": {"command": ["sh", "-c", words]}}
    allowed = {"spawn": {"allow": ["one", "two"]}}
    path.write_text(json.dumps(document | {"lifecycle": {"task_acceptance": "none"}, "capabilities": allowed}))
    boss = hosts.from_manifest(path)
    for up in ups:
        up.line()
    assert len(outstanding(boss.records)) == 2
    for gate in gates:
        gate.let_on()
    assert boss.wait() == 0
    assert (project.path / "status").read_text() == "4\n"
    one, other, two = json.loads((project.path / "out").read_text())
    assert [one["status"], other["status"], two["status"]] == ["ok", "not_launched", "ok"]
    assert other["code"] == "E-RUN-047"
    assert other["detail"].startswith("other@1.0: ")
    assert events(boss.records) == ["session_start", "completion", "completion", "session_end"]
    assert outstanding(boss.records) == []


def test_children_that_were_killed_take_no_place_from_those_that_follow(project: Project) -> None:
    project.put("doomed", "sh", "-c", "kill -9 $PPID; sleep 1000")
    project.script("also", "sh", "-c", "kill -9 $PPID; sleep 1000")
    capsules = [*["doomed@1.0"] * 3, *["also@1.0"] * 3]
    done = project.delegate(*capsules, "--task", "x")
    assert done.returncode == 1
    assert [state for _, state, *_ in rows(done.stderr)] == [*["crashed"] * 3, *["not launched"] * 3]
    assert done.stderr.count("signal: 9 (SIGKILL)") == 6
    assert "the limit" not in done.stderr


def limited(project: Project, limit: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = f"ulimit -n {limit}; exec {MUR} delegate " + " ".join(arguments)
    return subprocess.run(
        ["sh", "-c", words],
        cwd=project.path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_too_few_descriptors_for_as_many_as_run_at_once_are_told_before_anything_is_launched(project: Project) -> None:
    project.put("worker", "cat")
    capsules = ["worker@1.0"] * 4
    done = limited(project, 60, *capsules, "--task", "x")
    assert done.returncode == 6
    assert "error[E-RUN-901]: this process has no file descriptor left to delegate to 4 at once" in done.stderr
    assert project.records == []
    assert limited(project, 60, *capsules, "--task", "x", "--max-parallel", "1").returncode == 0


# ---- how it ends ----


def assert_all_is_over(project: Project, family: Family, seconds: float = AT_ONCE) -> None:
    assert family.left(seconds) == {}
    assert mur_json("ps") == []
    assert project.recorded == []
    assert project.processes == {}


def test_a_signal_ends_all_that_run_and_what_never_began_is_told_so(project: Project) -> None:
    ups = [gated(project, name)[0] for name in ("one", "two", "three")]
    delegating = project.start("one@1.0", "two@1.0", "three@1.0", "--task", "x", "--max-parallel", "2")
    ups[0].line()
    ups[1].line()
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        status, stdout, stderr = delegating.wait()
        assert_all_is_over(project, family)
    assert status == 1
    assert stdout == "== one@1.0 ==\n== two@1.0 ==\n== three@1.0 ==\n"
    assert [state for _, state, *_ in rows(stderr)] == ["terminated", "terminated", "not launched"]
    assert "error[E-RUN-915]: two@1.0 was ended by SIGTERM" in stderr
    assert "error[E-RUN-915]: three@1.0 was not launched: SIGTERM came first" in stderr
    for name in ("one", "two"):
        told = completion(project.child(name))
        assert (told["status"], told["reported_by"]) == ("terminated", "launcher")
    assert outstanding(project.child("delegate")) == []
    assert len(project.records) == 3


@pytest.mark.slow  # None of them obeys: it takes a whole grace.
@pytest.mark.spec("E2")
def test_three_that_do_not_obey_are_ended_within_one_grace(project: Project) -> None:
    ups = stubborn(project, "one", "two", "three")
    delegating = project.start("one@1.0", "two@1.0", "three@1.0", "--task", "x")
    for up in ups:
        up.line()
    with Family.of(delegating.pid) as family:
        began = time.monotonic()
        delegating.signal(signal.SIGTERM)
        status, _, stderr = delegating.wait()
        took = time.monotonic() - began
        assert_all_is_over(project, family)
    assert status == 1
    assert GRACE * 0.9 < took < GRACE * 1.6
    assert [state for _, state, *_ in rows(stderr)] == ["terminated"] * 3


@pytest.mark.spec("E1", "M3")
def test_a_second_signal_kills_all_at_once(project: Project) -> None:
    told = project.fifo()
    for name in ("one", "two", "three"):
        project.put(name, "sh", "-c", f"trap 'echo told >{told}' TERM; echo up >{told}; while :; do sleep 0.01; done")
    delegating = project.start("one@1.0", "two@1.0", "three@1.0", "--task", "x")
    words: list[str] = []
    while words.count("up") < 3:
        words += told.line().split()
    with Family.of(delegating.pid) as family:
        began = time.monotonic()
        delegating.signal(signal.SIGTERM)
        while words.count("told") < 3:
            words += told.line().split()
        delegating.signal(signal.SIGINT)
        status, _, _ = delegating.wait()
        assert time.monotonic() - began < GRACE / 2
        assert_all_is_over(project, family)
    assert status == 1


@pytest.mark.spec("X2", "M3")
def test_sigkill_leaves_none_of_them(project: Project) -> None:
    ups = [gated(project, name)[0] for name in ("one", "two", "three")]
    delegating = project.start("one@1.0", "two@1.0", "three@1.0", "--task", "x")
    for up in ups:
        up.line()
    with Family.of(delegating.pid) as family:
        assert len(family.pidfds) >= 10
        delegating.signal(signal.SIGKILL)
        assert_all_is_over(project, family)
    for name in ("one", "two", "three"):
        assert "spawner_ended" in events(project.child(name))


def test_a_signal_before_they_are_ready_ends_all(project: Project) -> None:
    up = project.fifo()
    project.put("worker", "cat")
    slow = project.program(f"echo up >{up}; exec sleep 1000")
    delegating = project.start("worker@1.0", "worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(slow))
    words: list[str] = []
    while words.count("up") < 2:
        words += up.line().split()
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGTERM)
        status, _, stderr = delegating.wait()
        assert family.left(AT_ONCE) == {}
    assert status == 1
    assert "worker@1.0 (2) was ended by SIGTERM" in stderr
    assert outstanding(project.child("delegate")) == []


def test_a_referee_that_does_not_answer_holds_up_no_signal(project: Project) -> None:
    project.put("worker", "true")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        delegating = project.start("worker@1.0", "worker@1.0", "--task", "x", MURMUR_ROOST_URL=url)
        asked = [silent.accept()[0] for _ in range(2)]
        delegating.signal(signal.SIGTERM)
        status, _, stderr = delegating.wait()
        for each in asked:
            each.close()
    assert status == 1
    assert "worker@1.0 was not launched: SIGTERM came first" in stderr
    assert "worker@1.0 (2) was not launched: SIGTERM came first" in stderr
    assert project.recorded == []


@pytest.mark.parametrize("at_once", [1, 2])
def test_those_that_wait_behind_a_referee_that_does_not_answer_are_told_of_as_well(
    project: Project, at_once: int
) -> None:
    project.put("worker", "true")
    capsules = ["worker@1.0"] * 3
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = ("--task", "x", "--json", "--max-parallel", str(at_once))
        delegating = project.start(*capsules, *options, MURMUR_ROOST_URL=url)
        asked = [silent.accept()[0] for _ in range(at_once)]
        delegating.signal(signal.SIGTERM)
        status, stdout, stderr = delegating.wait()
        for each in asked:
            each.close()
    assert (status, stderr) == (1, "")
    outcomes = json.loads(stdout)
    assert [each["status"] for each in outcomes] == ["not_launched"] * 3
    assert outcomes[2]["detail"] == "worker@1.0 (3) was not launched: SIGTERM came first"


SECOND_UNANSWERED = """
import sys
from murmur.cli import delegated_child
from murmur.cli.main import main
spawn, gate, asked = delegated_child.spawn, sys.argv.pop(1), 0
def answered_once(*of):
    global asked
    asked += 1
    if asked > 1:
        open(gate).readline()
    return spawn(*of)
delegated_child.spawn = answered_once
main()
"""


def test_what_was_over_before_is_told_with_what_was_not_launched(project: Project) -> None:
    project.put("worker", "cat")
    words = [sys.executable, "-c", SECOND_UNANSWERED, str(project.fifo()), "delegate", *["worker@1.0"] * 3]
    with ExitStack() as opened:
        delegating = Delegating(opened, [*words, "--task", "x", "--max-parallel", "1"], project.path, {})
        first = "== worker@1.0 ==\nx\n"
        assert printed(delegating, len(first)) == first
        delegating.signal(signal.SIGTERM)
        status, stdout, stderr = delegating.wait()
    assert (status, stdout) == (1, "== worker@1.0 (2) ==\n== worker@1.0 (3) ==\n")
    assert [state for _, state, *_ in rows(stderr)] == ["ok", "not launched", "not launched"]


BEFORE_THE_FIRST = """
import signal
from murmur.cli import delegating
from murmur.cli.main import main
referee = delegating.embedded_referee
def signalled(*of):
    signal.raise_signal(signal.SIGTERM)
    return referee(*of)
delegating.embedded_referee = signalled
main()
"""


def test_a_signal_between_the_plan_and_the_first_launch_leaves_all_unlaunched(project: Project) -> None:
    project.put("worker", "cat")
    words = [sys.executable, "-c", BEFORE_THE_FIRST, "delegate", *["worker@1.0"] * 3, "--task", "x", "--json"]
    with ExitStack() as opened:
        status, stdout, stderr = Delegating(opened, words, project.path, {}).wait()
    assert (status, stderr) == (1, "")
    assert [each["status"] for each in json.loads(stdout)] == ["not_launched"] * 3
    assert project.recorded == []


NO_THREAD = """
import sys
from murmur.cli import delegating
from murmur.cli.main import main
start, left = delegating.start_thread, int(sys.argv.pop(1))
def none_at_first(name, work):
    global left
    left -= 1
    if left >= 0:
        raise RuntimeError("can't start new thread")
    return start(name, work)
delegating.start_thread = none_at_first
main()
"""


@pytest.mark.parametrize("without", [2, 4])
def test_where_no_thread_can_be_started_for_any_those_behind_have_their_turn(project: Project, without: int) -> None:
    project.put("worker", "cat")
    words = [sys.executable, "-c", NO_THREAD, str(without), "delegate", *["worker@1.0"] * 4]
    with ExitStack() as opened:
        options = ("--task", "x", "--json", "--max-parallel", "2")
        status, stdout, _ = Delegating(opened, [*words, *options], project.path, {}).wait()
    assert status == 1
    outcomes = json.loads(stdout)
    assert [each["status"] for each in outcomes] == ["not_launched"] * without + ["ok"] * (4 - without)
    assert outcomes[0]["detail"] == "worker@1.0: no thread can be started"


BROKEN = """
import sys
from murmur.cli.delegated_child import DelegatedChild
from murmur.cli.main import main
gate, deliver = sys.argv.pop(1), DelegatedChild._deliver
def broken(self, child, text):
    if self.planned.reference.name == "broken":
        open(gate).readline()
        raise ZeroDivisionError
    return deliver(self, child, text)
DelegatedChild._deliver = broken
main()
"""


def test_whatever_else_ends_the_command_ends_all_that_run(project: Project) -> None:
    gate = project.fifo()
    project.put("broken", "cat")
    ups = [gated(project, name)[0] for name in ("one", "two")]
    words = [sys.executable, "-c", BROKEN, str(gate), "delegate", "broken@1.0", "one@1.0", "two@1.0", "--task", "x"]
    with ExitStack() as opened:
        delegating = Delegating(opened, words, project.path, {})
        for up in ups:
            up.line()
        with Family.of(delegating.pid) as family:
            gate.let_on()
            status, _, stderr = delegating.wait()
            assert_all_is_over(project, family)
    assert status == 1
    assert "ZeroDivisionError" in stderr
    for name in ("one", "two"):
        told = completion(project.child(name))
        assert (told["status"], told["reported_by"]) == ("terminated", "launcher")


@pytest.mark.parametrize("blocked", [(), (signal.SIGUSR1, signal.SIGALRM)])
def test_a_child_s_command_has_the_signal_mask_of_who_delegates(
    project: Project, blocked: tuple[signal.Signals, ...]
) -> None:
    up, gate = gated(project, "worker")
    project.put("mask", "grep", "SigBlk", "/proc/self/status")  # No shell in between: some reset it.
    exec_it = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_SETMASK, map(int, sys.argv[1].split()));"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    words = [sys.executable, "-c", exec_it, " ".join(str(int(number)) for number in blocked), str(MUR), "delegate"]
    with ExitStack() as opened:
        capsules = ("mask@1.0", "mask@1.0", "worker@1.0")
        delegating = Delegating(opened, [*words, *capsules, "--task", "x"], project.path, {})
        up.line()
        status = Path("/proc", str(delegating.pid), "status").read_text()
        gate.let_on()
        _, stdout, _ = delegating.wait()
    (own,) = [line for line in status.splitlines() if line.startswith("SigBlk")]
    assert int(own.split()[1], 16) == sum(1 << (number - 1) for number in blocked)
    assert [line for line in stdout.splitlines() if line.startswith("SigBlk")] == [own, own]


def test_a_result_that_nobody_reads_holds_up_neither_the_next_child_nor_a_signal(project: Project) -> None:
    project.script("flood", "head", "-c", "900000", "/dev/zero")
    up, _ = gated(project, "worker")
    delegating = project.start("flood@1.0", "worker@1.0", "--task", "x", "--max-parallel", "1")
    up.line()  # The first is over, and its result does not fit into the pipe.
    delegating.signal(signal.SIGTERM)
    until(lambda: project.recorded == [])
    assert completion(project.child("worker"))["status"] == "terminated"
    # All is put away, or as good as: what is left is to print, for which nobody has to wait.

    def is_interrupted() -> bool:
        delegating.signal(signal.SIGINT)
        return delegating.process.poll() is not None

    until(is_interrupted)
    assert delegating.process.returncode == -signal.SIGINT


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe into which nothing fits any more."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(ends[1], b"x" * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(ends[1], b"x")
    os.set_blocking(ends[1], True)
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.spec("M5")
@pytest.mark.parametrize("more", [(), ("worker@1.0",), ("worker@1.0", "--json")])
def test_a_warning_that_nobody_reads_holds_up_neither_the_children_nor_a_signal_nor_a_document(
    project: Project, more: tuple[str, ...]
) -> None:
    up, gate = gated(project, "worker")
    with full_pipe() as (_, full), ExitStack() as opened:
        words = [str(MUR), "delegate", "worker@1.0", *more, "--task", "x"]
        process = subprocess.Popen(
            words, cwd=project.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full
        )
        opened.callback(process.communicate)
        opened.callback(process.kill)
        assert process.stdout is not None
        count, said = 1 + more.count("worker@1.0"), list[str]()
        while said.count("up") < count:
            said += up.line().split()
        # What a child's end is to be recorded in cannot be written to, of which its watcher warns.
        for records in [each for each in project.records if "children" in each.parts]:
            (records / "completion.json").mkdir()
        for _ in range(count):
            gate.let_on()
        until(lambda: project.recorded == [])
        if "--json" in more or not more:  # Else one thing is told after the other.
            assert select.select([process.stdout], [], [], LIMIT)[0]
            text = os.read(process.stdout.fileno(), 65536).decode()
            assert text == "X\n" or [each["result"] for each in json.loads(text)] == ["X", "X"]
        assert process.poll() is None  # There are warnings to be read. Nobody has to wait for that.
        process.send_signal(signal.SIGTERM)
        # It may have come a little before the last was put away; then what is left to be read has a moment.
        assert process.wait(LIMIT) in (-signal.SIGTERM, 0)


def test_a_full_disk_is_told_and_the_others_are_done(project: Project) -> None:
    for name in ("one", "two"):
        project.put(name, "cat")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [MUR, "delegate", "one@1.0", "two@1.0", "--task", "x"],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "error[E-RUN-913]" in done.stderr
    assert [state for _, state, *_ in rows(done.stderr)] == ["ok", "ok"]
    assert event(project.child("delegate"), "session_end")["exit_status"] == 0


def test_a_reader_that_leaves_changes_nothing(project: Project) -> None:
    project.put("worker", "cat")
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [MUR, "delegate", "worker@1.0", "worker@1.0", "--task", "x"],
        stdin=subprocess.DEVNULL, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert done.returncode == 0
    assert [state for _, state, *_ in rows(done.stderr)] == ["ok", "ok"]
