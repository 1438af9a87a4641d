"""When does a hosted command end, by which signals, and with which exit status? (M1, M3, M5).

A machine without I/O, told what happened and what time it is. `mur run` runs it.
"""

from enum import Enum
from typing import assert_never

from murmur.domain.errors import FAILED, FORCED

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for the command's group (E1)."""


class GroupAction(Enum):
    """What the host does to the command's whole group."""

    TERM = "SIGTERM, then SIGCONT"
    KILL = "SIGKILL"


class Happening(Enum):
    """What the host saw."""

    ASKED_TO_END = "a signal to end"
    COMMAND_ENDED = "the command ended"
    GROUP_EMPTY = "nothing of the command's group is left"
    WATCHER_LOST = "the group's watcher ended"


class HostMachine:
    """One hosted command from its start to the end of its group."""

    def __init__(self, grace: float = GRACE) -> None:
        self.grace = grace
        self.ends_at: float | None = None
        """The monotonic time of the SIGKILL, while an ending is under way."""
        self.command_ended = False
        self.killed = False
        self._asked = False
        self._forced = False
        self._lost = False

    @property
    def done(self) -> bool:
        """Whether the command has ended and its group was killed or is empty."""
        return self.command_ended and self.killed

    def happened(self, what: Happening, now: float) -> GroupAction | None:
        """Take in one happening; say what to do to the group."""
        if what is Happening.COMMAND_ENDED:
            self.command_ended = True
        if self.killed:
            return None
        match what:
            case Happening.ASKED_TO_END if not self._asked:
                self._asked = True
                return self._begin(now) if self.ends_at is None else None
            case Happening.ASKED_TO_END:
                self._forced = True
                return self._kill()
            case Happening.WATCHER_LOST:
                # Without its watcher the command could outlive a killed host, so it ends now.
                self._lost = self._lost or not self._asked
                return self._begin(now) if self.ends_at is None else None
            case Happening.COMMAND_ENDED:
                # By itself: what it leaves behind goes at once. While ending: the rest of the group keeps its grace.
                return self._kill() if self.ends_at is None else None
            case Happening.GROUP_EMPTY:
                return self._kill() if self.command_ended else None
            case _:
                assert_never(what)

    def tick(self, now: float) -> GroupAction | None:
        """Take in that time has passed."""
        due = not self.killed and self.ends_at is not None and now >= self.ends_at
        return self._kill() if due else None

    def exit_status(self, returncode: int | None) -> int:
        """Say what the session ends with, given the command's own status (M5)."""
        if self._forced:
            return FORCED
        if self._lost:
            return FAILED
        return 0 if self._asked or returncode == 0 else FAILED

    def _begin(self, now: float) -> GroupAction:
        self.ends_at = now + self.grace
        return GroupAction.TERM

    def _kill(self) -> GroupAction:
        self.killed = True
        return GroupAction.KILL
