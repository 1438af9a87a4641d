"""Which sessions a referee sees running, and which of its own it sees to be gone (K1, L9, S5)."""

from itertools import count

import pytest

from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.door_tokens import TokenKey
from murmur.domain.listing import list_sessions
from murmur.domain.origin import Origin
from murmur.domain.record import RunningRecord, render_record
from murmur.domain.referee import Referee
from murmur.domain.roll_call import RollCall, seen
from murmur.domain.secret import SpawnCredential
from murmur.domain.spawn_terms import Approved, Child, Outcome, Registered, SessionStatus
from tests.fakes.processes import HERE, FakeProcesses
from tests.fakes.recorded import a_record, an_origin, session_id
from tests.fakes.running_directory import FakeRunningDirectory

WORKER = CapsuleReference("worker", "1.0.0")
UNNAMED = session_id(1000)


class Roost:
    """A referee, and the machine that it looks at."""

    def __init__(self) -> None:
        numbers = count()
        self.referee = Referee(TokenKey("00" * 32), lambda: f"nonce-{next(numbers)}")
        self.root = self.referee.enrol_unnamed(UNNAMED, frozenset({"worker"}))
        self.roll = RollCall(self.referee)
        self.processes = FakeProcesses()
        self.directory = FakeRunningDirectory()
        self.outcomes: dict[str, Outcome] = {}

    def record(self, record: RunningRecord, *, alive: bool = True, stem: str | None = None) -> None:
        self.directory.put(f"{stem or record.session_id}.json", render_record(record))
        if alive:
            self.processes.hold(record.pid, record.process_start)

    def unlist(self) -> None:
        """Have all records removed, as sessions that end do, and whoever prunes."""
        self.directory = FakeRunningDirectory()

    def look(self) -> None:
        listing = list_sessions(self.directory, self.processes, prune=False)
        self.roll.take(seen(listing, self.roll.known, self.processes), self.outcomes)

    def register(self, number: int, process: Origin | None = None) -> SpawnCredential:
        approved = self.referee.approve(self.root, WORKER, "digest", 0)
        assert isinstance(approved, Approved)
        child = Child(session_id(number), WORKER, "digest", frozenset())
        registered = self.referee.register(approved.approval, child, 0)
        assert isinstance(registered, Registered)
        if process is not None:
            self.roll.registered(session_id(number), process)
        return registered.credential

    def status(self, number: int) -> SessionStatus | None:
        return self.referee.status(session_id(number))

    @property
    def unnamed(self) -> int:
        status = self.referee.status(UNNAMED)
        assert status is not None
        return status.live_children


@pytest.fixture
def roost() -> Roost:
    return Roost()


def test_what_runs_already_is_counted_and_what_nobody_spawned_is_none_of_it(roost: Roost) -> None:
    roost.record(a_record(1))
    roost.record(a_record(2, spawned_by=1))
    roost.record(a_record(3, spawned_by=2))
    roost.record(a_record(4))
    roost.look()
    assert roost.status(1) == SessionStatus("running", 3, 1)
    assert roost.status(2) == SessionStatus("running", 2, 1)
    assert roost.status(3) == SessionStatus("running", 1, 0)
    assert roost.status(4) is None
    assert roost.unnamed == 1


@pytest.mark.spec("L9")
def test_only_a_session_whose_process_is_there_counts(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1), alive=False)
    roost.record(a_record(3, spawned_by=1))
    roost.processes.hold(103, None)  # Its start time cannot be read.
    roost.look()
    assert roost.unnamed == 0
    assert roost.status(2) is roost.status(3) is None


def test_a_child_of_who_is_dead_is_there_and_its_parent_has_failed(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1))
    roost.look()
    assert roost.status(1) == SessionStatus("failed", 3, 1)
    assert roost.status(2) == SessionStatus("running", 2, 0)
    assert roost.unnamed == 1


def test_a_parent_whose_record_cannot_be_read_or_whose_process_cannot_be_verified_has_not_failed(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1))
    roost.directory.unreadable[f"{session_id(1)}.json"] = "permission denied"
    roost.record(a_record(4, spawned_by=3))
    roost.record(a_record(3))
    roost.processes.hold(103, None)
    roost.look()
    assert roost.status(1) == SessionStatus("running", 3, 1)
    assert roost.status(3) == SessionStatus("running", 3, 1)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("pruned", [False, True])
def test_a_session_that_was_seen_is_ended_when_its_process_is_gone_whatever_became_of_its_record(
    roost: Roost, pruned: bool
) -> None:
    roost.register(2)
    roost.record(a_record(2, spawned_by=1))
    roost.record(a_record(1))
    roost.look()
    assert roost.unnamed == 1
    if pruned:
        roost.unlist()
        roost.look()
        assert roost.status(2) == SessionStatus("running", 2, 0)
    roost.processes.end(102)
    roost.look()
    assert roost.status(2) == SessionStatus("failed", 2, 0)
    assert roost.status(1) == SessionStatus("running", 3, 0)
    assert roost.unnamed == 0
    assert list(roost.roll.known) == [session_id(1)]


@pytest.mark.spec("L9")
def test_a_session_that_cannot_be_verified_any_more_goes_on_counting(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1))
    roost.look()
    roost.unlist()
    roost.processes.hold(102, None)
    roost.look()
    assert roost.status(2) == SessionStatus("running", 2, 0)
    roost.processes.hold(102, "another")
    roost.look()
    assert roost.status(2) == SessionStatus("failed", 2, 0)


def test_how_a_session_ended_is_taken_from_what_it_left(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1))
    roost.look()
    assert roost.roll.known[session_id(2)].records == f"/records/{session_id(2)}"
    roost.outcomes[session_id(2)] = "complete"
    roost.processes.end(102)
    roost.look()
    assert roost.status(2) == SessionStatus("complete", 2, 0)


def test_a_child_that_said_its_process_is_ended_with_it_also_if_it_was_never_recorded(roost: Roost) -> None:
    identity = a_record(2).identity
    roost.processes.hold(identity.pid, identity.process_start)
    roost.register(2, an_origin(identity))
    roost.register(3)
    roost.look()
    assert roost.unnamed == 2
    roost.processes.end(identity.pid)
    roost.look()
    assert roost.status(2) == SessionStatus("failed", 2, 0)
    # Of this one nothing is known: that it has no record yet proves nothing.
    assert roost.status(3) == SessionStatus("running", 2, 0)


@pytest.mark.spec("L8")
def test_a_child_of_another_pid_namespace_is_not_judged_by_its_pid(roost: Roost) -> None:
    process = Origin(102, "1002", *HERE._replace(pid_namespace="pid:[2]"))
    roost.register(2, process)
    roost.look()
    assert roost.status(2) == SessionStatus("running", 2, 0)


def test_a_second_record_of_a_session_that_runs_does_not_end_it(roost: Roost) -> None:
    roost.record(a_record(2, spawned_by=1))
    roost.record(a_record(9, named=session_id(2)), alive=False, stem="copy")
    roost.register(3, an_origin(a_record(3).identity))
    roost.processes.hold(103, "1003")
    roost.record(a_record(8, named=session_id(3)), alive=False)
    for _ in range(2):
        roost.look()
    assert roost.status(2) == SessionStatus("running", 2, 0)
    assert roost.status(3) == SessionStatus("running", 2, 0)


def test_a_session_that_ended_while_it_was_looked_at_stays_ended(roost: Roost) -> None:
    credential = roost.register(2)
    roost.record(a_record(2, spawned_by=1))
    found = seen(list_sessions(roost.directory, roost.processes, prune=False), roost.roll.known, roost.processes)
    roost.referee.deregister(credential, "complete")
    roost.roll.take(found, {})
    assert roost.status(2) == SessionStatus("complete", 2, 0)
    assert roost.unnamed == 0
    assert roost.roll.known == {}
