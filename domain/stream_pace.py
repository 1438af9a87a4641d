"""When is more to be read for those who watch, and whom does nobody wait for any longer?

What is streamed is in files already, so nothing is lost by reading on late, and the session never waits: more is read
when a reader has taken all there is. Readers that are behind are waited for, but not for ever: one that keeps others
waiting and does not catch up is let go.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from murmur.domain.event_log import KEPT
from murmur.domain.value import Value

HOLD = KEPT // 2
"""Bytes that a reader may be behind before others are held up for it: what is read meanwhile pushes nothing out."""
PATIENCE = 1.0
"""Seconds that a reader may hold others up, all in all, until it has caught up."""


class Reading(Protocol):
    """How far a reader is."""

    held: float
    """Seconds that others have waited for it since it last had everything."""

    @property
    def has_all(self) -> bool:
        """Whether it has taken everything that there is so far."""
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
    """These have kept others waiting for too long."""

    readers: "Sequence[Reading]"


Step = ReadMore | Wait | LetGo


class StreamPace:
    """Decides, again and again, and keeps count of who holds others up."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._behind: Sequence[Reading] = ()
        self._looked = 0.0

    def step(self, readers: Collection[Reading], now: float) -> Step:
        """Say what is to be done for these. `now` is monotonic."""
        for reader in self._behind:
            reader.held += now - self._looked
        self._behind, self._looked = (), now
        wanted = False
        for reader in readers:
            if reader.has_all:
                wanted, reader.held = True, 0.0
        if not wanted:
            return Wait(None)
        self._behind = [reader for reader in readers if reader.backlog > HOLD]
        if not self._behind:
            return ReadMore()
        late = [reader for reader in self._behind if reader.held >= self.patience]
        return LetGo(late) if late else Wait(now + self.patience - max(reader.held for reader in self._behind))
