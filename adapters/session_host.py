"""Hosts a command as a session: door, record, command, signals, and everything's end (M1, M3-M5)."""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from murmur.adapters.command import GroupedCommand
from murmur.adapters.door_server import DoorServer
from murmur.adapters.exits import wait_for_any_exit
from murmur.adapters.records_directory import RecordsDirectory
from murmur.domain.hosting import GRACE, Happening, HostMachine
from murmur.domain.served_door import ServedSession, respond

if TYPE_CHECKING:
    from subprocess import Popen

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class HostedSession:
    """What is to be hosted, and whom to tell."""

    session: ServedSession
    argv: Sequence[str]
    environment: Mapping[str, str]
    output: tuple[int, int]
    """Where the command's stdout and stderr go: two descriptors."""
    records: RecordsDirectory
    enter: Callable[[], Callable[[], None]]
    """Called once the door answers and the command runs: records the session and returns what undoes it."""
    announce: Callable[[], None]
    """Called right after: the readiness line."""
    log: Callable[[str, str], None]
    """Called with an event and its detail, for the host's own log."""
    grace: float = GRACE


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a session ended: the host's exit status and the command's own."""

    exit_status: int
    returncode: int


def host(hosted: HostedSession, door: socket.socket) -> SessionEnd:
    """Run a session to its end. Raises `CommandNotStarted` with nothing left of it.

    From now on the signals that end a session do nothing else to this process: one that comes while the last of
    the session is put away must not cut that short.
    """
    running = _Host(hosted)
    for number in _ENDING_SIGNALS:
        # What was ignored when we were started stays ignored: that is what `nohup` and a shell's `&` mean.
        if signal.getsignal(number) is not signal.SIG_IGN or number is signal.SIGTERM:
            signal.signal(number, running.signalled)
    return asyncio.run(running.run(door))


class _Host:
    def __init__(self, hosted: HostedSession) -> None:
        self._hosted = hosted
        self._machine = HostMachine(hosted.grace)
        self._over = asyncio.Event()
        self._command: GroupedCommand | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early = False
        """Whether a signal came before there was a command to end."""
        self._deadline: asyncio.TimerHandle | None = None

    async def run(self, door: socket.socket) -> SessionEnd:
        hosted = self._hosted
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as opened:
            server = DoorServer(lambda request: respond(hosted.session, request))
            opened.push_async_callback(server.close)
            await server.serve(door)
            command = opened.enter_context(GroupedCommand(hosted.argv, hosted.environment, hosted.output))
            self._command, self._loop = command, loop
            _on_exit(loop, opened, command.command, lambda: self._happened(Happening.COMMAND_ENDED))
            _on_exit(loop, opened, command.watcher, lambda: self._happened(Happening.WATCHER_LOST))
            opened.callback(hosted.enter())
            hosted.announce()
            if self._early:
                self._happened(Happening.ASKED_TO_END)
            await self._over.wait()
            returncode = command.command.wait()
        return SessionEnd(self._machine.exit_status(returncode), returncode)

    def signalled(self, number: int, _: FrameType | None) -> None:
        """Take in a signal that asks the session to end. Called between any two steps of the main thread."""
        if self._loop is None:
            self._early = True
        elif not self._over.is_set():
            with suppress(RuntimeError):  # The loop is closed: the session is over.
                self._loop.call_soon_threadsafe(self._asked_to_end, signal.Signals(number).name)

    def _asked_to_end(self, name: str) -> None:
        self._hosted.log("signal", name)
        self._happened(Happening.ASKED_TO_END)

    def _happened(self, what: Happening) -> None:
        machine, command = self._machine, self._command
        assert command is not None
        now = time.monotonic()
        action = machine.happened(what, now)
        self._hosted.log("happened", what.value)
        if action is not None:
            command.act(action)
        if machine.ends_at is not None and self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(machine.ends_at - now, self._time_is_up)
        if machine.command_ended and not machine.killed:
            self._follow_the_rest()
        self._finish_if_done()

    def _time_is_up(self) -> None:
        action = self._machine.tick(time.monotonic())
        assert self._command is not None
        if action is not None:
            self._hosted.log("killed", "the grace is over")
            self._command.act(action)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._machine.done:
            if self._deadline is not None:
                self._deadline.cancel()
            self._over.set()

    def _follow_the_rest(self) -> None:
        """Tell when nothing is left of the group; its other processes are not our children, so a thread waits."""
        loop, command = asyncio.get_running_loop(), self._command
        assert command is not None
        ends_at = self._machine.ends_at or 0.0

        def wait() -> None:
            while (left := command.others()) and time.monotonic() < ends_at:
                wait_for_any_exit(left, ends_at)
            if not left:
                with suppress(RuntimeError):  # The loop is closed: the grace was over first.
                    loop.call_soon_threadsafe(self._happened, Happening.GROUP_EMPTY)

        threading.Thread(target=wait, name="group", daemon=True).start()


def _on_exit(
    loop: asyncio.AbstractEventLoop, opened: AsyncExitStack, child: "Popen[bytes]", tell: Callable[[], None]
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
        _wait_unreaped(child.pid)
        with suppress(RuntimeError):  # The loop is closed: the session was over first.
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=wait, name="exit", daemon=True).start()


def _wait_unreaped(pid: int) -> None:
    """Wait for a child's exit and leave it to be reaped, so that its number stays its own."""
    if sys.platform != "darwin":
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    else:
        while not wait_for_any_exit([pid], time.monotonic() + 3600):
            pass
