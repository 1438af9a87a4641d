"""A session's own door speaks HTTP to anybody, within bounds, and sleeps when nobody asks (M1, P1, X7)."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from socket import SocketIO
from typing import Any, Literal

import pytest

from murmur.adapters import door_places, door_server
from murmur.adapters.door_places import CONNECTIONS_LIMIT, WAITING_LIMIT
from murmur.adapters.door_server import BODY_LIMIT, DoorServer
from murmur.adapters.door_socket import bind_door
from murmur.adapters.doors import HttpDoors
from murmur.domain.cards import ServedSession
from murmur.domain.door import StopAnswer, card_ask, door_address, read_stop_answer, refusal_of_card, stop_ask
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.errors import DoorNotOpened
from murmur.domain.served_door import Door
from murmur.domain.task_board import TaskBoard
from tests.adapters.doors_for_tests import OTHER_SESSION, SESSION, elapsed_below
from tests.adapters.processes_for_tests import open_descriptors

CARD = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Serving:
    """A door server on a loop in a thread of its own."""

    def __init__(self, respond: door_server.Respond) -> None:
        self.server = DoorServer(respond)
        self.loop = asyncio.new_event_loop()
        self.complaints: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self.door, self.authority = bind_door("127.0.0.1", 0)
        self.port: int = self.door.getsockname()[1]

    def run(self, started: threading.Event) -> None:
        self.loop.run_until_complete(self.server.serve(self.door))
        self.loop.call_soon(started.set)
        self.loop.run_forever()
        self.loop.run_until_complete(self.server.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def inside(self, look: Any) -> Any:
        """Call a function on the loop and return what it returns."""

        async def call() -> Any:
            return look()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(5)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)


@contextmanager
def serving(respond: door_server.Respond) -> Iterator[Serving]:
    found, started = Serving(respond), threading.Event()
    thread = threading.Thread(target=found.run, args=(started,))
    thread.start()
    started.wait()
    try:
        yield found
    finally:
        found.loop.call_soon_threadsafe(found.loop.stop)
        thread.join()
    assert found.complaints == []


@pytest.fixture
def door() -> Iterator[Serving]:
    """The door of a session, served; nothing may go wrong inside it and no descriptor may be left."""
    before = open_descriptors()
    doors: list[Door] = []

    def respond(request: DoorRequest) -> DoorResponse:
        answered = doors[0].answer(request)
        assert isinstance(answered, DoorResponse)
        return answered

    with serving(respond) as found:
        session = ServedSession(SESSION, "worker", "1.0.0", found.authority)
        doors.append(Door(session, TaskBoard("none"), lambda prefix: f"{prefix}{0:032x}"))
        yield found
    assert open_descriptors() <= before


def echo(request: DoorRequest) -> DoorResponse:
    """Answer with what was asked."""
    return DoorResponse(200, json.dumps([request.method, request.target, len(request.body)]).encode())


@pytest.fixture
def echoing() -> Iterator[Serving]:
    with serving(echo) as found:
        yield found


def answer(client: socket.socket, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    """Read one answer and nothing after it."""
    response = HTTPResponse(_Unbuffered(client), method=method)  # type: ignore[arg-type]
    try:
        response.begin()
        return response.status, response.read(), {name.lower(): value for name, value in response.getheaders()}
    finally:
        response.close()


class _Unbuffered:
    """What `HTTPResponse` takes for a socket; it reads no byte more than it is asked for."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client

    def makefile(self, mode: Literal["rb"]) -> SocketIO:
        return self._client.makefile(mode, buffering=0)


def timers(serving: Serving) -> list[asyncio.TimerHandle]:
    """Return the timers that will wake the loop; called on it."""
    scheduled: list[asyncio.TimerHandle] = serving.loop._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled()]


def at_its_end(client: socket.socket) -> bool:
    """Whether the door hangs up without another byte."""
    try:
        return client.recv(65536) == b""
    except ConnectionResetError:
        return True


@pytest.mark.spec("M1", "P1", "P2")
def test_a_door_answers_the_probe_as_its_own_session(door: Serving) -> None:
    ask = card_ask(door.authority, None)
    (reading,) = HttpDoors().probe([ask])
    assert refusal_of_card(door.authority, SESSION, ask, reading) is None
    refusal = refusal_of_card(door.authority, OTHER_SESSION, ask, reading)
    assert refusal == f"the capsule at {door.authority} answers for session {SESSION}"


@pytest.mark.spec("O2")
def test_a_door_answers_session_stop_with_nothing_to_cancel(door: Serving) -> None:
    (reading,) = HttpDoors().probe([stop_ask(door.authority, None)])
    assert read_stop_answer(reading) == StopAnswer((), ())


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jsonrpc": "2.0", "id": 7, "method": "agent/getAuthenticatedExtendedCard", "params": {}}, -32007),
        ({"jsonrpc": "2.0", "id": 7, "method": "message/send"}, -32601),
        ({"jsonrpc": "2.0", "id": 7, "method": "Session/Stop"}, -32601),
        ({"jsonrpc": "1.0", "id": 7, "method": "session/stop"}, -32600),
        ({"jsonrpc": "2.0", "id": [], "method": "session/stop"}, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "session/stop"}, -32600),
        ([], -32600),
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b"\xff", -32700),
        (b"", -32700),
    ],
)
def test_a_call_that_cannot_be_served_gets_its_json_rpc_error(body: object, code: int, door: Serving) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        status, answered, _ = answer(client)
    document = json.loads(answered)
    assert status == 200
    assert document["error"]["code"] == code
    assert document["id"] == (7 if isinstance(body, dict) and body["id"] == 7 else None)


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("method", "target", "status", "allow"),
    [
        ("POST", "/.well-known/agent-card.json", 405, "GET, HEAD"),
        ("GET", "/", 405, "POST"),
        ("DELETE", "/?a=b", 405, "POST"),
        ("GET", "/other", 404, None),
        ("GET", "/.well-known/agent-card.json/", 404, None),
        ("OPTIONS", "*", 404, None),
        ("CONNECT", "a:1", 404, None),
        ("GET", "/.well-known/agent-card.json?a=b", 200, None),
    ],
)
def test_other_paths_and_methods_get_their_status(
    method: str, target: str, status: int, allow: str | None, door: Serving
) -> None:
    with door.connect() as client:
        client.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        got, body, headers = answer(client)
    assert (got, headers.get("allow")) == (status, allow)
    assert isinstance(json.loads(body), dict)
    assert headers["content-type"] == "application/json"


@pytest.mark.spec("M1")
def test_head_of_the_card_has_its_headers_and_no_body(door: Serving) -> None:
    with door.connect() as client:
        client.sendall(CARD)
        _, body, headers = answer(client)
        client.sendall(CARD.replace(b"GET", b"HEAD") + CARD)
        assert answer(client, "HEAD") == (200, b"", headers)
        assert answer(client) == (200, body, headers)


@pytest.mark.spec("M1")
def test_one_connection_carries_one_request_after_another(echoing: Serving) -> None:
    with echoing.connect() as client:
        for number in range(3):
            client.sendall(b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" % number)
            assert answer(client)[:2] == (200, b'["POST", "/%d", 3]' % number)


@pytest.mark.spec("M1")
def test_requests_sent_at_once_are_answered_in_their_order(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(50)))
        assert [answer(client)[1] for _ in range(50)] == [b'["GET", "/%d", 0]' % number for number in range(50)]


@pytest.mark.spec("M1")
def test_a_request_may_come_a_byte_at_a_time(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n":
            client.sendall(bytes([byte]))
        assert answer(client)[1] == b'["POST", "/a", 2]'


@pytest.mark.spec("M1")
@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.0", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close"])
def test_a_caller_that_wants_one_answer_is_hung_up_on_after_it(request_line: bytes, echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(request_line + b"\r\n\r\n")
        assert answer(client)[1] == b'["GET", "/", 0]'
        assert at_its_end(client)


@pytest.mark.spec("W6")
def test_the_door_gets_the_headers_of_its_own_by_their_names_in_lower_case() -> None:
    seen: list[DoorRequest] = []

    def respond(request: DoorRequest) -> DoorResponse:
        seen.append(request)
        return DoorResponse(200, b"{}")

    sent = (
        "X-Murmur-Task-Origin: completion\r\nx-murmur-odd: \xe9\r\nX-Murmur: no\r\nX-Other: no\r\nHost: localhost\r\n"
    )
    with serving(respond) as found, found.connect() as client:
        client.sendall(f"GET / HTTP/1.1\r\n{sent}\r\n".encode("latin-1"))
        assert answer(client)[0] == 200
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer(client)[0] == 200
    assert [dict(request.headers) for request in seen] == [
        {"x-murmur-task-origin": "completion", "x-murmur-odd": "\xe9"},
        {},
    ]


@pytest.mark.spec("M1")
def test_a_caller_that_waits_to_be_told_to_continue_is_told(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(10) == b"HTTP/1.1 1"
        client.sendall(b"ab")
        while client.recv(1) != b"\n" or client.recv(2) != b"\r\n":
            pass
        assert answer(client)[1] == b'["POST", "/", 2]'


@pytest.mark.spec("M1")
def test_a_caller_that_closes_its_sending_half_still_gets_its_answers(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert [answer(client)[1] for _ in range(2)] == [b'["GET", "/1", 0]', b'["GET", "/2", 0]']
        assert at_its_end(client)


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "junk",
    [
        b"junk\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_bad_request_and_ends_the_connection(junk: bytes, door: Serving) -> None:
    with door.connect() as client:
        client.sendall(junk)
        status, body, _ = answer(client)
        assert (status, json.loads(body)["error"]) == (400, "bad_request")
        assert at_its_end(client)


@pytest.mark.spec("M1")
def test_a_good_request_before_a_bad_one_is_answered(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\njunk\r\n\r\n")
        assert answer(client)[1] == b'["GET", "/1", 0]'
        assert answer(client)[0] == 400
        assert at_its_end(client)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_mebibyte_is_taken_and_one_of_a_byte_more_is_too_large(chunked: bool, echoing: Serving) -> None:
    for size, status in ((BODY_LIMIT, 200), (BODY_LIMIT + 1, 413)):
        with echoing.connect() as client:
            body = b"a" * size
            if chunked:
                client.sendall(
                    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s" % (size, body)
                )
                if status == 200:
                    client.sendall(b"\r\n0\r\n\r\n")
            else:
                client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (size, body))
            got, answered, _ = answer(client)
            assert got == status
            if status == 200:
                assert json.loads(answered) == ["POST", "/", BODY_LIMIT]
            else:
                assert json.loads(answered)["error"] == "body_too_large"
                assert at_its_end(client)


@pytest.mark.spec("M1")
def test_headers_without_end_are_refused(echoing: Serving) -> None:
    with echoing.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 100_000)
        assert answer(client)[0] in (400, 431)
        assert at_its_end(client)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("begun", [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"])
def test_a_request_that_is_not_whole_in_time_ends_the_connection(
    begun: bytes, echoing: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_server, "REQUEST_TIMEOUT", 0.1)
    with echoing.connect() as client, elapsed_below(0.6):
        client.sendall(begun)
        assert at_its_end(client)


@pytest.mark.spec("M1")
def test_dripping_a_request_wins_no_time(echoing: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_server, "REQUEST_TIMEOUT", 0.1)
    with echoing.connect() as client, elapsed_below(0.6):
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        client.settimeout(0.01)
        ended = False
        while not ended:
            try:
                client.sendall(b"a")
                ended = at_its_end(client)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                ended = True


@pytest.mark.spec("M1")
def test_an_answered_connection_has_a_whole_timeout_for_the_next_request(echoing: Serving) -> None:
    with echoing.connect() as client:
        due: list[float] = []
        for _ in range(3):
            asked = echoing.loop.time()
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer(client)[0] == 200
            (left,) = echoing.inside(lambda: [timer.when() for timer in timers(echoing)])
            assert left >= asked + door_server.REQUEST_TIMEOUT
            due.append(left)
        assert due == sorted(set(due))


@pytest.mark.spec("M1")
def test_one_connection_more_than_the_limit_is_refused_until_another_ends(echoing: Serving) -> None:
    def is_served(client: socket.socket) -> bool:
        try:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            return answer(client)[0] == 200
        except (ConnectionResetError, BrokenPipeError, ConnectionAbortedError):
            return False
        except Exception as error:  # noqa: BLE001 - http.client has its own for a connection that ends at once
            assert type(error).__name__ == "RemoteDisconnected"  # noqa: PT017
            return False

    with ExitStack() as opened:
        clients = [opened.enter_context(echoing.connect()) for _ in range(CONNECTIONS_LIMIT)]
        assert all(is_served(client) for client in clients)
        for _ in range(3):
            with echoing.connect() as one_more:
                assert not is_served(one_more)
        assert all(is_served(client) for client in clients)
        clients[0].shutdown(socket.SHUT_WR)
        assert at_its_end(clients[0])
        with echoing.connect() as another:
            assert is_served(another)


@pytest.mark.spec("M1")
def test_callers_that_break_off_anywhere_leave_the_door_open(echoing: Serving) -> None:
    whole = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
    for cut in range(len(whole) + 1):
        for reset in (True, False):
            with echoing.connect() as client:
                client.sendall(whole[:cut])
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with echoing.connect() as client:
            client.sendall(whole)
            assert answer(client)[0] == 200


def unsent(server: DoorServer) -> int:
    """Return how many bytes wait to be sent on the connection that has most."""
    transports = [connection._transport for connection in server._connections]
    return max((transport.get_write_buffer_size() for transport in transports if transport is not None), default=0)


@pytest.mark.spec("M1")
def test_a_caller_that_reads_no_answer_cannot_pile_them_up() -> None:
    def generous(request: DoorRequest) -> DoorResponse:
        return DoorResponse(200, b"a" * 262_144)

    with serving(generous) as door, door.connect() as client:
        client.settimeout(0.2)
        asked = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 50
        piled_up = 0
        try:
            for _ in range(4):
                client.sendall(asked)
                piled_up = max(piled_up, door.inside(lambda: unsent(door.server)))
        except TimeoutError:
            pass  # The door has stopped reading: it does not let answers pile up.
    assert piled_up < 8 * 1024 * 1024


class Waiting:
    """Answers what is asked of `/wait` when it is told to, and anything else at once with the crowd it was told of."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[DoorResponse]] = []
        self.door: Serving

    def respond(self, request: DoorRequest) -> "DoorResponse | asyncio.Future[DoorResponse]":
        if request.target != "/wait":
            return DoorResponse(200, json.dumps(request.crowd).encode())
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def wait(self, client: socket.socket) -> None:
        """Ask on that connection, and see that the door waits."""
        before = len(self.answers)
        client.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        self.until(lambda: len(self.answers) > before)

    def until(self, holds: Any) -> None:
        deadline = time.monotonic() + 5
        while not self.door.inside(holds):
            assert time.monotonic() < deadline

    def release(self, which: int = 0) -> None:
        self.door.inside(lambda: self.answers.pop(which).set_result(DoorResponse(200, b"{}")))

    def crowd(self) -> object:
        with self.door.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return json.loads(answer(client)[1])


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    found = Waiting()
    with serving(found.respond) as found.door:
        yield found
        found.until(lambda: not found.door.server._connections)


def is_dropped(client: socket.socket, data: bytes) -> bool:
    """Whether the door ends the connection while it is sent that."""
    try:
        client.sendall(data)
        return at_its_end(client)
    except (BrokenPipeError, ConnectionResetError):
        return True
    except TimeoutError:
        return False


@pytest.mark.spec("M1")
def test_what_is_sent_ahead_of_an_answer_is_kept_up_to_a_request_and_no_further(waiting: Waiting) -> None:
    with waiting.door.connect() as client:
        waiting.wait(client)
        for _ in range(2):  # What was kept before counts still when the next answer is waited for.
            client.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            waiting.release()
            assert answer(client)[0] == 200
            waiting.until(lambda: len(waiting.answers) == 1)
        client.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (BODY_LIMIT, b"a" * BODY_LIMIT))
        waiting.release()
        assert answer(client)[0] == 200
        waiting.until(lambda: len(waiting.answers) == 1)
        client.settimeout(2)
        assert is_dropped(client, b"a" * 200_000)


@pytest.mark.spec("M1")
def test_a_request_of_the_limit_sent_ahead_of_an_answer_is_answered_after_it(waiting: Waiting) -> None:
    with waiting.door.connect() as client:
        waiting.wait(client)
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (BODY_LIMIT, b"a" * BODY_LIMIT))
        waiting.release()
        assert [answer(client)[1] for _ in range(2)] == [b"{}", b"null"]


@pytest.mark.spec("M1")
def test_a_flood_ahead_of_an_answer_ends_its_connection_and_the_wait(waiting: Waiting) -> None:
    with waiting.door.connect() as client:
        waiting.wait(client)
        assert is_dropped(client, b"a" * 32 * 1024 * 1024)
        waiting.until(waiting.answers[0].cancelled)


@pytest.mark.spec("M1")
def test_some_of_the_places_are_kept_for_callers_that_do_not_wait(waiting: Waiting) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(waiting.door.connect()) for _ in range(WAITING_LIMIT)]
        for client in clients:
            assert waiting.crowd() is None
            waiting.wait(client)
        assert waiting.crowd() == WAITING_LIMIT == 56
        waiting.release()
        assert answer(clients[0])[0] == 200
        assert waiting.crowd() is None
        waiting.wait(clients[0])
        assert waiting.crowd() == WAITING_LIMIT
        clients[1].close()
        waiting.until(lambda: len(waiting.door.server._connections.waiting) == WAITING_LIMIT - 1)
        assert waiting.crowd() is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("places", "may_wait"), [(1, 1), (2, 1), (7, 2), (24, 7), (191, 55), (192, 56)])
def test_where_there_are_fewer_places_fewer_may_wait(places: int, may_wait: int) -> None:
    assert door_places.Places(places)._waiting_most == may_wait


@pytest.mark.spec("X7")
def test_a_door_nobody_is_connected_to_has_no_timer(echoing: Serving) -> None:
    assert len(echoing.inside(lambda: timers(echoing))) == 0
    with echoing.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer(client)
        assert len(echoing.inside(lambda: timers(echoing))) == 1
        client.shutdown(socket.SHUT_WR)
        assert at_its_end(client)
    assert len(echoing.inside(lambda: timers(echoing))) == 0


@pytest.mark.spec("M1")
def test_closing_the_door_drops_its_connections_and_refuses_new_ones() -> None:
    with serving(echo) as door, ExitStack() as opened:
        clients = [opened.enter_context(door.connect()) for _ in range(3)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer(client)
        asyncio.run_coroutine_threadsafe(door.server.close(), door.loop).result(5)
        assert all(at_its_end(client) for client in clients)
        with pytest.raises(ConnectionRefusedError):
            door.connect()


@pytest.mark.spec("M1")
def test_closing_a_door_that_was_never_served_is_nothing() -> None:
    asyncio.run(DoorServer(echo).close())


@pytest.mark.spec("R1", "M1")
@pytest.mark.parametrize(
    ("address", "recorded"),
    [
        ("127.0.0.1", "localhost"),
        ("localhost", "localhost"),
        ("0.0.0.0", "localhost"),
        ("::", "localhost"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "[::1]"),
    ],
)
def test_a_bound_door_is_recorded_as_an_address_that_leads_to_it(address: str, recorded: str) -> None:
    door, authority = bind_door(address, 0)
    with door:
        assert authority == f"{recorded}:{door.getsockname()[1]}"
        found = door_address(authority)
        with socket.create_connection((found.hosts[0], found.port), timeout=5):
            pass


@pytest.mark.spec("M1")
@pytest.mark.parametrize("address", ["worker.example", "", "127.1", "[::1]", "127.0.0.1:80"])
def test_a_door_is_bound_to_an_address_and_not_to_a_name(address: str) -> None:
    with pytest.raises(DoorNotOpened, match="it is no IP address"):
        bind_door(address, 0)


@pytest.mark.spec("M1")
def test_a_port_that_is_taken_and_an_address_of_another_machine_are_told() -> None:
    before = open_descriptors()
    door, _ = bind_door("127.0.0.1", 0)
    with door, pytest.raises(DoorNotOpened) as taken:
        bind_door("127.0.0.1", door.getsockname()[1])
    assert "address already in use" in taken.value.message
    with pytest.raises(DoorNotOpened, match="cannot assign requested address"):
        bind_door("192.0.2.77", 0)
    assert open_descriptors() <= before


@pytest.mark.spec("M1")
def test_a_caller_whose_answer_cannot_be_made_is_hung_up_on_and_does_not_wait() -> None:
    def respond(_: DoorRequest) -> asyncio.Future[DoorResponse]:
        async def fail() -> DoorResponse:
            raise ZeroDivisionError

        return asyncio.ensure_future(fail())

    with serving(respond) as found:
        with found.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1) == b""
        (complaint,) = found.complaints
        found.complaints.clear()
    assert isinstance(complaint["exception"], ZeroDivisionError)
