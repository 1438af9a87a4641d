"""A door's stream is passed on as it comes, by whoever watches it, for as long as the door says anything (O4, P4)."""

import threading
import time
from collections.abc import Callable

import pytest

from murmur.adapters.doors import HttpDoors
from murmur.domain.door import Answered, AskLimits, DoorReading, NoAnswer
from murmur.domain.secret import DoorToken
from murmur.domain.sse import HEARTBEAT, event_bytes
from murmur.domain.watching import watch_ask
from tests.adapters.doors_for_tests import (
    Caller,
    Script,
    ScriptedDoor,
    answering,
    blackhole,
    closed_port,
    elapsed_below,
    http,
    silent,
)

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

LIMITS = AskLimits(connect=0.2, read=0.3, total=float("inf"), body=10_000)
TOKEN = DoorToken("mdt1.secret-payload.secret-mac")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED, UNTIL_CLOSED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD + b"Connection: close\r\n\r\n"
END = b"0\r\n\r\n"


def event(number: int, size: int = 0) -> bytes:
    return event_bytes("artifact", b'"%b"' % (b"x" * size), number)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Sink:
    """Takes what is passed on, until it has enough."""

    def __init__(self, enough: int | None = None) -> None:
        self.pieces: list[bytes] = []
        self._enough = enough

    def __call__(self, data: bytes) -> bool:
        assert data
        assert self._enough is None or self.size < self._enough, "it had enough"
        self.pieces.append(data)
        return self._enough is None or self.size < self._enough

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def endless(data: bytes, *, after: bytes = b"") -> Script:
    """Make a script that says the same for ever, after something else."""

    def script(caller: Caller) -> None:
        caller.send(after)
        caller.endlessly(data)

    return script


def listened(
    script: Script, sink: Callable[[bytes], bool], limits: AskLimits = LIMITS, token: DoorToken | None = None
) -> DoorReading:
    """Listen to a door that behaves like this."""
    with ScriptedDoor(script) as door:
        return HttpDoors(limits).listen(watch_ask(door.url, token, 7), sink)


@pytest.mark.spec("O4")
def test_a_stream_is_asked_for_with_its_token_and_the_last_event_seen() -> None:
    with ScriptedDoor(answering(CHUNKED, END)) as door:
        HttpDoors(LIMITS).listen(watch_ask(door.url, TOKEN, 7), Sink())
    head, _, body = door.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST / HTTP/1.1"
    assert {b"Accept: text/event-stream", b"Last-Event-ID: 7"} <= set(lines)
    assert b"Authorization: Bearer " + TOKEN.expose().encode() in lines
    assert b'"stream/watch"' in body


@pytest.mark.spec("O4")
@pytest.mark.parametrize("is_chunked", [True, False])
def test_events_are_passed_on_as_they_come_and_before_the_end(is_chunked: bool) -> None:
    heard = threading.Semaphore(0)
    sink = Sink()

    def take(data: bytes) -> bool:
        heard.release()
        return sink(data)

    def script(caller: Caller) -> None:
        caller.send(CHUNKED if is_chunked else UNTIL_CLOSED)
        for number in range(5):
            caller.send(chunk(event(number)) if is_chunked else event(number))
            # The next is not sent before this one has been passed on.
            assert heard.acquire(timeout=5)
        if is_chunked:
            caller.send(END)

    assert listened(script, take) == Answered(200, b"")
    assert sink.pieces == [event(number) for number in range(5)]


@pytest.mark.spec("O4")
def test_a_stream_is_not_kept_however_long_it_is() -> None:
    def script(caller: Caller) -> None:
        caller.send(CHUNKED)
        for number in range(100):
            caller.send(chunk(event(number, 50_000)))
        caller.send(END)

    sink = Sink()
    assert listened(script, sink) == Answered(200, b"")
    assert sink.data == b"".join(event(number, 50_000) for number in range(100))
    assert max(map(len, sink.pieces)) <= 65536


@pytest.mark.spec("O4")
@pytest.mark.parametrize("enough", [1, 100, 200_000])
def test_who_has_enough_is_given_no_more_and_hangs_up(enough: int) -> None:
    hung_up = threading.Event()

    def script(caller: Caller) -> None:
        caller.send(CHUNKED)
        try:
            caller.endlessly(chunk(event(1) * 100))
        except ConnectionError:
            hung_up.set()
            raise

    sink = Sink(enough)
    with ScriptedDoor(script) as door:
        assert HttpDoors(LIMITS).listen(watch_ask(door.url, None, None), sink) == Answered(200, b"")
        assert hung_up.wait(5)
    assert enough <= sink.size < enough + 65536


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "kind", ["text/event-stream", "Text/Event-Stream", "text/event-stream; charset=utf-8", "text/event-stream;x=y"]
)
def test_a_stream_is_known_by_its_content_type(kind: str) -> None:
    sink = Sink()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode()
    assert listened(answering(head, event(1)), sink) == Answered(200, b"")
    assert sink.data == event(1)


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "header", ["Content-Type: text/plain", "Content-Type: application/json", "X-Other: a", "Content-Type:"]
)
def test_what_is_no_stream_comes_back_as_the_answer_it_is(header: str) -> None:
    sink = Sink()
    head = f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n".encode()
    assert listened(answering(head, event(1)), sink) == Answered(200, event(1))
    assert sink.pieces == []


@pytest.mark.spec("O4")
def test_an_error_of_json_rpc_comes_back_as_the_body() -> None:
    sink, refusal = Sink(), {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "128 streams are open"}}
    reading = listened(answering(http(refusal)), sink)
    assert isinstance(reading, Answered)
    assert (reading.status, b"128 streams" in reading.body, sink.pieces) == (200, True, [])


@pytest.mark.spec("O4")
@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "500 No", "302 Found"])
def test_an_answer_that_is_no_success_is_no_stream_whatever_it_says(status: str) -> None:
    sink = Sink()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/event-stream\r\n\r\n".encode()
    assert listened(answering(head, event(1)), sink) == Answered(int(status[:3]), event(1))
    assert sink.pieces == []


@pytest.mark.spec("O4")
def test_an_answer_that_is_no_stream_is_bounded() -> None:
    def script(caller: Caller) -> None:
        caller.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        caller.endlessly(b"x" * 1000)

    assert listened(script, Sink()) == NoAnswer("the door's answer is larger than 10000 bytes")


NOT_HTTP = NoAnswer("the door answered with something that is not HTTP")


@pytest.mark.spec("O4", "P4")
@pytest.mark.parametrize(
    "script",
    [
        answering(b"\xff\xfe\x00junk\r\n\r\n"),
        answering(event(1)),
        answering(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000),
        endless(b"X-Header: a\r\n"),
        endless(b"X-Header: a\r\n", after=b"HTTP/1.1 200 OK\r\n"),
        endless(b"x" * 1000, after=HEAD),
        endless(b"f" * 1000, after=CHUNKED),
        endless(b"x" * 1000, after=CHUNKED + b"1;"),
        answering(CHUNKED + b"zz\r\n"),
        answering(CHUNKED + b"-1\r\n"),
        answering(CHUNKED + b"2\r\nabc\r\n"),
        answering(HEAD + b"Content-Length: many\r\n\r\n"),
    ],
)
def test_what_is_no_http_ends_the_listening(script: Script) -> None:
    with elapsed_below(1.0):
        assert listened(script, Sink()) == NOT_HTTP


@pytest.mark.spec("O4", "P4")
def test_a_chunk_of_any_announced_size_is_passed_on_in_pieces_and_not_waited_for() -> None:
    sink = Sink(200_000)
    assert listened(endless(b"x" * 1000, after=CHUNKED + b"ffffffffffff\r\n"), sink) == Answered(200, b"")
    assert max(map(len, sink.pieces)) <= 65536


@pytest.mark.spec("O4", "P4")
@pytest.mark.parametrize("said", [b"", CHUNKED[:20], CHUNKED, CHUNKED + chunk(event(1)), CHUNKED + b"5\r\nab"])
def test_silence_ends_the_listening_wherever_it_begins(said: bytes) -> None:
    def script(caller: Caller) -> None:
        caller.send(said)
        silent(caller)

    with elapsed_below(1.0):
        assert listened(script, Sink()) == NoAnswer("timed out after 0.3s without an answer")


@pytest.mark.spec("O4", "P4")
def test_a_stream_lasts_for_as_long_as_the_door_says_that_it_is_alive() -> None:
    def script(caller: Caller) -> None:
        caller.send(UNTIL_CLOSED)
        for _ in range(6):
            caller.closing.wait(0.1)
            caller.send(HEARTBEAT)

    sink, begun = Sink(), time.monotonic()
    assert listened(script, sink) == Answered(200, b"")
    assert time.monotonic() - begun > 2 * LIMITS.read - 0.05
    assert sink.data == HEARTBEAT * 6


@pytest.mark.spec("O4", "P4")
def test_time_that_whoever_listens_takes_for_itself_is_no_silence_of_the_door() -> None:
    sink, heard = Sink(), threading.Event()

    def take(data: bytes) -> bool:
        heard.set()
        # As one that writes into a pipe whose reader has paused.
        time.sleep(LIMITS.read + 0.1)
        return sink(data)

    def script(caller: Caller) -> None:
        caller.send(CHUNKED + chunk(event(1)))
        assert heard.wait(5)
        caller.send(chunk(event(2)) + END)

    assert listened(script, take) == Answered(200, b"")
    assert sink.data == event(1) + event(2)


@pytest.mark.spec("P4")
def test_a_stream_is_bounded_in_time_where_the_limits_say_so() -> None:
    def script(caller: Caller) -> None:
        caller.send(UNTIL_CLOSED)
        caller.drip(HEARTBEAT * 100, 0.01)

    with elapsed_below(1.0):
        reading = listened(script, Sink(), AskLimits(connect=0.2, read=0.3, total=0.4))
    assert reading == NoAnswer("timed out after 0.4s before the answer was whole")


@pytest.mark.spec("O4")
@pytest.mark.parametrize("is_reset", [True, False])
def test_a_door_that_breaks_off_is_told_of_and_what_came_before_is_passed_on(is_reset: bool) -> None:
    heard = threading.Event()

    def take(data: bytes) -> bool:
        heard.set()
        return sink(data)

    def script(caller: Caller) -> None:
        caller.send(CHUNKED + chunk(event(1)))
        assert heard.wait(5)
        if is_reset:
            caller.reset()

    sink = Sink()
    reading = listened(script, take)
    broken_off = "the door closed the connection before the end of its answer"
    assert reading == NoAnswer("connection reset by peer" if is_reset else broken_off)
    assert sink.data == event(1)


@pytest.mark.spec("O4")
def test_a_door_that_is_not_there_is_no_answer() -> None:
    with closed_port() as port:
        assert HttpDoors(LIMITS).listen(watch_ask(f"localhost:{port}", None, None), Sink()) == NoAnswer(
            "connection refused"
        )
    with blackhole() as port, elapsed_below(1.0):
        reading = HttpDoors(LIMITS).listen(watch_ask(f"127.0.0.1:{port}", None, None), Sink())
        assert reading == NoAnswer("timed out after 0.2s without a connection")


@pytest.mark.spec("O4", "I3")
def test_a_token_that_cannot_be_sent_is_not_sent_and_not_told() -> None:
    reading = HttpDoors(LIMITS).listen(watch_ask("localhost:1", DoorToken("a\nb"), None), Sink())
    assert reading == NoAnswer("the recorded token cannot be sent in a header")


@pytest.mark.spec("O4")
def test_what_goes_wrong_with_whoever_listens_is_its_own_and_leaves_nothing_open() -> None:
    class Broken(Exception):
        pass

    def take(_: bytes) -> bool:
        raise Broken

    with pytest.raises(Broken):
        listened(answering(CHUNKED + chunk(event(1))), take)


@pytest.mark.spec("P4")
def test_an_answer_that_nobody_listens_to_is_read_as_before() -> None:
    with ScriptedDoor(answering(UNTIL_CLOSED, event(1))) as door:
        (reading,) = HttpDoors(LIMITS).probe([watch_ask(door.url, None, None)])
    assert reading == Answered(200, event(1))
