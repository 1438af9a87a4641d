"""A door's connection carries a stream to whoever reads it, and is not held up by whoever does not (M1, X7)."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from murmur.adapters import door_events, door_places, door_server
from murmur.adapters.door_events import EventSource
from murmur.adapters.door_places import CONNECTIONS_LIMIT, STREAMS_LIMIT
from murmur.adapters.door_server import BODY_LIMIT
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.sse import HEARTBEAT, event_bytes
from tests.adapters.doors_for_tests import elapsed_below
from tests.adapters.processes_for_tests import open_descriptors
from tests.adapters.test_door_server import Serving, answer, is_dropped, serving, timers, unsent

ASKED = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
REASON = event_bytes("error", b'{"error":"why"}')


def event(number: int, size: int = 0) -> bytes:
    return event_bytes("artifact", b'"%b"' % (b"x" * size), number)


class Source(EventSource):
    """Gives what it is told to, one event at a time. Used on the loop alone."""

    def __init__(self, *events: bytes) -> None:
        self.wake = lambda: None
        self.events = deque(events)
        self.taken = 0
        self.is_ended = False
        self.closings = 0

    @property
    def is_over(self) -> bool:
        return self.is_ended and not self.events

    def take(self) -> bytes:
        if not self.events:
            return b""
        self.taken += 1
        return self.events.popleft()

    def close(self) -> None:
        self.closings += 1


class Streaming:
    """Answers a POST with a stream, and a GET with how many there are where no more may be."""

    def __init__(self) -> None:
        self.door: Serving
        self.sources: list[Source] = []
        self.prepared: tuple[bytes, ...] = ()

    def respond(self, request: DoorRequest) -> "DoorResponse | EventSource":
        if request.method != "POST":
            return DoorResponse(200, json.dumps(request.watched).encode())
        self.sources.append(Source(*self.prepared))
        return self.sources[-1]

    def watch(self, client: socket.socket, *prepared: bytes, asked: bytes = ASKED) -> Source:
        """Ask for a stream that has those events; return its source."""
        before, self.prepared = len(self.sources), prepared
        client.sendall(asked)
        self.until(lambda: len(self.sources) > before)
        return self.sources[-1]

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 5
        while not self.door.inside(holds):
            assert time.monotonic() < deadline

    def say(self, source: Source, *events: bytes, is_end: bool = False) -> None:
        def say() -> None:
            source.events += events
            source.is_ended = is_end
            source.wake()

        self.door.inside(say)

    def cut(self, source: Source) -> None:
        """End it as one who is not waited for any longer."""

        def cut() -> None:
            source.events = deque([REASON])
            source.is_ended = source.is_cut = True
            source.wake()

        self.door.inside(cut)

    def is_stalled(self, source: Source) -> bool:
        """Whether nothing more is taken for its client, though there is more."""
        stalled = [each._stream for each in self.door.server._connections if each._unread]
        return bool(source.events) and any(each is not None and each._source is source for each in stalled)

    def unsent(self) -> int:
        """How many bytes wait to be sent to the only client."""
        return unsent(self.door.server)

    def watched(self) -> object:
        with self.door.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return json.loads(answer(client)[1])


@pytest.fixture
def streaming() -> Iterator[Streaming]:
    """A door with streams; at the end every source is closed, and nothing is left of a connection."""
    before = open_descriptors()
    found = Streaming()
    with serving(found.respond) as found.door:
        yield found
        found.until(lambda: not found.door.server._connections)
        assert found.door.inside(lambda: timers(found.door)) == []
        assert not found.door.server._connections.streams
    assert [source.closings for source in found.sources] == [1] * len(found.sources)
    assert open_descriptors() <= before


class Reader:
    """What a client reads, chunk by chunk."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._rest = b""

    def more(self) -> bool:
        data = self._client.recv(65536)
        self._rest += data
        return bool(data)

    def line(self) -> bytes:
        while b"\r\n" not in self._rest:
            assert self.more(), self._rest
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def head(self) -> tuple[bytes, dict[str, str]]:
        """Read the status line and the headers."""
        status, headers = self.line(), {}
        while line := self.line():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def chunk(self) -> bytes:
        """Read a chunk, which is empty at the end of the answer."""
        size = int(self.line(), 16)
        while len(self._rest) < size + 2:
            assert self.more(), self._rest
        data, ended, self._rest = self._rest[:size], self._rest[size : size + 2], self._rest[size + 2 :]
        assert ended == b"\r\n"
        return data

    def chunks(self) -> list[bytes]:
        """Read chunks up to the last, and see that the connection ends with it."""
        found = list(iter(self.chunk, b""))
        assert self.everything() == b""
        return found

    def everything(self) -> bytes:
        """Read up to the connection's end."""
        while self.more():
            pass
        rest, self._rest = self._rest, b""
        return rest


def slow(door: Serving) -> socket.socket:
    """Connect as a client whose own kernel takes little."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(5)
    client.connect(("127.0.0.1", door.port))
    return client


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.spec("M1")
def test_a_stream_is_an_answer_in_chunks_that_is_the_connection_s_last(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client)
        reader = Reader(client)
        status, headers = reader.head()
        assert status == b"HTTP/1.1 200 "
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache"
        assert headers["connection"] == "close"
        assert headers["transfer-encoding"] == "chunked"
        assert "content-length" not in headers
        streaming.say(source, is_end=True)
        assert reader.chunks() == []


@pytest.mark.spec("M1")
def test_whole_events_are_a_chunk_and_come_as_soon_as_there_are_any(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client, event(1), event(2) + event(3))
        reader = Reader(client)
        reader.head()
        assert [reader.chunk(), reader.chunk()] == [event(1), event(2) + event(3)]
        for number in range(4, 8):
            streaming.say(source, event(number))
            assert reader.chunk() == event(number)
        streaming.say(source, event(8, 1_000_000), event(9), is_end=True)
        assert reader.chunks() == [event(8, 1_000_000), event(9)]


@pytest.mark.spec("M1")
def test_a_stream_that_is_over_when_it_begins_ends_at_once(streaming: Streaming) -> None:
    class Over(Source):
        def __init__(self, *events: bytes) -> None:
            super().__init__(*events)
            self.is_ended = True

    def respond(_: DoorRequest) -> EventSource:
        streaming.sources.append(Over(event(1)))
        return streaming.sources[-1]

    streaming.door.inside(lambda: setattr(streaming.door.server, "_respond", respond))
    with streaming.door.connect() as client, elapsed_below(1.0):
        client.sendall(ASKED)
        reader = Reader(client)
        reader.head()
        assert reader.chunks() == [event(1)]


@pytest.mark.spec("M1")
def test_a_client_of_http_1_0_gets_the_events_as_they_are(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        asked = ASKED.replace(b"HTTP/1.1", b"HTTP/1.0")
        source = streaming.watch(client, event(1), asked=asked)
        reader = Reader(client)
        assert "transfer-encoding" not in reader.head()[1]
        streaming.say(source, event(2), is_end=True)
        assert reader.everything() == event(1) + event(2)


@pytest.mark.spec("M1")
def test_while_nothing_happens_a_comment_says_that_the_connection_is_alive(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_events, "HEARTBEAT_INTERVAL", 0.05)
    with streaming.door.connect() as client:
        source = streaming.watch(client)
        reader = Reader(client)
        reader.head()
        assert [reader.chunk() for _ in range(3)] == [HEARTBEAT] * 3
        streaming.say(source, event(1))
        found = [reader.chunk() for _ in range(2)]
        assert sorted(found) == sorted([HEARTBEAT, event(1)])
        streaming.say(source, is_end=True)
        assert set(reader.chunks()) <= {HEARTBEAT}
    assert HEARTBEAT.startswith(b":")


@pytest.mark.spec("X7")
def test_a_stream_has_one_timer_which_is_far_off(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client, event(1))
        left = streaming.door.inside(lambda: [timer.when() for timer in timers(streaming.door)])
        assert len(left) == 1
        assert 14 < left[0] - streaming.door.loop.time() <= 15
        streaming.say(source, is_end=True)
        Reader(client).everything()


@pytest.mark.spec("M1")
def test_of_a_client_that_does_not_read_little_is_taken_and_once_it_reads_nothing_is_lost(
    streaming: Streaming,
) -> None:
    events = [event(number, 4000) for number in range(2000)]
    with slow(streaming.door) as client:
        source = streaming.watch(client, *events)
        streaming.until(lambda: streaming.is_stalled(source))
        # Here 64 KiB, in the kernel twice the 128 KiB that it is told, and what the client's own takes.
        assert source.taken * len(events[0]) < 512 * 1024
        assert streaming.door.inside(streaming.unsent) <= 64 * 1024 + 2 * len(events[0])
        taken = source.taken
        streaming.say(source)
        assert source.taken == taken
        reader = Reader(client)
        reader.head()
        streaming.say(source, event(2000), is_end=True)
        assert reader.chunks() == [*events, event(2000)]


@pytest.mark.spec("M1")
def test_heartbeats_do_not_pile_up_for_a_client_that_does_not_read(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_events, "HEARTBEAT_INTERVAL", 0.001)
    events = [event(number, 4000) for number in range(500)]
    with slow(streaming.door) as client:
        source = streaming.watch(client, *events)
        streaming.until(lambda: streaming.is_stalled(source))
        before = streaming.door.inside(streaming.unsent)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), streaming.door.loop).result(5)
        assert streaming.door.inside(streaming.unsent) == before
        streaming.say(source, is_end=True)
        reader = Reader(client)
        reader.head()
        assert [chunk for chunk in reader.chunks() if chunk != HEARTBEAT] == events


@pytest.mark.spec("M1")
def test_a_client_that_does_not_read_holds_up_nobody_else(streaming: Streaming) -> None:
    with slow(streaming.door) as stalled, streaming.door.connect() as client:
        source = streaming.watch(stalled, *[event(number, 4000) for number in range(500)])
        streaming.until(lambda: streaming.is_stalled(source))
        other = streaming.watch(client, event(1))
        reader = Reader(client)
        reader.head()
        assert reader.chunk() == event(1)
        assert streaming.watched() is None
        streaming.say(other, is_end=True)
        assert reader.chunks() == []


@pytest.mark.spec("M1")
def test_a_client_that_is_let_go_while_it_does_not_read_may_still_read_why(streaming: Streaming) -> None:
    events = [event(number, 4000) for number in range(500)]
    with slow(streaming.door) as client:
        source = streaming.watch(client, *events)
        streaming.until(lambda: streaming.is_stalled(source))
        taken = source.taken
        streaming.cut(source)
        assert source.events == deque()
        reader = Reader(client)
        reader.head()
        assert reader.chunks() == [*events[:taken], REASON]


@pytest.mark.spec("M1")
def test_a_client_that_is_let_go_and_never_reads_is_hung_up_on(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_events, "LINGER", 0.2)
    with slow(streaming.door) as client:
        source = streaming.watch(client, *[event(number, 4000) for number in range(500)])
        streaming.until(lambda: streaming.is_stalled(source))
        begun = time.monotonic()
        streaming.cut(source)
        streaming.until(lambda: source.closings)
        assert 0.1 < time.monotonic() - begun < 1.0


@pytest.mark.spec("M1")
def test_a_client_that_reads_when_it_is_let_go_has_the_reason_at_once(streaming: Streaming) -> None:
    with streaming.door.connect() as client, elapsed_below(1.0):
        source = streaming.watch(client, event(1))
        reader = Reader(client)
        reader.head()
        assert reader.chunk() == event(1)
        streaming.cut(source)
        assert reader.chunks() == [REASON]


def closed(client: socket.socket) -> None:
    client.close()


def half_closed(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("leave", [closed, reset, half_closed])
@pytest.mark.parametrize("amount", [0, 10])
def test_when_its_client_is_gone_a_source_is_told(
    streaming: Streaming, leave: Callable[[socket.socket], None], amount: int
) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client, *[event(number) for number in range(amount)])
        leave(client)
        streaming.until(lambda: source.closings)
        # What comes too late for it does no harm.
        streaming.say(source, event(1), is_end=True)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("leave", [closed, reset])
def test_when_a_client_goes_that_did_not_read_its_source_is_told(
    streaming: Streaming, leave: Callable[[socket.socket], None]
) -> None:
    with slow(streaming.door) as client:
        source = streaming.watch(client, *[event(number, 4000) for number in range(500)])
        streaming.until(lambda: streaming.is_stalled(source))
        leave(client)
        streaming.until(lambda: source.closings)
        streaming.cut(source)


@pytest.mark.spec("M1")
def test_where_as_many_streams_are_open_as_may_be_the_next_request_is_told(streaming: Streaming) -> None:
    with ExitStack() as opened:
        # One after the other: the kernel keeps few for a door that has not taken them yet.
        clients = []
        for _ in range(STREAMS_LIMIT - 1):
            clients.append(opened.enter_context(streaming.door.connect()))
            streaming.watch(clients[-1])
        assert streaming.watched() is None
        streaming.watch(opened.enter_context(streaming.door.connect()))
        assert streaming.watched() == STREAMS_LIMIT == 128
        clients[0].close()
        streaming.until(lambda: streaming.sources[0].closings)
        assert streaming.watched() is None
        with streaming.door.connect() as another:
            streaming.watch(another)
            assert streaming.watched() == STREAMS_LIMIT


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("places", "streams"), [(1, 1), (2, 1), (3, 2), (24, 16), (191, 127), (192, 128)])
def test_where_there_are_fewer_places_fewer_may_be_streams(places: int, streams: int) -> None:
    assert CONNECTIONS_LIMIT == 192
    assert door_places.Places(places)._streams_most == streams


@pytest.mark.spec("M1")
def test_a_request_behind_a_stream_is_not_answered(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client, event(1), asked=ASKED + ASKED)
        client.sendall(ASKED * 10)
        streaming.say(source, event(2), is_end=True)
        reader = Reader(client)
        reader.head()
        assert reader.chunks() == [event(1), event(2)]
    assert len(streaming.sources) == 1


@pytest.mark.spec("M1")
def test_what_is_sent_behind_a_stream_is_bounded(streaming: Streaming) -> None:
    with streaming.door.connect() as client:
        source = streaming.watch(client, asked=ASKED + b"x" * 1000)
        client.sendall(b"x" * BODY_LIMIT)
        streaming.say(source, event(1))
        reader = Reader(client)
        reader.head()
        assert reader.chunk() == event(1)
        client.settimeout(2)
        assert is_dropped(client, b"x" * 200_000)
        streaming.until(lambda: source.closings)


@pytest.mark.spec("M1")
def test_what_is_sent_behind_a_stream_by_one_that_does_not_read_is_bounded(streaming: Streaming) -> None:
    with slow(streaming.door) as client:
        source = streaming.watch(client, *[event(number, 4000) for number in range(500)])
        streaming.until(lambda: streaming.is_stalled(source))
        client.settimeout(0.2)
        with suppress(TimeoutError, ConnectionError):
            client.sendall(b"x" * 64 * 1024 * 1024)
            pytest.fail("64 MiB were taken from a client that does not read")


@pytest.mark.spec("M1")
def test_a_stream_needs_no_request_in_time_any_more(streaming: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_server, "REQUEST_TIMEOUT", 0.05)
    with streaming.door.connect() as client:
        source = streaming.watch(client)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), streaming.door.loop).result(5)
        streaming.say(source, event(1), is_end=True)
        reader = Reader(client)
        reader.head()
        assert reader.chunks() == [event(1)]


def flush(streaming: Streaming) -> None:
    asyncio.run_coroutine_threadsafe(streaming.door.server.flush(), streaming.door.loop).result(5)


@pytest.mark.spec("M1")
def test_at_the_session_s_end_nobody_waits_for_a_client_that_does_not_read(streaming: Streaming) -> None:
    with slow(streaming.door) as client, elapsed_below(1.0):
        source = streaming.watch(client, *[event(number, 4000) for number in range(500)])
        streaming.until(lambda: streaming.is_stalled(source))
        streaming.cut(source)
        flush(streaming)
        assert source.closings == 0
        reader = Reader(client)
        reader.head()
        assert reader.chunks()[-1] == REASON


@pytest.mark.spec("M1")
def test_at_the_session_s_end_who_reads_has_everything_before_the_door_goes(streaming: Streaming) -> None:
    events = [event(number, 4000) for number in range(100)]
    found: list[bytes] = []
    with streaming.door.connect() as client, elapsed_below(1.0):

        def read() -> None:
            reader = Reader(client)
            reader.head()
            found.extend(reader.chunks())

        reading = threading.Thread(target=read)
        source = streaming.watch(client)
        reading.start()
        streaming.say(source, *events, is_end=True)
        streaming.until(lambda: source.is_over)
        flush(streaming)
        reading.join(5)
    assert found == events


@pytest.mark.spec("M1")
def test_closing_the_door_ends_its_streams_and_tells_their_sources(streaming: Streaming) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(slow(streaming.door)) for _ in range(3)]
        sources = [streaming.watch(client, *[event(n, 4000) for n in range(500)]) for client in clients]
        asyncio.run_coroutine_threadsafe(streaming.door.server.close(), streaming.door.loop).result(5)
        streaming.until(lambda: all(source.closings for source in sources))


@pytest.mark.spec("M1")
def test_a_hundred_clients_that_leave_in_the_middle_leave_nothing(streaming: Streaming) -> None:
    for number in range(100):
        leave: Any = (closed, reset, half_closed)[number % 3]
        with slow(streaming.door) as client:
            source = streaming.watch(client, *[event(each, 4000) for each in range(number % 7 * 20)])
            if number % 2:
                Reader(client).head()
            if number % 5 == 0:
                streaming.cut(source)
            leave(client)
    streaming.until(lambda: not streaming.door.server._connections)
