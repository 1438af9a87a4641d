"""How a delegation ended is recorded once, told once, and is the right one whatever comes together (E3, E6, W1-W6)."""

import errno
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from murmur.adapters import child_watcher, staging
from murmur.adapters.delegations import Delegations
from murmur.adapters.launching import LaunchedChild
from murmur.domain.door import Answered, DoorAsk, DoorReading, NoAnswer
from murmur.domain.errors import ChildLate
from murmur.domain.launch.completion import DelegationOutcome, parse_completion, render_completion
from tests.adapters.launching.children_for_tests import (
    OBEDIENT,
    PATIENCE,
    STUBBORN,
    Launching,
    busy_reactor,
    request_from,
    spawner,
)
from tests.fakes.doors import FakeDoors, answer, result

if TYPE_CHECKING:
    from collections.abc import Callable

DOOR = "127.0.0.1:7000"
TAKEN = result({"id": "tsk_1", "status": {"state": "submitted"}})


class Delegating:
    """A session that delegates, its door, and what it was warned of."""

    def __init__(self, launching: Launching) -> None:
        self.launching = launching
        self.doors = FakeDoors()
        self.doors.serve(DOOR, TAKEN)
        self.warnings: list[str] = []

    def launch(self, body: str = OBEDIENT, **options: Any) -> LaunchedChild:
        url, deadline = options.pop("url", f"http://{DOOR}"), options.pop("deadline", None)
        self.launching.program(body)
        request = request_from(self.launching.parent, spawner=spawner(url), completion_deadline=deadline)
        return self.launching.launch(request, doors=self.doors, warn=self.warnings.append, **options)

    def outstanding(self) -> list[str]:
        place = self.launching.parent / "delegations"
        return sorted(os.listdir(place)) if place.exists() else []

    @property
    def posts(self) -> list[DoorAsk]:
        return [ask for asks in self.doors.asked for ask in asks]


@pytest.fixture
def delegating(launching: Launching) -> Delegating:
    return Delegating(launching)


def recorded(child: LaunchedChild) -> DelegationOutcome:
    outcome = parse_completion((child.records_dir / "completion.json").read_bytes())
    assert outcome is not None
    return outcome


def told(child: LaunchedChild) -> DelegationOutcome:
    """Wait until the outcome is told; return what is on disk."""
    assert child.wait_until_told(PATIENCE)
    assert child.watcher_finished
    return recorded(child)


def own_record(child: LaunchedChild, **changes: Any) -> bytes:
    """Make what a child writes of itself."""
    fields: dict[str, Any] = {
        "delegation_id": child.delegation_id,
        "capsule_name": "local/worker",
        "capsule_version": "0.1.0",
        "session_id": child.session_id,
        "status": "ok",
        "workdir": str(child.workdir),
        "duration_ms": 1,
        "reported_by": "child",
    }
    return render_completion(DelegationOutcome(**(fields | changes)))


def write_own_record(child: LaunchedChild, **changes: Any) -> bytes:
    content = own_record(child, **changes)
    (child.records_dir / "completion.json").write_bytes(content)
    return content


def waiting_exit(place: Path, status: int = 0) -> str:
    """In sh: be ready, and exit when told to by `go`."""
    os.mkfifo(place / "go")
    return f"ready; read -r _ < {place}/go; echo the reason >&2; exit {status}"


def go(place: Path) -> None:
    (place / "go").write_text("go\n")


def exited(child: LaunchedChild, place: Path) -> None:
    """Let it exit, and wait until it has, while the reactor is too busy to see it."""
    go(place)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.spec("W2", "W5", "E6")
def test_a_child_that_its_parent_ends_is_recorded_so_and_posted_to_nobody(delegating: Delegating) -> None:
    child = delegating.launch()
    assert delegating.outstanding() == [child.delegation_id]
    assert not child.watcher_finished
    child.close()
    outcome = told(child)
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("terminated", "launcher", False)
    assert outcome.detail == "the parent ended this delegation"
    assert outcome.result_path is None
    assert outcome.workdir == str(child.workdir)
    assert outcome.session_id == child.session_id
    assert delegating.posts == []
    assert delegating.outstanding() == []
    assert delegating.warnings == []


@pytest.mark.spec("W2", "E3")
def test_what_a_child_records_while_it_is_being_ended_is_overwritten(delegating: Delegating, tmp_path: Path) -> None:
    wind_down = f"cp {tmp_path}/own $records/completion.json; echo wrote > {delegating.launching.words.path}; exit 0"
    child = delegating.launch(f"trap '{wind_down}' TERM; ready; orphaned")
    (tmp_path / "own").write_bytes(own_record(child, status="error", delivered=True))
    child.close()
    assert delegating.launching.words.next() == "wrote"
    assert recorded(child).status == "terminated"
    assert delegating.posts == []


@pytest.mark.spec("E6")
def test_a_delegation_is_no_longer_outstanding_when_the_child_gets_its_sigterm(delegating: Delegating) -> None:
    place = delegating.launching.parent / "delegations"
    child = delegating.launch(
        f"trap 'ls {place} | wc -l > {delegating.launching.words.path}; exit 0' TERM; ready; orphaned"
    )
    child.shutdown()
    assert delegating.launching.words.next().strip() == "0"


@pytest.mark.spec("E6", "W6")
@pytest.mark.parametrize("deadline", [None, 0.1])
def test_a_child_that_is_being_ended_cannot_have_its_completion_taken(
    deadline: float | None, delegating: Delegating
) -> None:
    child = delegating.launch(STUBBORN, deadline=deadline, grace=0.5)
    if deadline is None:
        child.begin_ending()
    while not child.is_being_ended:
        assert not child.has_exited
    records = os.open(delegating.launching.parent, os.O_RDONLY)
    try:
        assert child.delegation_id is not None
        assert not Delegations(records, delegating.launching.parent).take(child.delegation_id)
    finally:
        os.close(records)
    child.force()
    assert told(child).status == "terminated"


@pytest.mark.spec("W2", "W6")
def test_a_child_that_ends_without_a_word_crashed_with_its_status_and_its_last_lines(
    delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path, 3))
    go(tmp_path)
    outcome = told(child)
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("crashed", "launcher", True)
    assert outcome.detail == (
        "the child process ended without recording a completion (exit status: 3); its last stderr lines were:\n"
        "the reason"
    )
    assert len(delegating.posts) == 1
    assert delegating.outstanding() == []
    child.close()
    assert recorded(child) == outcome


@pytest.mark.spec("W2", "X6")
def test_a_crash_whose_status_nobody_read_is_not_given_one(delegating: Delegating, tmp_path: Path) -> None:
    child = delegating.launch(waiting_exit(tmp_path))
    with busy_reactor():
        pid = child.pid
        go(tmp_path)
        os.waitpid(pid, 0)
    detail = told(child).detail
    assert detail is not None
    assert "without recording a completion (unknown exit status)" in detail


@pytest.mark.spec("E3", "W2")
def test_one_that_exited_unseen_with_its_completion_delivered_is_left_alone(
    delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path))
    content = write_own_record(child, delivered=True)
    with busy_reactor():
        exited(child, tmp_path)
        child.begin_ending()
    child.shutdown()
    told(child)
    child.close()
    assert (child.records_dir / "completion.json").read_bytes() == content
    assert delegating.posts == []


@pytest.mark.spec("E3", "W2")
def test_one_whose_completion_was_not_delivered_has_it_posted_once_more(delegating: Delegating, tmp_path: Path) -> None:
    child = delegating.launch(waiting_exit(tmp_path))
    write_own_record(child, delivered=False, delivery_error="connection refused", result_path="/out/result.txt")
    go(tmp_path)
    outcome = told(child)
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("ok", "child", True)
    assert outcome.delivery_error is None
    assert outcome.result_path == "/out/result.txt"
    assert len(delegating.posts) == 1


@pytest.mark.spec("W2", "W3")
def test_a_deadline_ends_the_child_and_tells_so(delegating: Delegating) -> None:
    child = delegating.launch(deadline=0.3)
    outcome = told(child)
    assert child.has_expired
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("terminated", "launcher", True)
    assert outcome.detail == "the capsule was still running after 0s and was ended at the delegation deadline"
    assert len(delegating.posts) == 1
    assert delegating.outstanding() == []


@pytest.mark.spec("W3")
def test_the_deadline_runs_from_readiness_and_the_duration_from_the_spawn(
    delegating: Delegating, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    words = delegating.launching.words

    def let_go() -> None:
        words.next()
        time.sleep(0.4)  # What a child that runs already takes to be ready.
        go(tmp_path)

    letting_go = threading.Thread(target=let_go)
    letting_go.start()
    begun = time.monotonic()
    child = delegating.launch(f"echo started > {words.path}; read -r _ < {tmp_path}/go; {OBEDIENT}", deadline=0.3)
    outcome = told(child)
    letting_go.join()
    assert child.has_expired
    assert 700 <= outcome.duration_ms <= (time.monotonic() - begun) * 1000


@pytest.mark.spec("E3", "W2")
@pytest.mark.parametrize("delivered", [True, False, None])
def test_one_that_exits_at_the_very_deadline_is_judged_by_what_it_recorded(
    delivered: bool | None, delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path), deadline=0.2)
    with busy_reactor():
        if delivered is not None:
            write_own_record(child, delivered=delivered)
        exited(child, tmp_path)
        time.sleep(0.3)  # The deadline passes, and the reactor learns of both at once.
    outcome = told(child)
    assert not child.has_expired
    assert outcome.status == ("crashed" if delivered is None else "ok")
    assert len(delegating.posts) == (0 if delivered else 1)


@pytest.mark.spec("E3", "W2")
def test_a_deadline_that_passes_while_the_parent_ends_the_child_is_not_why_it_ended(delegating: Delegating) -> None:
    child = delegating.launch(STUBBORN, deadline=0.2, grace=0.5)
    child.begin_ending()
    child.shutdown()
    outcome = told(child)
    assert not child.has_expired
    assert outcome.detail == "the parent ended this delegation"
    assert delegating.posts == []


@pytest.mark.spec("E3", "W2")
def test_a_parent_that_ends_a_child_which_its_deadline_is_ending_changes_nothing(delegating: Delegating) -> None:
    child = delegating.launch(STUBBORN, deadline=0.1, grace=0.5)
    while not child.is_being_ended:
        assert not child.has_exited
    child.shutdown()
    outcome = told(child)
    assert child.has_expired
    assert outcome.detail is not None
    assert "deadline" in outcome.detail
    assert len(delegating.posts) == 1


REFUSALS: dict[str, tuple[Any, str]] = {
    "gone": (NoAnswer("connection refused"), "connection refused"),
    "500": (answer({}, status=500), "the door answered with HTTP status 500"),
    "rejected": (result({"id": "t", "status": {"state": "rejected"}}), "the door rejected it"),
    "never": (NoAnswer("timed out after 30s"), "timed out after 30s"),
}


@pytest.mark.spec("W6")
@pytest.mark.parametrize("door", REFUSALS)
def test_a_door_that_does_not_take_it_is_a_warning_and_a_reason(
    door: str, delegating: Delegating, tmp_path: Path
) -> None:
    says, why = REFUSALS[door]
    delegating.doors.serve(DOOR, says)
    child = delegating.launch(waiting_exit(tmp_path))
    write_own_record(child)
    go(tmp_path)
    outcome = told(child)
    assert (outcome.status, outcome.delivered, outcome.delivery_error) == ("ok", False, why)
    assert len(delegating.posts) == 1
    assert delegating.warnings == [f"the completion of delegation {child.delegation_id} was not delivered: {why}"]
    assert delegating.outstanding() == []


@pytest.mark.spec("W4")
def test_a_spawner_without_a_door_has_no_watcher_and_nothing_outstanding(
    delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path), url=None, deadline=0.1)
    assert child.delegation_id is not None
    assert child.watcher_finished
    assert delegating.outstanding() == []
    go(tmp_path)
    assert child.wait(PATIENCE)
    child.close()
    assert child.status == "exit status: 0"
    assert not (child.records_dir / "completion.json").exists()


@pytest.mark.spec("W5")
@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "half"])
def test_what_is_no_completion_is_none_and_nothing_is_written_through_a_link(
    kind: str, delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path))
    path = child.records_dir / "completion.json"
    (tmp_path / "victim").write_bytes(own_record(child, delivered=True))
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(tmp_path / "victim"),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "half": lambda: path.write_bytes(own_record(child)[:50]),
    }
    make[kind]()
    go(tmp_path)
    assert child.wait_until_told(PATIENCE)
    assert (tmp_path / "victim").read_bytes() == own_record(child, delivered=True)
    if kind != "directory":
        assert recorded(child).status == "crashed"
        assert not path.is_symlink()
    else:
        assert any("could not be recorded" in warning for warning in delegating.warnings)
    assert len(delegating.posts) == 1


@pytest.mark.spec("W6")
def test_a_full_disk_is_a_warning_and_the_parent_is_told_all_the_same(
    delegating: Delegating, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    child = delegating.launch(waiting_exit(tmp_path))
    monkeypatch.setattr(staging, "_write_all", refuse)
    go(tmp_path)
    assert child.wait_until_told(PATIENCE)
    child.close()
    assert len(delegating.posts) == 1
    assert any("no space left on device" in warning for warning in delegating.warnings)
    assert sorted(os.listdir(child.records_dir)) == []


@pytest.mark.spec("W6")
def test_records_that_were_removed_meanwhile_are_a_warning(delegating: Delegating) -> None:
    child = delegating.launch()
    child.records_dir.rmdir()
    child.close()
    assert child.watcher_finished
    assert any("could not be recorded" in warning for warning in delegating.warnings)


@pytest.mark.spec("W2")
def test_a_watcher_for_whom_no_thread_can_be_started_tells_all_the_same(
    delegating: Delegating, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, work: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(child_watcher, "start_thread", refuse)
    child = delegating.launch()
    child.close()
    assert recorded(child).status == "terminated"


@pytest.mark.spec("E3")
@pytest.mark.parametrize("round_", range(8))
def test_an_end_of_its_own_and_one_of_ours_at_once_give_one_outcome(
    round_: int, delegating: Delegating, tmp_path: Path
) -> None:
    child = delegating.launch(waiting_exit(tmp_path, 5))
    together = threading.Barrier(3)

    def end() -> None:
        together.wait(PATIENCE)
        child.shutdown()

    def leave() -> None:
        together.wait(PATIENCE)
        go(tmp_path)

    threads = [threading.Thread(target=end), threading.Thread(target=leave, daemon=True)]
    reader = os.open(tmp_path / "go", os.O_RDONLY | os.O_NONBLOCK)  # So that whoever writes finds a reader.
    for thread in threads:
        thread.start()
    together.wait(PATIENCE)
    threads[0].join(PATIENCE)
    threads[1].join(PATIENCE)
    os.close(reader)
    outcome = told(child)
    child.close()
    assert recorded(child) == outcome
    if child.status == "exit status: 5" and outcome.status == "crashed":
        assert len(delegating.posts) == 1
    else:
        assert outcome.status == "terminated"
        assert delegating.posts == []
    assert signal.Signals.SIGTERM.name in str(child.status) or "exit status: 5" in str(child.status)


@pytest.mark.spec("E6", "W2")
@pytest.mark.parametrize("ended_by", ["deadline", "parent"])
def test_a_child_whose_word_the_door_has_taken_has_that_one_outcome_whatever_ends_it_then(
    delegating: Delegating, ended_by: str
) -> None:
    child = delegating.launch(OBEDIENT, deadline=0.4 if ended_by == "deadline" else None)
    write_own_record(child, delivered=False)
    (name,) = delegating.outstanding()
    (delegating.launching.parent / "delegations" / name).unlink()  # As the door does.
    if ended_by == "parent":
        child.shutdown()
    outcome = told(child)
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("ok", "child", True)
    assert delegating.posts == []
    assert not child.has_expired
    assert delegating.outstanding() == []
    child.close()


@pytest.mark.spec("W2", "W6")
def test_a_word_that_the_door_has_taken_is_not_posted_again_because_the_child_did_not_learn_of_it(
    delegating: Delegating,
) -> None:
    child = delegating.launch(OBEDIENT)
    write_own_record(child, delivered=False)
    (name,) = delegating.outstanding()
    (delegating.launching.parent / "delegations" / name).unlink()
    os.kill(child.pid, signal.SIGKILL)
    outcome = told(child)
    assert (outcome.status, outcome.delivered, outcome.delivery_error) == ("ok", True, None)
    assert (delegating.posts, delegating.warnings) == ([], [])
    child.close()


@pytest.mark.spec("X5", "W2")
def test_a_child_that_is_late_to_report_itself_is_told_of_as_ended_at_its_deadline(delegating: Delegating) -> None:
    with pytest.raises(ChildLate, match="still running after 0s and was ended at the delegation deadline"):
        delegating.launch("orphaned", launch_deadline=0.2)
    (post,) = delegating.posts
    assert b"ended: terminated" in post.body
    assert delegating.outstanding() == []


@pytest.mark.spec("W3", "X7")
def test_a_deadline_that_is_months_away_is_waited_for(delegating: Delegating) -> None:
    child = delegating.launch(OBEDIENT, deadline=100 * 86400.0)
    os.kill(child.pid, signal.SIGTERM)
    assert told(child).status == "crashed"
    child.close()


class Overtaken:
    """A door that reads a post of the child's, which was on its way, before the launcher's own."""

    def __init__(self, parent: Path) -> None:
        self._place = parent / "delegations"

    def probe(self, asks: Sequence[DoorAsk]) -> Sequence[DoorReading]:
        (marker,) = self._place.iterdir()
        marker.unlink()
        return [Answered(403, b"") for _ in asks]


@pytest.mark.spec("E6", "W6")
@pytest.mark.parametrize("ended_by", ["deadline", "kill"])
def test_a_word_of_the_child_s_that_the_door_reads_before_ours_is_the_outcome(
    delegating: Delegating, ended_by: str
) -> None:
    delegating.doors = Overtaken(delegating.launching.parent)  # type: ignore[assignment]
    child = delegating.launch(OBEDIENT, deadline=0.4 if ended_by == "deadline" else None)
    write_own_record(child, delivered=False)
    if ended_by == "kill":
        os.kill(child.pid, signal.SIGKILL)
    outcome = told(child)
    assert (outcome.status, outcome.reported_by, outcome.delivered) == ("ok", "child", True)
    assert not child.has_expired
    child.close()
