"""When is more to be read for those who watch, and whom does nobody wait for any longer?

What is streamed is in files already, so nothing is lost by reading on late, and the session never waits: more is read
when a reader has taken all there is. Readers that are behind are waited for, but not for ever: when those who read have
waited long enough, those they wait for are let go.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from murmur.domain.event_log import KEPT
from murmur.domain.value import Value

HOLD = KEPT // 2
"""Bytes that a reader may be behind before others are held up for it: what is read meanwhile pushes nothing out."""
PATIENCE = 1.0
"""Seconds that those who read wait for others, at most."""
REGAINED = 0.1
"""Seconds of that which come back with every second: whoever comes again and again costs no more than a tenth."""


class Reading(Protocol):
    """How far a reader is."""

    has_kept_up: bool
    """Whether it has ever been near: who brings a long past with it is not waited for."""

    @property
    def has_all(self) -> bool:
        """Whether it has taken everything that there is so far."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether what it would take next is not kept any more."""
        ...

    @property
    def backlog(self) -> int:
        """How many bytes of events it has not taken yet."""
        ...


class ReadMore(Value):
    """Somebody has taken all there is, and nobody is far behind."""


class Wait(Value):
    """Nobody wants more, or somebody is waited for until that time; `None` until one of them has taken something."""

    until: float | None


class LetGo(Value):
    """These are not waited for any longer."""

    readers: "Sequence[Reading]"


Step = ReadMore | Wait | LetGo


class StreamPace:
    """Decides, again and again, and keeps count of how long others have waited."""

    def __init__(self) -> None:
        self._most = self._left = PATIENCE
        self._waits = False
        self._looked = 0.0

    def hurry(self, patience: float) -> None:
        """Wait no longer than that from now on: the session has ended."""
        self._most = self._left = patience

    def step(self, readers: Collection[Reading], now: float) -> Step:
        """Say what is to be done for these. `now` is monotonic."""
        passed, self._looked = now - self._looked, now
        self._left = self._left - passed if self._waits else min(self._most, self._left + REGAINED * passed)
        self._waits = False
        if lost := [reader for reader in readers if reader.is_lost]:
            return LetGo(lost)
        behind = []
        for reader in readers:
            if reader.backlog <= HOLD:
                reader.has_kept_up = True
            elif reader.has_kept_up:
                behind.append(reader)
        if not any(reader.has_all for reader in readers):
            return Wait(None)
        if not behind:
            return ReadMore()
        if self._left <= 0:
            return LetGo(behind)
        self._waits = True
        return Wait(now + self._left)
