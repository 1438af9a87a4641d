"""What is sent to a session's door and what its answer makes of the session, over real sockets (P1-P6)."""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from murmur.adapters import door_exchange
from murmur.adapters.doors import HttpDoors
from murmur.adapters.processes import SystemProcesses
from murmur.domain.door import Answered, AskLimits, NoAnswer, card_ask, stop_ask, task_ask
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.liveness import Live, Liveness, Unreachable, verify, verify_all
from murmur.domain.process import Gone
from murmur.domain.record import RunningRecord
from murmur.domain.secret import DoorToken, SpawnCredential
from tests.adapters.doors_for_tests import (
    OTHER_SESSION,
    SESSION,
    ScriptedDoor,
    answering,
    blackhole,
    card,
    closed_port,
    elapsed_below,
    http,
    silent,
)
from tests.adapters.processes_for_tests import open_descriptors

LIMITS = AskLimits(connect=0.2, read=0.3, total=0.5)
DOORS = HttpDoors(LIMITS)
PROCESSES = SystemProcesses()
TOKEN = DoorToken("mdt1.secret-payload.secret-mac")


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """No test here may leave a descriptor open."""
    DOORS.probe([])
    before = open_descriptors()
    yield
    assert open_descriptors() <= before


def record(
    url: str,
    token: DoorToken | None = None,
    session_id: str = SESSION,
    *,
    pid: int | None = None,
    process_start: str | None = None,
) -> RunningRecord:
    """Make the record of a session that this very process hosts."""
    return RunningRecord(
        session_id=session_id,
        url=url,
        pid=os.getpid() if pid is None else pid,
        process_start=PROCESSES.own_origin().process_start or "" if process_start is None else process_start,
        capsule_name="worker",
        capsule_version="1.0.0",
        workdir="/work",
        outlives_launcher=True,
        started_at="2026-01-01T00:00:00Z",
        door_token=token,
    )


def verdict(url: str, token: DoorToken | None = None) -> Liveness:
    return verify(record(url, token), PROCESSES, DOORS)


def parts(request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Take a request apart: its first line, its headers by lower-case name, its body."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = [line.split(": ", 1) for line in lines]
    assert len({name.lower() for name, _ in headers}) == len(headers)
    return first, {name.lower(): value for name, value in headers}, body


@pytest.mark.spec("P1")
def test_a_public_door_is_asked_for_its_card_with_exactly_this_request() -> None:
    with ScriptedDoor(answering(http(card()))) as door:
        assert verdict(door.url) == Live()
    assert [parts(request) for request in door.requests] == [
        (
            "GET /.well-known/agent-card.json HTTP/1.1",
            {"host": door.url, "connection": "close", "accept": "application/json"},
            b"",
        )
    ]


@pytest.mark.spec("P1", "I3")
def test_a_door_with_a_token_is_asked_for_its_extended_card_with_exactly_this_request() -> None:
    with ScriptedDoor(answering(http({"jsonrpc": "2.0", "id": 1, "result": card()}))) as door:
        assert verdict(door.url, TOKEN) == Live()
    ((first, headers, body),) = [parts(request) for request in door.requests]
    assert first == "POST / HTTP/1.1"
    assert headers == {
        "host": door.url,
        "connection": "close",
        "content-type": "application/json",
        "accept": "application/json",
        "content-length": str(len(body)),
        "authorization": f"Bearer {TOKEN.expose()}",
    }
    assert json.loads(body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "agent/getAuthenticatedExtendedCard",
        "params": {},
    }
    assert door.requests[0].count(TOKEN.expose().encode()) == 1


@pytest.mark.spec("P1")
def test_an_empty_token_is_a_token() -> None:
    with ScriptedDoor(answering(http({"result": card()}))) as door:
        assert verdict(door.url, DoorToken("")) == Live()
    first, headers, _ = parts(door.requests[0])
    assert first == "POST / HTTP/1.1"
    assert headers["authorization"] == "Bearer"


@pytest.mark.spec("P1", "O2")
def test_a_session_and_its_tasks_are_asked_about_over_the_same_wire() -> None:
    with ScriptedDoor(answering(http({"result": {}}))) as door:
        asks = [stop_ask(door.url, TOKEN), stop_ask(door.url, None), task_ask(door.url, TOKEN, "tsk_1")]
        for ask in asks:
            assert DOORS.probe([ask]) == [Answered(200, b'{"result": {}}')]
    sent = [parts(request) for request in door.requests]
    assert [json.loads(body) for _, _, body in sent] == [
        {"jsonrpc": "2.0", "id": 1, "method": "session/stop", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "session/stop", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "tsk_1"}},
    ]
    bearer = f"Bearer {TOKEN.expose()}"
    assert [headers.get("authorization") for _, headers, _ in sent] == [bearer, None, bearer]


@pytest.mark.spec("P1")
@pytest.mark.parametrize("scheme", ["http://", "https://", "http://http://", "http://https://"])
def test_a_recorded_scheme_is_dropped_and_plain_http_is_spoken(scheme: str) -> None:
    with ScriptedDoor(answering(http(card()))) as door:
        assert verdict(scheme + door.url) == Live()
    assert parts(door.requests[0])[1]["host"] == door.url


@pytest.mark.spec("P1", "P3")
def test_a_door_of_another_session_is_named_with_the_url_as_recorded() -> None:
    with ScriptedDoor(answering(http(card(OTHER_SESSION)))) as door:
        url = f"http://{door.url}"
        assert verdict(url) == Unreachable(f"the capsule at {url} answers for session {OTHER_SESSION}")


@pytest.mark.spec("P4")
def test_a_refused_connection_is_told_as_such() -> None:
    with closed_port() as port:
        for token in (None, TOKEN):
            assert verdict(f"localhost:{port}", token) == Unreachable("connection refused")
            assert verdict(f"[::1]:{port}", token) == Unreachable("connection refused")


@pytest.mark.spec("P4")
@pytest.mark.parametrize("token", [None, TOKEN])
def test_localhost_is_ipv6_only_after_ipv4_was_refused(token: DoorToken | None) -> None:
    body = card() if token is None else {"result": card()}
    with closed_port() as port:
        pass
    with (
        socket.socket() as nobody,
        ScriptedDoor(answering(http(body)), "::1", port) as six,
    ):
        nobody.bind(("127.0.0.1", port))
        assert verdict(f"localhost:{port}", token) == Live()
        assert six.connections == 1


@pytest.mark.spec("P4")
def test_localhost_is_not_tried_in_ipv6_after_an_answer_in_ipv4() -> None:
    with (
        ScriptedDoor(answering(http(card(OTHER_SESSION)))) as four,
        ScriptedDoor(answering(http(card())), "::1", four.port) as six,
    ):
        assert isinstance(verdict(four.url), Unreachable)
    assert (four.connections, six.connections) == (1, 0)


@pytest.mark.spec("P4")
def test_localhost_is_not_tried_in_ipv6_after_silence_in_ipv4() -> None:
    with blackhole() as port, ScriptedDoor(answering(http(card())), "::1", port) as six:
        assert verdict(f"localhost:{port}") == Unreachable("timed out after 0.2s without a connection")
    assert six.connections == 0


@pytest.mark.spec("P4")
@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.EACCES, errno.ETIMEDOUT])
def test_localhost_is_not_tried_in_ipv6_after_another_failure_in_ipv4(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.socket.connect_ex

    def fail_in_ipv4(self: socket.socket, address: tuple[str, int]) -> int:
        return number if self.family is socket.AF_INET else connect(self, address)

    with ScriptedDoor(answering(http(card())), "::1") as six:
        monkeypatch.setattr(socket.socket, "connect_ex", fail_in_ipv4, raising=False)
        found = verdict(six.url)
        monkeypatch.undo()
    assert found == Unreachable(os.strerror(number).lower())
    assert six.connections == 0


@pytest.mark.spec("P4")
@pytest.mark.parametrize("wildcard", ["0.0.0.0", "[::]", "[::ffff:0.0.0.0]"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_wildcard_address_is_asked_as_localhost(wildcard: str, token: DoorToken | None) -> None:
    body = card() if token is None else {"result": card()}
    with ScriptedDoor(answering(http(body))) as door:
        assert verdict(f"{wildcard}:{door.port}", token) == Live()
    assert door.connections == 1


@pytest.mark.spec("P4")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "LOCALHOST", "[::ffff:127.0.0.1]"])
def test_a_token_goes_to_any_loopback_address(host: str) -> None:
    bound = "127.0.0.2" if host == "127.0.0.2" else "127.0.0.1"
    with ScriptedDoor(answering(http({"result": card()})), bound) as door:
        assert verdict(f"{host}:{door.port}", TOKEN) == Live()


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every socket that an exchange would open; none can be."""
    opened: list[object] = []

    def refuse(*arguments: object) -> None:
        opened.append(arguments)
        raise OSError(97, os.strerror(97))

    monkeypatch.setattr(socket, "socket", refuse)
    return opened


@pytest.mark.spec("P4", "I3")
@pytest.mark.parametrize(
    "address",
    ["192.0.2.7:7000", "10.0.0.1:80", "128.0.0.1:80", "[fe80::1]:80", "[fd00::7]:80", "[::ffff:192.0.2.7]:80"],
)
def test_a_token_for_an_address_off_loopback_causes_no_connection(address: str, sockets: list[object]) -> None:
    for token in (TOKEN, DoorToken("")):
        reason = f"the door at {address} is not on loopback, so its token was not sent"
        assert verdict(f"http://{address}", token) == Unreachable(reason)
    assert sockets == []


@pytest.mark.spec("P4")
def test_without_a_token_an_address_off_loopback_is_asked(sockets: list[object]) -> None:
    assert isinstance(verdict("192.0.2.7:7000"), Unreachable)
    assert sockets == [(socket.AF_INET, socket.SOCK_STREAM)]


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    "url", ["worker.example:80", "localhost.example:80", "127.1:80", "0x7f000001:80", "localhost", "localhost:0", ""]
)
def test_a_name_or_half_an_address_causes_neither_a_look_up_nor_a_connection(
    url: str, sockets: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: sockets.append(arguments))
    for token in (None, TOKEN):
        assert isinstance(verdict(url, token), Unreachable)
    assert sockets == []


@pytest.mark.spec("P4")
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"])
def test_a_proxy_of_the_environment_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedDoor(answering(http(card()))) as door, ScriptedDoor(answering(http(card()))) as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert verdict(door.url) == Live()
        assert verdict(f"http://127.0.0.1:{door.port}") == Live()
    assert (door.connections, proxy.connections) == (2, 0)


@pytest.mark.spec("P5", "P4")
def test_a_gone_or_unverified_session_s_door_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedDoor(answering(http(card()))) as door:
        gone = record(door.url, TOKEN, process_start="1")
        assert isinstance(verify(gone, PROCESSES, DOORS), Gone)
        nobody = record(door.url, TOKEN, pid=0)
        assert verify(nobody, PROCESSES, DOORS) == Gone("no process holds pid 0")
    assert door.connections == 0


@pytest.mark.spec("P6")
def test_one_silent_door_degrades_its_own_row_only() -> None:
    with ExitStack() as opened:
        doors = [opened.enter_context(ScriptedDoor(answering(http(card())))) for _ in range(5)]
        frozen = opened.enter_context(ScriptedDoor(silent))
        records = [record(door.url) for door in (*doors[:2], frozen, *doors[2:])]
        with elapsed_below(LIMITS.total + 0.4):
            verdicts = verify_all(records, PROCESSES, DOORS)
    assert verdicts.pop(2) == Unreachable("timed out after 0.3s without an answer")
    assert verdicts == 5 * [Live()]


@pytest.mark.spec("P6")
def test_many_frozen_doors_cost_one_deadline() -> None:
    with ScriptedDoor(silent) as door, elapsed_below(LIMITS.total + 0.4):
        readings = DOORS.probe([card_ask(door.url, None)] * 40)
    assert readings == 40 * [NoAnswer("timed out after 0.3s without an answer")]


@pytest.mark.spec("P6")
def test_two_hundred_doors_are_asked_at_once() -> None:
    with ExitStack() as opened:
        doors = [opened.enter_context(ScriptedDoor(answering(http(card(f"ses_{n}"))))) for n in range(200)]
        records = [record(door.url, session_id=f"ses_{n}") for n, door in enumerate(doors)]
        verdicts = verify_all(records, PROCESSES, HttpDoors())
    assert verdicts == 200 * [Live()]


@pytest.mark.spec("P6")
def test_asking_no_door_is_no_work() -> None:
    assert HttpDoors().probe([]) == []


# A process of its own, whose descriptor limit is lowered before it asks. The import of what speaks HTTP comes first
# or not, since it needs descriptors as well.
_ASKING = """
import os, resource, sys
from murmur.adapters.doors import HttpDoors
from murmur.domain.door import Answered, AskLimits, card_ask
from murmur.domain.errors import OutOfDescriptors
if sys.argv[1] == "imported":
    import murmur.adapters.door_exchange
asks = [card_ask(url, None) for url in sys.argv[3:]]
limit = len(os.listdir("/proc/self/fd")) - 1 + int(sys.argv[2])
before = os.listdir("/proc/self/fd")
usual = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, usual[1]))
try:
    readings = HttpDoors(AskLimits(5, 5, 5)).probe(asks)
    print(sum(isinstance(reading, Answered) for reading in readings), "answered")
except OutOfDescriptors:
    print("out of descriptors")
resource.setrlimit(resource.RLIMIT_NOFILE, usual)
print(os.listdir("/proc/self/fd") == before)
"""


def asking(imported: str, spare: int, urls: list[str]) -> list[str]:
    done = subprocess.run(
        (sys.executable, "-W", "error", "-c", _ASKING, imported, str(spare), *urls),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.spec("P6")
@pytest.mark.parametrize("spare", [2, 3, 7])
def test_more_doors_than_descriptors_are_all_asked(spare: int) -> None:
    with ScriptedDoor(answering(http(card()))) as door:
        assert asking("imported", spare, 20 * [door.url]) == ["20 answered", "True"]


@pytest.mark.spec("P6")
def test_more_localhost_doors_than_descriptors_are_asked_in_ipv6_as_well() -> None:
    with closed_port() as port:
        pass
    with socket.socket() as nobody, ScriptedDoor(answering(http(card())), "::1", port) as door:
        nobody.bind(("127.0.0.1", port))
        assert asking("imported", 3, 20 * [door.url]) == ["20 answered", "True"]


@pytest.mark.spec("P6", "S3")
@pytest.mark.parametrize("imported", ["imported", "not imported"])
@pytest.mark.parametrize("spare", [0, 1])
def test_without_a_descriptor_no_door_is_judged(spare: int, imported: str) -> None:
    with ScriptedDoor(answering(http(card()))) as door:
        found = asking(imported, spare, 3 * [door.url])
    assert found == ["out of descriptors", "True"]


@pytest.mark.spec("P6")
def test_running_out_of_descriptors_half_way_waits_for_the_doors_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    make, free = socket.socket, [3]

    class Counted(socket.socket):
        def __init__(self, family: int = -1, kind: int = -1, proto: int = -1, fileno: int | None = None) -> None:
            if fileno is None:  # A client's; what a listener accepts has its descriptor already.
                if free[0] == 0:
                    raise OSError(24, os.strerror(24))
                free[0] -= 1
            self._counted = fileno is None
            super().__init__(family, kind, proto, fileno)

        def close(self) -> None:
            if self._counted and self.fileno() >= 0:
                free[0] += 1
            super().close()

    with ScriptedDoor(answering(http(card()))) as door:
        asks = [card_ask(door.url, None)] * 10
        monkeypatch.setattr(socket, "socket", Counted)
        assert [type(reading) for reading in DOORS.probe(asks)] == 10 * [Answered]
        free[0] = 0
        with pytest.raises(OutOfDescriptors):
            DOORS.probe(asks)
        monkeypatch.setattr(socket, "socket", make)


@pytest.mark.spec("P6")
def test_an_interruption_closes_what_was_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[door_exchange.Exchange] = []

    def interrupt(exchange: door_exchange.Exchange) -> None:
        interrupted.append(exchange)
        raise KeyboardInterrupt

    with ScriptedDoor(silent) as door:
        monkeypatch.setattr(door_exchange.Exchange, "ready", interrupt)
        with pytest.raises(KeyboardInterrupt):
            DOORS.probe([card_ask(door.url, None)] * 3)
    assert [exchange.socket for exchange in interrupted] == [None]


@pytest.mark.spec("I3")
def test_no_repr_of_an_ask_shows_its_token() -> None:
    ask = card_ask("localhost:7000", TOKEN)
    exchange = door_exchange.Exchange(ask, LIMITS)
    assert TOKEN.expose() not in repr(ask) + repr(exchange)


@pytest.mark.spec("P4")
def test_how_much_of_an_answer_is_read_is_the_asks_limit() -> None:
    body = b" " * 3_000_000
    with ScriptedDoor(answering(http(body))) as door:
        asks = [card_ask(door.url, None)]
        for limit, expected in (
            (3_000_000, Answered(200, body)),
            (2_999_999, NoAnswer("the door's answer is larger than 2999999 bytes")),
        ):
            assert HttpDoors(AskLimits(5, 5, 5, limit)).probe(asks) == [expected]


@pytest.mark.spec("I3")
def test_a_secret_header_is_sent_once_and_shown_by_no_repr() -> None:
    secret = SpawnCredential("msc1.secret-payload.secret-mac")
    with ScriptedDoor(answering(http({}))) as door:
        ask = card_ask(door.url, None).replaced(secrets=(("x-murmur-spawn-credential", secret),))
        assert DOORS.probe([ask]) == [Answered(200, b"{}")]
    ((_, headers, _),) = [parts(request) for request in door.requests]
    assert headers["x-murmur-spawn-credential"] == secret.expose()
    assert door.requests[0].count(secret.expose().encode()) == 1
    assert secret.expose() not in repr(ask) + repr(door_exchange.Exchange(ask, LIMITS))


@pytest.mark.spec("P4")
def test_the_body_of_a_refusal_is_read_where_it_is_wanted() -> None:
    with ScriptedDoor(answering(http({"error": "no"}, "403 Forbidden"))) as door:
        ask = card_ask(door.url, None)
        assert DOORS.probe([ask, ask.replaced(wants_refusal=True)]) == [
            Answered(403, b""),
            Answered(403, b'{"error": "no"}'),
        ]


@pytest.mark.spec("P4")
def test_whether_a_door_can_have_heard_anything_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    (refused,) = HttpDoors().probe([card_ask(f"127.0.0.1:{port}", None)])
    assert refused == NoAnswer("connection refused")
    assert isinstance(refused, NoAnswer)
    assert not refused.was_connected
    with socket.create_server(("127.0.0.1", 0)) as silent:
        limits = AskLimits(2.0, 0.05, 0.05)
        (heard,) = HttpDoors(limits).probe([card_ask(f"127.0.0.1:{silent.getsockname()[1]}", None)])
    assert isinstance(heard, NoAnswer)
    assert heard.was_connected
