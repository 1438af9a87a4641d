"""How does a hosted command start, and how does everything it started end? (M1).

A small shell leads a process group of its own and waits on a lifeline, a pipe whose only write end the host
holds. The command joins that group as the host's own child. When the host dies by any means, the kernel closes
the write end and the shell kills its group, itself included. While the shell is not reaped, no other group can have its
number, so a signal to the group never reaches a stranger. A
command that leaves the group itself, as `timeout` does, is still our child and is signalled with its own group.
What else leaves by `setsid` is out of reach, and so is such a command when the host is killed.

The one place that signals a group.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

from murmur.adapters.exits import wait_for_any_exit
from murmur.adapters.kernel import kernel
from murmur.adapters.reasons import reason_of
from murmur.adapters.threads import start_thread
from murmur.domain.errors import CommandNotStarted
from murmur.domain.hosting import GroupAction

# It says when it is ready, since a signal before its `trap` would end it; `read` is a builtin, so it forks nothing.
_WATCHER = "trap '' HUP INT TERM; echo; exec >&-; while read -r _; do :; done; kill -s KILL 0"
# A watcher that was stopped with its group cannot act. This one is in another group, and continues it: that and no
# more, since by then the number might be somebody else's.
_WAKER = "trap '' HUP INT TERM; while read -r _; do :; done; kill -s CONT -- -\"$0\""
_REAP = 5.0
"""Seconds that what was killed gets to disappear."""

Streams = tuple[int, int]


class GroupedCommand:
    """A command and the watcher that leads its group. A context manager: leaving it kills and reaps both."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        output: Streams,
        *,
        stdin: int | None = None,
        workdir: Path | None = None,
    ) -> None:
        """Start the command with its stdout and stderr on those descriptors; raise `CommandNotStarted`."""
        with ExitStack() as started:
            self.watcher = _start_watcher(started)
            try:
                self.command = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    cwd=workdir,
                    stdout=output[0],
                    stderr=output[1],
                    env=dict(environment),
                    process_group=self.watcher.pid,
                )
            except (OSError, ValueError) as error:
                raise CommandNotStarted(_why_not(argv[0], error), hint="check the command and its PATH") from None
            self._started = started.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._started:
            self.act(GroupAction.KILL)
            self.command.wait()
            self._wait_until_empty()

    def act(self, action: GroupAction) -> None:
        """Signal the group: its number is the watcher's, which stays ours until it is reaped on leaving."""
        match action:
            case GroupAction.TERM:
                self._signal(signal.SIGTERM, signal.SIGCONT)
            case GroupAction.KILL:
                self._signal(signal.SIGKILL)
            case _:
                assert_never(action)

    def _signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.watcher.pid, number)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._signal_strayed(number)

    def _signal_strayed(self, number: signal.Signals) -> None:
        """Signal a command that has left the watcher's group, as `timeout` and `setsid` do, with its own group.

        It is our child and not reaped yet, so neither its number nor that of the group it leads can be another's.
        """
        group = self._strayed_to()
        if group is None:
            return
        if group == self.command.pid:
            os.killpg(group, number)
        else:
            os.kill(self.command.pid, number)

    def _strayed_to(self) -> int | None:
        """Return the command's own group when that is not the watcher's; `None` once it has been reaped."""
        if self.command.returncode is not None:
            return None
        try:
            group = os.getpgid(self.command.pid)
        except ProcessLookupError:
            return None
        return None if group == self.watcher.pid else group

    def others(self) -> list[int] | None:
        """Return the pids left in the group besides the watcher and the command; `None` when they cannot be read."""
        members, ours = kernel.group_members(self.watcher.pid), (self.watcher.pid, self.command.pid)
        strayed = kernel.group_members(self.command.pid) if self._strayed_to() == self.command.pid else []
        if members is None or strayed is None:
            return None
        return [pid for pid in (*members, *strayed) if pid not in ours]

    def _wait_until_empty(self) -> None:
        deadline = time.monotonic() + _REAP
        while (left := self.others()) and time.monotonic() < deadline:
            wait_for_any_exit(left, deadline)


def _start_watcher(started: ExitStack) -> "subprocess.Popen[bytes]":
    """Start the watcher, and beside it what wakes it up; both wait on one lifeline, whose write end is `started`'s."""
    with ExitStack() as passed_on:
        try:
            read_end, write_end = os.pipe()
            started.callback(os.close, write_end)
            passed_on.callback(os.close, read_end)
            watcher = _start_shell(started, read_end, subprocess.PIPE, _WATCHER)
            assert watcher.stdout is not None
            with watcher.stdout as ready:
                # Nobody signals its group, so nobody waits for its `trap`.
                _start_shell(started, read_end, subprocess.DEVNULL, _WAKER, str(watcher.pid))
                if not ready.read(1):
                    raise CommandNotStarted("/bin/sh, which watches over the command, ended at once")
        except OSError as error:
            why = reason_of(error)
            raise CommandNotStarted(f"/bin/sh, which watches over the command, did not start: {why}") from None
    return watcher


def _start_shell(
    started: ExitStack, lifeline: int, output: int, script: str, *arguments: str
) -> "subprocess.Popen[bytes]":
    """Start a small shell that leads a group of its own."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script, *arguments],
        stdin=lifeline,
        stdout=output,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        process_group=0,
    )
    started.callback(_end_shell, shell)
    return shell


def _end_shell(shell: "subprocess.Popen[bytes]") -> None:
    shell.kill()
    shell.wait()


def _why_not(program: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        # The kernel says the same of a script whose interpreter is missing.
        found = "/" in program and os.access(program, os.X_OK)
        return f"the interpreter of {program} was not found" if found else f"command not found: {program}"
    if isinstance(error, PermissionError):
        return f"command not executable: {program}"
    reason = error.strerror if isinstance(error, OSError) else "a null character in the command line"
    return f"command could not be started: {program}: {(reason or str(error)).lower()}"


class Tee:
    """Copies a command's output into its log and echoes it. A thread, so that a paused terminal stalls nothing else."""

    def __init__(self, log: int, echo: Callable[[bytes], None]) -> None:
        """Make the pipe and its thread; raise `CommandNotStarted`."""
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            raise CommandNotStarted(f"the command's output could not be piped: {reason_of(error)}") from error
        self.write_end = write_end
        self._handed = False
        self._begun = threading.Event()
        try:
            self._thread = start_thread("tee", lambda: self._copy(read_end, log, echo))
        except RuntimeError:
            os.close(read_end)
            os.close(write_end)
            raise CommandNotStarted("the command's output could not be echoed: no thread can be started") from None

    def handed(self) -> None:
        """Let go of our own write end, once the command has it: copying ends when that does. Idempotent."""
        if not self._handed:
            self._handed = True
            os.close(self.write_end)

    def start(self) -> None:
        """Begin to copy; until then the pipe holds what is written. Idempotent."""
        self._begun.set()

    def _copy(self, read_end: int, log: int, echo: Callable[[bytes], None]) -> None:
        with open(read_end, "rb", buffering=0) as source:
            self._begun.wait()
            while data := source.read(65536):
                with contextlib.suppress(OSError):  # A full disk loses log lines, never the session.
                    os.write(log, data)
                echo(data)

    def finish(self) -> None:
        """Wait for the end of what was written, but not for a process that left the group and holds the pipe."""
        self.start()
        self._thread.join(timeout=1.0)
