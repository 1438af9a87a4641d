"""What a session's own door answers, and to whom (M1, P1, P2, I4, and the wire facts of the door)."""

import json
from http import HTTPStatus
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.agent_card import session_id_from_card
from murmur.domain.cards import ServedSession, extended_card, public_card
from murmur.domain.door import Answered, DoorAsk, card_ask, read_stop_answer, refusal_of_card
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.door_tokens import DoorKeys, TokenKey
from murmur.domain.ids import IdPrefix
from murmur.domain.secret import DoorToken, Secret
from murmur.domain.served_door import AwaitTask, Door, OpenStream
from murmur.domain.task_board import Acceptance, TaskBoard, TaskState

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
SESSION = ServedSession(SES, "weaver", "2.4.0", "localhost:40123")
KEYS = DoorKeys(TokenKey(bytes(range(32)).hex()), SES)
CARD = "/.well-known/agent-card.json"
EXTENDED = "agent/getAuthenticatedExtendedCard"
CAPSULE = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"
STREAM = "https://docs.murmur.nexus/reference/streaming-protocol/#murmur-stream-v1"
DOOR = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"


def strict(body: bytes) -> Any:
    """Decode JSON as RFC 8259 has it: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        pytest.fail(f"the body holds {name}, which is no JSON")

    return json.loads(body.decode(), parse_constant=refuse)


class Session:
    """A door and its board."""

    def __init__(
        self,
        acceptance: Acceptance = "none",
        *,
        authenticated: bool = False,
        controlled: bool = False,
        name: str = "weaver",
        authority: str = "localhost:40123",
        queue_depth: int = 1,
    ) -> None:
        self.served = ServedSession(
            SES, name, "2.4.0", authority, accepts_tasks=acceptance != "none", authenticated=authenticated
        )
        self.board = TaskBoard(acceptance, "sleep", queue_depth)
        self._numbers = count()
        keys = KEYS if authenticated or controlled else None
        self.door = Door(self.served, self.board, self.mint, keys, controlled=controlled)
        self.operator = KEYS.mint("operator", self.served.methods)

    def mint(self, prefix: IdPrefix) -> str:
        return f"{prefix}{next(self._numbers):032x}"

    def answer(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        host: str | None = "localhost:40123",
        authorization: str | None = None,
    ) -> DoorResponse:
        answered = self.door.answer(DoorRequest(method, target, body, host, authorization))
        assert isinstance(answered, DoorResponse)
        return answered

    def call(self, method: object, token: Secret | str | None = None, **more: object) -> DoorResponse:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **more}).encode()
        return self.answer("POST", "/", body, authorization=bearer(token))

    def opened(self, method: str, token: Secret | str | None = None, **more: Any) -> OpenStream:
        """Make a call that is answered with a stream."""
        headers = {name: more.pop(name) for name in ("last_event_id", "watched") if name in more}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **more}).encode()
        answer = self.door.answer(DoorRequest("POST", "/", body, "localhost", bearer(token), **headers))
        assert isinstance(answer, OpenStream)
        return answer

    def control(self, body: object, token: Secret | str | None = None, method: str = "POST") -> DoorResponse:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.answer(method, "/control", content, authorization=bearer(token))

    def reading(self, ask: DoorAsk) -> Answered:
        """Carry an ask of ours to the door."""
        response = self.answer(ask.method, ask.target, ask.body, authorization=bearer(ask.token))
        return Answered(response.status, response.body)


def bearer(token: Secret | str | None) -> str | None:
    return None if token is None else f"Bearer {token.expose() if isinstance(token, Secret) else token}"


def refusal(response: DoorResponse, status: int, error: str) -> DoorResponse:
    """Hold that a response refuses by HTTP in the one shape there is."""
    assert response.status == status
    body = strict(response.body)
    assert set(body) == {"error", "message"}
    assert body["error"] == error
    assert isinstance(body["message"], str)
    assert body["message"]
    return response


def post(body: bytes) -> Any:
    response = Session().answer("POST", "/", body)
    assert response.status == HTTPStatus.OK
    return strict(response.body)


def call(method: object, id_: object = 1, **more: object) -> Any:
    return post(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, **more}).encode())


def got_card() -> Any:
    response = Session().answer("GET", CARD)
    assert response.status == HTTPStatus.OK
    return strict(response.body)


@pytest.mark.spec("M1")
def test_the_card_has_the_fields_of_a_public_card_and_no_others() -> None:
    assert got_card() == {
        "name": "weaver",
        "description": "Murmur capsule weaver 2.4.0",
        "version": "2.4.0",
        "supportedInterfaces": [
            {"url": "http://localhost:40123", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
        ],
        "capabilities": {
            "streaming": False,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": got_card()["capabilities"]["extensions"],
        },
        "securitySchemes": {},
        "securityRequirements": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


@pytest.mark.spec("M1", "P2")
def test_each_extension_has_an_address_a_description_parameters_and_is_not_required() -> None:
    extensions = got_card()["capabilities"]["extensions"]
    assert [extension["uri"] for extension in extensions] == [DOOR, CAPSULE, STREAM]
    for extension in extensions:
        assert set(extension) == {"uri", "required", "description", "params"}
        assert extension["required"] is False
        assert extension["description"]


@pytest.mark.spec("M1")
def test_the_door_extension_lists_the_methods_served_and_no_peer_tasks() -> None:
    params = got_card()["capabilities"]["extensions"][0]["params"]
    assert params == {"methods": ["stream/watch", "session/stop"], "peerTasks": False}


@pytest.mark.spec("P2")
def test_the_capsule_extension_names_the_session_and_what_it_may_do() -> None:
    params = got_card()["capabilities"]["extensions"][1]["params"]
    assert set(params) == {"sessionId", "tools", "shell", "network", "planes"}
    assert (params["sessionId"], params["tools"], params["planes"]) == (SES, [], [])


@pytest.mark.spec("P2", "P7")
def test_the_session_is_found_on_its_own_card() -> None:
    assert session_id_from_card(got_card()) == SES
    assert session_id_from_card(public_card(SESSION)) == SES


@pytest.mark.spec("P3", "P7")
def test_the_probe_takes_the_doors_own_answer() -> None:
    ask = card_ask(SESSION.authority, None)
    assert refusal_of_card(SESSION.authority, SES, ask, Session().reading(ask)) is None


@pytest.mark.spec("P3", "P7")
def test_the_probe_takes_an_authenticated_doors_own_answer_to_the_operator_alone() -> None:
    session = Session("queue", authenticated=True)
    ask = card_ask(SESSION.authority, session.operator)
    assert refusal_of_card(SESSION.authority, SES, ask, session.reading(ask)) is None
    ask = card_ask(SESSION.authority, KEYS.mint("watcher", ["tasks/get"]))
    reason = refusal_of_card(SESSION.authority, SES, ask, session.reading(ask))
    assert reason == "the door answered with HTTP status 403"


@pytest.mark.spec("P3")
def test_a_probe_with_a_token_finds_no_extended_card_at_a_public_door() -> None:
    ask = card_ask(SESSION.authority, DoorToken("t"))
    reading = Session().reading(ask)
    expected = "the capsule at localhost:40123 did not return its extended agent card"
    assert refusal_of_card(SESSION.authority, SES, ask, reading) == expected


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ['a"b\\c', "é中", "\x1b[31m", "\ud800"])
def test_a_card_of_an_odd_name_is_still_json(name: str) -> None:
    response = Session(name=name).answer("GET", CARD)
    assert json.loads(response.body.decode())["name"] == name


@pytest.mark.spec("M1")
def test_a_card_is_also_answered_to_head_and_with_a_query() -> None:
    session = Session()
    whole = session.answer("GET", CARD)
    assert session.answer("HEAD", CARD) == whole
    assert session.answer("GET", CARD + "?x=1") == whole


@pytest.mark.spec("O2")
def test_session_stop_answers_with_nothing_canceled_and_nothing_left() -> None:
    assert call("session/stop", params={}) == {"jsonrpc": "2.0", "id": 1, "result": {"canceled": [], "residue": []}}


@pytest.mark.spec("O2")
def test_the_stop_answer_is_what_stopping_reads() -> None:
    response = Session().answer("POST", "/", b'{"jsonrpc":"2.0","id":1,"method":"session/stop"}')
    answer = read_stop_answer(Answered(response.status, response.body))
    assert answer == read_stop_answer(Answered(200, b'{"result":{"canceled":[],"residue":[]}}'))


@pytest.mark.spec("M1")
def test_every_method_that_the_card_lists_is_served() -> None:
    for authenticated in (False, True):
        session = Session("queue", authenticated=authenticated)
        methods = session.served.methods
        assert methods
        for method in methods:
            if method == "stream/watch":
                assert session.opened(method, session.operator).task is None
                continue
            answer = strict(session.call(method, session.operator, params={}).body)
            # Called without what it needs, a method that is served says so.
            assert "result" in answer or answer["error"]["code"] == -32602


@pytest.mark.spec("M1")
def test_a_public_door_has_no_extended_card() -> None:
    assert call("agent/getAuthenticatedExtendedCard", params={})["error"]["code"] == -32007


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "method",
    ["message/send", "message/stream", "Session/Stop", "session/stop ", "SESSION/STOP", "", "session", "__class__"],
)
def test_a_method_that_is_not_served_is_refused_by_its_exact_name(method: str) -> None:
    answer = call(method, "seven")
    assert answer["error"]["code"] == -32601
    assert answer["id"] == "seven"
    assert "result" not in answer


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", [0, 1, -1, 2**63, 1.5, "", "abc", "é", None])
def test_an_id_is_given_back_as_it_came(id_: object) -> None:
    answer = call("session/stop", id_)
    assert answer["id"] == id_
    assert type(answer["id"]) is type(id_)


@pytest.mark.spec("M1")
def test_a_call_without_an_id_is_answered_with_none() -> None:
    assert post(b'{"jsonrpc":"2.0","method":"session/stop"}')["id"] is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", [True, False, [], [1], {}, {"a": 1}])
def test_an_id_of_another_type_is_an_invalid_request(id_: object) -> None:
    answer = call("session/stop", id_)
    assert answer["error"]["code"] == -32600
    assert answer["id"] is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_an_id_that_json_cannot_hold_is_refused_and_never_given_back(id_: bytes) -> None:
    answer = post(b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"session/stop"}')
    assert answer["error"]["code"] in (-32600, -32700)
    assert answer["id"] is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"nul",
        b"\xff",
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"session/stop"}x',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"session/stop"}',
        b"\xef\xbb\xbf{",
    ],
    ids=["nothing", "blank", "open", "cut", "byte", "quotes", "trailing", "deep", "digits", "mark"],
)
def test_a_body_that_is_not_json_is_a_parse_error(body: bytes) -> None:
    answer = post(body)
    assert answer["error"]["code"] == -32700
    assert answer["id"] is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"session/stop"}]',
        b'[{"jsonrpc":"2.0","id":1,"method":"session/stop"},{"jsonrpc":"2.0","id":2,"method":"session/stop"}]',
        b"null",
        b"1",
        b'"session/stop"',
        b"true",
        b"{}",
        b'{"id":1,"method":"session/stop"}',
        b'{"jsonrpc":"1.0","id":1,"method":"session/stop"}',
        b'{"jsonrpc":2.0,"id":1,"method":"session/stop"}',
        b'{"jsonrpc":null,"id":1,"method":"session/stop"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        b'{"jsonrpc":"2.0","id":1,"method":["session/stop"]}',
        b'{"jsonrpc":"2.0","id":1,"method":{"a":1}}',
    ],
)
def test_json_that_is_not_one_call_is_an_invalid_request(body: bytes) -> None:
    assert post(body)["error"]["code"] == -32600


@pytest.mark.spec("M1")
def test_an_error_never_repeats_what_was_sent() -> None:
    for body in (b'{"jsonrpc":"2.0","id":1,"method":"hunter2"}', b"hunter2", b'{"hunter2":1}', b'["hunter2"]'):
        assert "hunter2" not in json.dumps(post(body))


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("method", "target", "status", "allowed"),
    [
        ("POST", CARD, 405, "GET, HEAD"),
        ("DELETE", CARD, 405, "GET, HEAD"),
        ("get", CARD, 405, "GET, HEAD"),
        ("GET", "/", 405, "POST"),
        ("HEAD", "/", 405, "POST"),
        ("PUT", "/", 405, "POST"),
        ("GET", "/nothing", 404, None),
        ("POST", "/session/stop", 404, None),
        ("GET", CARD + "/", 404, None),
        ("GET", CARD.upper(), 404, None),
        ("GET", "/x/.." + CARD, 404, None),
        ("GET", "", 404, None),
        ("OPTIONS", "*", 404, None),
    ],
)
def test_another_method_or_path_is_refused_with_an_error_and_a_message(
    method: str, target: str, status: int, allowed: str | None
) -> None:
    response = Session().answer(method, target)
    assert response.status == status
    assert set(strict(response.body)) == {"error", "message"}
    assert dict(response.headers).get("allow") == allowed


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:40123",
        "LOCALHOST:40123",
        "LocalHost",
        "localhost:1",
        "127.0.0.1",
        "127.0.0.1:40123",
        "127.255.255.254:80",
        "[::1]",
        "[::1]:40123",
        "[0:0:0:0:0:0:0:1]:40123",
    ],
)
def test_a_door_is_called_by_any_name_of_loopback(host: str) -> None:
    assert Session().answer("GET", CARD, host=host).status == HTTPStatus.OK


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("192.168.1.5:40123", "192.168.1.5:40123"),
        ("[2001:db8::1]:40123", "[2001:db8::1]:40123"),
        ("[2001:DB8::A]:40123", "[2001:db8::a]:40123"),
        ("192.0.2.2:80", "192.0.2.2"),
        ("192.0.2.2:80", "192.0.2.2:8080"),
        ("[2001:db8::a]:80", "[2001:DB8:0::A]"),
        ("[fe80::1%eth0]:80", "[fe80::1]"),
        ("192.0.2.2:80", "localhost"),
    ],
)
def test_a_door_bound_elsewhere_is_called_by_the_address_it_is_bound_to(authority: str, host: str) -> None:
    assert Session(authority=authority).answer("GET", CARD, host=host).status == HTTPStatus.OK


FOREIGN = [
    None,
    "",
    " ",
    ":",
    ":40123",
    "evil.example",
    "evil.example:40123",
    "EVIL.EXAMPLE",
    "localhost.evil.example",
    "localhost.evil.example:40123",
    "evil.localhost",
    "xlocalhost",
    "localhost.",
    "127.0.0.1.evil.example",
    "127.0.0.1.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "::1",
    "::1:40123",
    "[]",
    "[evil.example]",
    "evil.example[::1]",
    "localhost,evil.example",
    "localhost evil.example",
    "localhost@evil.example",
    "user@localhost",
    "http://localhost",
    "localhost/",
    "l\u00f6calhost",
    "\uff11\uff12\uff17.0.0.1",
    "a" * 1_000_000,
]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("host", FOREIGN, ids=range(len(FOREIGN)))
def test_a_host_that_is_not_ours_is_refused_before_anything_else(host: str | None) -> None:
    session = Session("queue", authenticated=True, controlled=True)
    for method, target in (("GET", CARD), ("POST", "/"), ("POST", "/control"), ("GET", "/x")):
        refusal(session.answer(method, target, host=host), 403, "forbidden_host")


MALFORMED = [
    "localhost:80:80",
    "127.0.0.1:80:80",
    "[::1]:80:80",
    "localhost:http",
    "localhost:80@evil.example",
    "[::1",
    "[::1]evil.example",
    "[::1].evil.example:80",
]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("host", MALFORMED)
def test_a_host_that_only_begins_like_ours_is_refused(host: str) -> None:
    refusal(Session().answer("GET", CARD, host=host), 403, "forbidden_host")


@pytest.mark.spec("M1")
@pytest.mark.parametrize("authority", ["192.0.2.2:80", "localhost:80", "[fe80::1%eth0]:80"])
@pytest.mark.parametrize("host", ["192.0.2.3", "192.0.2.3:80", "192.0.2.2.evil.example", "[2001:db8::a]", "[fe80::2]"])
def test_a_host_that_is_another_address_than_the_bound_one_is_refused(authority: str, host: str) -> None:
    refusal(Session(authority=authority).answer("GET", CARD, host=host), 403, "forbidden_host")


@pytest.mark.spec("M1")
def test_a_refused_host_is_not_repeated() -> None:
    assert b"swordfish" not in Session().answer("GET", CARD, host="swordfish.example").body


@pytest.mark.spec("P1", "P2")
def test_an_authenticated_doors_public_card_needs_no_token_and_names_no_session() -> None:
    session = Session("queue", authenticated=True)
    response = session.answer("GET", CARD)
    assert response.status == HTTPStatus.OK
    assert strict(response.body) == public_card(session.served)
    assert SES.encode() not in response.body
    assert session.answer("GET", CARD, authorization="Bearer junk") == response


CHALLENGE = (("www-authenticate", 'Bearer realm="weaver"'),)


@pytest.mark.spec("I4")
def test_without_a_token_a_call_is_unauthenticated() -> None:
    response = refusal(Session("queue", authenticated=True).call("tasks/get"), 401, "unauthenticated")
    assert response.headers == CHALLENGE


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x",
        "Basic dXNlcjpwYXNz",
        bearer(DoorKeys(KEYS.key, SES[:-1] + "2").mint("operator", ["session/stop"])),
        bearer(DoorKeys(TokenKey("00" * 32), SES).mint("operator", ["session/stop"])),
        bearer(KEYS.mint_control()),
    ],
)
def test_a_token_that_is_not_the_sessions_is_invalid(authorization: str) -> None:
    session = Session("queue", authenticated=True)
    body = b'{"jsonrpc":"2.0","id":1,"method":"session/stop"}'
    response = refusal(session.answer("POST", "/", body, authorization=authorization), 401, "invalid_token")
    assert response.headers == CHALLENGE


@pytest.mark.spec("I4")
@pytest.mark.parametrize("method", ["message/send", "tasks/get", "tasks/cancel", "session/stop", EXTENDED])
def test_a_token_calls_what_its_scopes_name_and_nothing_else(method: str) -> None:
    session = Session("queue", authenticated=True)
    others = [each for each in session.served.methods if each != method]
    response = refusal(session.call(method, KEYS.mint("watcher", others)), 403, "insufficient_scope")
    assert response.headers == CHALLENGE
    assert session.call(method, KEYS.mint("watcher", [method])).status == HTTPStatus.OK
    assert session.call(method, session.operator).status == HTTPStatus.OK


@pytest.mark.spec("I4")
@pytest.mark.parametrize("scope", ["Session/Stop", "session/*", "*", "session", "session/stop "])
def test_a_scope_is_a_methods_exact_name(scope: str) -> None:
    session = Session(authenticated=True)
    refusal(session.call("session/stop", KEYS.mint("watcher", [scope])), 403, "insufficient_scope")


@pytest.mark.spec("I4")
def test_a_call_beyond_its_scope_changes_nothing() -> None:
    session = Session("queue", authenticated=True)
    session.board.offer("tsk_1", "ctx_1", "x")
    for method in ("session/stop", "tasks/cancel", "message/send"):
        session.call(method, KEYS.mint("watcher", ["tasks/get"]), params={"id": "tsk_1"})
    assert session.board.waiting == 1


@pytest.mark.spec("I4", "M1")
@pytest.mark.parametrize("method", ["nothing", "Tasks/Get", "Message/Stream", "stream/Watch", "tasks/resubscribe"])
def test_a_method_that_is_not_served_is_none_for_any_token(method: str) -> None:
    session = Session("queue", authenticated=True)
    response = session.call(method, KEYS.mint("watcher", []))
    assert response.status == HTTPStatus.OK
    assert strict(response.body)["error"]["code"] == -32601


@pytest.mark.spec("I4", "M1")
@pytest.mark.parametrize("method", ["message/send", "message/stream", "tasks/get", "tasks/cancel"])
def test_where_no_tasks_are_accepted_their_methods_are_none(method: str) -> None:
    assert strict(Session().call(method, params={}).body)["error"]["code"] == -32601
    session = Session(authenticated=True)
    assert strict(session.call(method, session.operator, params={}).body)["error"]["code"] == -32601


@pytest.mark.spec("I4")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b'{"jsonrpc":"2.0","id":[],"method":5}'])
def test_the_token_is_checked_before_the_request(body: bytes) -> None:
    session = Session("queue", authenticated=True)
    refusal(session.answer("POST", "/", body), 401, "unauthenticated")
    refusal(session.answer("POST", "/", body, authorization="Bearer x"), 401, "invalid_token")
    response = session.answer("POST", "/", body, authorization=bearer(KEYS.mint("watcher", [])))
    assert response.status == HTTPStatus.OK
    assert strict(response.body)["error"]["code"] in (-32700, -32600)


@pytest.mark.spec("I4")
@pytest.mark.parametrize("wrong", [{"params": []}, {"id": {}}, {"jsonrpc": "1.0"}])
def test_the_scope_is_checked_before_the_request(wrong: dict[str, object]) -> None:
    session = Session("queue", authenticated=True)
    refusal(session.call("tasks/get", KEYS.mint("watcher", []), **wrong), 403, "insufficient_scope")
    assert "error" in strict(session.call("tasks/get", session.operator, **wrong).body)


@pytest.mark.spec("I4")
def test_the_path_is_looked_at_before_the_token() -> None:
    session = Session("queue", authenticated=True)
    refusal(session.answer("GET", "/"), 405, "method_not_allowed")
    refusal(session.answer("POST", "/nothing"), 404, "not_found")


@pytest.mark.spec("I4")
def test_a_public_door_does_not_look_at_tokens() -> None:
    for token in (None, "junk", KEYS.mint("watcher", [])):
        assert strict(Session("queue").call("session/stop", token).body)["result"] == {"canceled": [], "residue": []}
    assert strict(Session(controlled=True).call("session/stop").body)["result"] == {"canceled": [], "residue": []}


@pytest.mark.spec("P1")
def test_the_extended_card_is_an_authenticated_doors_answer() -> None:
    session = Session("queue", authenticated=True)
    response = session.call(EXTENDED, session.operator, params={})
    assert strict(response.body) == {"jsonrpc": "2.0", "id": 1, "result": extended_card(session.served)}


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    ("name", "realm"),
    [
        ("acme/weaver", '"acme/weaver"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\r\nx-evil: 1", '"ax-evil: 1"'),
        ("\u00e9\u4e2d", '""'),
        ("\ud800", '""'),
    ],
)
def test_a_realm_is_the_capsules_name_and_never_another_header(name: str, realm: str) -> None:
    response = Session(authenticated=True, name=name).call("session/stop")
    assert response.headers == (("www-authenticate", f"Bearer realm={realm}"),)


@pytest.mark.spec("I3", "I4")
def test_no_refusal_repeats_what_was_sent() -> None:
    session = Session("queue", authenticated=True, controlled=True)
    said = b'{"jsonrpc":"2.0","id":1,"method":"swordfish","params":{"swordfish":1}}'
    for target in ("/", "/control", "/swordfish"):
        for authorization in (None, "Bearer swordfish", "swordfish", bearer(KEYS.mint("swordfish", []))):
            assert b"swordfish" not in session.answer("POST", target, said, authorization=authorization).body


@pytest.mark.spec("O2")
def test_session_stop_cancels_what_waits_and_stops_what_runs() -> None:
    session = Session("queue", queue_depth=2)
    first, second = session.board.offer("tsk_1", "c", "x"), session.board.offer("tsk_2", "c", "x")
    session.board.start_next()
    result = strict(session.call("session/stop").body)["result"]
    assert sorted(result["canceled"]) == ["tsk_1", "tsk_2"]
    assert result["residue"] == []
    assert first.cancel_asked
    assert second.state is TaskState.CANCELED


CONTROL = KEYS.mint_control()


@pytest.mark.spec("M1")
def test_control_says_what_the_session_does() -> None:
    session = Session("queue", controlled=True, queue_depth=2)
    assert strict(session.control({"op": "status"}, CONTROL).body) == {"state": "running", "task": None, "waiting": 0}
    session.board.offer("tsk_1", "c", "x")
    session.board.offer("tsk_2", "c", "x")
    session.board.start_next()
    response = session.control({"op": "status"}, CONTROL)
    assert response.status == HTTPStatus.OK
    assert strict(response.body) == {"state": "running", "task": "tsk_1", "waiting": 1}


@pytest.mark.spec("M1")
def test_control_pauses_resumes_and_drains() -> None:
    session = Session("queue", controlled=True)
    asked = ["pause", "pause", "status", "resume", "status", "pause", "drain", "resume", "status"]
    states = [strict(session.control({"op": op}, CONTROL).body)["state"] for op in asked]
    assert states == [*["paused"] * 3, *["running"] * 2, "paused", *["draining"] * 3]
    assert session.board.is_over
    assert not session.board.paused


@pytest.mark.spec("M1")
def test_draining_a_paused_session_lets_it_come_to_its_end() -> None:
    session = Session("queue", controlled=True, queue_depth=2)
    session.control({"op": "pause"}, CONTROL)
    session.board.offer("tsk_1", "c", "x")
    session.board.offer("tsk_2", "c", "x")
    assert session.board.start_next() is None
    session.control({"op": "drain"}, CONTROL)
    assert session.board.start_next() is not None
    assert strict(session.control({"op": "pause"}, CONTROL).body)["state"] == "draining"
    session.board.finished(succeeded=True, result="", message=None)
    assert session.board.start_next() is not None
    session.board.finished(succeeded=True, result="", message=None)
    assert session.board.is_over


@pytest.mark.spec("M1")
def test_only_status_changes_nothing() -> None:
    session = Session("queue", controlled=True)
    session.control({"op": "status"}, CONTROL)
    assert (session.board.paused, session.board.draining) == (False, False)


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 100_000, b"null", b"[]", b'"status"', b"{}"]
    + [json.dumps({"op": op}).encode() for op in ("", "Status", "stop", None, 5, ["status"], {"status": 1}, True)]
    + [b'[{"op":"drain"}]', b'{"Op":"drain"}', b'{"op":NaN}'],
)
def test_another_operation_is_a_bad_request(body: bytes) -> None:
    session = Session("queue", controlled=True)
    refusal(session.control(body, CONTROL), 400, "bad_request")
    assert (session.board.paused, session.board.draining) == (False, False)


@pytest.mark.spec("I4")
@pytest.mark.parametrize("authenticated", [False, True])
def test_control_takes_the_control_token_alone(authenticated: bool) -> None:
    session = Session("queue", controlled=True, authenticated=authenticated)
    assert refusal(session.control({"op": "drain"}), 401, "unauthenticated").headers == CHALLENGE
    for token in ("junk", session.operator, DoorKeys(KEYS.key, SES[:-1]).mint_control()):
        assert refusal(session.control({"op": "drain"}, token), 401, "invalid_token").headers == CHALLENGE
    assert not session.board.draining
    assert session.control({"op": "drain"}, CONTROL).status == HTTPStatus.OK


@pytest.mark.spec("M1")
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "post"])
def test_control_is_asked_with_post(method: str) -> None:
    response = Session("queue", controlled=True).control({"op": "drain"}, CONTROL, method)
    assert refusal(response, 405, "method_not_allowed").headers == (("allow", "POST"),)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("authenticated", [False, True])
def test_a_session_that_is_not_controlled_has_no_control(authenticated: bool) -> None:
    session = Session("queue", authenticated=authenticated)
    refusal(session.control({"op": "drain"}, CONTROL), 404, "not_found")
    assert not session.board.draining


@pytest.mark.spec("M1")
@pytest.mark.parametrize("params", [None, [], [1], "x", 5, True])
def test_params_that_are_no_object_are_invalid(params: object) -> None:
    answer = strict(Session("queue").call("tasks/get", params=params).body)
    assert answer["error"]["code"] == -32602
    assert answer["id"] == 1


@pytest.mark.spec("M1")
@pytest.mark.parametrize("depth", [10, 200, 900, 5000])
def test_params_nested_to_any_depth_are_answered(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    response = Session("queue").answer(
        "POST", "/", b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":' + nested + b"}}"
    )
    assert strict(response.body)["error"]["code"] in (-32602, -32700)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("session/stop")
    | st.just("2.0"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params"]), inner)
    ),
    max_leaves=6,
)


@pytest.mark.spec("M1")
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(body=st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_posted_is_answered_with_one_json_rpc_object(body: bytes) -> None:
    answer = strict(Session().answer("POST", "/", body).body)
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) is not ("error" in answer)


ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "\ud800", "\0", [], {}, [[]], {"a": 1}, 2**63, float("nan"), float("inf")]
)
PARTS = st.lists(
    st.fixed_dictionaries({}, optional={"kind": ODD | st.sampled_from(["text", "file"]), "text": ODD | st.text()})
    | ODD,
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"messageId": st.just("msg_1") | ODD, "role": st.sampled_from(["user", "agent"]) | ODD, "parts": PARTS | ODD},
    optional={"contextId": ODD, "taskId": ODD | st.just("tsk_" + "0" * 32), "kind": ODD, "metadata": ODD},
)
GOOD_MESSAGE = st.just({"messageId": "msg_1", "role": "user", "parts": [{"kind": "text", "text": "hello"}]})
PARAMS = (
    st.fixed_dictionaries(
        {"message": GOOD_MESSAGE | MESSAGES},
        optional={"configuration": ODD | st.fixed_dictionaries({"blocking": st.booleans() | ODD})},
    )
    | st.integers(0, 8).map(lambda number: {"id": f"tsk_{number:032x}"})
    | st.fixed_dictionaries({"id": ODD})
    | ODD
)
METHODS = ["message/send", "tasks/get", "tasks/cancel", "session/stop", EXTENDED, "message/stream", "tasks/list"]
CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | ODD, "method": st.sampled_from(METHODS) | ODD},
    optional={"id": st.just(1) | ODD, "params": PARAMS, "more": ODD},
)
GOOD_CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS), "id": st.just(1), "params": PARAMS}
)
OPERATIONS = st.fixed_dictionaries({"op": st.sampled_from(["status", "pause", "resume", "drain"]) | ODD})
BODIES = (
    (GOOD_CALLS | CALLS | st.lists(CALLS, max_size=2) | OPERATIONS | ODD).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=30)
    | st.sampled_from([b"[" * 5000, b'{"a":' * 5000, b"9" * 5000, b"\xef\xbb\xbf{}"])
)
OPERATOR = KEYS.mint("operator", METHODS)
REQUESTS = st.builds(
    DoorRequest,
    st.just("POST") | st.sampled_from(["GET", "HEAD", "OPTIONS", "", "post"]),
    st.just("/") | st.sampled_from([CARD, "/control", "/?x", "", "*", "/nothing", "http://localhost/", "/\xff"]),
    BODIES,
    st.just("localhost:40123") | st.sampled_from([None, "", "[", "]", "[::1", "evil.example"]) | st.text(max_size=8),
    st.sampled_from(
        [bearer(OPERATOR), bearer(CONTROL), bearer(KEYS.mint("w", ["tasks/get"])), None, "", "Bearer x.y.z"]
    )
    | st.text(max_size=8),
)
SESSIONS = st.builds(
    Session,
    st.sampled_from(["none", "single", "queue"]),
    authenticated=st.booleans(),
    controlled=st.booleans(),
    queue_depth=st.integers(0, 2),
)


def held_to_be_an_answer(response: DoorResponse) -> None:
    assert response.status in (200, 400, 401, 403, 404, 405)
    document = strict(response.body)
    assert isinstance(document, dict)
    if response.status == HTTPStatus.OK:
        assert ("jsonrpc" in document) + ("supportedInterfaces" in document) + ("waiting" in document) == 1
        assert "jsonrpc" not in document or ("result" in document) is not ("error" in document)
    else:
        assert set(document) == {"error", "message"}
    for name, value in response.headers:
        assert f"{name}{value}".isascii()
        assert f"{name}{value}".isprintable()


# Slow: it makes 10 requests of each of 500 sessions, 5,000 in all.
@pytest.mark.slow
@pytest.mark.spec("M1")
@settings(max_examples=500, derandomize=True, deadline=None, database=None)
@given(session=SESSIONS, requests=st.lists(st.tuples(REQUESTS, st.booleans()), min_size=10, max_size=10))
def test_whatever_is_asked_in_any_order_is_answered(session: Session, requests: list[tuple[DoorRequest, bool]]) -> None:
    for request, at_work in requests:
        answered = session.door.answer(request)
        if isinstance(answered, OpenStream):
            assert answered.task is None or session.board.find(answered.task.id) is answered.task
        else:
            held_to_be_an_answer(answered.respond() if isinstance(answered, AwaitTask) else answered)
        if at_work and session.board.running is not None:
            task = session.board.finished(succeeded=True, result="done", message=None)
            assert task.state.is_terminal
        session.board.start_next()
        if isinstance(answered, AwaitTask):
            held_to_be_an_answer(answered.respond())


@pytest.mark.parametrize("target", ["/", "/.well-known/agent-card.json"])
def test_no_web_page_is_answered_whatever_host_it_names(target: str) -> None:
    session = ServedSession("ses_1", "worker", "1", "localhost:1")
    door = Door(session, TaskBoard("queue"), lambda prefix: f"{prefix}1")
    request = DoorRequest("POST", target, b"{}", "localhost:1", None, "https://evil.example")
    response = door.answer(request)
    assert isinstance(response, DoorResponse)
    assert (response.status, json.loads(response.body)["error"]) == (403, "forbidden_origin")


@pytest.mark.spec("M1")
def test_a_call_that_may_not_wait_is_answered_at_once() -> None:
    session = Session("queue")
    message = {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}).encode()
    answered = session.door.answer(DoorRequest("POST", "/", body, "localhost", crowd=48))
    assert isinstance(answered, DoorResponse)
    assert json.loads(answered.body)["error"]["code"] == -32000
    assert session.board.waiting == 0
    assert isinstance(session.door.answer(DoorRequest("POST", "/", body, "localhost")), AwaitTask)


@pytest.mark.spec("M1")
def test_an_answer_is_no_longer_than_its_text_in_utf_8() -> None:
    assert "\u4e2d\u6587".encode() in Session(name="\u4e2d\u6587").answer("GET", CARD).body


MESSAGE = {"message": {"messageId": "msg_1", "role": "user", "parts": [{"text": "go"}]}}


@pytest.mark.spec("M1")
def test_watching_is_of_the_whole_session_or_of_one_task() -> None:
    session = Session("queue")
    task = session.board.offer("tsk_1", "ctx_1", "x")
    assert session.opened("stream/watch") == OpenStream(1, None, None)
    assert session.opened("stream/watch", params={"id": None, "more": 1}) == OpenStream(1, None, None)
    assert session.opened("stream/watch", params={"id": "tsk_1"}) == OpenStream(1, task, None)
    assert strict(session.call("stream/watch", params={"id": "tsk_2"}).body)["error"]["code"] == -32001
    assert strict(session.call("stream/watch", params={"id": 7}).body)["error"]["code"] == -32602


@pytest.mark.spec("M1")
def test_a_public_session_is_watched_by_its_own_user_alone_and_a_task_by_who_knows_its_id() -> None:
    session = Session("queue")
    task = session.board.offer("tsk_1", "ctx_1", "x")
    assert isinstance(stranger(session, {}), DoorResponse)
    for params in ({}, {"id": None}):
        answer = stranger(session, params)
        assert isinstance(answer, DoorResponse)
        refusal(answer, 403, "forbidden_user")
    assert stranger(session, {"id": "tsk_1"}) == OpenStream(1, task, None, with_errors=False)
    locked = Session(authenticated=True)
    assert stranger(locked, {}, locked.operator) == OpenStream(1, None, None)


def stranger(session: Session, params: object, token: Secret | None = None) -> object:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "stream/watch", "params": params}).encode()
    request = DoorRequest("POST", "/", body, "localhost", bearer(token), from_own_user=lambda: False)
    return session.door.answer(request)


@pytest.mark.spec("M1")
def test_a_streamed_message_is_a_new_task() -> None:
    session = Session("queue")
    opened = session.opened("message/stream", params=MESSAGE)
    assert opened.submitted
    assert opened.task is not None
    assert session.board.find(opened.task.id) is opened.task
    assert strict(session.call("message/stream", params={}).body)["error"]["code"] == -32602
    assert session.board.waiting == 1


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("header", "after"),
    [(None, None), ("0", 0), ("17", 17), ("", None), ("x", None), ("-1", None), ("1" * 21, None), ("\u0661", None)],
)
def test_a_caller_that_was_cut_off_says_behind_which_event_it_goes_on(header: str | None, after: int | None) -> None:
    assert Session().opened("stream/watch", last_event_id=header).after == after


@pytest.mark.spec("M1")
def test_where_no_further_stream_may_be_no_task_is_taken_in() -> None:
    session = Session("queue")
    for method in ("message/stream", "stream/watch"):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": MESSAGE}).encode()
        answer = session.door.answer(DoorRequest("POST", "/", body, "localhost", watched=128))
        assert isinstance(answer, DoorResponse)
        assert strict(answer.body)["error"]["code"] == -32000
    assert session.board.waiting == 0


@pytest.mark.spec("I4")
@pytest.mark.parametrize("method", ["message/stream", "stream/watch"])
def test_a_stream_needs_its_scope(method: str) -> None:
    session = Session("queue", authenticated=True)
    refusal(session.call(method, params=MESSAGE), 401, "unauthenticated")
    refusal(session.call(method, KEYS.mint("other", ["tasks/get"]), params=MESSAGE), 403, "insufficient_scope")
    session.opened(method, KEYS.mint("watcher", [method]), params=MESSAGE if method == "message/stream" else {})


@pytest.mark.spec("M1")
def test_a_task_whose_stream_cannot_be_opened_is_taken_back() -> None:
    session = Session("queue")
    opened = session.opened("message/stream", params=MESSAGE)
    session.door.withdraw(opened)
    assert opened.task is not None
    assert opened.task.state is TaskState.CANCELED
    other = session.board.offer("tsk_1", "ctx_1", "x")
    session.door.withdraw(session.opened("stream/watch", params={"id": "tsk_1"}))
    assert other.state is TaskState.SUBMITTED


@pytest.mark.spec("M1")
def test_an_id_that_comes_back_with_everything_is_not_endless() -> None:
    assert call("session/stop", "x" * 1024)["id"] == "x" * 1024
    assert call("session/stop", "x" * 1025)["error"]["code"] == -32600
