"""`mur roost`: one referee for all who delegate, what it counts, and what it sees of who was killed."""

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters.delegating_file import Delegating
from murmur.cli.embedded_referee import limits_of
from murmur.domain.spawn_terms import SpawnLimits
from tests.cli.capsules_for_tests import Family, Project, children_of, event, trace, until
from tests.cli.conftest import MUR, Hosts, mur, record, write_record


class Roost:
    """A `mur roost` that runs."""

    def __init__(self, project: Project, *options: str) -> None:
        self.process = subprocess.Popen(
            [MUR, "roost", "--port", "0", "--json", *options],
            cwd=project.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 20)[0], "it does not say where it is"
        self.line: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.url = str(self.line["url"])
        self.port = int(self.url.rpartition(":")[2])

    def ask(self, method: str, target: str, body: object = None) -> tuple[int, Any]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            client.request(method, target, json.dumps(body))
            answer = client.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            client.close()

    def status(self, session: str) -> tuple[str, int, int]:
        status, answer = self.ask("GET", f"/status/{session}")
        assert status == 200, answer
        return answer["status"], answer["depth_remaining"], answer["live_children"]

    @property
    def unnamed(self) -> int:
        """How many children all have who have no credential."""
        return self.status(self.line["session_id"])[2]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; return its exit status and what it told on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


Start = Callable[..., Roost]


@pytest.fixture
def start(project: Project) -> Iterator[Start]:
    started: list[Roost] = []

    def begin(*options: str) -> Roost:
        started.append(Roost(project, *options))
        return started[-1]

    yield begin
    for roost in started:
        if roost.process.poll() is None:
            roost.process.kill()
        roost.process.communicate()


def sleeper(project: Project, name: str = "sleeper") -> Any:
    """Put a capsule that says when it is at work, and then sleeps."""
    up = project.fifo()
    project.put(name, "sh", "-c", f"echo up >{up}; exec sleep 1000")
    return up


def one_line(events: str, kind: str) -> str:
    """Return the detail of the one event of that kind in a roost's log."""
    (line,) = [line for line in events.splitlines() if f" {kind}: " in line]
    return line.partition(f" {kind}: ")[2]


def test_a_delegation_goes_through_the_roost_that_the_environment_names(project: Project, start: Start) -> None:
    project.put("worker", "tr", "a-z", "A-Z")
    roost = start("--spawn-allow", "worker")
    assert roost.line.keys() == {"pid", "session_id", "url"}
    assert roost.line["pid"] == roost.process.pid
    assert roost.ask("GET", "/health") == (200, {})
    done = project.delegate("worker@1.0", "--task", "hello", MURMUR_ROOST_URL=roost.url)
    assert (done.returncode, done.stdout) == (0, "HELLO\n"), done.stderr
    child = project.child("worker").name
    assert roost.status(child) == ("complete", 2, 0)
    assert roost.unnamed == 0
    returncode, events = roost.end()
    assert returncode == 0
    assert one_line(events, "approved") == "worker@1.0 for callers without a credential"
    assert one_line(events, "registered").startswith(child)
    assert one_line(events, "ended") == f"{child}, complete"
    assert one_line(events, "ending") == "asked to by SIGTERM"
    assert "msa1." not in events
    assert "msc1." not in events


def test_a_script_goes_through_the_roost_as_well(project: Project, start: Start) -> None:
    project.script("script", "cat")
    roost = start("--spawn-allow", "script")
    done = project.delegate("script@1.0", "--task", "hello", MURMUR_ROOST_URL=roost.url)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert roost.status(project.child("script").name) == ("complete", 2, 0)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ([], "the roost allows no capsule; start it with --spawn-allow worker for that"),
        (
            ["other", "scope/worker"],
            "the roost allows other, scope/worker; start it with --spawn-allow worker for that",
        ),
    ],
)
def test_a_capsule_that_the_roost_does_not_allow_is_refused_with_what_to_do(
    project: Project, start: Start, allowed: list[str], words: str
) -> None:
    project.put("worker", "cat")
    roost = start(*(word for name in allowed for word in ("--spawn-allow", name)))
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert (done.returncode, done.stdout) == (4, "")
    assert "error[E-RUN-047]" in done.stderr
    assert f"callers without a credential may not launch worker: {words}" in done.stderr
    assert project.processes.keys() == {roost.process.pid}
    _, events = roost.end()
    assert words in one_line(events, "refused")
    assert ("warning: nothing may be launched from a shell" in events) is (not allowed)


@pytest.mark.slow  # Five sessions, each with a whole interpreter for itself and one for who delegates.
def test_the_fifth_child_at_once_is_refused_until_one_has_ended(project: Project, start: Start) -> None:
    up = sleeper(project)
    roost = start("--spawn-allow", "sleeper")
    first, *others = [project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url) for _ in range(4)]
    seen = 0
    while seen < 4:
        seen += len(up.line().split())
    assert roost.unnamed == 4
    done = project.delegate("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert done.returncode == 4
    assert "have 4 children at once already, running or about to start: the limit" in done.stderr
    first.signal(signal.SIGTERM)
    first.wait()
    assert roost.unnamed == 3
    again = project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    for each in (again, *others):
        each.signal(signal.SIGTERM)
    for each in (again, *others):
        each.wait()
    assert roost.unnamed == 0


def test_how_many_there_may_be_at_once_is_an_option(project: Project, start: Start) -> None:
    up = sleeper(project)
    roost = start("--spawn-allow", "sleeper", "--max-concurrent", "1")
    project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    done = project.delegate("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert done.returncode == 4
    assert "have 1 child at once already" in done.stderr
    assert "start the roost with a higher --max-concurrent" in done.stderr


def put_deep(project: Project) -> None:
    project.put("deep", "sh", "-c", f"{MUR} delegate deep@1.0 --task x", capabilities={"spawn": {"allow": ["deep"]}})


@pytest.mark.slow  # As many sessions within one another as there may be, and one more.
@pytest.mark.parametrize(("options", "depth"), [((), 3), (("--max-depth", "1"), 1), (("--max-depth", "4"), 4)])
def test_launches_follow_from_one_another_as_deep_as_the_roost_lets_them(
    project: Project, start: Start, options: tuple[str, ...], depth: int
) -> None:
    put_deep(project)
    roost = start("--spawn-allow", "deep", *options)
    done = project.delegate("deep@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert done.returncode == 1
    times = "1 launch" if depth == 1 else f"{depth} launches"
    assert f"may launch nothing: it is {times} deep, the limit" in done.stderr
    deep = [each for each in project.records if trace(each)[0]["capsule_name"] == "deep"]
    assert len(deep) == depth
    assert roost.status(deep[0].name) == ("failed", depth - 1, 0)
    assert project.processes.keys() == {roost.process.pid}


@pytest.mark.parametrize(
    ("remaining", "most", "depth"),
    [(None, None, 3), (2, 3, 3), (0, 1, 1), (4, 5, 5), (5, None, 5), (1, None, 3), (0, -1, 0)],
)
def test_who_delegates_within_a_session_keeps_to_the_depth_of_that_session_s_referee(
    remaining: int | None, most: int | None, depth: int
) -> None:
    delegating = Delegating("ses_1", "ctx_1", None, None, depth_remaining=remaining, depth_limit=most)
    assert limits_of(delegating) == SpawnLimits(depth=depth)


def test_a_capsule_s_command_is_not_told_of_the_roost_whatever_its_manifest_allows(
    project: Project, start: Start
) -> None:
    project.put(
        "worker", "sh", "-c", 'echo "roost: $MURMUR_ROOST_URL"', capabilities={"env": {"allow": ["MURMUR_ROOST_URL"]}}
    )
    roost = start("--spawn-allow", "worker")
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert done.stdout == "roost: \n"


@pytest.mark.slow  # Four interpreters within one another, and a roost.
def test_what_a_child_delegates_in_turn_counts_for_that_child(project: Project, start: Start) -> None:
    up = sleeper(project)
    project.put(
        "boss", "sh", "-c", f"exec {MUR} delegate sleeper@1.0 --task x", capabilities={"spawn": {"allow": ["sleeper"]}}
    )
    roost = start("--spawn-allow", "boss")
    delegating = project.start("boss@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    boss, inner = project.child("boss").name, project.child("sleeper").name
    root = event(project.child("boss"), "session_start")["spawned_by"]
    assert roost.status(inner) == ("running", 1, 0)
    assert roost.status(boss) == ("running", 2, 1)
    assert roost.status(root) == ("running", 3, 1)
    assert roost.unnamed == 1
    delegating.signal(signal.SIGTERM)
    delegating.wait()
    assert roost.status(boss)[::2] == ("failed", 0)
    assert roost.status(inner)[::2] == ("failed", 0)
    assert roost.status(root)[::2] == ("failed", 0)
    assert roost.unnamed == 0


def test_a_plain_session_asks_the_roost_as_anybody_does(project: Project, start: Start, hosts: Hosts) -> None:
    up = sleeper(project)
    roost = start("--spawn-allow", "sleeper")
    boss = hosts.start("sh", "-c", f"exec {MUR} delegate sleeper@1.0 --task x", MURMUR_ROOST_URL=roost.url)
    up.line()
    assert (roost.unnamed, roost.status(boss.session_id)) == (1, ("running", 3, 1))


def test_the_child_of_a_delegate_that_is_killed_is_told_of_as_failed(project: Project, start: Start) -> None:
    up = sleeper(project)
    roost = start("--spawn-allow", "sleeper")
    delegating = project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    child = project.child("sleeper")
    root = event(child, "session_start")["spawned_by"]
    assert roost.status(root) == ("running", 3, 1)
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGKILL)
        assert family.left(10) == {}
    assert roost.status(child.name) == ("failed", 2, 0)
    assert roost.status(root) == ("failed", 3, 0)
    assert roost.unnamed == 0


@pytest.mark.parametrize("acceptance", ["none", "single"])
def test_a_child_that_was_ended_before_its_work_was_done_has_failed(
    project: Project, start: Start, acceptance: str
) -> None:
    up = project.fifo()
    lifecycle = {"task_acceptance": acceptance}
    project.put("worker", "sh", "-c", f"echo up >{up}; exec sleep 1000", lifecycle=lifecycle)
    roost = start("--spawn-allow", "worker")
    task = () if acceptance == "none" else ("--task", "x")
    delegating = project.start("worker@1.0", *task, MURMUR_ROOST_URL=roost.url)
    up.line()
    delegating.signal(signal.SIGTERM)
    delegating.wait()
    assert roost.status(project.child("worker").name) == ("failed", 2, 0)


def kill_host(project: Project, pid: int) -> None:
    """Kill the `mur run` that a delegate started, so that it can tell nobody."""
    (host,) = [each for each in children_of(pid) if " run " in project.processes.get(each, "")]
    with Family.of(host) as family:
        os.kill(host, signal.SIGKILL)
        assert family.left(10) == {}


@pytest.mark.slow  # Two delegations, one after the other.
@pytest.mark.spec("L9")
@pytest.mark.parametrize("pruned", [False, True])
def test_a_child_that_is_killed_holds_its_place_no_longer_also_when_its_record_was_pruned(
    project: Project, start: Start, pruned: bool
) -> None:
    up = sleeper(project)
    roost = start("--spawn-allow", "sleeper", "--max-concurrent", "1")
    delegating = project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    child = project.child("sleeper").name
    kill_host(project, delegating.pid)
    delegating.wait()
    if pruned:
        assert mur("prune").returncode == 0
        assert child not in project.recorded
    done = project.start("sleeper@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    assert roost.status(child) == ("failed", 2, 0)
    assert roost.unnamed == 1
    done.signal(signal.SIGTERM)
    done.wait()
    ended = [line for line in roost.end()[1].splitlines() if f" ended: {child}" in line]
    assert len(ended) == 1
    assert f"{child}, failed: " in ended[0]


@pytest.mark.spec("L9")
def test_a_script_that_is_killed_holds_its_place_no_longer(project: Project, start: Start) -> None:
    up = project.fifo()
    project.script("script", "sh", "-c", f"echo up >{up}; exec sleep 1000")
    roost = start("--spawn-allow", "script")
    delegating = project.start("script@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    child = project.child("script").name
    assert project.recorded != [child]
    assert roost.status(child) == ("running", 2, 0)
    kill_host(project, delegating.pid)
    delegating.wait()
    assert roost.status(child) == ("failed", 2, 0)
    assert roost.unnamed == 0


@pytest.mark.slow  # Two roosts, two delegations: a dozen interpreters.
def test_a_roost_that_is_started_again_counts_what_runs_and_sees_it_end(project: Project, start: Start) -> None:
    gate, up = project.fifo(), project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; read -r _ <{gate}")
    roost = start("--spawn-allow", "worker")
    delegating = project.start("worker@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    up.line()
    child = project.child("worker")
    root = event(child, "session_start")["spawned_by"]
    roost.process.kill()
    roost.process.wait()
    again = start("--spawn-allow", "worker", "--max-concurrent", "1")
    assert again.status(root) == ("running", 3, 1)
    assert again.status(child.name) == ("running", 2, 0)
    refused = project.delegate("worker@1.0", "--task", "x", MURMUR_ROOST_URL=again.url)
    assert refused.returncode == 4
    assert "have 1 child at once already" in refused.stderr
    gate.let_on()
    assert delegating.wait()[0] == 0
    assert again.status(child.name) == ("complete", 2, 0)
    assert again.status(root) == ("complete", 3, 0)
    assert again.unnamed == 0


def test_without_the_roost_nothing_is_launched(project: Project, start: Start) -> None:
    project.put("worker", "cat")
    roost = start("--spawn-allow", "worker")
    roost.end()
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_ROOST_URL=roost.url)
    assert done.returncode == 4
    assert f"the referee at 127.0.0.1:{roost.port} did not answer: connection refused" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(start: Start, number: signal.Signals) -> None:
    roost = start()
    with socket.create_connection(("127.0.0.1", roost.port)):  # Somebody who asks for nothing keeps nobody.
        returncode, events = roost.end(number)
    assert returncode == 0
    assert one_line(events, "ending") == f"asked to by {number.name}"


def test_it_says_where_it_is_to_a_person_and_leaves_nothing_behind(project: Project) -> None:
    with subprocess.Popen(
        [MUR, "roost", "--port", "0"],
        cwd=project.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as roost:
        assert roost.stdout is not None
        line = roost.stdout.readline()
        roost.terminate()
        assert (roost.stdout.read(), roost.wait(20)) == ("", 0)
    assert line.startswith("murmur: roost http://127.0.0.1:")
    assert list(project.home.iterdir()) == []


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(project: Project, start: Start) -> None:
    roost = start()
    done = mur("roost", "--port", str(roost.port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error[E-RUN-903]: cannot bind the door to 127.0.0.1 port {roost.port}: address already in use\n"
        "  hint: is a roost there already? choose another --port; 0 picks a free one\n"
    )
    done = mur("roost", "--port", str(roost.port), "--json")
    assert json.loads(done.stdout)["error"]["code"] == "E-RUN-903"


def test_a_registry_that_cannot_be_read_is_an_error_at_once(home: Path) -> None:
    (home / ".murmur").mkdir(mode=0o700)
    (home / ".murmur" / "running").write_text("")
    done = mur("roost", "--port", "0")
    assert (done.returncode, done.stdout) == (6, "")
    assert "error[E-RUN-028]" in done.stderr


@pytest.mark.parametrize("name", ["worker@1.0", "", "../worker", "*", "Worker"])
def test_a_name_that_no_capsule_has_is_not_understood(home: Path, name: str) -> None:
    done = mur("roost", "--port", "0", "--spawn-allow", name)
    assert done.returncode == 2
    assert "without a version" in done.stderr.replace("\n", " ")


def test_records_are_read_and_never_removed(start: Start, running: Path) -> None:
    gone = write_record(running, spawned_by="ses_0199c4e2f1b7712a9d3e4f5061728300", process_start="1")
    alive = write_record(
        running,
        session_id="ses_0199c4e2f1b7712a9d3e4f5061728395",
        spawned_by="ses_0199c4e2f1b7712a9d3e4f5061728300",
    )
    roost = start()
    assert roost.unnamed == 1
    assert roost.status(str(record()["session_id"]).replace("394", "395")) == ("running", 2, 0)
    assert gone.exists()
    assert alive.exists()


@pytest.mark.slow  # It looks for a whole second whether anything wakes.
def test_it_does_nothing_while_nobody_asks(start: Start) -> None:
    roost = start()
    assert roost.unnamed == 0
    tasks = Path("/proc", str(roost.process.pid), "task")
    until(lambda: len(os.listdir(tasks)) == 1)

    def switches() -> list[str]:
        return [line for line in (tasks / str(roost.process.pid) / "status").read_text().splitlines() if "ctxt" in line]

    time.sleep(0.2)
    before = switches()
    time.sleep(1.0)
    assert switches() == before


def test_what_is_no_name_is_shown_and_not_obeyed() -> None:
    done = mur("roost", "--port", "0", "--spawn-allow", "\x1b]0;x\x07q\nz")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert r"\x1b]0;x\x07q\x0az" in done.stderr or r"\x1b]0;x\x07q\nz" in done.stderr
