"""Carries out a task board: one command a task, its input and result in files, its callers woken at its end."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from murmur.adapters.command_output import Output
from murmur.adapters.exit_status import status_text
from murmur.adapters.hosted_command import CommandLine, HostedCommand, Log
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.reasons import reason_of
from murmur.adapters.records_directory import read_head, read_tail
from murmur.adapters.session_host import SessionEnd
from murmur.domain.errors import FAILED, FORCED, MurmurError
from murmur.domain.task_board import TaskState

if TYPE_CHECKING:
    from murmur.adapters.records_directory import RecordsDirectory
    from murmur.adapters.streams import Streams
    from murmur.domain.task_board import Task, TaskBoard

RESULT_LIMIT = 1024 * 1024
"""Bytes of a result that its artifact carries; the file holds all of it."""
_TAIL_LINES = 20

Trace = Callable[[str, Mapping[str, object]], None]


class _Outcome:
    """What has become of a task, as far as it is known."""

    def __init__(self) -> None:
        self.exit_status: int | None = None
        self.result = ""
        self.failure: str | None = "the task was cut short"
        """Why it did not succeed."""


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
        self._streams: Streams | None = None
        self._outputs: Sequence[Output] = ()
        """Where the running command writes."""

    def start(self) -> None:
        """Nothing begins before there is a task."""

    def attend(self) -> None:
        """Start, end or finish what the board now says is to be started, ended or finished."""
        task, board = self._board.running, self._board
        for canceled, phase in board.canceled:
            self._trace("task_canceled", {"task_id": canceled.id, "phase": phase})
            if phase == "waiting":
                self._tell_end_of(canceled)
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

    def stream_to(self, streams: "Streams") -> None:
        """Tell there what runs now, and from now on what begins and ends."""
        self._streams, running = streams, self._board.running
        if running is not None and self._outputs:
            streams.began(running.id, running.context_id, self._outputs, from_tail=True)

    def ask_to_end(self) -> None:
        """End the session: cancel every task. Asking again ends the running command at once."""
        if not self._asked:
            self._asked = True
            self._board.draining = True
            self._board.cancel_all()
            if self._board.running is not None:
                self._end = _canceled(self._board.running)
            elif not self._board.has_run:
                self._end = SessionEnd(0, cut_short=True)
            self.attend()
        elif self._current is not None:
            self._end = SessionEnd(FORCED)
            self._current.ask_to_end()

    async def finished(self) -> SessionEnd:
        """Wait for the end of the session's last task."""
        await self._over.wait()
        return self._end

    def close(self) -> None:
        """End whatever still runs, at once, and start nothing more."""
        self._board.paused = True
        if self._current is not None:
            self._current.close()

    def _is_over(self, task_id: str) -> bool:
        task = self._board.find(task_id)
        return task is None or task.state.is_terminal

    async def _run(self, task: "Task") -> None:
        outcome = _Outcome()
        try:
            self._trace("task_start", {"task_id": task.id})
            await self._command(task, outcome)
        except MurmurError as error:
            outcome.failure = error.message
        except OSError as error:
            outcome.failure = f"the task could not be run: {reason_of(error)}"
        finally:
            # Also after what nobody thought of: a task that works for ever holds its callers, and the session's end.
            self._finish(task, outcome)

    def _finish(self, task: "Task", outcome: _Outcome) -> None:
        board = self._board
        board.finished(succeeded=outcome.failure is None, result=outcome.result, message=outcome.failure)
        self._trace("task_end", {"task_id": task.id, "exit_status": outcome.exit_status})
        self._tell_end_of(task)
        # A session for one task ends as that did. One that goes on after a task does not end because of it.
        if (board.acceptance, board.after_task) == ("single", "exit") and self._end.exit_status == 0:
            if task.state is TaskState.FAILED:
                self._end = SessionEnd(FAILED, f"task {task.id} failed: {outcome.failure}")
            elif task.state is TaskState.CANCELED:
                self._end = _canceled(task)
        self.attend()

    async def _command(self, task: "Task", outcome: _Outcome) -> None:
        """Run a task's command, and take down what came of it as it becomes known."""
        with ExitStack() as opened:
            stdin = self._records.open_task(task.text, self._line.workdir)
            opened.callback(os.close, stdin)
            result = self._records.open_new(_result_name(task))
            opened.callback(os.close, result)
            opened.callback(self._take_result, task, result, outcome)
            errors = self._records.open_log("stderr.log")
            opened.callback(os.close, errors)
            said_before = os.fstat(errors).st_size
            self._tell_beginning_of(
                task,
                [
                    Output("stdout", result, _result_name(task)),
                    Output("stderr", errors, "logs/stderr.log", said_before),
                ],
                opened,
            )
            outcome.exit_status = await self._ended(task, self._line_for(task), (result, errors), stdin)
            outcome.failure = None
            if outcome.exit_status != 0:
                tail = read_tail(errors, _TAIL_LINES, said_before)
                quoted = "; its last stderr lines were:" + "".join(f"\n{line}" for line in tail) if tail else ""
                outcome.failure = f"the command ended with {status_text(outcome.exit_status)}{quoted}"

    def _tell_beginning_of(self, task: "Task", outputs: "Sequence[Output]", opened: ExitStack) -> None:
        self._outputs = outputs
        opened.callback(self._forget_outputs)
        if self._streams is not None:
            self._streams.began(task.id, task.context_id, outputs)

    def _forget_outputs(self) -> None:
        self._outputs = ()

    def _tell_end_of(self, task: "Task") -> None:
        if self._streams is not None:
            self._streams.ended(task.id, task.context_id, task.state.value, task.message)

    def _line_for(self, task: "Task") -> CommandLine:
        """Say what is started for a task. Where conversations are remembered, the command is told what was said."""
        conversations = self._board.conversations
        if conversations is None:
            return self._line
        from murmur.adapters.conversation_file import CONVERSATION_VARIABLE, write_conversation  # noqa: PLC0415 - few do

        path = write_conversation(self._records, task.context_id, conversations.earlier(task.context_id))
        return self._line.replaced(environment={**self._line.environment, CONVERSATION_VARIABLE: str(path)})

    async def _ended(self, task: "Task", line: CommandLine, output: tuple[int, int], stdin: int) -> int:
        """Start a task's command and wait for its end; return its status."""
        with closing(HostedCommand(line, self._log)) as command:
            command.start(output, stdin)
            self._current = command
            try:
                if task.cancel_asked:
                    command.ask_to_end()
                return await command.wait()
            finally:
                self._current = None

    def _take_result(self, task: "Task", result: int, outcome: _Outcome) -> None:
        """Take what a task's artifact says from the open file, and let `out/result.txt` be that file."""
        name = _result_name(task)
        with suppress(OSError):
            self._records.link(name, result, "out/result.txt", fresh_hex())
        try:
            content, is_whole = read_head(result, RESULT_LIMIT)
        except OSError as error:
            outcome.failure = outcome.failure or f"the result could not be read: {reason_of(error)}"
            return
        text = content.decode("utf-8", "replace")
        outcome.result = text if is_whole else f"{text}\n[the whole result is in {name}]"


def _result_name(task: "Task") -> str:
    return f"out/result_{task.id}.txt"


def _canceled(task: "Task") -> SessionEnd:
    return SessionEnd(FAILED, f"task {task.id} was canceled")
