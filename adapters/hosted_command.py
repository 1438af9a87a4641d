"""Runs one command to its end inside an event loop, as `domain.hosting` decides (M1, M3, E1)."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from murmur.adapters.command import GroupedCommand
from murmur.adapters.command_output import CommandOutput
from murmur.adapters.exits import wait_for_any_exit, wait_unreaped
from murmur.adapters.session_host import SessionEnd
from murmur.adapters.threads import start_thread
from murmur.domain.errors import FAILED, MurmurError
from murmur.domain.hosting import GRACE, Happening, HostMachine
from murmur.domain.value import Value

if TYPE_CHECKING:
    from subprocess import Popen

    from murmur.adapters.streams import Streams
    from murmur.domain.task_board import Task

Log = Callable[[str, str], None]


class CommandLine(Value):
    """What is started, and with what."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    workdir: Path | None = None
    """`None`: the host's own."""
    grace: float = GRACE


class HostedCommand:
    """One command under its watcher. Start it, then wait for its end, whoever brings that about."""

    def __init__(self, line: CommandLine, log: Log) -> None:
        self._line = line
        self._log = log
        self.machine = HostMachine(line.grace)
        self._over = asyncio.Event()
        self._opened = ExitStack()
        self._command: GroupedCommand | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def start(self, output: tuple[int, int], stdin: int | None = None) -> None:
        """Start the command on those descriptors; raise `CommandNotStarted` with nothing left of it."""
        line, loop = self._line, asyncio.get_running_loop()
        with ExitStack() as opened:
            self._command = command = opened.enter_context(
                GroupedCommand(line.argv, line.environment, output, stdin=stdin, workdir=line.workdir)
            )
            _on_exit(loop, opened, command.command, lambda: self._happened(Happening.COMMAND_ENDED))
            _on_exit(loop, opened, command.watcher, lambda: self._happened(Happening.WATCHER_LOST))
            self._opened = opened.pop_all()

    def ask_to_end(self) -> None:
        """End the command: SIGTERM, its grace, SIGKILL. Asking again ends it at once."""
        self._happened(Happening.ASKED_TO_END)

    async def wait(self) -> int:
        """Wait for the end of the command and its group; return the command's own status."""
        assert self._command is not None
        with self._opened:
            await self._over.wait()
            return self._command.command.wait()

    def close(self) -> None:
        """End whatever is left at once. Idempotent."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._opened.close()

    def _happened(self, what: Happening) -> None:
        machine, command = self.machine, self._command
        assert command is not None
        now = time.monotonic()
        action = machine.happened(what, now)
        if action is not None:
            command.act(action)
        if machine.ends_at is not None and self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(machine.ends_at - now, self._time_is_up)
        if machine.command_ended and not machine.killed:
            self._follow_the_rest()
        self._finish_if_done()
        self._log("command", what.value)  # Last: no log is worth an ending.

    def _time_is_up(self) -> None:
        action = self.machine.tick(time.monotonic())
        assert self._command is not None
        if action is not None:
            self._command.act(action)
        self._finish_if_done()
        self._log("command", "the grace is over")

    def _finish_if_done(self) -> None:
        if self.machine.done:
            if self._deadline is not None:
                self._deadline.cancel()
            self._over.set()

    def _follow_the_rest(self) -> None:
        """Tell when nothing is left of the group; its other processes are not our children, so a thread waits."""
        loop, command = asyncio.get_running_loop(), self._command
        assert command is not None
        ends_at = self.machine.ends_at or 0.0

        def wait() -> None:
            try:
                while (left := command.others()) and time.monotonic() < ends_at:
                    wait_for_any_exit(left, ends_at)
            except MurmurError:
                return  # What cannot be looked at is not known to be gone: the group keeps its whole grace.
            if left is not None and not left:
                with suppress(RuntimeError):  # The loop is closed: the grace was over first.
                    loop.call_soon_threadsafe(self._happened, Happening.GROUP_EMPTY)

        with suppress(RuntimeError):  # No thread can be started: the group keeps its whole grace.
            start_thread("group", wait)


class CommandWork:
    """A session that hosts one command for as long as it runs, and takes no tasks."""

    def __init__(
        self, line: CommandLine, output: CommandOutput, stdin: int | None, log: Log, explain: Callable[[int], str]
    ) -> None:
        """`explain` says, from the command's status, what a person is told of its failure."""
        self._command = HostedCommand(line, log)
        self._output = output
        self._stdin = stdin
        self._explain = explain
        self._streams: Streams | None = None

    def start(self) -> None:
        """Start the command; raise `CommandNotStarted`."""
        self._command.start(self._output.descriptors, self._stdin)
        if self._output.handed is not None:
            self._output.handed()

    def stream_to(self, streams: "Streams") -> None:
        """Show the command there as the session's only task."""
        self._streams = streams
        streams.began(*self._output.shown_as, self._output.logs, from_tail=True)

    def attend(self) -> None:
        """No request changes anything here."""

    async def wait_for(self, task: "Task") -> None:
        """There is no task to wait for."""

    def ask_to_end(self) -> None:
        """End the command; asking again ends it at once."""
        self._command.ask_to_end()

    async def finished(self) -> SessionEnd:
        """Wait for the command and its group."""
        returncode = await self._command.wait()
        status = self._command.machine.exit_status(returncode)
        reason = self._explain(returncode) if status == FAILED else None
        end = SessionEnd(status, reason, cut_short=status != FAILED and returncode != 0)
        if self._streams is not None:
            if self._output.settle is not None:
                self._output.settle()
            state = "failed" if reason is not None else "canceled" if end.cut_short else "completed"
            self._streams.ended(*self._output.shown_as, state, reason)
        return end

    def close(self) -> None:
        """End whatever is left at once."""
        self._command.close()


def _on_exit(
    loop: asyncio.AbstractEventLoop, opened: ExitStack, child: "Popen[bytes]", tell: Callable[[], None]
) -> None:
    """Call `tell` when that child has exited, without reaping it: through its pidfd, or a thread without one."""
    if sys.platform != "darwin":
        with suppress(OSError, AttributeError):  # No pidfds in this kernel, or in this Python.
            pidfd = os.pidfd_open(child.pid)
            opened.callback(os.close, pidfd)
            opened.callback(loop.remove_reader, pidfd)

            def ready() -> None:
                loop.remove_reader(pidfd)
                tell()

            loop.add_reader(pidfd, ready)
            return

    def wait() -> None:
        wait_unreaped(child.pid)
        with suppress(RuntimeError):  # The loop is closed: the session was over first.
            loop.call_soon_threadsafe(tell)

    start_thread("exit", wait)
