"""Which task runs, which wait, which are over: the board of one session (M5, and the wire facts of the door)."""

import json
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from murmur.domain.conversation import Conversations
from murmur.domain.task_board import (
    ENDED_KEPT,
    Acceptance,
    AfterTask,
    Canceled,
    NotCancelable,
    Stopping,
    Task,
    TaskBoard,
    TaskState,
    Unknown,
)


def offered(board: TaskBoard, *ids: str) -> list[Task]:
    return [board.offer(task_id, f"ctx_{task_id}", f"do {task_id}") for task_id in ids]


def ran(board: TaskBoard, *, succeeded: bool = True, result: str = "", message: str | None = None) -> Task:
    """Start the next task and end it."""
    assert board.start_next() is not None
    return board.finished(succeeded=succeeded, result=result, message=message)


def over(board: TaskBoard) -> bool:
    # Asked through a function, so that a type checker does not take it for settled.
    return board.is_over


def states(tasks: list[Task]) -> list[str]:
    return [task.state.value for task in tasks]


@pytest.mark.spec("M1")
def test_an_offered_task_is_submitted_with_its_text_and_found() -> None:
    board = TaskBoard("single")
    (task,) = offered(board, "a")
    assert (task.state, task.context_id, task.text) == (TaskState.SUBMITTED, "ctx_a", "do a")
    assert (task.message, task.result) == (None, None)
    assert board.find("a") is task
    assert board.waiting == 1


@pytest.mark.spec("M1")
def test_a_started_task_works_and_no_second_one_starts() -> None:
    board = TaskBoard("queue", queue_depth=2)
    first, second = offered(board, "a", "b")
    assert board.start_next() is first
    assert board.running is first
    assert board.start_next() is None
    assert (first.state, second.state) == (TaskState.WORKING, TaskState.SUBMITTED)
    assert board.find("a") is first


@pytest.mark.spec("M1")
def test_nothing_starts_on_an_empty_board() -> None:
    assert TaskBoard("queue").start_next() is None
    assert TaskBoard("none").start_next() is None


@pytest.mark.spec("M1")
def test_a_task_whose_command_succeeds_is_completed_with_its_result() -> None:
    board = TaskBoard("single")
    offered(board, "a")
    task = ran(board, result="done", message="ignored")
    assert (task.state, task.result, task.message) == (TaskState.COMPLETED, "done", None)
    assert board.running is None
    assert board.find("a") is task


@pytest.mark.spec("M1")
def test_a_task_whose_command_fails_is_failed_with_the_reason_and_what_it_wrote() -> None:
    board = TaskBoard("single")
    offered(board, "a")
    task = ran(board, succeeded=False, result="half", message="exit status 3")
    assert (task.state, task.result, task.message) == (TaskState.FAILED, "half", "exit status 3")


@pytest.mark.spec("M1")
@pytest.mark.parametrize("succeeded", [True, False])
def test_a_running_task_asked_to_be_canceled_is_canceled_however_its_command_ends(succeeded: bool) -> None:
    board = TaskBoard("single")
    (task,) = offered(board, "a")
    board.start_next()
    assert board.cancel("a") == Stopping(task)
    assert task.state is TaskState.WORKING
    assert board.cancel("a") == Stopping(task)
    board.finished(succeeded=succeeded, result="half", message="killed")
    assert (task.state, task.result, task.message) == (TaskState.CANCELED, "half", "the task was canceled")
    assert board.cancel("a") == Canceled(task)


@pytest.mark.spec("M1")
def test_a_waiting_task_is_canceled_at_once_and_never_starts() -> None:
    board = TaskBoard("queue", queue_depth=3)
    first, second, third = offered(board, "a", "b", "c")
    assert board.cancel("b") == Canceled(second)
    assert second.state is TaskState.CANCELED
    assert second.message
    assert board.cancel("b") == Canceled(second)
    assert [board.start_next(), board.finished(succeeded=True, result="", message=None)] == [first, first]
    assert board.start_next() is third


@pytest.mark.spec("M1")
@pytest.mark.parametrize("succeeded", [True, False])
def test_a_task_that_ended_by_itself_cannot_be_canceled(succeeded: bool) -> None:
    board = TaskBoard("single")
    offered(board, "a")
    task = ran(board, succeeded=succeeded)
    before = task.state
    assert board.cancel("a") == NotCancelable(task)
    assert task.state is before


@pytest.mark.spec("M1")
def test_a_rejected_task_cannot_be_canceled_and_an_unknown_one_is_unknown() -> None:
    board = TaskBoard("none")
    (task,) = offered(board, "a")
    assert board.cancel("a") == NotCancelable(task)
    assert board.cancel("b") == Unknown()
    assert board.find("b") is None


@pytest.mark.spec("O2")
def test_canceling_all_ends_what_waits_and_stops_what_runs() -> None:
    board = TaskBoard("queue", queue_depth=3)
    first, second, third = offered(board, "a", "b", "c")
    board.start_next()
    assert board.cancel_all() == [second, third, first]
    assert states([first, second, third]) == ["working", "canceled", "canceled"]
    assert first.cancel_asked
    assert board.cancel_all() == [first]
    board.finished(succeeded=True, result="", message=None)
    assert first.state is TaskState.CANCELED
    assert board.cancel_all() == []


@pytest.mark.spec("O2")
def test_canceling_all_on_an_idle_board_ends_what_waits() -> None:
    board = TaskBoard("queue", queue_depth=1)
    board.paused = True
    (task,) = offered(board, "a")
    assert board.cancel_all() == [task]
    assert task.state is TaskState.CANCELED


@pytest.mark.spec("M1")
def test_a_session_without_tasks_rejects_every_one_with_the_reason() -> None:
    board = TaskBoard("none")
    (task,) = offered(board, "a")
    assert (task.state, task.message) == (TaskState.REJECTED, "this session accepts no tasks")
    assert board.find("a") is task
    assert not over(board)


@pytest.mark.spec("M1")
def test_a_single_session_takes_one_task_and_is_over_with_it() -> None:
    board = TaskBoard("single", queue_depth=5)
    assert not over(board)
    assert states(offered(board, "a", "b")) == ["submitted", "rejected"]
    assert board.start_next() is not None
    assert states(offered(board, "c")) == ["rejected"]
    assert not over(board)
    board.finished(succeeded=True, result="", message=None)
    assert over(board)
    assert states(offered(board, "d")) == ["rejected"]


@pytest.mark.spec("M1")
def test_a_single_session_that_sleeps_takes_the_next_task_when_the_last_is_over() -> None:
    board = TaskBoard("single", "sleep", queue_depth=5)
    for number in range(3):
        assert states(offered(board, f"a{number}", f"b{number}")) == ["submitted", "rejected"]
        ran(board)
        assert not over(board)
    board.draining = True
    assert over(board)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_queue_holds_its_depth_besides_the_running_task(depth: int) -> None:
    board = TaskBoard("queue", queue_depth=depth)
    assert states(offered(board, "r")) == ["submitted"]
    board.start_next()
    tasks = offered(board, *(f"t{number}" for number in range(depth + 2)))
    assert states(tasks) == ["submitted"] * depth + ["rejected"] * 2
    assert board.waiting == depth
    assert tasks[-1].message
    assert "queue is full" in tasks[-1].message


@pytest.mark.spec("M1")
def test_a_queue_has_room_again_when_its_running_task_is_over() -> None:
    board = TaskBoard("queue", queue_depth=1)
    offered(board, "a")
    board.start_next()
    assert states(offered(board, "b", "c")) == ["submitted", "rejected"]
    board.finished(succeeded=True, result="", message=None)
    board.start_next()
    assert states(offered(board, "d", "e")) == ["submitted", "rejected"]


@pytest.mark.spec("M1")
def test_a_paused_idle_queue_holds_its_depth_and_no_more() -> None:
    board = TaskBoard("queue", queue_depth=2)
    board.paused = True
    assert states(offered(board, "a", "b", "c")) == ["submitted", "submitted", "rejected"]


@pytest.mark.spec("M1")
def test_a_queue_that_exits_is_over_when_nothing_is_left() -> None:
    board = TaskBoard("queue", queue_depth=2)
    assert not over(board)
    offered(board, "a", "b")
    ran(board)
    assert not over(board)
    ran(board)
    assert over(board)


@pytest.mark.spec("M1")
def test_a_session_that_is_over_takes_no_further_task() -> None:
    board = TaskBoard("queue", queue_depth=2)
    offered(board, "a")
    ran(board)
    assert over(board)
    (late,) = offered(board, "b")
    assert late.state is TaskState.REJECTED
    assert over(board)


@pytest.mark.spec("M1")
def test_a_queue_that_sleeps_is_over_only_when_drained() -> None:
    board = TaskBoard("queue", "sleep", queue_depth=2)
    offered(board, "a")
    ran(board)
    assert not over(board)
    offered(board, "b")
    board.draining = True
    assert not over(board)
    assert states(offered(board, "c")) == ["rejected"]
    assert ran(board).state is TaskState.COMPLETED
    assert over(board)


@pytest.mark.spec("M1")
def test_a_paused_session_starts_nothing_and_lets_its_running_task_end() -> None:
    board = TaskBoard("queue", queue_depth=2)
    first, second = offered(board, "a", "b")
    board.start_next()
    board.paused = True
    board.finished(succeeded=True, result="", message=None)
    assert first.state is TaskState.COMPLETED
    assert board.start_next() is None
    assert not over(board)
    board.paused = False
    assert board.start_next() is second


@pytest.mark.spec("M1")
def test_a_canceled_task_that_never_ran_does_not_end_a_single_session() -> None:
    board = TaskBoard("single")
    board.paused = True
    offered(board, "a")
    board.cancel("a")
    assert not over(board)
    assert states(offered(board, "b")) == ["submitted"]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("acceptance", ["single", "queue"])
def test_a_task_that_is_over_holds_its_text_no_longer(acceptance: Acceptance) -> None:
    board = TaskBoard(acceptance, queue_depth=1)
    first, *others = offered(board, "a", "b", "c")
    ran(board)
    for task in others:
        board.cancel(task.id)
    assert [task.text for task in (first, *others)] == ["", "", ""]


@pytest.mark.spec("M1")
def test_what_was_said_is_what_completed_tasks_said_and_no_others() -> None:
    said = Conversations()
    board = TaskBoard("queue", "sleep", 3, said)
    for succeeded in (True, False):
        board.offer(f"t{succeeded}", "ctx", f"asked {succeeded}")
        ran(board, succeeded=succeeded, result=f"answered {succeeded}")
    board.offer("canceled", "ctx", "x")
    board.start_next()
    board.cancel("canceled")
    board.finished(succeeded=True, result="y", message=None)
    board.offer("elsewhere", "other", "x")
    board.offer("waiting", "ctx", "x")
    board.cancel("waiting")
    board.draining = True
    assert board.offer("rejected", "ctx", "x").state is TaskState.REJECTED
    turns = [json.loads(line) for line in said.earlier("ctx").splitlines()]
    assert turns == [
        {"role": "user", "text": "asked True", "task_id": "tTrue"},
        {"role": "agent", "text": "answered True", "task_id": "tTrue"},
    ]
    assert said.earlier("other") == b""
    ran(board, result="y")
    assert said.earlier("other") != b""


@pytest.mark.spec("M1")
def test_the_last_1000_ended_tasks_stay_readable() -> None:
    assert ENDED_KEPT == 1000
    board = TaskBoard("queue", "sleep")
    for number in range(ENDED_KEPT + 5):
        offered(board, f"t{number}")
        ran(board, result=str(number))
    assert [board.find(f"t{number}") for number in range(5)] == [None] * 5
    for number in range(5, ENDED_KEPT + 5):
        task = board.find(f"t{number}")
        assert task is not None
        assert task.result == str(number)
    assert board.cancel("t0") == Unknown()


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("state", "terminal"),
    [
        (TaskState.SUBMITTED, False),
        (TaskState.WORKING, False),
        (TaskState.COMPLETED, True),
        (TaskState.FAILED, True),
        (TaskState.CANCELED, True),
        (TaskState.REJECTED, True),
    ],
)
def test_two_states_are_not_the_last(state: TaskState, terminal: bool) -> None:
    assert state.is_terminal is terminal
    assert len(TaskState) == 6


class AnyOrder(RuleBasedStateMachine):
    """A board asked for anything in any order, against a plain list of what was offered."""

    @initialize(
        acceptance=st.sampled_from(["none", "single", "queue"]),
        after_task=st.sampled_from(["exit", "sleep"]),
        depth=st.integers(0, 3),
    )
    def begin(self, acceptance: Acceptance, after_task: AfterTask, depth: int) -> None:
        self.board = TaskBoard(acceptance, after_task, depth)
        self.depth = 1 if acceptance == "single" else depth
        self.tasks: list[Task] = []
        self.ended: dict[str, TaskState] = {}
        self.started: list[str] = []
        self.asked: set[str] = set()
        self.names = count()

    def known(self, draw: st.DataObject) -> Task:
        return draw.draw(st.sampled_from(self.tasks))

    @rule()
    def offer(self) -> None:
        before = self.board.waiting
        refusing = self.board.acceptance == "none" or self.board.draining
        task = self.board.offer(f"t{next(self.names)}", "ctx", "text")
        self.tasks.append(task)
        assert task.state in (TaskState.SUBMITTED, TaskState.REJECTED)
        assert self.board.waiting == before + (task.state is TaskState.SUBMITTED)
        assert (task.message is not None) == (task.state is TaskState.REJECTED)
        if refusing:
            assert task.state is TaskState.REJECTED

    @rule()
    def start(self) -> None:
        waiting = [task for task in self.tasks if task.state is TaskState.SUBMITTED]
        expected = waiting[0] if waiting and self.board.running is None and not self.board.paused else None
        assert self.board.start_next() is expected
        if expected is not None:
            self.started.append(expected.id)

    @precondition(lambda self: self.board.running is not None)
    @rule(succeeded=st.booleans())
    def finish(self, succeeded: bool) -> None:
        running = self.board.running
        task = self.board.finished(succeeded=succeeded, result="out", message="why")
        assert task is running
        natural = TaskState.COMPLETED if succeeded else TaskState.FAILED
        assert task.state is (TaskState.CANCELED if task.id in self.asked else natural)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = self.known(data)
        before = task.state
        answer = self.board.cancel(task.id)
        match before:
            case TaskState.SUBMITTED | TaskState.CANCELED:
                assert answer == Canceled(task)
                assert task.state is TaskState.CANCELED
            case TaskState.WORKING:
                self.asked.add(task.id)
                assert answer == Stopping(task)
            case _:
                assert answer == NotCancelable(task)
                assert task.state is before

    @rule()
    def cancel_nothing_known(self) -> None:
        assert self.board.cancel("nobody") == Unknown()

    @rule()
    def cancel_all(self) -> None:
        unfinished = {task.id for task in self.tasks if not task.state.is_terminal}
        if self.board.running is not None:
            self.asked.add(self.board.running.id)
        canceled = self.board.cancel_all()
        assert {task.id for task in canceled} == unfinished
        assert len(canceled) == len(unfinished)
        assert self.board.waiting == 0

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused: bool) -> None:
        self.board.paused = paused

    @rule()
    def drain(self) -> None:
        self.board.draining = True

    @invariant()
    def each_task_is_found_in_the_state_it_has(self) -> None:
        for task in self.tasks:
            assert self.board.find(task.id) is task

    @invariant()
    def no_task_leaves_its_terminal_state(self) -> None:
        for task in self.tasks:
            if task.state.is_terminal:
                assert self.ended.setdefault(task.id, task.state) is task.state
            else:
                assert task.id not in self.ended

    @invariant()
    def at_most_one_task_runs(self) -> None:
        working = [task for task in self.tasks if task.state is TaskState.WORKING]
        assert working == ([] if self.board.running is None else [self.board.running])

    @invariant()
    def no_more_wait_than_there_is_room(self) -> None:
        waiting = [task for task in self.tasks if task.state is TaskState.SUBMITTED]
        assert self.board.waiting == len(waiting)
        # The one that is about to run takes no place.
        assert len(waiting) <= self.depth + (self.board.running is None)
        if self.board.acceptance == "single":
            assert len(waiting) + (self.board.running is not None) <= 1

    @invariant()
    def tasks_start_once_and_in_order(self) -> None:
        numbers = [int(task_id[1:]) for task_id in self.started]
        assert numbers == sorted(set(numbers))

    @invariant()
    def the_session_is_over_only_with_nothing_left(self) -> None:
        if self.board.is_over:
            assert all(task.state.is_terminal for task in self.tasks)
        elif self.board.draining:
            assert not all(task.state.is_terminal for task in self.tasks)


TestAnyOrder = pytest.mark.spec("M1")(AnyOrder.TestCase)
TestAnyOrder.settings = settings(
    max_examples=60, stateful_step_count=30, derandomize=True, deadline=None, database=None
)


def test_reasons_take_memory_as_results_do() -> None:
    board = TaskBoard("queue", "sleep")
    for number in range(12):
        board.offer(f"tsk_{number}", "ctx_1", "x")
        board.start_next()
        board.finished(succeeded=False, result="y" * 512 * 1024, message="z" * 512 * 1024)
    ended = [task for task in (board.find(f"tsk_{number}") for number in range(12)) if task is not None]
    assert sum(len(task.result or "") + len(task.message or "") for task in ended) <= 8 * 1024 * 1024
    assert ended[-1].result == "y" * 512 * 1024
    assert {task.message for task in ended} == {"z" * 512 * 1024}


def test_rejected_tasks_push_out_no_results() -> None:
    board = TaskBoard("queue", "sleep", queue_depth=0)
    for number in range(8):
        board.offer(f"tsk_{number}", "ctx_1", "x")
        board.start_next()
        board.finished(succeeded=True, result="y" * (1024 * 1024 - 1), message=None)
    board.offer("tsk_running", "ctx_1", "x")
    board.start_next()
    for number in range(10):
        assert board.offer(f"tsk_rejected_{number}", "ctx_1", "x").state is TaskState.REJECTED
    first = board.find("tsk_0")
    assert first is not None
    assert first.result == "y" * (1024 * 1024 - 1)


def test_old_results_are_left_to_their_files_when_memory_holds_enough() -> None:
    board = TaskBoard("queue", "sleep")
    for number in range(12):
        board.offer(f"tsk_{number}", "ctx_1", "x")
        board.start_next()
        board.finished(succeeded=True, result="y" * 1024 * 1024, message=None)
    results = [task.result for task in (board.find(f"tsk_{number}") for number in range(12)) if task is not None]
    assert results[0] == "[the result is in out/result_tsk_0.txt]"
    assert results[-1] == "y" * 1024 * 1024
    assert sum(len(result or "") for result in results) <= 8 * 1024 * 1024
