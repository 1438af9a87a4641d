"""How many callers may a door have at once, and of which kinds?"""

from typing import Generic, TypeVar

CONNECTIONS_LIMIT = 192
"""Connections that are served at once, of whatever kind."""
STREAMS_LIMIT = 128
"""Connections that may be streams at once."""
WAITING_LIMIT = 56
"""Connections that may wait for tasks at once; the places left are for callers that are answered at once."""

_Caller = TypeVar("_Caller")


class Places(set[_Caller], Generic[_Caller]):
    """The callers there are, those that wait, and those that have a stream."""

    def __init__(self, most: int) -> None:
        """Have so many places, as many of each kind as that is of the limit."""
        super().__init__()
        self.most = most
        self.waiting: set[_Caller] = set()
        self.streams: set[_Caller] = set()
        self._streams_most = max(1, most * STREAMS_LIMIT // CONNECTIONS_LIMIT)
        self._waiting_most = max(1, most * WAITING_LIMIT // CONNECTIONS_LIMIT)

    @property
    def watched(self) -> int | None:
        """How many streams there are, where there may be no further one."""
        return len(self.streams) if len(self.streams) >= self._streams_most else None

    @property
    def crowd(self) -> int | None:
        """How many wait, where no further one may."""
        return len(self.waiting) if len(self.waiting) >= self._waiting_most else None
