"""When is a process that is not our child gone? (K5)."""

import os
import select
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress

from murmur.adapters.descriptors import spare_descriptors
from murmur.adapters.kernel import kernel
from murmur.domain.process import Claim, Gone, judge

_TICK = 0.05
"""Seconds between looks at a process that no event announces: there are no pidfds, or no descriptor is left."""
_MOST = 4096


class SystemExits:
    """Exits as the kernel announces them: pidfds on Linux, kqueue on macOS."""

    def wait_any(self, claims: Sequence[Claim], deadline: float) -> Collection[int]:
        """Wait until at least one claim's process is gone; return the positions of all that are.

        Empty when the monotonic `deadline` passed first.
        """

        def is_gone(position: int) -> bool:
            claim = claims[position]
            return isinstance(judge(claim, kernel.read_process(claim.identity.pid), kernel.here()), Gone)

        return _wait([claim.identity.pid for claim in claims], is_gone, deadline)


def wait_for_any_exit(pids: Sequence[int], deadline: float) -> bool:
    """Wait until at least one of these pids is held by nobody; false when the monotonic `deadline` passed first."""
    return bool(_wait(pids, lambda position: not kernel.read_process(pids[position]).pid_alive, deadline))


def exit_descriptor(pid: int) -> int | None:
    """Open what becomes readable when that process exits; the caller closes it. `None` where there is no such thing."""
    if sys.platform != "darwin":
        with suppress(OSError, AttributeError):  # No pidfds in this kernel or this Python, or no descriptor is left.
            return os.pidfd_open(pid)
    return None


def is_readable(descriptor: int) -> bool:
    """Whether a descriptor can be read now."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def wait_unreaped(pid: int) -> None:
    """Wait for a child's exit and leave it to be reaped, so that its number stays its own."""
    if sys.platform != "darwin":
        with suppress(ChildProcessError):  # Reaped already: gone as well.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    else:
        while not wait_for_any_exit([pid], time.monotonic() + 3600):
            pass


def _wait(pids: Sequence[int], is_gone: Callable[[int], bool], deadline: float) -> list[int]:
    """Wait for exits. Each process is looked at after its event was asked for.

    So an exit in between is not missed, and a newcomer under the same pid is not waited for.
    """
    with ExitStack() as opened:
        watch = _Watch(opened)
        unannounced: list[int] = []
        gone: list[int] = []
        for position, pid in enumerate(pids):
            announced = watch.add(position, pid)
            if is_gone(position):
                gone.append(position)
            elif not announced:
                unannounced.append(position)
        while not gone and (left := deadline - time.monotonic()) > 0:
            gone = watch.wait(min(left, _TICK) if unannounced else left)
            gone += [position for position in unannounced if is_gone(position)]
        return gone


if sys.platform == "darwin":

    class _Watch:
        def __init__(self, opened: ExitStack) -> None:
            self._queue = select.kqueue()
            opened.callback(self._queue.close)
            self._positions: dict[int, list[int]] = {}

        def add(self, position: int, pid: int) -> bool:
            """Ask for the exit of a pid; false when it will not be announced."""
            event = select.kevent(
                pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT
            )
            try:
                self._queue.control([event], 0)
            except OSError:
                return False
            self._positions.setdefault(pid, []).append(position)
            return True

        def wait(self, seconds: float) -> list[int]:
            """Return the positions whose exits are announced within so many seconds."""
            events = self._queue.control([], max(1, len(self._positions)), seconds)
            return [position for event in events for position in self._positions[event.ident]]

else:

    class _Watch:
        def __init__(self, opened: ExitStack) -> None:
            self._poll = select.poll()
            self._opened = opened
            self._spare = spare_descriptors(_MOST)
            self._positions: dict[int, int] = {}

        def add(self, position: int, pid: int) -> bool:
            """Ask for the exit of a pid; false when it will not be announced."""
            if len(self._positions) >= self._spare:
                return False
            pidfd, _ = self._opened.enter_context(kernel.held(pid))
            if pidfd is None:
                return False
            self._poll.register(pidfd, select.POLLIN)
            self._positions[pidfd] = position
            return True

        def wait(self, seconds: float) -> list[int]:
            """Return the positions whose exits are announced within so many seconds."""
            return [self._positions[pidfd] for pidfd, _ in self._poll.poll(1000 * seconds)]
