"""Callers that send anything at all, or not enough, or leave: the door answers each, and the session goes on.

One real session is met by all of them; after each test it must be there, have printed nothing, and serve its card.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import h11
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from murmur.adapters.door_places import CONNECTIONS_LIMIT
from murmur.adapters.door_server import BODY_LIMIT, REQUEST_TIMEOUT
from tests.cli.conftest import Hosted, Hosts

CARD = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
REQUESTS, BATCH = 5000, 100
"""How many requests hypothesis makes, and how many of them go over one connection."""
ANSWER_WITHIN = 10.0
"""Seconds after which a missing answer is a hang."""


def answers(hosted: Hosted) -> bool:
    """Ask for the card until it is there: the connections that a test has just closed may hold their places still."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError):
            return card_status(hosted) == 200
    return False


@pytest.fixture
def session(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Start a session that takes tasks; at the end see that it was not disturbed."""
    manifest = {
        "name": "worker",
        "version": "0.1.0",
        # Waits for the gate when it is told to, so that a test can act while a task runs.
        "process": {"command": ["sh", "-c", 'read word; [ "$word" != slow ] || { echo up >up; cat gate; }; echo done']},
        "lifecycle": {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": 2},
    }
    path = tmp_path / "murmur.yaml"
    path.write_text(json.dumps(manifest))
    hosts = Hosts()
    try:
        hosted = hosts.from_manifest(path)
        yield hosted
        assert answers(hosted)
        assert hosted.process.poll() is None
        hosted.process.terminate()
        output, errors = hosted.process.communicate(timeout=20)
        assert (output, errors) == ("", "")
        logs = {each.name: each.read_text() for each in (hosted.records / "logs").iterdir()}
        assert not [name for name, content in logs.items() if "Traceback" in content or "Error" in content]
    finally:
        hosts.end()


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One connection to a session's door, read by h11. Closed when the door closes it, or by `close`."""

    def __init__(self, session: Hosted) -> None:
        host, _, port = session.ready["url"].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http = h11.Connection(our_role=h11.CLIENT)
        self.is_open = True

    def exchange(self, request: bytes) -> Answer:
        """Send one whole request and read its answer; close if there was to be no other."""
        with suppress(BrokenPipeError, ConnectionResetError):  # It answered before it had read all.
            self.socket.sendall(request)
        return self.answer()

    def answer(self, method: bytes = b"POST") -> Answer:
        """Read one answer. Raises `ConnectionError` when the door has closed without one."""
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())
        status, body = 0, b""
        while True:
            match self._http.next_event():
                case h11.NEED_DATA:
                    self._http.receive_data(self._received())
                case h11.Response(status_code=code, headers=headers):
                    status = code
                    if (b"content-type", b"text/event-stream") in headers:
                        self.close()  # It goes on for as long as the session does.
                        return Answer(status, b'{"jsonrpc": "2.0", "id": 1, "result": {}}')
                case h11.Data(data=more):
                    body += more
                case h11.EndOfMessage():
                    break
                case h11.ConnectionClosed():
                    self.close()
                    raise ConnectionAbortedError
                case _:
                    pass
        if self._http.their_state is h11.MUST_CLOSE:
            self.close()
        else:
            self._http.start_next_cycle()
        return Answer(status, body)

    def ends(self) -> bytes:
        """Wait until the door closes the connection; return what it said before."""
        said = b""
        if self.socket.fileno() < 0:  # The door said that it would, and was taken at its word.
            return said
        with suppress(ConnectionResetError):
            while data := self.socket.recv(65536):
                said += data
        self.close()
        return said

    def _received(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.is_open = False
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def card_status(session: Hosted) -> int:
    """Read a session's card on a connection of its own."""
    with Connection(session) as caller:
        return caller.exchange(CARD).status


def post(body: bytes, *headers: tuple[str, str], host: str = "localhost") -> bytes:
    """Write one request to the JSON-RPC endpoint."""
    lines = [("Host", host), ("Content-Length", str(len(body))), *headers]
    return b"POST / HTTP/1.1\r\n" + b"".join(f"{n}: {v}\r\n".encode("latin-1") for n, v in lines) + b"\r\n" + body


def rpc(method: str, params: object) -> bytes:
    return post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())


def sending(text: str, *, blocking: bool) -> bytes:
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}]}
    return rpc("message/send", {"message": message, "configuration": {"blocking": blocking}})


TEXTS = st.text(max_size=20) | st.sampled_from(["\ud800", "\0", "2.0", "tsk_", "NaN", "1e999", "user", "text"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)
METHODS = st.sampled_from(
    [
        "message/send",
        "message/stream",
        "tasks/get",
        "tasks/cancel",
        "session/stop",
        "stream/watch",
        "agent/getAuthenticatedExtendedCard",
        "Message/Send",
        "rpc.discover",
    ]
)


def record(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Make objects with any of those fields, each as it should be or anything at all, and perhaps another one."""
    known = st.fixed_dictionaries({}, optional={name: value | ANYTHING for name, value in fields.items()})
    return st.builds(lambda ours, more: more | ours, known, st.dictionaries(TEXTS, ANYTHING, max_size=1))


PARTS = st.lists(record(kind=st.sampled_from(["text", "file", "data"]), text=TEXTS), max_size=3)
MESSAGES = record(
    messageId=TEXTS, role=st.sampled_from(["user", "agent", "ROLE_USER"]), parts=PARTS, contextId=TEXTS, taskId=TEXTS
)
PARAMS = record(message=MESSAGES, id=TEXTS, configuration=record(blocking=st.booleans()))
CALLS = record(jsonrpc=st.just("2.0"), id=TEXTS | st.integers() | st.none(), method=METHODS, params=PARAMS)
WELL_FORMED = st.builds(
    lambda method, params: {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, METHODS, PARAMS
)
DOCUMENTS = CALLS | WELL_FORMED | st.lists(CALLS | ANYTHING, max_size=3) | ANYTHING


def cut(document: object, at: float) -> bytes:
    """Write a document, and break it off somewhere."""
    whole = json.dumps(document).encode()
    return whole[: int(len(whole) * at)]


BODIES = (
    st.builds(lambda document: json.dumps(document).encode(), DOCUMENTS)
    | st.builds(cut, DOCUMENTS, st.floats(0, 1))
    | st.binary(max_size=200)
    | st.sampled_from([b"", b"[" * 100_000, b'{"a":' * 20_000, b"1" * 10_000, b"\xef\xbb\xbf{}", b'"\\ud800"'])
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Content-Type", "Authorization", "A2A-Version", "X-Murmur-Task-Origin", "Accept-Encoding"]),
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20),
    ),
    max_size=2,
)


# Slow: it is 5,000 requests, some of which start a command.
@pytest.mark.slow
def test_no_request_at_all_is_answered_with_500_or_not_at_all(session: Hosted) -> None:
    made: list[bytes] = []

    @settings(
        max_examples=REQUESTS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(BODIES, HEADERS)
    def make(body: bytes, headers: list[tuple[str, str]]) -> None:
        made.append(post(body, *headers))

    make()
    # Hypothesis leaves out what it has made before, so that it may have made a few less.
    assert len(made) > REQUESTS * 0.9
    made += made[: REQUESTS - len(made)]

    def batch(start: int) -> list[tuple[bytes, object]]:
        surprises: list[tuple[bytes, object]] = []
        connection = Connection(session)
        for request in made[start : start + BATCH]:
            if not connection.is_open:
                connection = Connection(session)
            try:
                answer = connection.exchange(request)
            except (OSError, h11.ProtocolError) as error:
                surprises.append((request, error))
                connection.close()
                continue
            if not is_expected(answer):
                surprises.append((request, answer))
        connection.close()
        return surprises

    with ThreadPoolExecutor(4) as callers:
        surprises = [each for found in callers.map(batch, range(0, len(made), BATCH)) for each in found]
    assert surprises == []


def is_expected(answer: Answer) -> bool:
    """Whether an answer is JSON-RPC's, or a refusal that says what for."""
    document = answer.document
    if answer.status != 200:
        return 400 <= answer.status < 500 and isinstance(document["error"], str)
    outcome = document.get("error", {}).get("code") if "error" in document else "result"
    codes = (-32700, -32600, -32601, -32602, -32001, -32002, -32004, -32005, -32007, "result")
    return document["jsonrpc"] == "2.0" and "id" in document and outcome in codes


NO_CALLS = [
    (b"[]", -32600),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}}]', -32600),
    (b"null", -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "tasks/get"}', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "tasks/get"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": [1]}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": 7}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "tsk_x"}}', -32001),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "Tasks/Get", "params": {"id": "tsk_x"}}', -32601),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "tasks/get"}', -32700),
    (b"[" * 100_000, -32700),
    (b"", -32700),
]


def test_what_is_no_call_is_answered_with_the_error_of_its_kind(session: Hosted) -> None:
    with Connection(session) as caller:
        for body, code in NO_CALLS:
            answer = caller.exchange(post(body))
            assert (answer.status, answer.document["error"]["code"]) == (200, code), body[:100]


def test_a_body_of_10_mib_is_refused_and_one_of_the_limit_is_read(session: Hosted) -> None:
    with Connection(session) as caller:
        assert caller.exchange(post(b" " * BODY_LIMIT)).document["error"]["code"] == -32700
        assert caller.exchange(post(b" " * 10 * 1024 * 1024)).status == 413
        assert caller.ends() == b""
    chunk = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
    with Connection(session) as caller:
        chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 160
        assert caller.exchange(chunked).status == 413
        assert caller.ends() == b""


def test_a_request_that_calls_the_door_by_another_name_is_refused(session: Hosted) -> None:
    with Connection(session) as caller:
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""):
            for request in (post(b"{}", host=host), CARD.replace(b"Host: localhost", f"Host: {host}".encode())):
                answer = caller.exchange(request)
                assert (answer.status, answer.document["error"]) == (403, "forbidden_host")


NO_HTTP = [
    b"\0\1\2\3\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
]


def test_what_is_no_http_ends_its_connection_and_nothing_else(session: Hosted) -> None:
    for said in NO_HTTP:
        with Connection(session) as caller:
            with suppress(BrokenPipeError, ConnectionResetError):
                caller.socket.sendall(said)
            # The connection stays open on our side, so that it is the door that ends it.
            answer = caller.ends()
        assert answer[:11] in (b"", b"HTTP/1.1 40", b"HTTP/1.1 43", b"HTTP/1.1 50"), said[:100]
        assert b"500" not in answer[:13]


# Slow: it waits out the time that a request may take to arrive.
@pytest.mark.slow
def test_headers_and_bodies_that_come_too_slowly_cost_their_own_connection_only(session: Hosted) -> None:
    stalled = (b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: loc", post(b"{}" * 50)[:-50], CARD + b"GET /")
    with ExitStack() as opened:
        started = time.monotonic()
        callers = [opened.enter_context(Connection(session)) for _ in stalled]
        for caller, said in zip(callers, stalled, strict=True):
            caller.socket.settimeout(REQUEST_TIMEOUT + ANSWER_WITHIN)
            caller.socket.sendall(said)
        dripping = opened.enter_context(Connection(session))
        ended = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                dripping.socket.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
                while not ended.wait(0.2):
                    dripping.socket.sendall(b"X: y\r\n")

        slowly = threading.Thread(target=drip)
        slowly.start()
        assert card_status(session) == 200
        answers = [caller.ends() for caller in callers]
        dripping.socket.settimeout(REQUEST_TIMEOUT + ANSWER_WITHIN)
        assert dripping.ends() == b""
        ended.set()
        slowly.join()
        assert REQUEST_TIMEOUT - 0.5 < time.monotonic() - started < REQUEST_TIMEOUT + 5
    assert [answer[:13] for answer in answers] == [b""] * 4 + [b"HTTP/1.1 200 "]


def test_a_half_closed_connection_gets_its_answer_and_is_closed(session: Hosted) -> None:
    for request in (CARD, rpc("tasks/get", {"id": "x"})):
        with Connection(session) as caller:
            caller.socket.sendall(request)
            caller.socket.shutdown(socket.SHUT_WR)
            assert caller.answer().status == 200
            assert caller.ends() == b""
    with Connection(session) as caller:
        caller.socket.sendall(post(b"{}" * 50)[:-10])
        caller.socket.shutdown(socket.SHUT_WR)
        assert caller.ends()[:13] in (b"", b"HTTP/1.1 400 ")


def test_a_connection_beyond_the_limit_is_dropped_and_leaves_the_others_their_places(session: Hosted) -> None:
    with ExitStack() as opened:
        callers = [opened.enter_context(Connection(session)) for _ in range(CONNECTIONS_LIMIT)]
        for caller in callers:
            assert caller.exchange(CARD).status == 200
        with Connection(session) as one_more, suppress(ConnectionError):
            one_more.socket.sendall(CARD)
            assert one_more.ends() == b""
        assert all(caller.exchange(CARD).status == 200 for caller in callers)
        callers[0].socket.shutdown(socket.SHUT_RDWR)
        # Asked on another connection, whose answer comes after the door has seen the first one end.
        assert callers[1].exchange(CARD).status == 200
        with Connection(session) as next_one:
            assert next_one.exchange(CARD).status == 200


@pytest.mark.spec("M1")
def test_a_client_that_leaves_mid_task_leaves_the_task_to_its_end(session: Hosted, tmp_path: Path) -> None:
    leave: list[Callable[[Connection], None]] = [
        lambda caller: caller.close(),
        lambda caller: caller.socket.shutdown(socket.SHUT_WR),
        lambda caller: caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"),  # A reset.
    ]
    for name in ("up", "gate"):
        (tmp_path / name).unlink(missing_ok=True)
    for number, leaving in enumerate(leave, 1):
        for name in ("up", "gate"):
            make_fifo(tmp_path / name)
        with Connection(session) as caller:
            caller.socket.sendall(sending("slow", blocking=True))
            assert (tmp_path / "up").read_text() == "up\n"
            leaving(caller)
        (tmp_path / "gate").write_text("")
        with Connection(session) as other:
            after = other.exchange(sending("quick", blocking=True)).document["result"]
        assert after["status"] == {"state": "completed"}
        events = [json.loads(line) for line in (session.records / "trace.jsonl").read_text().splitlines()]
        ended = [event["exit_status"] for event in events if event["event_type"] == "task_end"]
        assert ended == [0, 0] * number


def make_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def test_a_client_that_reads_no_answers_is_not_buffered_for_without_end(session: Hosted) -> None:
    with Connection(session) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.socket.settimeout(0.2)
        before = resident(session)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(200):
                deaf.socket.sendall(CARD * 1000)
        with Connection(session) as other:
            assert other.exchange(CARD).status == 200
        assert resident(session) - before < 8 * 1024


def resident(session: Hosted) -> int:
    """Return the KiB of memory that a session's host holds for itself."""
    status = Path(f"/proc/{session.process.pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon:")).split()[1])
