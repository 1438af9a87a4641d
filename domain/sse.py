"""How are server-sent events written, and read again in bounded memory? (the WHATWG's text/event-stream)."""

from murmur.domain.value import Value

HEARTBEAT = b":heartbeat\n\n"
"""A comment, which is no event: it says that the connection is alive."""
HEARTBEAT_INTERVAL = 15.0
"""Seconds between two of them."""
EVENT_LIMIT = 16 * 1024 * 1024
"""Bytes of an event that are read: a task's result has up to 1 MiB, which JSON may write six times as long, twice."""


class Event(Value):
    """One event: its kind, its data, and its number where it has one."""

    kind: str
    data: str
    number: int | None = None


class EventTooLong(ValueError):
    """An event without an end within the limit."""


def event_bytes(kind: str, data: bytes, number: int | None = None) -> bytes:
    """Write one event. Its data is JSON, which has no line break."""
    head = b"" if number is None else b"id: %d\n" % number
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind.encode(), data)


class EventReader:
    """Reads events from bytes that arrive in whatever pieces."""

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._searched = 0
        self._size = 0
        self._begin()

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that are whole now. Raises `EventTooLong`."""
        self._rest += data
        events = []
        # Only `\n` and `\r\n` end a line here: a lone `\r` is what the standard allows and nobody writes.
        while (end := self._rest.find(b"\n", self._searched)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            self._searched = 0
            self._size += len(line)
            if line:
                self._take(line)
            else:
                events += self._ended()
        self._searched = len(self._rest)
        if self._size + len(self._rest) > self._limit:
            raise EventTooLong
        return events

    def _begin(self) -> None:
        self._kind = "message"
        self._number: int | None = None
        self._data: list[str] = []
        self._size = 0

    def _take(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "id" if value.isascii() and value.isdecimal() and len(value) <= 20:
                self._number = int(value)
            case _:  # A comment, or a field that means nothing here.
                pass

    def _ended(self) -> list[Event]:
        event = Event(self._kind, "\n".join(self._data), self._number)
        has_data = bool(self._data)
        self._begin()
        return [event] if has_data else []
