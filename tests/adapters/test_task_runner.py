"""A runner of tasks with real commands: whatever happens to one, it ends, and so does whoever waits for it (M1, M5)."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from murmur.adapters import task_runner
from murmur.adapters.hosted_command import CommandLine
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.session_host import SessionEnd
from murmur.adapters.task_runner import TaskRunner
from murmur.domain.task_board import Acceptance, AfterTask, Task, TaskBoard, TaskState

WITHIN = 20.0
"""Seconds after which a task counts as stuck."""


class Session:
    """A board, its runner, and what was traced."""

    def __init__(self, records: RecordsDirectory, folder: Path) -> None:
        self.records = records
        self.folder = folder
        self.traced: list[tuple[str, Mapping[str, object]]] = []

    def run(
        self,
        *command: str,
        acceptance: Acceptance = "single",
        after_task: AfterTask = "exit",
        begin: Callable[[TaskRunner, TaskBoard], None] = lambda runner, _: runner.attend(),
    ) -> tuple[Task, SessionEnd]:
        """Run one task of such a session; return it and the session's end."""
        board = TaskBoard(acceptance, after_task)
        line = CommandLine(command, {"PATH": os.environ["PATH"]}, self.folder)

        async def run() -> tuple[Task, SessionEnd]:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            runner = TaskRunner(board, line, self.records, self._trace, lambda *_: None)
            task = board.offer("tsk_1", "ctx_1", "a task")
            begin(runner, board)
            await asyncio.wait_for(runner.wait_for(task), WITHIN)
            board.draining = True
            runner.attend()
            end = await asyncio.wait_for(runner.finished(), WITHIN)
            runner.close()
            return task, end

        return asyncio.run(run())

    def _trace(self, event: str, fields: Mapping[str, object]) -> None:
        self.traced.append((event, fields))


@pytest.fixture
def session(home: Path, tmp_path: Path) -> Iterator[Session]:
    folder = tmp_path / "work"
    folder.mkdir()
    with RecordsDirectory.create(os.environ, folder, f"ses_{7:032x}") as records:
        yield Session(records, folder)


@pytest.mark.spec("M1", "M5")
def test_a_task_ends_with_its_command(session: Session) -> None:
    task, end = session.run("cat")
    assert (task.state, task.result, task.message) == (TaskState.COMPLETED, "a task", None)
    assert end == SessionEnd(0)
    assert session.traced == [
        ("task_start", {"task_id": "tsk_1"}),
        ("task_end", {"task_id": "tsk_1", "exit_status": 0}),
    ]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("call", ["open_task", "open_new", "open_log", "link"])
def test_a_task_ends_also_of_what_nobody_thought_of(
    session: Session, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(session.records, call, broken)
    task, _ = session.run("cat")
    assert task.state.is_terminal
    assert call == "link" or (task.state, task.message) == (TaskState.FAILED, "the task was cut short")
    assert [event for event, _ in session.traced] == ["task_start", "task_end"]


@pytest.mark.spec("M1", "M5")
def test_a_result_that_cannot_be_read_fails_its_task_and_says_why(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> tuple[bytes, bool]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(task_runner, "read_head", unreadable)
    task, end = session.run("cat")
    reason = "the result could not be read: input/output error"
    assert (task.state, task.result, task.message) == (TaskState.FAILED, "", reason)
    assert end == SessionEnd(1, f"task tsk_1 failed: {reason}")
    assert session.traced[-1] == ("task_end", {"task_id": "tsk_1", "exit_status": 0})


@pytest.mark.spec("M1")
def test_a_reason_quotes_some_of_what_a_command_said_and_not_all(session: Session) -> None:
    task, _ = session.run("sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x >&2; echo >&2; echo why >&2; exit 3")
    assert task.message is not None
    assert task.message.startswith("the command ended with exit status: 3; its last stderr lines were:\n[…] xxx")
    assert task.message.endswith("xxx\nwhy")
    assert len(task.message) < 4100


def cancel(runner: TaskRunner, board: TaskBoard) -> None:
    runner.attend()
    board.cancel("tsk_1")
    runner.attend()


@pytest.mark.spec("M5")
@pytest.mark.parametrize(
    ("acceptance", "after_task", "expected"), [("single", "exit", 1), ("single", "sleep", 0), ("queue", "exit", 0)]
)
@pytest.mark.parametrize("how", ["failed", "canceled"])
def test_a_session_for_one_task_ends_as_that_did(
    session: Session, acceptance: Acceptance, after_task: AfterTask, expected: int, how: str
) -> None:
    if how == "failed":
        task, end = session.run("false", acceptance=acceptance, after_task=after_task)
    else:
        task, end = session.run("sleep", "1000", acceptance=acceptance, after_task=after_task, begin=cancel)
    assert task.state.value == how
    assert end.exit_status == expected
    if expected:
        assert (end.reason or "").startswith(f"task tsk_1 {'failed: ' if how == 'failed' else 'was canceled'}")


def test_a_runner_that_is_closed_starts_no_further_task(session: Session) -> None:
    board = TaskBoard("queue", "sleep", queue_depth=1)
    line = CommandLine(["sleep", "1000"], {"PATH": os.environ["PATH"]}, session.folder)

    async def run() -> list[Task]:
        runner = TaskRunner(board, line, session.records, session._trace, lambda *_: None)
        tasks = [board.offer(f"tsk_{number}", "ctx_1", "x") for number in range(2)]
        runner.attend()
        await asyncio.sleep(0)  # The first begins.
        runner.close()
        return tasks

    # The loop's end cuts the first one short.
    first, second = asyncio.run(run())
    assert (first.state, second.state) == (TaskState.FAILED, TaskState.SUBMITTED)
