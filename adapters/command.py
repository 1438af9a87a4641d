"""How does a hosted command start, and how does everything it started end? (M1).

A small shell leads a process group of its own and waits on a lifeline, a pipe whose only write end the host
holds. The command joins that group as the host's own child. When the host dies by any means, the kernel closes
the write end and the shell kills its group, itself included. While the shell is not reaped, no other group can have its
number, so a signal to the group never reaches a stranger. A process that leaves the group by `setsid` is out of reach.

The one place that signals a group.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, assert_never

from murmur.adapters.exits import wait_for_any_exit
from murmur.domain.errors import CommandNotStarted
from murmur.domain.hosting import GroupAction

if sys.platform == "darwin":
    from murmur.adapters import libproc as kernel
else:
    from murmur.adapters import procfs as kernel

# It says when it is ready, since a signal before its `trap` would end it; `read` is a builtin, so it forks nothing.
_WATCHER = "trap '' HUP INT TERM; echo; exec >&-; while read -r _; do :; done; kill -s KILL 0"
_REAP = 5.0
"""Seconds that what was killed gets to disappear."""

Streams = tuple[int, int]


class GroupedCommand:
    """A command and the watcher that leads its group. A context manager: leaving it kills and reaps both."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], output: Streams) -> None:
        """Start the command with its stdout and stderr on those descriptors; raise `CommandNotStarted`."""
        with ExitStack() as started:
            self.watcher = _start_watcher(started)
            try:
                self.command = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=output[0],
                    stderr=output[1],
                    env=dict(environment),
                    process_group=self.watcher.pid,
                )
            except (OSError, ValueError) as error:
                raise CommandNotStarted(_why_not(argv[0], error), hint="check the command and its PATH") from None
            self._started = started.pop_all()
        self._killed = False

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

    def others(self) -> list[int]:
        """Return the pids left in the group besides the watcher and the command."""
        return [
            pid for pid in kernel.group_members(self.watcher.pid) if pid not in (self.watcher.pid, self.command.pid)
        ]

    def _wait_until_empty(self) -> None:
        deadline = time.monotonic() + _REAP
        while (left := self.others()) and time.monotonic() < deadline:
            wait_for_any_exit(left, deadline)


def _start_watcher(started: ExitStack) -> "subprocess.Popen[bytes]":
    read_end, write_end = os.pipe()
    started.callback(os.close, write_end)
    try:
        watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER],
            stdin=read_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            process_group=0,
        )
    except OSError as error:
        raise CommandNotStarted(f"/bin/sh, which watches over the command, did not start: {error.strerror}") from None
    finally:
        os.close(read_end)
    started.callback(_end_watcher, watcher)
    assert watcher.stdout is not None
    with watcher.stdout as ready:
        if not ready.read(1):
            raise CommandNotStarted("/bin/sh, which watches over the command, ended at once")
    return watcher


def _end_watcher(watcher: "subprocess.Popen[bytes]") -> None:
    watcher.kill()
    watcher.wait()


def _why_not(program: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"command not found: {program}"
    if isinstance(error, PermissionError):
        return f"command not executable: {program}"
    reason = error.strerror if isinstance(error, OSError) else "a null character in the command line"
    return f"command could not be started: {program}: {(reason or str(error)).lower()}"


def status_text(returncode: int) -> str:
    """Say how a process ended: `exit status: N` or `signal: N (SIGNAME)` (X6)."""
    if returncode >= 0:
        return f"exit status: {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "unknown"
    return f"signal: {-returncode} ({name})"


class Tee:
    """Copies a command's output into its log and echoes it. A thread, so that a paused terminal stalls nothing else."""

    def __init__(self, log: int, echo: Callable[[bytes], None]) -> None:
        read_end, self.write_end = os.pipe()
        self._thread = threading.Thread(target=self._copy, args=(read_end, log, echo), name="tee", daemon=True)

    def start(self) -> None:
        """Begin to copy; until then the pipe holds what is written. Idempotent."""
        if self._thread.ident is None:
            self._thread.start()

    @staticmethod
    def _copy(read_end: int, log: int, echo: Callable[[bytes], None]) -> None:
        with open(read_end, "rb", buffering=0) as source:
            while data := source.read(65536):
                with contextlib.suppress(OSError):  # A full disk loses log lines, never the session.
                    os.write(log, data)
                echo(data)

    def finish(self) -> None:
        """Wait for the end of what was written, but not for a process that left the group and holds the pipe."""
        self.start()
        self._thread.join(timeout=1.0)
