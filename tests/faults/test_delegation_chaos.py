"""Launches with faults at random moments: nothing is left, and each delegation ends once or is refused (X3, E3, W2).

`MURMUR_TEST_LAUNCHES` says how many, `MURMUR_TEST_SEED` which: the seed is printed, and so shown by a failure.
"""

import os
import random
import secrets
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import NamedTuple

import pytest

from murmur.adapters.capsule_store import find_capsule
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.launching import LaunchedChild, LaunchGivenUp, launch_child_capsule
from murmur.adapters.referee_client import spawn
from murmur.adapters.referee_server import RefereeServer
from murmur.adapters.serving import ServingThread
from murmur.cli.delegating_session import DelegatingSession, delegating_session
from murmur.domain.door_tokens import TokenKey
from murmur.domain.errors import ChildNotLaunched
from murmur.domain.launch.completion import DelegationOutcome, parse_completion
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.referee import Referee
from murmur.domain.secret import SpawnCredential
from murmur.domain.spawn_terms import SpawnLimits
from tests.adapters.doors_for_tests import closed_port
from tests.adapters.processes_for_tests import open_descriptors
from tests.cli.capsules_for_tests import LIMIT, Family, Project, children_of, outstanding, trace, until
from tests.cli.conftest import MUR, mur_json

LAUNCHES = int(os.environ.get("MURMUR_TEST_LAUNCHES", "24"))
SEED = int(os.environ.get("MURMUR_TEST_SEED", "0")) or secrets.randbits(32)
AT_ONCE = 3
"""Launches under way at the same time."""
WINDOW = 1.0
"""Seconds after its start within which a fault strikes: about as long as a launch takes."""
WORK = 0.3
"""Seconds after its work has begun within which a fault strikes that is not to come before that."""
REFUSED = "refused"
DONE = "ok by child, delivered"
ENDED = "terminated by launcher, undelivered"
RIGHT = {
    "none": {DONE},
    # Struck before it was ready, before its word was on disk, or when that could still be told for it or had been.
    "child killed": {REFUSED, "crashed by launcher, delivered", DONE},
    # The door may have taken the child's word first, or the child may have exited.
    "ended": {REFUSED, ENDED, DONE},
    # Once it is ready, there is nothing to be given up.
    "given up": {REFUSED, DONE},
    "garbled": {REFUSED},
    "door gone": {"ok by child, undelivered"},
    # Nobody is left who would report for the child.
    "parent killed": {"never begun", DONE, "ok by child, undelivered", "terminated by child, undelivered"},
}
"""What may become of a launch, by its fault. The command itself never fails."""
FAULTS = tuple(RIGHT)
GARBLED = (
    "exit 3",
    "echo starting; exec sleep 1000",
    'printf \'{"session_id":"ses_\'; exit',
    'echo \'{"session_id":"ses_1","records_dir":"/tmp/ses_1"}\'; exec sleep 1000',
    "head -c 2000000 /dev/zero; exec sleep 1000",
)


class Plan(NamedTuple):
    """One launch: of which capsule, with which fault, how many seconds after its start or after its work has begun."""

    capsule: str
    fault: str
    at_work: bool
    delay: float


class Parent(NamedTuple):
    """A session of this very process, with a referee, that launches."""

    session: DelegatingSession
    roost: str
    credential: SpawnCredential
    nowhere: int
    """A port at which nobody answers."""

    def launch(self, plan: Plan, given_up: LaunchGivenUp) -> LaunchedChild:
        delegating = self.session.delegating
        url = f"http://localhost:{self.nowhere}" if plan.fault == "door gone" else delegating.url
        request = ChildLaunchRequest(
            parent_records_dir=PurePath(self.session.records),
            capsule_name=plan.capsule,
            capsule_version="1.0",
            grant=spawn(self.roost, self.credential, plan.capsule, "1.0").approval,
            env_allow=(),
            roost_url=self.roost,
            spawner=Spawner(delegating.session_id, delegating.context_id, url),
        )
        return launch_child_capsule(request, given_up=given_up)


@contextmanager
def parent(project: Project) -> Iterator[Parent]:
    with ExitStack() as opened:
        serving = opened.enter_context(ServingThread())
        session = delegating_session({}, opened, serving)
        # What is killed never tells its referee that it is over, so there is no end to those that count as running.
        referee = Referee(TokenKey(secrets.token_hex(32)), fresh_hex, SpawnLimits(children=10_000))
        credential = referee.enrol_root(session.delegating.session_id, None)
        server = RefereeServer(referee, lambda reference: find_capsule(reference, project.path, {}))
        url = serving.do(server.serve)
        serving.closes(server.close)
        yield Parent(session, url, credential, opened.enter_context(closed_port()))


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "project", home)
    plans = made.path / "plans"
    plans.mkdir()
    # It tells its pid, does what is planned for its capsule, and becomes the real one after that.
    program = made.program(f'echo $$ >{plans}/$3.pid\n[ ! -e {plans}/$3 ] || . {plans}/$3\nexec {MUR} "$@"')
    monkeypatch.setenv("MURMUR_MUR_BINARY", str(program))
    yield made
    made.close()


def kill_child(told: Path) -> None:
    """Kill the child that told its pid, if that is a child of ours and so nobody else's."""
    with suppress(OSError, ValueError):
        pid = int(told.read_text())
        pidfd = os.pidfd_open(pid)
        try:
            if pid in children_of(os.getpid()):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def is_at_work(project: Project, plan: Plan) -> bool:
    return (project.path / "plans" / f"{plan.capsule}.up").exists()


def became(outcome: DelegationOutcome) -> str:
    """Say which of the outcomes that may be right this is."""
    return f"{outcome.status} by {outcome.reported_by}, {'delivered' if outcome.delivered else 'undelivered'}"


def launched_here(project: Project, by: Parent, plan: Plan) -> str:
    """Launch a child from this process, have the fault strike, wait for the end; return what became of it."""
    given_up, launched, over = LaunchGivenUp(), list[LaunchedChild](), threading.Event()

    def strike() -> None:
        if plan.at_work:
            until(lambda: is_at_work(project, plan) or over.is_set())
        over.wait(plan.delay)
        match plan.fault:
            case "child killed":
                kill_child(project.path / "plans" / f"{plan.capsule}.pid")
            case "ended" if launched:
                launched[0].begin_ending()
            case "given up" | "ended":
                given_up.give_up()

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        with by.launch(plan, given_up) as child:
            launched.append(child)
            assert child.wait(LIMIT)
        assert child.watcher_finished
    except ChildNotLaunched as error:
        if REFUSED not in RIGHT[plan.fault]:
            raise
        return REFUSED if "child capsule" in error.message else f"refused for {error.message}"
    finally:
        over.set()
        striking.join()
    outcome = parse_completion((child.records_dir / "completion.json").read_bytes())
    assert outcome is not None
    assert outcome.delegation_id == child.delegation_id
    return became(outcome)


def capsule_of(records: Path) -> str | None:
    """Whose records these are; `None` where a session was killed, or is, before it had said so."""
    return next((str(each["capsule_name"]) for each in trace(records)[:1]), None)


def launched_by_another(project: Project, plan: Plan) -> str:
    """Have a `mur delegate` launch a child, kill it, and return what its child says of that."""
    delegating = project.start(f"{plan.capsule}@1.0")
    if plan.at_work:
        until(lambda: is_at_work(project, plan) or delegating.process.poll() is not None)
    with Family.of(delegating.pid) as family:
        family.left(plan.delay)  # That long, unless it is over before.
    with Family.of(delegating.pid) as family:
        delegating.signal(signal.SIGKILL)
        delegating.wait()
        assert family.left(LIMIT) == {}
    children = [each for each in project.records if capsule_of(each) == plan.capsule]
    if not children:
        return "never begun"
    (child,) = children
    outcome = parse_completion((child / "completion.json").read_bytes())
    assert outcome is not None
    assert trace(child)[-1]["event_type"] == "session_end"
    return became(outcome)


def told(by: Path) -> dict[str, str]:
    """The texts of the completions that a session's door has taken, by delegation: one of each at most."""
    taken = [(each["delegation_id"], each["text"]) for each in trace(by) if each["event_type"] == "completion"]
    texts = dict(taken)
    assert len(texts) == len(taken), taken
    return texts


def disagreements(project: Project, killed: bool, delegating: Sequence[Path]) -> list[object]:
    """Compare what those sessions' doors have taken with what is in each `completion.json`; return what differs.

    A child whose spawner was killed before it answered cannot know that its word was taken.
    """
    texts = {delegation: text for each in delegating for delegation, text in told(each).items()}
    sessions = {trace(each)[0]["session_id"] for each in delegating}
    wrong = list[object]()
    for each in project.records:
        if not (each / "completion.json").exists() or sessions.isdisjoint(part for part in each.parts):
            continue
        outcome = parse_completion((each / "completion.json").read_bytes())
        assert outcome is not None
        text = texts.pop(outcome.delegation_id, None)
        first = f"delegation {outcome.delegation_id} ({outcome.capsule_name}@1.0) ended: {outcome.status}"
        agrees = not outcome.delivered if text is None else outcome.delivered or killed
        if not agrees or (text is not None and text.splitlines()[0] != first):
            wrong.append((outcome, text))
    return [*wrong, *texts.items()]


@pytest.mark.slow  # Each launch is a whole interpreter that lives for half a second.
@pytest.mark.spec("X3", "E3", "E5", "W2", "M3")
def test_after_faults_at_random_moments_nothing_is_left_and_each_delegation_ended_once(project: Project) -> None:
    # To stderr, which a test process of several shows with `-s` too.
    sys.stderr.write(f"seed {SEED}, {LAUNCHES} launches\n")
    chance = random.Random(SEED)
    plans = []
    for number in range(LAUNCHES):
        at_work = number // len(FAULTS) % 2 == 1
        delay = chance.uniform(0, WORK if at_work else WINDOW)
        plans.append(Plan(f"c{number}", FAULTS[number % len(FAULTS)], at_work, delay))
    warm = Plan("warm", "none", at_work=False, delay=0)
    for plan in (warm, *plans):
        command = f"touch {project.path}/plans/{plan.capsule}.up; sleep 0.2"
        project.put(plan.capsule, "sh", "-c", command, lifecycle={"task_acceptance": "none"})
        if plan.fault == "garbled":
            (project.path / "plans" / plan.capsule).write_text(f"read -r _; {chance.choice(GARBLED)}\n")
    others = set(children_of(os.getpid()))
    with parent(project) as by:
        assert launched_here(project, by, warm) == DONE
        before = open_descriptors()

        def launch(plan: Plan) -> tuple[str, str]:
            if plan.fault == "parent killed":
                return plan.fault, launched_by_another(project, plan)
            return plan.fault, launched_here(project, by, plan)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            came = Counter(pool.map(launch, plans))
        for (fault, outcome), number in sorted(came.items()):
            sys.stderr.write(f"{fault}: {outcome} {number} times\n")
        assert [(fault, outcome) for fault, outcome in came if outcome not in RIGHT[fault]] == []
        until(lambda: open_descriptors() <= before, 5)
        assert set(children_of(os.getpid())) <= others
        assert outstanding(by.session.records) == []
        assert [row["capsule_name"] for row in mur_json("ps")] == ["delegate"]
        delegating = [each for each in project.records if capsule_of(each) == "delegate"]
        assert by.session.records in delegating
        delegating.remove(by.session.records)
        assert disagreements(project, killed=False, delegating=[by.session.records]) == []
        assert disagreements(project, killed=True, delegating=delegating) == []
    assert project.processes == {}
    assert project.recorded == []
