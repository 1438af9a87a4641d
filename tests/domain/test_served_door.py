"""What a session's own door answers (M1, P1, P2, and the wire facts of the door)."""

import json
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.agent_card import session_id_from_card
from murmur.domain.door import Answered, card_ask, read_stop_answer, refusal_of_card
from murmur.domain.secret import DoorToken
from murmur.domain.served_door import METHODS, DoorRequest, DoorResponse, ServedSession, public_card, respond

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
SESSION = ServedSession(SES, "weaver", "2.4.0", "localhost:40123")
CARD = "/.well-known/agent-card.json"
CAPSULE = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"
DOOR = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"


def strict(body: bytes) -> Any:
    """Decode JSON as RFC 8259 has it: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        pytest.fail(f"the body holds {name}, which is no JSON")

    return json.loads(body.decode(), parse_constant=refuse)


def post(body: bytes) -> Any:
    response = respond(SESSION, DoorRequest("POST", "/", body))
    assert response.status == HTTPStatus.OK
    return strict(response.body)


def call(method: object, id_: object = 1, **more: object) -> Any:
    return post(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, **more}).encode())


def got_card() -> Any:
    response = respond(SESSION, DoorRequest("GET", CARD, b""))
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
    assert [extension["uri"] for extension in extensions] == [DOOR, CAPSULE]
    for extension in extensions:
        assert set(extension) == {"uri", "required", "description", "params"}
        assert extension["required"] is False
        assert extension["description"]


@pytest.mark.spec("M1")
def test_the_door_extension_lists_the_methods_served_and_no_peer_tasks() -> None:
    params = got_card()["capabilities"]["extensions"][0]["params"]
    assert params == {"methods": ["session/stop"], "peerTasks": False}


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
    url = SESSION.authority
    response = respond(SESSION, DoorRequest("GET", CARD, b""))
    assert refusal_of_card(url, SES, card_ask(url, None), Answered(response.status, response.body)) is None


@pytest.mark.spec("P3")
def test_a_probe_with_a_token_finds_no_extended_card_at_a_public_door() -> None:
    ask = card_ask(SESSION.authority, DoorToken("t"))
    response = respond(SESSION, DoorRequest(ask.method, ask.target, ask.body))
    reading = Answered(response.status, response.body)
    expected = "the capsule at localhost:40123 did not return its extended agent card"
    assert refusal_of_card(SESSION.authority, SES, ask, reading) == expected


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ['a"b\\c', "é中", "\x1b[31m", "\ud800"])
def test_a_card_of_an_odd_name_is_still_json(name: str) -> None:
    response = respond(ServedSession(SES, name, "1", "localhost:1"), DoorRequest("GET", CARD, b""))
    assert json.loads(response.body.decode())["name"] == name


@pytest.mark.spec("M1")
def test_a_card_is_also_answered_to_head_and_with_a_query() -> None:
    whole = respond(SESSION, DoorRequest("GET", CARD, b""))
    assert respond(SESSION, DoorRequest("HEAD", CARD, b"")) == whole
    assert respond(SESSION, DoorRequest("GET", CARD + "?x=1", b"")) == whole


@pytest.mark.spec("O2")
def test_session_stop_answers_with_nothing_canceled_and_nothing_left() -> None:
    assert call("session/stop", params={}) == {"jsonrpc": "2.0", "id": 1, "result": {"canceled": [], "residue": []}}


@pytest.mark.spec("O2")
def test_the_stop_answer_is_what_stopping_reads() -> None:
    response = respond(SESSION, DoorRequest("POST", "/", b'{"jsonrpc":"2.0","id":1,"method":"session/stop"}'))
    answer = read_stop_answer(Answered(response.status, response.body))
    assert answer == read_stop_answer(Answered(200, b'{"result":{"canceled":[],"residue":[]}}'))


@pytest.mark.spec("M1")
def test_every_method_that_the_card_lists_is_served() -> None:
    for method in METHODS:
        assert "result" in call(method, params={})


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
    response = respond(SESSION, DoorRequest(method, target, b""))
    assert response.status == status
    assert set(strict(response.body)) == {"error", "message"}
    assert dict(response.headers).get("allow") == allowed


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
    response = respond(SESSION, DoorRequest("POST", "/", body))
    assert isinstance(response, DoorResponse)
    answer = strict(response.body)
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) is not ("error" in answer)
