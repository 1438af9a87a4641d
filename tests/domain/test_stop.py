"""The stop machine, told one event at a time what happened (O2, K1, K4).

No fake is needed: events and clock readings go in, actions come out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murmur.domain.door import NoAnswer, StopAnswer
from murmur.domain.listing import Session
from murmur.domain.process import Alive, Gone, ProcessState, Unverified
from murmur.domain.signals import AlreadyGone, Refused, Sent, SignalOutcome, StopSignal
from murmur.domain.stop import (
    CANCEL_LOOK,
    CANCEL_WAIT,
    KILL_WAIT,
    SPAWNER_SETTLE,
    Action,
    AskDoor,
    DoorAnswered,
    Event,
    Exited,
    LookAtTasks,
    Outcome,
    Signal,
    Signalled,
    StopMachine,
    TasksLookedAt,
)
from murmur.domain.stop_plan import AfterSpawner, LeaveAlone, NothingThere, SignalNow, plan
from tests.fakes.recorded import a_session, session_id

TERM, KILL = StopSignal.TERM, StopSignal.KILL
QUIET = StopAnswer((), ())
T0 = 1000.0
TIMEOUT = 10.0


@dataclass
class Drive:
    """One machine, moved by hand."""

    machine: StopMachine
    now: float = T0

    def start(self) -> list[Action]:
        return self.machine.start(self.now)

    def event(self, event: Event, after: float = 0.0) -> list[Action]:
        self.now += after
        return self.machine.happened(event, self.now)

    def wait(self) -> list[Action]:
        """Let time pass until the machine wants to be called."""
        assert self.machine.deadline >= self.now
        self.now = self.machine.deadline
        return self.machine.tick(self.now)

    def answer_quietly(self, *targets: int) -> list[Action]:
        """Have these doors answer that they have nothing to cancel."""
        actions: list[Action] = []
        for target in targets:
            actions += self.event(DoorAnswered(target, QUIET))
        return actions

    def sent(self, signal: StopSignal, *targets: int) -> list[Action]:
        """Have a signal reach these targets."""
        actions: list[Action] = []
        for target in targets:
            actions += self.event(Signalled(target, signal, Sent()))
        return actions

    @property
    def outcomes(self) -> list[Outcome | None]:
        return [ending.outcome for ending in self.machine.endings]


def drive(*targets: Session, timeout: float = TIMEOUT) -> Drive:
    return Drive(StopMachine(targets, timeout))


def termed(*targets: Session, timeout: float = TIMEOUT) -> Drive:
    """Make a machine whose targets have all got SIGTERM."""
    driven = drive(*targets, timeout=timeout)
    everyone = range(len(targets))
    driven.start()
    assert driven.answer_quietly(*everyone) == [Signal(at, TERM) for at in everyone]
    driven.sent(TERM, *everyone)
    return driven


# ---- the plan ----


@pytest.mark.spec("O2", "L9")
def test_each_target_is_planned_by_its_state() -> None:
    targets = [a_session(1), a_session(2, state=Unverified("unsure")), a_session(3, state=Gone("went"))]
    assert plan(targets) == [SignalNow(), LeaveAlone("unsure"), NothingThere()]


@pytest.mark.spec("O2")
def test_a_target_waits_for_the_target_that_spawned_it() -> None:
    assert plan([a_session(1), a_session(2, spawned_by=1)]) == [SignalNow(), AfterSpawner(session_id(1))]
    assert plan([a_session(2, spawned_by=1), a_session(1)]) == [AfterSpawner(session_id(1)), SignalNow()]


@pytest.mark.spec("O2")
def test_a_target_waits_for_the_target_that_its_record_names_as_launcher() -> None:
    assert plan([a_session(1), a_session(2, launched_by=1)]) == [SignalNow(), AfterSpawner(session_id(1))]


@pytest.mark.spec("O2")
def test_a_spawner_that_is_no_target_is_not_waited_for() -> None:
    assert plan([a_session(2, spawned_by=1)]) == [SignalNow()]


@pytest.mark.spec("O2")
@pytest.mark.parametrize("state", [Gone("went"), Unverified("unsure")])
def test_a_spawner_that_is_not_ended_is_not_waited_for(state: Gone | Unverified) -> None:
    assert plan([a_session(1, state=state), a_session(2, spawned_by=1)])[1] == SignalNow()


@pytest.mark.spec("O2")
def test_each_of_a_chain_waits_for_the_one_before() -> None:
    chain = [a_session(1), a_session(2, spawned_by=1), a_session(3, spawned_by=2)]
    assert plan(chain) == [SignalNow(), AfterSpawner(session_id(1)), AfterSpawner(session_id(2))]


@pytest.mark.spec("O2")
@pytest.mark.parametrize("length", [1, 2, 3])
def test_targets_that_name_each_other_in_a_circle_wait_for_nobody(length: int) -> None:
    circle = [a_session(number, spawned_by=number % length + 1) for number in range(1, length + 1)]
    assert plan(circle) == [SignalNow()] * length


@pytest.mark.spec("O2")
def test_a_target_outside_a_circle_waits_for_its_spawner_in_it() -> None:
    targets = [a_session(1, spawned_by=2), a_session(2, spawned_by=1), a_session(3, spawned_by=1)]
    assert plan(targets) == [SignalNow(), SignalNow(), AfterSpawner(session_id(1))]


# ---- one target ----


@pytest.mark.spec("O2")
def test_no_target_is_done_at_once() -> None:
    driven = drive()
    assert driven.start() == []
    assert driven.machine.done


@pytest.mark.spec("O2")
def test_a_target_is_asked_then_signalled_and_stops() -> None:
    driven = drive(a_session())
    assert driven.start() == [AskDoor(0)]
    assert driven.answer_quietly(0) == [Signal(0, TERM)]
    assert driven.sent(TERM, 0) == []
    assert driven.machine.waited_for == [0]
    assert driven.event(Exited(0), after=3) == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.STOPPED]
    assert driven.machine.endings[0].signal is TERM


@pytest.mark.spec("O2")
def test_a_target_that_outlives_its_grace_is_killed() -> None:
    driven = termed(a_session())
    assert driven.machine.deadline == T0 + TIMEOUT
    assert driven.wait() == [Signal(0, KILL)]
    driven.sent(KILL, 0)
    assert driven.event(Exited(0), after=0.1) == []
    assert driven.outcomes == [Outcome.KILLED]
    assert driven.machine.endings[0].signal is KILL
    assert driven.machine.done


@pytest.mark.spec("O2")
def test_a_target_that_outlives_sigkill_is_still_running_after_five_seconds() -> None:
    driven = termed(a_session())
    driven.wait()
    driven.sent(KILL, 0)
    assert driven.machine.deadline == driven.now + KILL_WAIT == T0 + TIMEOUT + 5
    assert driven.wait() == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.STILL_RUNNING]


@pytest.mark.spec("O2")
def test_no_grace_sends_sigterm_and_then_sigkill() -> None:
    driven = drive(a_session(), timeout=0)
    driven.start()
    assert driven.answer_quietly(0) == [Signal(0, TERM)]
    assert driven.sent(TERM, 0) == [Signal(0, KILL)]
    assert driven.sent(KILL, 0) == []
    driven.event(Exited(0))
    assert driven.outcomes == [Outcome.KILLED]


@pytest.mark.spec("O2")
def test_a_target_that_ends_just_before_sigkill_was_stopped_by_sigterm() -> None:
    driven = termed(a_session())
    assert driven.wait() == [Signal(0, KILL)]
    driven.event(Signalled(0, KILL, AlreadyGone()))
    assert driven.outcomes == [Outcome.STOPPED]
    assert driven.machine.endings[0].signal is TERM


@pytest.mark.spec("O2", "K1")
def test_a_target_found_gone_when_signalled_was_gone_already() -> None:
    driven = drive(a_session())
    driven.start()
    driven.answer_quietly(0)
    assert driven.event(Signalled(0, TERM, AlreadyGone())) == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.ALREADY_GONE]
    assert driven.machine.endings[0].signal is None


@pytest.mark.spec("O2", "K1")
@pytest.mark.parametrize("signal", StopSignal)
def test_a_refused_signal_ends_the_attempt_with_its_reason(signal: StopSignal) -> None:
    driven = drive(a_session()) if signal is TERM else termed(a_session())
    if signal is TERM:
        driven.start()
        driven.answer_quietly(0)
    else:
        driven.wait()
    assert driven.event(Signalled(0, signal, Refused("operation not permitted"))) == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.REFUSED]
    assert driven.machine.endings[0].reason == "operation not permitted"


@pytest.mark.spec("O2", "L9")
def test_targets_gone_or_unverified_when_read_get_no_ask_and_no_signal() -> None:
    driven = drive(a_session(1, state=Gone("went")), a_session(2, state=Unverified("unsure")))
    assert driven.start() == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.ALREADY_GONE, Outcome.REFUSED]
    assert driven.machine.endings[1].reason == "unsure"


@pytest.mark.spec("O2")
def test_an_event_about_a_target_that_has_its_outcome_changes_nothing() -> None:
    driven = termed(a_session(1), a_session(2))
    driven.event(Exited(0))
    for event in (Exited(0), Signalled(0, KILL, Sent()), Signalled(0, KILL, Refused("no"))):
        assert driven.event(event) == []
    assert driven.outcomes == [Outcome.STOPPED, None]
    assert driven.machine.endings[0].signal is TERM


# ---- doors and tasks ----


@pytest.mark.spec("O2")
def test_all_doors_are_asked_at_once_and_the_slowest_is_waited_for() -> None:
    driven = drive(a_session(1), a_session(2), a_session(3))
    assert driven.start() == [AskDoor(0), AskDoor(1), AskDoor(2)]
    assert driven.answer_quietly(2, 0) == []
    assert driven.answer_quietly(1) == [Signal(0, TERM), Signal(1, TERM), Signal(2, TERM)]


@pytest.mark.spec("O2", "K4")
def test_a_stopped_process_is_not_asked_and_is_signalled_all_the_same() -> None:
    assert drive(a_session(1, stopped=True)).start() == [Signal(0, TERM)]
    driven = drive(a_session(1, stopped=True), a_session(2))
    assert driven.start() == [AskDoor(1)]
    assert driven.answer_quietly(1) == [Signal(0, TERM), Signal(1, TERM)]


@pytest.mark.spec("O2")
def test_a_silent_door_is_reported_and_not_fatal() -> None:
    driven = drive(a_session())
    driven.start()
    assert driven.event(DoorAnswered(0, NoAnswer("timed out after 2s"))) == [Signal(0, TERM)]
    driven.sent(TERM, 0)
    driven.event(Exited(0))
    assert driven.machine.endings[0].door == "timed out after 2s"
    assert driven.outcomes == [Outcome.STOPPED]


@pytest.mark.spec("O2")
def test_what_a_door_cancels_and_leaves_is_kept_for_the_report() -> None:
    driven = drive(a_session())
    driven.start()
    driven.event(DoorAnswered(0, StopAnswer(("tsk_1", "tsk_2"), ("delegation dlg_1",))))
    driven.event(TasksLookedAt(0, ()))
    ending = driven.machine.endings[0]
    assert (ending.canceled, ending.residue, ending.door) == (("tsk_1", "tsk_2"), ("delegation dlg_1",), None)


@pytest.mark.spec("O2")
def test_canceled_tasks_are_looked_at_until_they_have_ended() -> None:
    driven = drive(a_session(1), a_session(2))
    driven.start()
    driven.answer_quietly(1)
    assert driven.event(DoorAnswered(0, StopAnswer(("a", "b"), ()))) == [LookAtTasks(0, ("a", "b"))]
    assert driven.event(TasksLookedAt(0, ("b",)), after=0.01) == []
    assert driven.machine.deadline == T0 + CANCEL_LOOK
    assert driven.wait() == [LookAtTasks(0, ("b",))]
    assert driven.event(TasksLookedAt(0, ())) == [Signal(0, TERM), Signal(1, TERM)]


@pytest.mark.spec("O2")
def test_canceled_tasks_are_waited_for_at_most_five_seconds() -> None:
    driven = drive(a_session())
    driven.start()
    actions = driven.event(DoorAnswered(0, StopAnswer(("a",), ())))
    looks = 0
    while actions == [LookAtTasks(0, ("a",))]:
        looks += 1
        actions = driven.event(TasksLookedAt(0, ("a",))) or driven.wait()
    assert actions == [Signal(0, TERM)]
    assert driven.now == pytest.approx(T0 + CANCEL_WAIT)
    assert CANCEL_WAIT == 5
    assert 20 <= looks <= 30


@pytest.mark.spec("O2")
def test_the_grace_begins_when_the_tasks_have_been_waited_for() -> None:
    driven = drive(a_session())
    driven.start()
    driven.event(DoorAnswered(0, StopAnswer(("a",), ())))
    assert driven.event(TasksLookedAt(0, ()), after=3) == [Signal(0, TERM)]
    driven.sent(TERM, 0)
    assert driven.machine.deadline == T0 + 3 + TIMEOUT


@pytest.mark.spec("O2")
def test_the_tasks_of_a_target_that_is_gone_are_not_waited_for() -> None:
    driven = drive(a_session(1), a_session(2))
    driven.start()
    driven.answer_quietly(1)
    driven.event(DoorAnswered(0, StopAnswer(("a",), ())))
    assert driven.event(Exited(0)) == [Signal(1, TERM)]
    assert driven.outcomes[0] is Outcome.ALREADY_GONE


# ---- several targets ----


@pytest.mark.spec("O2", "E2")
def test_many_targets_share_one_grace() -> None:
    targets = [a_session(number) for number in range(1, 21)]
    driven = termed(*targets)
    assert driven.now == T0
    assert driven.wait() == [Signal(at, KILL) for at in range(20)]
    assert driven.now == T0 + TIMEOUT
    driven.sent(KILL, *range(20))
    driven.wait()
    assert driven.now == T0 + TIMEOUT + KILL_WAIT
    assert driven.outcomes == [Outcome.STILL_RUNNING] * 20


@pytest.mark.spec("O2")
def test_only_those_that_outlive_the_grace_are_killed() -> None:
    driven = termed(a_session(1), a_session(2), a_session(3))
    driven.event(Exited(1), after=1)
    assert driven.wait() == [Signal(0, KILL), Signal(2, KILL)]
    driven.event(Signalled(0, KILL, Refused("no")))
    driven.event(Exited(2))
    assert driven.outcomes == [Outcome.REFUSED, Outcome.STOPPED, Outcome.STOPPED]


@pytest.mark.spec("O2")
def test_an_early_end_of_all_ends_the_grace() -> None:
    driven = termed(a_session(1), a_session(2))
    driven.event(Exited(1), after=1)
    driven.event(Exited(0), after=1)
    assert driven.machine.done


# ---- targets that follow their spawner ----


def family(timeout: float = TIMEOUT, generations: int = 2) -> Drive:
    """Make a spawner and what it spawned, one spawning the next, with the spawner's SIGTERM asked for."""
    chain = [a_session(1), *(a_session(number, spawned_by=number - 1) for number in range(2, generations + 1))]
    driven = drive(*chain, timeout=timeout)
    driven.start()
    assert driven.answer_quietly(*range(generations)) == [Signal(0, TERM)]
    return driven


@pytest.mark.spec("O2")
def test_a_child_that_ends_with_its_spawner_is_stopped_without_a_signal() -> None:
    driven = family()
    driven.sent(TERM, 0)
    driven.event(Exited(0), after=1)
    assert driven.event(Exited(1), after=0.5) == []
    assert driven.machine.done
    assert driven.outcomes == [Outcome.STOPPED, Outcome.STOPPED]
    assert driven.machine.endings[1].signal is None


@pytest.mark.spec("O2")
def test_a_child_that_ends_before_its_spawner_is_stopped_without_a_signal() -> None:
    driven = family()
    driven.sent(TERM, 0)
    driven.event(Exited(1), after=1)
    assert driven.outcomes == [None, Outcome.STOPPED]


@pytest.mark.spec("O2")
def test_a_child_that_outlives_its_spawner_is_signalled_after_a_moment() -> None:
    driven = family()
    driven.sent(TERM, 0)
    assert driven.event(Exited(0), after=1) == []
    assert driven.machine.deadline == T0 + 1 + SPAWNER_SETTLE
    assert driven.wait() == [Signal(1, TERM)]
    driven.sent(TERM, 1)
    assert driven.machine.deadline == T0 + TIMEOUT
    driven.event(Exited(1))
    assert driven.outcomes == [Outcome.STOPPED, Outcome.STOPPED]


@pytest.mark.spec("O2")
def test_a_child_is_not_signalled_while_its_spawner_winds_down() -> None:
    driven = family()
    driven.sent(TERM, 0)
    for _ in range(9):
        driven.now += 1
        assert driven.machine.tick(driven.now) == []


@pytest.mark.spec("O2")
@pytest.mark.parametrize("outcome", [AlreadyGone(), Refused("no")])
def test_a_child_is_signalled_when_its_spawner_could_not_be(outcome: SignalOutcome) -> None:
    driven = family()
    assert driven.event(Signalled(0, TERM, outcome)) == []
    assert driven.wait() == [Signal(1, TERM)]


@pytest.mark.spec("O2")
def test_a_child_of_a_killed_spawner_gets_sigterm_before_sigkill() -> None:
    driven = family()
    driven.sent(TERM, 0)
    assert driven.wait() == [Signal(0, KILL)]
    driven.sent(KILL, 0)
    assert driven.event(Exited(0), after=0.1) == []
    assert driven.wait() == [Signal(1, TERM)]
    driven.sent(TERM, 1)
    assert driven.wait() == [Signal(1, KILL)]
    driven.sent(KILL, 1)
    driven.event(Exited(1))
    assert driven.outcomes == [Outcome.KILLED, Outcome.KILLED]


@pytest.mark.spec("O2")
def test_a_child_waiting_for_a_spawner_that_outlives_sigkill_is_killed_too() -> None:
    driven = family()
    driven.sent(TERM, 0)
    driven.wait()
    driven.sent(KILL, 0)
    assert driven.wait() == [Signal(1, KILL)]
    driven.sent(KILL, 1)
    driven.event(Exited(1))
    driven.wait()
    assert driven.machine.done
    assert driven.outcomes == [Outcome.STILL_RUNNING, Outcome.KILLED]


@pytest.mark.spec("O2")
@pytest.mark.parametrize("outcome", [AlreadyGone(), Refused("no")])
def test_without_a_grace_a_child_whose_spawner_is_settled_gets_sigterm_before_sigkill(outcome: SignalOutcome) -> None:
    driven = family(timeout=0)
    actions = driven.event(Signalled(0, TERM, outcome)) or driven.wait()
    assert actions == [Signal(1, TERM)]


@pytest.mark.spec("O2")
def test_a_child_whose_spawner_ends_as_the_grace_does_gets_sigterm_before_sigkill() -> None:
    driven = family()
    driven.sent(TERM, 0)
    actions = driven.event(Exited(0), after=TIMEOUT) or driven.wait()
    assert actions == [Signal(1, TERM)]


@pytest.mark.spec("O2")
def test_a_grandchild_waits_for_the_child() -> None:
    driven = family(generations=3)
    driven.sent(TERM, 0)
    driven.event(Exited(0))
    assert driven.wait() == [Signal(1, TERM)]
    driven.sent(TERM, 1)
    assert driven.event(Exited(1), after=0.1) == []
    assert driven.wait() == [Signal(2, TERM)]


# ---- whatever happens, in whatever order ----

Choice = Callable[[int], int]
"""Chooses one of so many."""
ANSWERS = (NoAnswer("silence"), QUIET, StopAnswer(("a",), ()), StopAnswer(("a", "b"), ("left",)))


@dataclass
class Storm:
    """A machine among targets that do as they please. Every action is checked as it is asked for."""

    machine: StopMachine
    choose: Choice
    now: float = T0
    pending: list[Action] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)
    asked_for: list[tuple[int, StopSignal]] = field(default_factory=list)
    termed_at: dict[int, float] = field(default_factory=dict)
    settled: dict[int, Outcome] = field(default_factory=dict)
    doors_answered_at: float = T0

    def run(self, steps: int) -> None:
        self.alive = {at for at, target in enumerate(self.machine.targets) if not isinstance(target.state, Gone)}
        self.take(self.machine.start(self.now))
        for _ in range(steps):
            if self.machine.done:
                break
            (self.perform, self.perform, self.exit, self.pass_time, self.reach_deadline)[self.choose(5)]()
        for _ in range(400):
            if self.machine.done:
                return
            if self.pending:
                self.perform()
            else:
                self.reach_deadline()
        pytest.fail("the machine does not end")

    def take(self, actions: Sequence[Action]) -> None:
        for at, ending in enumerate(self.machine.endings):
            if at in self.settled:
                assert ending.outcome is self.settled[at], "an outcome changed"
            elif ending.outcome is not None:
                self.settled[at] = ending.outcome
        for action in actions:
            if isinstance(action, Signal):
                self.check(action)
        self.pending += actions

    def check(self, action: Signal) -> None:
        target, signal = action
        assert action not in self.asked_for, "a signal was asked for twice"
        self.asked_for.append((target, signal))
        ending = self.machine.endings[target]
        assert isinstance(ending.step, SignalNow | AfterSpawner)
        assert target not in self.settled, "a target that has its outcome was signalled"
        if signal is TERM:
            assert (target, KILL) not in self.asked_for
            self.termed_at[target] = self.now
            if isinstance(ending.step, AfterSpawner):
                assert not self.is_open(ending.step.session_id), "a child was signalled before its spawner ended"
        elif target not in self.termed_at:
            assert isinstance(ending.step, AfterSpawner)
            assert self.is_open(ending.step.session_id), "SIGKILL before SIGTERM"
        elif isinstance(ending.step, SignalNow):
            assert self.now >= self.termed_at[target] + self.machine.timeout, "the grace was cut short"
        else:
            # It shares the grace that began once the doors had been asked.
            assert self.now >= self.doors_answered_at + self.machine.timeout, "the shared grace was cut short"

    def is_open(self, spawner: str) -> bool:
        return any(each.session.record.session_id == spawner and each.outcome is None for each in self.machine.endings)

    def event(self, event: Event) -> None:
        self.take(self.machine.happened(event, self.now))

    def perform(self) -> None:
        if not self.pending:
            return
        action = self.pending.pop(self.choose(len(self.pending)))
        match action:
            case AskDoor(target):
                self.doors_answered_at = self.now
                self.event(DoorAnswered(target, ANSWERS[self.choose(4)]))
            case LookAtTasks(target, tasks):
                self.event(TasksLookedAt(target, tasks[self.choose(2) :]))
            case Signal(target, signal):
                outcome: SignalOutcome = Sent()
                if target not in self.alive:
                    outcome = AlreadyGone()
                elif self.choose(6) == 0:
                    outcome = Refused("no")
                self.event(Signalled(target, signal, outcome))

    def exit(self) -> None:
        if self.alive:
            target = sorted(self.alive)[self.choose(len(self.alive))]
            self.alive.discard(target)
            if target in self.machine.waited_for:
                self.event(Exited(target))

    def pass_time(self) -> None:
        self.now += (0.01, 0.3, 2.0, 6.0)[self.choose(4)]
        self.take(self.machine.tick(self.now))

    def reach_deadline(self) -> None:
        self.now = max(self.now, self.machine.deadline)
        self.take(self.machine.tick(self.now))


@st.composite
def targets_of(draw: st.DrawFn) -> list[Session]:
    size = draw(st.integers(1, 5))
    mostly_alive: list[ProcessState] = [Alive(), Alive(), Alive(), Unverified("unsure"), Gone("went")]
    states = st.sampled_from(mostly_alive)
    spawners = st.one_of(st.none(), st.integers(1, size))
    return [
        a_session(
            number,
            state=draw(states),
            stopped=draw(st.booleans()),
            spawned_by=draw(spawners),
            launched_by=draw(spawners),
        )
        for number in range(1, size + 1)
    ]


@pytest.mark.spec("O2", "L9")
@settings(max_examples=80)
@given(targets_of(), st.sampled_from([0.0, 0.5, TIMEOUT]), st.integers(0, 60), st.randoms(use_true_random=False))
def test_in_whatever_order_things_happen_each_target_ends_once_and_gets_each_signal_once(
    targets: list[Session], timeout: float, steps: int, random: object
) -> None:
    choose: Choice = random.randrange  # type: ignore[attr-defined]
    storm = Storm(StopMachine(targets, timeout), choose)
    storm.run(steps)
    assert [ending.outcome for ending in storm.machine.endings] == [storm.settled[at] for at in range(len(targets))]
    for target, ending in zip(targets, storm.machine.endings, strict=True):
        if isinstance(target.state, Unverified):
            assert (ending.outcome, ending.reason) == (Outcome.REFUSED, "unsure")
        if isinstance(target.state, Gone):
            assert ending.outcome is Outcome.ALREADY_GONE


@pytest.mark.spec("O2")
@example(3, 0.0)
@given(st.integers(1, 6), st.sampled_from([0.0, 1.0, TIMEOUT]))
def test_targets_that_nothing_ends_cost_no_more_than_the_waits_promised(generations: int, timeout: float) -> None:
    chain = [a_session(1), *(a_session(number, spawned_by=number - 1) for number in range(2, generations + 1))]
    storm = Storm(StopMachine(chain, timeout), lambda size: 1 % size)
    storm.run(0)
    assert set(storm.settled.values()) == {Outcome.STILL_RUNNING}
    assert storm.now <= T0 + timeout + KILL_WAIT * min(generations, 2) + 1e-6
