"""How does a child end: which signals, when, and by whose wish? (E1-E4).

A machine without I/O, told what happened and what time it is. Whoever runs it looks whether the child has exited right
before it asks, and does both, and the signal, under one lock.
"""

from enum import Enum

from murmur.domain.launch.watcher import Deliberate, Exited

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL, in all, however often it is asked for (E1, E2)."""


class ChildSignal(Enum):
    """What is sent to a child."""

    TERM = "SIGTERM, then SIGCONT"
    KILL = "SIGKILL"


class ChildEnding:
    """One child from its start to its reap."""

    def __init__(self, grace: float = GRACE) -> None:
        self._grace = grace
        self._killed = False
        self.kill_at: float | None = None
        """The monotonic time of the SIGKILL; `None` before SIGTERM was sent."""
        self.reaped = False
        self.status: str | None = None
        """How it ended; `None` before, and for a status that nobody read."""

    def ask_to_end(self, now: float) -> ChildSignal | None:
        """End the child; say what to send. Asking again, or for one that has exited, sends nothing."""
        if self.reaped or self.kill_at is not None:
            return None
        self.kill_at = now + self._grace
        return ChildSignal.TERM

    def tick(self, now: float) -> ChildSignal | None:
        """Say what to send now that it is so late."""
        if self.kill_at is None or now < self.kill_at:
            return None
        return self.force()

    def force(self) -> ChildSignal | None:
        """End the child without the rest of its grace; say what to send. At most one SIGKILL is ever sent."""
        if self.reaped or self._killed:
            return None
        self._killed = True
        return ChildSignal.KILL

    def exited(self, status: str | None) -> None:
        """Take in that the child was reaped: nothing is sent from now on."""
        self.reaped = True
        self.status = status

    @property
    def is_being_ended(self) -> bool:
        """Whether it was asked to end and has not been reaped."""
        return self.kill_at is not None and not self.reaped

    @property
    def ending(self) -> Exited | Deliberate:
        """By whose wish it ended: its own, unless our signal went to a child that was still there (E3)."""
        return Exited(self.status) if self.kill_at is None else Deliberate()
