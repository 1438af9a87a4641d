"""Carries out a task board: one command a task, its input and result in files, its callers woken at its end."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from murmur.adapters.command import status_text
from murmur.adapters.hosted_command import CommandLine, HostedCommand, Log
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.reasons import reason_of
from murmur.adapters.session_host import SessionEnd
from murmur.domain.errors import FAILED, FORCED, CommandNotStarted, RecordsUnusable
from murmur.domain.task_board import TaskState

if TYPE_CHECKING:
    from murmur.adapters.records_directory import RecordsDirectory
    from murmur.domain.task_board import Task, TaskBoard

RESULT_LIMIT = 1024 * 1024
"""Bytes of a result that its artifact carries; the file holds all of it."""
_TAIL_LINES = 20

Trace = Callable[[str, Mapping[str, object]], None]


class TaskRunner:
    """Runs a session's tasks, one at a time. `attend` it after every change of the board."""

    def __init__(
        self, board: "TaskBoard", line: CommandLine, records: "RecordsDirectory", trace: Trace, log: Log
    ) -> None:
        self._board = board
        self._line = line
        self._records = records
        self._trace = trace
        self._log = log
        self._current: HostedCommand | None = None
        self._running: asyncio.Task[None] | None = None
        self._waiters: dict[str, asyncio.Event] = {}
        self._over = asyncio.Event()
        self._asked = False
        self._end = SessionEnd(0)

    def start(self) -> None:
        """Nothing begins before there is a task."""

    def attend(self) -> None:
        """Start, end or finish what the board now says is to be started, ended or finished."""
        task, board = self._board.running, self._board
        for canceled, phase in board.canceled:
            self._trace("task_canceled", {"task_id": canceled.id, "phase": phase})
        board.canceled.clear()
        if task is not None:
            if task.cancel_asked and self._current is not None and self._current.machine.ends_at is None:
                self._current.ask_to_end()
        elif (started := board.start_next()) is not None:
            self._running = asyncio.create_task(self._run(started))
        elif board.is_over:
            self._over.set()
        for task_id in [each for each in self._waiters if self._is_over(each)]:
            self._waiters.pop(task_id).set()

    async def wait_for(self, task: "Task") -> None:
        """Wait until a task is over."""
        while not task.state.is_terminal:
            await self._waiters.setdefault(task.id, asyncio.Event()).wait()

    def ask_to_end(self) -> None:
        """End the session: cancel every task. Asking again ends the running command at once."""
        if not self._asked:
            self._asked = True
            self._board.draining = True
            self._board.cancel_all()
            if self._board.running is not None:
                self._end = SessionEnd(FAILED, f"task {self._board.running.id} was canceled")
            self.attend()
        elif self._current is not None:
            self._end = SessionEnd(FORCED)
            self._current.ask_to_end()

    async def finished(self) -> SessionEnd:
        """Wait for the end of the session's last task."""
        await self._over.wait()
        return self._end

    def close(self) -> None:
        """End whatever still runs, at once."""
        if self._current is not None:
            self._current.close()

    def _is_over(self, task_id: str) -> bool:
        task = self._board.find(task_id)
        return task is None or task.state.is_terminal

    async def _run(self, task: "Task") -> None:
        self._trace("task_start", {"task_id": task.id})
        exit_status: int | None = None
        message: str | None = None
        try:
            exit_status, message = await self._command(task)
        except (CommandNotStarted, RecordsUnusable) as error:
            message = error.message
        except OSError as error:
            message = f"the task could not be run: {reason_of(error)}"
        finally:
            self._current = None
        succeeded = exit_status == 0
        self._board.finished(succeeded=succeeded, result=self._result(task), message=message)
        self._trace("task_end", {"task_id": task.id, "exit_status": exit_status})
        if task.state is TaskState.FAILED and self._board.acceptance == "single":
            self._end = SessionEnd(FAILED, f"task {task.id} failed: {message}")
        self.attend()

    async def _command(self, task: "Task") -> tuple[int, str | None]:
        """Run a task's command; return its status and what to say if it is not 0."""
        with ExitStack() as opened:
            stdin = self._records.open_task(task.text, self._line.workdir)
            opened.callback(os.close, stdin)
            result = self._records.open_new(f"out/result_{task.id}.txt")
            opened.callback(os.close, result)
            errors = self._records.open_log("stderr.log")
            opened.callback(os.close, errors)
            said_before = os.fstat(errors).st_size
            command = HostedCommand(self._line, self._log)
            command.start((result, errors), stdin)
            opened.callback(command.close)
            self._current = command
            if task.cancel_asked:
                command.ask_to_end()
            returncode = await command.wait()
        if returncode == 0:
            return 0, None
        tail = self._records.log_tail("stderr.log", _TAIL_LINES, said_before)
        quoted = "; its last stderr lines were:" + "".join(f"\n{line}" for line in tail) if tail else ""
        return returncode, f"the command ended with {status_text(returncode)}{quoted}"

    def _result(self, task: "Task") -> str:
        """Return what a task's artifact says, and let `out/result.txt` be its file."""
        name = f"out/result_{task.id}.txt"
        with suppress(OSError):
            self._records.link(name, "out/result.txt", fresh_hex())
        content, is_whole = self._records.head(name, RESULT_LIMIT)
        text = content.decode("utf-8", "replace")
        return text if is_whole else f"{text}\n[the whole result is in {name}]"
