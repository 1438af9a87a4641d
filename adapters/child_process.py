"""Who may signal and reap a child, and when? One owner, from its start to its reap (E1-E5).

Whether the child has exited, the decision, the signal and the reap happen under one lock, so that no signal is ever
sent to a number that is not the child's own any more.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from murmur.adapters.exit_status import reap
from murmur.adapters.exits import exit_descriptor, is_readable, wait_unreaped
from murmur.adapters.lifelines import Lifeline
from murmur.adapters.reactor import Reactor, Timer
from murmur.adapters.threads import start_thread
from murmur.domain.launch.ending import GRACE, ChildEnding, ChildSignal

if TYPE_CHECKING:
    from subprocess import Popen

    from murmur.domain.launch.watcher import Deliberate, Exited

_UNKILLABLE = 10.0
"""Seconds after its SIGKILL at which a child is no longer waited for: it sits inside the kernel."""


class ChildProcess:
    """A started child. `watch` it at once; then everything but `watch` may be called from any thread."""

    def __init__(
        self,
        process: "Popen[bytes]",
        lifeline: Lifeline,
        reactor: Reactor,
        grace: float = GRACE,
        *,
        before_ending: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_ending` is called under the lock, right before the SIGTERM that makes an ending deliberate."""
        self.patience = grace + _UNKILLABLE
        """Seconds after which a child that is being ended is not waited for any more."""
        self._owner = os.getpid()
        self._before_ending = before_ending
        self._process = process
        self._lifeline = lifeline
        self._reactor = reactor
        self._grace = grace
        self._machine = ChildEnding(grace)
        self._lock = threading.RLock()  # A signal's handler may ask, too, whatever it interrupts.
        self._gone = threading.Event()
        self._pidfd: int | None = None
        self._timer: Timer | None = None
        self._shutting_down = False
        self._when_exited: list[Callable[[], None]] = []

    def watch(self) -> None:
        """Have the reactor see its exit. Raises `RuntimeError`, with the child killed and reaped, if nobody can."""
        self._pidfd = exit_descriptor(self._process.pid)
        if self._pidfd is None:
            try:
                start_thread("exit", self._wait)
            except RuntimeError:
                self.force()
                self._wait()
                raise
        else:
            pidfd = self._pidfd
            self._reactor.call(lambda: self._reactor.on_readable(pidfd, self._exit_seen))

    def when_exited(self, call: Callable[[], None]) -> None:
        """Have that called in the reactor's thread after the child was reaped, also if it has been."""
        self._reactor.call(lambda: self._add_listener(call))

    @property
    def pid(self) -> int:
        """The child's pid; 0 once it has been reaped."""
        with self._lock:
            return 0 if self._machine.reaped else self._process.pid

    @property
    def is_being_ended(self) -> bool:
        """Whether it was asked to end and has not been reaped."""
        with self._lock:
            return self._machine.is_being_ended

    @property
    def has_exited(self) -> bool:
        """Whether it has ended; one that did by itself is reaped by asking."""
        with self._lock:
            return self._look()

    @property
    def ending(self) -> "Exited | Deliberate":
        """By whose wish it ended, and how. Meaningful once it has exited."""
        with self._lock:
            return self._machine.ending

    @property
    def status(self) -> str | None:
        """How it ended; `None` before, and when nobody could read it."""
        with self._lock:
            return self._machine.status

    def begin_ending(self) -> bool:
        """Send SIGTERM unless it has exited or was sent it before; say whether it was sent now (E3)."""
        if self.is_inherited:
            return False
        with self._lock:
            if self._look():
                return False
            action = self._machine.ask_to_end(time.monotonic())
            if action is None:
                return False
            self._before_ending()
            self._send(action)
        self._reactor.call(self._set_timer)
        return True

    def shutdown(self) -> bool:
        """End it and wait for that; say whether it is gone. A second call meanwhile leaves it to the first (E1)."""
        if self.is_inherited:
            return False
        self.begin_ending()
        with self._lock:
            if self._shutting_down:
                return self._machine.reaped
            self._shutting_down = True
        return self.wait(self.patience)

    def force(self) -> None:
        """Kill it without the rest of its grace. That it was ended is as deliberate as by `begin_ending`."""
        if self.is_inherited:
            return
        self.begin_ending()
        with self._lock:
            if not self._look() and (action := self._machine.force()) is not None:
                self._send(action)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is reaped, and its lifeline closed; say whether it is."""
        return self._gone.wait(timeout)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked copy of the launcher: the child is not its own to end."""
        return os.getpid() != self._owner

    def _look(self) -> bool:
        """Reap it if it has exited; say whether it has. The lock is held."""
        if self._machine.reaped:
            return True
        is_gone, status = reap(self._process.pid) if self._can_be_reaped() else (False, None)
        if not is_gone:
            return False
        self._machine.exited(status)
        # What `subprocess` would otherwise find out for itself, and about another process by then.
        self._process.returncode = 0
        self._lifeline.close()
        self._reactor.call(self._finish)
        self._gone.set()
        return True

    def _can_be_reaped(self) -> bool:
        """Whether a failed wait would mean that it is gone: not while its pidfd says that it runs."""
        if self._pidfd is None:
            return not self.is_inherited
        return is_readable(self._pidfd)

    def _send(self, action: ChildSignal) -> None:
        match action:
            case ChildSignal.TERM:
                numbers = [signal.SIGTERM, signal.SIGCONT]
            case ChildSignal.KILL:
                numbers = [signal.SIGKILL]
            case _:
                assert_never(action)
        for number in numbers:
            with suppress(ProcessLookupError, PermissionError):  # It may have become another user's.
                if sys.platform == "linux" and self._pidfd is not None:
                    signal.pidfd_send_signal(self._pidfd, number)
                else:
                    os.kill(self._process.pid, number)

    def _exit_seen(self) -> None:
        with self._lock:
            self._look()

    def _wait(self) -> None:
        wait_unreaped(self._process.pid)
        self._exit_seen()

    # ---- in the reactor's thread ----

    def _set_timer(self) -> None:
        with self._lock:
            if not self._machine.reaped and self._machine.kill_at is not None:
                self._timer = self._reactor.call_at(self._machine.kill_at, self._time_is_up)

    def _time_is_up(self) -> None:
        with self._lock:
            if not self._look() and (action := self._machine.tick(time.monotonic())) is not None:
                self._send(action)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            self._reactor.leave(pidfd)
            os.close(pidfd)
        listeners, self._when_exited = self._when_exited, []
        for call in listeners:
            call()

    def _add_listener(self, call: Callable[[], None]) -> None:
        with self._lock:
            finished = self._machine.reaped and self._pidfd is None
        if finished:
            call()
        else:
            self._when_exited.append(call)
