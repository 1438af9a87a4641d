"""Which of a session's events can still be read, by whoever comes late or was cut off?

Numbers begin at 1 and grow by one. The newest events are kept, up to a size; a reader keeps the number of the last it
has read and no copy of anything, so a hundred readers cost what one does.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murmur.domain.stream_frames import Frame

KEPT = 2 * 1024 * 1024
"""Bytes of events that are kept."""


class EventLog:
    """The newest events of one session."""

    def __init__(self, most: int = KEPT) -> None:
        self.most = most
        self._frames: dict[int, Frame] = {}
        self._ends: dict[int, int] = {}
        """How many bytes there were with that event, of all that there ever were."""
        self._newest: tuple[int, bytes, bytes] | None = None
        self._total = 0
        self._dropped = 0
        self.dropped_of: str | None = None
        """The task of the newest event that is not kept any more."""
        self.last = 0
        """The newest event's number; 0 before there is any."""

    @property
    def first(self) -> int:
        """The oldest event's number that is still kept; the next one's while there is none."""
        return self.last + 1 - len(self._frames)

    def add(self, frame: "Frame") -> int:
        """Take in an event; return its number."""
        self.last += 1
        self._frames[self.last] = frame
        self._total += frame.size
        self._ends[self.last] = self._total
        while self._total - self._dropped > self.most and len(self._frames) > 1:
            oldest = self.first
            self._dropped = self._ends.pop(oldest)
            self.dropped_of = self._frames.pop(oldest).task_id
        return self.last

    def get(self, number: int) -> "Frame":
        """Return an event that is kept."""
        return self._frames[number]

    def written(self, number: int, caller: bytes) -> bytes:
        """Write an event that is kept for the caller whose id is that JSON."""
        # One after the other, readers ask for the same; and most callers number their only call alike.
        if self._newest is None or self._newest[:2] != (number, caller):
            self._newest = number, caller, self._frames[number].written(caller, number)
        return self._newest[2]

    def behind(self, number: int) -> int:
        """How many bytes a reader has before it who has read up to that number."""
        return self._total - self._ends.get(number, self._dropped)
