"""The loop that asks, signals and waits, over fakes of everything it touches (O2)."""

from collections.abc import Mapping

import pytest

from murmur.adapters.stopping import Stopping
from murmur.domain.door import DoorAsk, DoorReading, NoAnswer
from murmur.domain.listing import Session
from murmur.domain.process import Gone, Unverified
from murmur.domain.signals import StopSignal
from murmur.domain.stop import Ending, Outcome, StopMachine
from tests.fakes.clock import FakeClock
from tests.fakes.doors import FakeDoors, called, result
from tests.fakes.exits import FakeExits
from tests.fakes.processes import DEAF_TO_TERM, OBEDIENT, UNKILLABLE, FakeProcesses
from tests.fakes.recorded import a_session

TERM, KILL = StopSignal.TERM, StopSignal.KILL
QUIET = result({"canceled": [], "residue": []})


class Machine:
    """Sessions, their processes and their doors, on one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.processes = FakeProcesses(self.clock)
        self.doors = FakeDoors(self.clock)
        self.exits = FakeExits(self.processes)

    def session(self, session: Session, ends_after: Mapping[StopSignal, float] = OBEDIENT) -> Session:
        record = session.record
        self.processes.hold(record.pid, record.process_start, stopped=session.stopped, ends_after=ends_after)
        self.doors.serve(record.url, QUIET)
        return session

    def stop(self, *targets: Session, timeout: float = 10.0) -> list[Ending]:
        machine = StopMachine(targets, timeout)
        Stopping(machine, self.processes, self.exits, self.doors, self.clock).run()
        assert machine.done
        return machine.endings

    @property
    def took(self) -> float:
        return self.clock.monotonic() - self.began

    def when(self, pid: int, signal: StopSignal) -> float:
        """Say how many seconds after the beginning a signal was sent."""
        return self.processes.sent_at[self.processes.signals.index((pid, signal))] - self.began


def outcomes(endings: list[Ending]) -> list[Outcome | None]:
    return [ending.outcome for ending in endings]


class BusyDoor:
    """A door whose tasks take some seconds to end once they are canceled."""

    def __init__(self, clock: FakeClock, seconds: float, *tasks: str) -> None:
        self._clock = clock
        self._seconds = seconds
        self._tasks = tasks
        self._canceled_at: float | None = None

    def __call__(self, ask: DoorAsk) -> DoorReading:
        now = self._clock.monotonic()
        if called(ask) == "session/stop":
            self._canceled_at = now
            residue = [{"kind": "delegation", "delegation_id": "dlg_1", "capsule": "demo", "version": "0.1.0"}]
            return result({"canceled": list(self._tasks), "residue": residue})
        assert called(ask) == "tasks/get"
        assert self._canceled_at is not None
        return result({"status": {"state": "canceled" if now >= self._canceled_at + self._seconds else "working"}})


@pytest.mark.spec("O2")
def test_a_session_is_asked_signalled_and_waited_for() -> None:
    machine = Machine()
    session = machine.session(a_session(door_token="secret"), {TERM: 2.5})
    (ending,) = machine.stop(session)
    assert (ending.outcome, ending.signal, ending.door) == (Outcome.STOPPED, TERM, None)
    assert [called(ask) for ask in machine.doors.asked[0]] == ["session/stop"]
    assert machine.doors.asked[0][0].token == session.record.door_token
    assert machine.processes.signals == [(101, TERM)]
    assert machine.took == pytest.approx(2.5)


@pytest.mark.spec("O2")
def test_each_session_comes_out_as_its_process_takes_the_signals() -> None:
    machine = Machine()
    targets = [
        machine.session(a_session(1)),
        machine.session(a_session(2), DEAF_TO_TERM),
        machine.session(a_session(3), UNKILLABLE),
        machine.session(a_session(4)),
        a_session(5),
        a_session(6, state=Gone("went")),
        machine.session(a_session(7, state=Unverified("unsure"))),
    ]
    machine.processes.refusals[104] = "operation not permitted"
    endings = machine.stop(*targets)
    assert outcomes(endings) == [
        Outcome.STOPPED,
        Outcome.KILLED,
        Outcome.STILL_RUNNING,
        Outcome.REFUSED,
        Outcome.ALREADY_GONE,
        Outcome.ALREADY_GONE,
        Outcome.REFUSED,
    ]
    assert machine.processes.signals == [(101, TERM), (102, TERM), (103, TERM), (102, KILL), (103, KILL)]
    assert [endings[3].reason, endings[6].reason] == ["operation not permitted", "unsure"]
    assert machine.took == pytest.approx(10 + 5)


@pytest.mark.spec("O2", "E2")
def test_many_sessions_share_one_grace() -> None:
    machine = Machine()
    targets = [machine.session(a_session(number), DEAF_TO_TERM) for number in range(1, 31)]
    assert set(outcomes(machine.stop(*targets))) == {Outcome.KILLED}
    assert machine.took == pytest.approx(10)


@pytest.mark.spec("O2", "K5")
def test_waiting_ends_with_the_last_exit_and_not_with_the_grace() -> None:
    machine = Machine()
    targets = [machine.session(a_session(number), {TERM: float(number)}) for number in (1, 2, 3)]
    assert set(outcomes(machine.stop(*targets))) == {Outcome.STOPPED}
    assert machine.took == pytest.approx(3)


@pytest.mark.spec("O2")
def test_no_grace_sends_both_signals_at_once() -> None:
    machine = Machine()
    targets = [machine.session(a_session(number), DEAF_TO_TERM) for number in (1, 2)]
    assert outcomes(machine.stop(*targets, timeout=0)) == [Outcome.KILLED, Outcome.KILLED]
    assert sorted(machine.processes.signals, key=lambda sent: sent[0]) == [
        (101, TERM), (101, KILL), (102, TERM), (102, KILL),
    ]  # fmt: skip
    assert machine.took == 0


@pytest.mark.spec("O2")
def test_all_doors_are_asked_in_one_round() -> None:
    machine = Machine()
    machine.doors.seconds = 2.0
    machine.stop(*(machine.session(a_session(number)) for number in (1, 2, 3)))
    assert [len(asked) for asked in machine.doors.asked] == [3]
    assert machine.when(101, TERM) == pytest.approx(2)


@pytest.mark.spec("O2", "K4")
def test_the_door_of_a_stopped_process_is_not_asked() -> None:
    machine = Machine()
    targets = [machine.session(a_session(1, stopped=True)), machine.session(a_session(2))]
    assert outcomes(machine.stop(*targets)) == [Outcome.STOPPED, Outcome.STOPPED]
    assert [[ask.address.port for ask in asked] for asked in machine.doors.asked] == [[5002]]


@pytest.mark.spec("O2")
@pytest.mark.parametrize("url", ["", "nowhere", "example.org:80", "localhost:0"])
def test_a_door_whose_url_cannot_be_asked_is_reported_and_not_fatal(url: str) -> None:
    machine = Machine()
    odd = machine.session(a_session(1, url=url or "://"))
    endings = machine.stop(odd, machine.session(a_session(2)))
    assert outcomes(endings) == [Outcome.STOPPED, Outcome.STOPPED]
    assert endings[0].door is not None
    assert endings[1].door is None
    assert [[ask.address.port for ask in asked] for asked in machine.doors.asked] == [[5002]]


@pytest.mark.spec("O2", "P4")
def test_a_token_is_not_sent_off_loopback_to_stop_a_session() -> None:
    machine = Machine()
    (ending,) = machine.stop(machine.session(a_session(url="192.0.2.7:80", door_token="secret")))
    assert ending.outcome is Outcome.STOPPED
    assert ending.door == "the door at 192.0.2.7:80 is not on loopback, so its token was not sent"
    assert machine.doors.asked == []


@pytest.mark.spec("O2")
def test_a_silent_door_is_reported_and_not_fatal() -> None:
    machine = Machine()
    session = machine.session(a_session())
    machine.doors.serve(session.record.url, NoAnswer("timed out after 2s"))
    (ending,) = machine.stop(session)
    assert (ending.outcome, ending.door) == (Outcome.STOPPED, "timed out after 2s")


@pytest.mark.spec("O2", "S3")
def test_without_a_descriptor_for_the_doors_the_sessions_are_ended_all_the_same() -> None:
    machine = Machine()
    machine.doors.descriptors_left = False
    endings = machine.stop(machine.session(a_session(1)), machine.session(a_session(2, url="nowhere")))
    assert outcomes(endings) == [Outcome.STOPPED, Outcome.STOPPED]
    assert endings[0].door == "no descriptor is left to ask a door with"
    assert endings[1].door == "the recorded address nowhere is not host:port"


@pytest.mark.spec("O2")
def test_canceled_tasks_get_their_time_before_the_signal() -> None:
    machine = Machine()
    session = machine.session(a_session())
    machine.doors.serve(session.record.url, BusyDoor(machine.clock, 1.0, "tsk_1", "tsk_2"))
    (ending,) = machine.stop(session)
    assert (ending.outcome, ending.canceled) == (Outcome.STOPPED, ("tsk_1", "tsk_2"))
    assert ending.residue == ("delegation dlg_1 demo 0.1.0",)
    assert 1.0 <= machine.when(101, TERM) <= 1.3


@pytest.mark.spec("O2")
def test_canceled_tasks_that_do_not_end_are_waited_for_five_seconds() -> None:
    machine = Machine()
    session = machine.session(a_session())
    machine.doors.serve(session.record.url, BusyDoor(machine.clock, 100.0, "tsk_1"))
    (ending,) = machine.stop(session)
    assert ending.outcome is Outcome.STOPPED
    assert machine.when(101, TERM) == pytest.approx(5)


@pytest.mark.spec("O2")
def test_a_session_that_ends_with_its_tasks_is_not_signalled() -> None:
    machine = Machine()
    session = machine.session(a_session())
    machine.doors.serve(session.record.url, BusyDoor(machine.clock, 100.0, "tsk_1"))
    machine.processes.end(101, after=0.5)
    (ending,) = machine.stop(session)
    assert ending.outcome is Outcome.ALREADY_GONE
    assert machine.processes.signals == []
    assert machine.took == pytest.approx(0.5)


@pytest.mark.spec("O2")
def test_the_tasks_of_all_doors_are_looked_at_in_one_round() -> None:
    machine = Machine()
    targets = [machine.session(a_session(number)) for number in (1, 2, 3)]
    for target in targets:
        machine.doors.serve(target.record.url, BusyDoor(machine.clock, 0.0, "tsk_1", "tsk_2"))
    machine.stop(*targets)
    assert [len(asked) for asked in machine.doors.asked] == [3, 6]


@pytest.mark.spec("O2")
def test_doors_that_freeze_after_they_were_asked_cost_no_more_than_five_seconds() -> None:
    machine = Machine()
    machine.doors.seconds = 2.0
    targets = [machine.session(a_session(number)) for number in range(1, 6)]

    def freeze(ask: DoorAsk) -> DoorReading:
        asked = called(ask) == "session/stop"
        return result({"canceled": ["tsk_1"]}) if asked else NoAnswer("timed out after 2s")

    for target in targets:
        machine.doors.serve(target.record.url, freeze)
    machine.stop(*targets)
    assert machine.when(101, TERM) <= 2 + 5


@pytest.mark.spec("O2")
def test_a_child_that_follows_its_spawner_gets_no_signal() -> None:
    machine = Machine()
    spawner = machine.session(a_session(1), {TERM: 3.0})
    child = machine.session(a_session(2, spawned_by=1))
    machine.processes.end(102, after=3.5)
    endings = machine.stop(child, spawner)
    assert outcomes(endings) == [Outcome.STOPPED, Outcome.STOPPED]
    assert machine.processes.signals == [(101, TERM)]


@pytest.mark.spec("O2")
def test_a_child_that_outlives_its_spawner_is_signalled() -> None:
    machine = Machine()
    spawner = machine.session(a_session(1), {TERM: 3.0})
    child = machine.session(a_session(2, spawned_by=1))
    endings = machine.stop(child, spawner)
    assert outcomes(endings) == [Outcome.STOPPED, Outcome.STOPPED]
    assert machine.processes.signals == [(101, TERM), (102, TERM)]
    assert machine.when(102, TERM) > 3.0


@pytest.mark.spec("K1", "L1")
def test_a_pid_taken_over_during_the_grace_is_neither_killed_nor_waited_for() -> None:
    machine = Machine()
    session = machine.session(a_session(1), UNKILLABLE)
    other = machine.session(a_session(2), {TERM: 1.0})
    machine.processes.hold(101, "another start", ends_after=UNKILLABLE)
    endings = machine.stop(session, other)
    assert outcomes(endings) == [Outcome.ALREADY_GONE, Outcome.STOPPED]
    assert machine.processes.signals == [(102, TERM)]


@pytest.mark.spec("O2")
def test_only_the_exits_that_still_matter_are_waited_for() -> None:
    machine = Machine()
    machine.stop(machine.session(a_session(1), {TERM: 1.0}), machine.session(a_session(2), {TERM: 2.0}))
    assert [pids for pids, _ in machine.exits.waits] == [[101, 102], [102]]


@pytest.mark.spec("O2")
def test_no_target_is_done_at_once() -> None:
    machine = Machine()
    assert machine.stop() == []
    assert machine.took == 0
