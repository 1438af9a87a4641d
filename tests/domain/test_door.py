"""Where a door is, what it is asked, and what its answer means (P1-P4, O2)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.door import (
    CANCEL_LIMITS,
    HANDOVER_LIMITS,
    STOP_LIMITS,
    TASK_LIMITS,
    Answered,
    AskLimits,
    DoorAsk,
    DoorReading,
    NoAnswer,
    NoSuchAddress,
    StopAnswer,
    card_ask,
    door_address,
    read_stop_answer,
    recorded_address,
    refusal_of_card,
    stop_ask,
    task_ask,
    task_is_unfinished,
)
from murmur.domain.secret import DoorToken
from murmur.domain.task_asks import TaskSeen, cancel_ask, control_ask, read_control, read_task, send_ask

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
TOKEN = DoorToken("mdt1.swordfish.mac")
CARDS = Path(__file__).parents[2] / "fixtures" / "agent_cards"
PUBLIC = (CARDS / "public.json").read_bytes()
EXTENDED: object = json.loads((CARDS / "extended.json").read_bytes())
LOCALHOST = ("127.0.0.1", "::1")


def answered(document: object, status: int = 200) -> Answered:
    return Answered(status, json.dumps(document).encode())


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(NoSuchAddress) as refusal:
        ask()
    return str(refusal.value)


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost:1", "localhost:1"),
        ("http://localhost:1", "localhost:1"),
        ("https://localhost:1", "localhost:1"),
        ("http://http://localhost:1", "localhost:1"),
        ("https://https://localhost:1", "localhost:1"),
        ("http://http://https://https://localhost:1", "localhost:1"),
        ("https://http://localhost:1", "http://localhost:1"),
        ("HTTP://localhost:1", "HTTP://localhost:1"),
        ("ftp://localhost:1", "ftp://localhost:1"),
        ("http:/localhost:1", "http:/localhost:1"),
        (" http://localhost:1", " http://localhost:1"),
        ("localhost:1/http://", "localhost:1/http://"),
        ("http://", ""),
        ("", ""),
    ],
)
def test_every_http_prefix_and_then_every_https_prefix_is_dropped(url: str, address: str) -> None:
    assert recorded_address(url) == address


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    "url", ["localhost:40123", "http://localhost:40123", "https://localhost:40123", "LocalHost:40123"]
)
def test_localhost_is_ipv4_first_and_then_ipv6(url: str) -> None:
    address = door_address(url)
    assert (address.hosts, address.port, address.loopback) == (LOCALHOST, 40123, True)


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    "authority", ["0.0.0.0:80", "[::]:80", "[0:0:0:0:0:0:0:0]:80", "[::ffff:0.0.0.0]:80", "[::ffff:0:0]:80"]
)
def test_a_wildcard_address_is_asked_as_localhost(authority: str) -> None:
    address = door_address(authority)
    assert (address.hosts, address.port, address.loopback) == (LOCALHOST, 80, True)
    assert card_ask(authority, TOKEN).token is TOKEN


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("127.0.0.1:80", "127.0.0.1"),
        ("127.255.255.254:80", "127.255.255.254"),
        ("127.0.0.0:80", "127.0.0.0"),
        ("[::1]:80", "::1"),
        ("[0:0:0:0:0:0:0:1]:80", "0:0:0:0:0:0:0:1"),
        ("[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1"),
        ("[::FFFF:127.9.9.9]:80", "::FFFF:127.9.9.9"),
        ("[::ffff:7f00:1]:80", "::ffff:7f00:1"),
    ],
)
def test_loopback_addresses_and_their_mapped_forms_may_be_sent_a_token(authority: str, host: str) -> None:
    address = door_address(authority)
    assert (address.hosts, address.port, address.loopback) == ((host,), 80, True)
    assert card_ask(authority, TOKEN).token is TOKEN
    assert stop_ask(authority, TOKEN).token is TOKEN


@pytest.mark.spec("P3", "P4")
@pytest.mark.parametrize("scheme", ["", "http://", "https://", "http://http://"])
@pytest.mark.parametrize(
    "authority",
    [
        "192.168.1.5:80",
        "10.0.0.1:80",
        "8.8.8.8:80",
        "169.254.1.1:80",
        "126.255.255.255:80",
        "128.0.0.1:80",
        "0.0.0.1:80",
        "255.255.255.255:80",
        "[2001:db8::1]:80",
        "[fe80::1]:80",
        "[::2]:80",
        "[::ffff:192.168.1.5]:80",
        "[::127.0.0.1]:80",
        "[64:ff9b::7f00:1]:80",
        "[2002:7f00:1::]:80",
    ],
)
def test_a_token_is_not_sent_beyond_loopback(authority: str, scheme: str) -> None:
    expected = f"the door at {authority} is not on loopback, so its token was not sent"
    url = scheme + authority
    assert refused(lambda: card_ask(url, TOKEN)) == expected
    assert refused(lambda: stop_ask(url, TOKEN)) == expected
    assert refused(lambda: task_ask(url, TOKEN, "tsk_1")) == expected
    assert refused(lambda: card_ask(url, DoorToken(""))) == expected


@pytest.mark.spec("P4")
def test_without_a_token_an_address_beyond_loopback_is_asked() -> None:
    ask = card_ask("192.168.1.5:80", None)
    assert (ask.address.hosts, ask.address.loopback, ask.token) == (("192.168.1.5",), False, None)


@pytest.mark.spec("P1", "P4")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:00",
        "localhost:65536",
        "localhost:99999",
        "localhost:000080",
        "localhost:" + "9" * 5000,
        "localhost:-1",
        "localhost:+80",
        "localhost: 80",
        "localhost:80 ",
        "localhost:80\n",
        "localhost:8_0",
        "localhost:0x50",
        "localhost:80.0",
        "localhost:\u0668\u0660",
        "localhost:\uff18\uff10",
        "localhost:\u00b2",
        "localhost:http",
        "localhost:80:80",
        "localhost:80/path",
        "localhost:80?x",
        "localhost:80#x",
        "localhost:80//",
        "localhost/:80",
        ":80",
        "80",
        "127.0.0.1",
        "127.0.0.1:",
        "127.1:80",
        "127.0.0.01:80",
        "0177.0.0.1:80",
        "2130706433:80",
        "0x7f000001:80",
        "127.0.0.256:80",
        "\uff11\uff12\uff17.0.0.1:80",
        "127\u30020\u30020\u30021:80",
        "::1:80",
        "::1",
        "[::1]",
        "[::1]80",
        "[::1]:",
        "[::1]:0",
        "[::1]:65536",
        "[::1:80",
        "[]:80",
        "[127.0.0.1]:80",
        "[localhost]:80",
        "[::1]x:80",
        "[::g]:80",
        "[[::1]]:80",
        "::1]:80",
        "example.org:80",
        "localhost.example.org:80",
        "localhost.:80",
        "xlocalhost:80",
        "user@localhost:80",
        "user:pass@localhost:80",
        "localhost\0:80",
        "local\thost:80",
        "localhost:80\r\nHost: example.org",
        "\x1b[31m:80",
        "\u202elocalhost:80",
        "localh\u00f6st:80",
        "\ud800:80",
        "https://http://localhost:80",
        "HTTP://localhost:80",
        "ftp://localhost:80",
        "unix:/run/x",
        "/run/x.sock",
        "not a url",
    ],
)
def test_a_text_that_is_not_an_ip_address_or_localhost_with_a_port_is_not_asked(url: str) -> None:
    refused(lambda: door_address(url))
    reason = refused(lambda: card_ask(url, TOKEN))
    assert reason.startswith("the recorded address ")
    assert "swordfish" not in reason


@pytest.mark.spec("P1")
@pytest.mark.parametrize("port", [1, 80, 1023, 1024, 40123, 65535])
def test_every_port_from_1_to_65535_is_asked(port: int) -> None:
    assert door_address(f"127.0.0.1:{port}").port == port


@pytest.mark.spec("P1")
@pytest.mark.parametrize("url", ["localhost:40123", "http://localhost:40123", "http://localhost:40123/"])
def test_the_host_header_says_what_the_record_says(url: str) -> None:
    assert door_address(url).authority == "localhost:40123"


@pytest.mark.spec("P1")
def test_without_a_token_the_public_card_is_fetched() -> None:
    ask = card_ask("localhost:40123", None)
    assert (ask.method, ask.target, ask.body, ask.token) == ("GET", "/.well-known/agent-card.json", b"", None)
    assert ask.headers == (("Accept", "application/json"),)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("token", [TOKEN, DoorToken("")], ids=["token", "empty"])
def test_with_a_token_also_an_empty_one_the_extended_card_is_asked_for(token: DoorToken) -> None:
    ask = card_ask("localhost:40123", token)
    assert (ask.method, ask.target, ask.token) == ("POST", "/", token)
    assert ("Content-Type", "application/json") in ask.headers
    expected = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard", "params": {}}
    assert json.loads(ask.body) == expected


@pytest.mark.spec("O2")
def test_stopping_is_asked_with_the_token_and_no_parameters() -> None:
    ask = stop_ask("localhost:40123", TOKEN)
    assert (ask.method, ask.target, ask.token) == ("POST", "/", TOKEN)
    assert json.loads(ask.body) == {"jsonrpc": "2.0", "id": 1, "method": "session/stop", "params": {}}


@pytest.mark.spec("O2")
def test_a_task_is_asked_for_by_its_id() -> None:
    ask = task_ask("localhost:40123", None, 'tsk_"1')
    assert json.loads(ask.body) == {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": 'tsk_"1'}}


@pytest.mark.spec("I3", "P3")
def test_no_part_of_an_ask_shows_its_token() -> None:
    for ask in (
        card_ask("localhost:1", TOKEN),
        stop_ask("localhost:1", TOKEN),
        task_ask("localhost:1", TOKEN, "tsk_1"),
    ):
        assert "DoorToken(<redacted>)" in repr(ask)
        assert "swordfish" not in f"{ask} {ask!r} {ask.headers} {ask.body!r}"


@pytest.mark.spec("P4")
def test_a_probe_has_2_seconds_to_connect_5_to_read_and_7_in_all() -> None:
    assert AskLimits() == AskLimits(connect=2.0, read=5.0, total=7.0, body=1024 * 1024)


@pytest.mark.spec("P4")
def test_only_a_waiting_send_has_time_without_end_and_only_tasks_are_read_beyond_a_mebibyte() -> None:
    assert STOP_LIMITS.body == 1024 * 1024
    assert all(limits.body == 8 * 1024 * 1024 for limits in (TASK_LIMITS, HANDOVER_LIMITS, CANCEL_LIMITS))
    assert TASK_LIMITS.total > 86400
    assert HANDOVER_LIMITS.read == 10
    assert CANCEL_LIMITS.read == 15
    assert max(HANDOVER_LIMITS.total, CANCEL_LIMITS.total) < 20


@pytest.mark.spec("P1")
def test_a_task_is_sent_in_utf_8_and_a_lone_surrogate_as_an_escape() -> None:
    text = "\u4e2d" * 300_000
    assert len(send_ask("localhost:1", None, text, "msg_1", blocking=True).body) < 1024 * 1024
    body = send_ask("localhost:1", None, "\u4e2d\udc80", "msg_1", blocking=True).body
    assert json.loads(body)["params"]["message"]["parts"][0]["text"] == "\u4e2d\udc80"


PUBLIC_ASK = card_ask("http://localhost:40123", None)
TOKEN_ASK = card_ask("http://localhost:40123", TOKEN)


def verdict(reading: DoorReading, ask: DoorAsk = PUBLIC_ASK, session_id: str = SES) -> str | None:
    return refusal_of_card("http://localhost:40123", session_id, ask, reading)


@pytest.mark.spec("P1", "P3")
@pytest.mark.parametrize("status", [200, 201, 203, 206, 299])
def test_any_2xx_answer_with_the_sessions_card_is_the_sessions_own(status: int) -> None:
    assert verdict(Answered(status, PUBLIC)) is None
    assert verdict(answered({"result": EXTENDED}, status), TOKEN_ASK) is None


@pytest.mark.spec("P1")
@pytest.mark.parametrize("status", [100, 199, 300, 301, 302, 304, 307, 400, 401, 403, 404, 500, 503, 0, 999])
def test_another_status_is_no_answer_even_with_a_valid_card(status: int) -> None:
    assert verdict(Answered(status, PUBLIC)) == f"the door answered with HTTP status {status}"
    assert verdict(answered({"result": EXTENDED}, status), TOKEN_ASK) == f"the door answered with HTTP status {status}"


@pytest.mark.spec("P3")
@pytest.mark.parametrize("named", ["ses_other", "", SES.upper(), SES + " ", SES[:-1]])
def test_a_card_of_another_session_is_refused_with_the_recorded_url(named: str) -> None:
    card = {"capabilities": {"extensions": [{"uri": capsule_uri(), "params": {"sessionId": named}}]}}
    expected = f"the capsule at http://localhost:40123 answers for session {named}"
    assert verdict(answered(card)) == expected
    assert verdict(answered({"result": card}), TOKEN_ASK) == expected


def capsule_uri() -> str:
    return "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    "card", [None, {}, [], 5, "x", True, {"capabilities": {"extensions": []}}, {"result": EXTENDED}]
)
def test_a_card_that_names_no_session_is_refused_with_the_bare_address(card: object) -> None:
    assert verdict(answered(card)) == "the agent card from localhost:40123 names no session"


@pytest.mark.spec("P3")
@pytest.mark.parametrize("card", [None, {}, [], 5, "x", False])
def test_a_result_that_names_no_session_also_null_is_refused_as_a_card(card: object) -> None:
    reading = answered({"jsonrpc": "2.0", "id": 1, "result": card})
    assert verdict(reading, TOKEN_ASK) == "the agent card from localhost:40123 names no session"


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    "document",
    [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32007, "message": "no"}},
        {},
        [],
        [{"result": EXTENDED}],
        None,
        5,
        "result",
        True,
        EXTENDED,
        {"Result": EXTENDED},
    ],
)
def test_an_answer_without_a_result_did_not_return_the_extended_card(document: object) -> None:
    expected = "the capsule at localhost:40123 did not return its extended agent card"
    assert verdict(answered(document), TOKEN_ASK) == expected


@pytest.mark.spec("P3")
def test_the_public_card_does_not_answer_for_a_door_that_was_sent_a_token() -> None:
    assert verdict(Answered(200, PUBLIC), TOKEN_ASK) is not None


@pytest.mark.spec("P3")
@pytest.mark.parametrize("reason", ["connection refused", "timed out after 2s"])
def test_the_transports_reason_is_given_as_it_is(reason: str) -> None:
    assert verdict(NoAnswer(reason)) == reason
    assert verdict(NoAnswer(reason), TOKEN_ASK) == reason


NOT_JSON = [
    b"",
    b" ",
    b"<html>404</html>",
    PUBLIC[:-3],
    PUBLIC + b"x",
    PUBLIC + PUBLIC,
    b"\xff" + PUBLIC,
    PUBLIC.replace(b"weaver", b"w\xe9aver"),
    b"[" * 100_000,
    b"9" * 5000,
]


@pytest.mark.spec("P1")
@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
def test_a_body_that_is_not_json_is_no_answer(body: bytes) -> None:
    assert verdict(Answered(200, body)) == "the door answered with a body that is not JSON"


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "body",
    [
        PUBLIC.replace(b"true", b"NaN", 1),
        PUBLIC.replace(b"true", b"-Infinity", 1),
        b"\xef\xbb\xbf" + PUBLIC,
        PUBLIC.decode().encode("utf-16"),
        PUBLIC.decode().encode("utf-32-le"),
        PUBLIC.replace(b"weaver", b"\xed\xa0\x80"),
    ],
    ids=["nan", "infinity", "byte-order-mark", "utf-16", "utf-32", "surrogate-bytes"],
)
def test_what_only_pythons_reader_takes_for_json_is_no_answer(body: bytes) -> None:
    assert verdict(Answered(200, body)) == "the door answered with a body that is not JSON"


@pytest.mark.spec("I3", "P3")
def test_a_door_that_repeats_the_token_does_not_get_it_into_a_reason() -> None:
    for echoed in (TOKEN.expose(), f"ses_{TOKEN.expose()}"):
        card = {"capabilities": {"extensions": [{"uri": capsule_uri(), "params": {"sessionId": echoed}}]}}
        reason = verdict(answered({"result": card}), TOKEN_ASK)
        assert reason is not None
        assert "swordfish" not in reason


@pytest.mark.spec("P3")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(status=st.integers(0, 999), body=st.binary(max_size=60), token=st.booleans())
def test_no_answer_of_any_bytes_is_an_error(status: int, body: bytes, token: bool) -> None:
    reading = Answered(status, body)
    assert isinstance(verdict(reading, TOKEN_ASK if token else PUBLIC_ASK), str)
    assert isinstance(read_stop_answer(reading), NoAnswer)
    assert task_is_unfinished(reading) is False


def stopped(result: object) -> StopAnswer | NoAnswer:
    return read_stop_answer(answered({"jsonrpc": "2.0", "id": 1, "result": result}))


@pytest.mark.spec("O2")
def test_a_stop_answer_lists_the_tasks_canceled_and_what_is_left() -> None:
    left = {"kind": "delegation", "delegation_id": "dlg_1", "capsule": "weaver", "version": "2.4.0"}
    assert stopped({"canceled": ["tsk_1", "tsk_2"], "residue": [left]}) == StopAnswer(
        ("tsk_1", "tsk_2"), ("delegation dlg_1 weaver 2.4.0",)
    )


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"canceled": None, "residue": None},
        {"canceled": "tsk_1", "residue": "x"},
        {"canceled": {"tsk_1": 1}, "residue": {"kind": "x"}},
        {"canceled": 5, "residue": True},
        {"canceled": [5, None, [], {}, True], "residue": [5, None, "x", []]},
    ],
)
def test_a_stop_answer_of_wrong_members_cancels_and_leaves_nothing(result: object) -> None:
    assert stopped(result) == StopAnswer((), ())


@pytest.mark.spec("O2")
def test_wrong_entries_of_a_stop_answer_are_passed_over() -> None:
    result = {"canceled": [5, "tsk_1", None], "residue": [None, {"kind": "delegation", "capsule": 5, "version": None}]}
    assert stopped(result) == StopAnswer(("tsk_1",), ("delegation",))


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        5,
        "x",
        True,
        {},
        {"error": {"code": -32601, "message": "no"}},
        {"result": None},
        {"result": []},
        {"result": "stopped"},
        {"result": True},
        {"canceled": [], "residue": []},
        [{"result": {"canceled": [], "residue": []}}],
    ],
)
def test_a_stop_answer_without_a_result_object_is_a_refusal(document: object) -> None:
    assert read_stop_answer(answered(document)) == NoAnswer("the door refused session/stop")


@pytest.mark.spec("I3", "P3")
def test_a_stop_answer_that_repeats_the_token_does_not_hold_it() -> None:
    residue = [{"kind": "delegation", "capsule": f"x {TOKEN.expose()}"}]
    reading = answered({"result": {"canceled": [f"tsk_{TOKEN.expose()}"], "residue": residue}})
    told = read_stop_answer(reading, TOKEN)
    assert told == StopAnswer(("tsk_DoorToken(<redacted>)",), ("delegation x DoorToken(<redacted>)",))


@pytest.mark.spec("O2")
def test_a_stop_that_was_not_answered_gives_the_reason() -> None:
    good: dict[str, Any] = {"result": {"canceled": [], "residue": []}}
    assert read_stop_answer(NoAnswer("connection refused")) == NoAnswer("connection refused")
    assert read_stop_answer(answered(good, 401)) == NoAnswer("the door answered with HTTP status 401")
    assert read_stop_answer(Answered(200, b"{")) == NoAnswer("the door answered with a body that is not JSON")


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    ("state", "unfinished"),
    [
        ("submitted", True),
        ("working", True),
        ("input-required", True),
        ("completed", False),
        ("failed", False),
        ("canceled", False),
        ("rejected", False),
        ("Working", False),
        ("", False),
        (None, False),
        (["working"], False),
        ({"working": 1}, False),
        (5, False),
    ],
)
def test_a_task_is_unfinished_in_three_states_alone(state: object, unfinished: bool) -> None:
    assert task_is_unfinished(answered({"result": {"id": "tsk_1", "status": {"state": state}}})) is unfinished


@pytest.mark.spec("O2")
@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"result": None},
        {"result": []},
        {"result": {}},
        {"result": {"status": None}},
        {"result": {"status": "working"}},
    ],
)
def test_a_task_answer_of_another_shape_says_nothing_of_running(document: object) -> None:
    assert task_is_unfinished(answered(document)) is False


@pytest.mark.spec("O2")
def test_no_answer_about_a_task_says_nothing_of_running() -> None:
    assert task_is_unfinished(NoAnswer("connection refused")) is False
    assert task_is_unfinished(answered({"result": {"status": {"state": "working"}}}, 404)) is False


@pytest.mark.spec("P1")
@pytest.mark.parametrize("blocking", [True, False])
def test_a_task_is_given_as_one_text_part_of_a_users_message(blocking: bool) -> None:
    ask = send_ask("localhost:40123", TOKEN, 'do "it"\n\u00e9', "msg_1", blocking=blocking)
    assert (ask.method, ask.target, ask.token) == ("POST", "/", TOKEN)
    message = {
        "kind": "message",
        "messageId": "msg_1",
        "role": "user",
        "parts": [{"kind": "text", "text": 'do "it"\n\u00e9'}],
    }
    assert json.loads(ask.body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {"message": message, "configuration": {"blocking": blocking}},
    }


@pytest.mark.spec("P1")
def test_a_task_goes_on_with_the_conversation_that_is_named() -> None:
    ask = send_ask("localhost:40123", None, "x", "msg_1", blocking=True, context_id="trip")
    assert json.loads(ask.body)["params"]["message"]["contextId"] == "trip"


@pytest.mark.spec("P1")
def test_a_task_is_canceled_by_its_id() -> None:
    ask = cancel_ask("localhost:40123", None, 'tsk_"1')
    assert (ask.method, ask.target, ask.token) == ("POST", "/", None)
    assert json.loads(ask.body) == {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": 'tsk_"1'}}


@pytest.mark.spec("P1")
@pytest.mark.parametrize("op", ["status", "pause", "resume", "drain"])
def test_control_is_asked_at_its_own_path(op: str) -> None:
    ask = control_ask("http://localhost:40123/", TOKEN, op)
    assert (ask.method, ask.target, ask.token) == ("POST", "/control", TOKEN)
    assert ("Content-Type", "application/json") in ask.headers
    assert json.loads(ask.body) == {"op": op}


@pytest.mark.spec("P4")
def test_no_new_ask_takes_a_token_beyond_loopback() -> None:
    expected = "the door at 192.168.1.5:80 is not on loopback, so its token was not sent"
    url = "192.168.1.5:80"
    assert refused(lambda: send_ask(url, TOKEN, "x", "msg_1", blocking=True)) == expected
    assert refused(lambda: cancel_ask(url, TOKEN, "tsk_1")) == expected
    assert refused(lambda: control_ask(url, TOKEN, "status")) == expected
    assert send_ask(url, None, "x", "msg_1", blocking=True).token is None


@pytest.mark.spec("I3")
def test_no_part_of_a_new_ask_shows_its_token() -> None:
    for ask in (
        send_ask("localhost:1", TOKEN, "x", "msg_1", blocking=True),
        cancel_ask("localhost:1", TOKEN, "tsk_1"),
        control_ask("localhost:1", TOKEN, "status"),
    ):
        assert "DoorToken(<redacted>)" in repr(ask)
        assert "swordfish" not in f"{ask} {ask!r} {ask.headers} {ask.body!r}"


def seen(task: object, token: DoorToken | None = None) -> TaskSeen | NoAnswer:
    return read_task(answered({"jsonrpc": "2.0", "id": 1, "result": task}), token)


@pytest.mark.spec("P1")
def test_a_task_is_read_with_its_result_and_its_reason() -> None:
    status = {"state": "failed", "message": {"parts": [{"kind": "text", "text": "exit status 3"}]}}
    artifacts = [{"artifactId": "a", "parts": [{"kind": "text", "text": "half"}, {"text": " done"}]}]
    task = {"kind": "task", "id": "tsk_1", "contextId": "ctx_1", "status": status, "artifacts": artifacts}
    assert seen(task) == TaskSeen("tsk_1", "failed", "half done", "exit status 3")


@pytest.mark.spec("P1")
def test_the_texts_of_several_artifacts_are_one_result() -> None:
    artifacts = [{"parts": [{"text": "a"}]}, {"parts": [{"text": "b"}, {"text": ""}]}]
    expected = TaskSeen("tsk_1", "completed", "ab", None)
    assert seen({"id": "tsk_1", "status": {"state": "completed"}, "artifacts": artifacts}) == expected


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "odd",
    [
        None,
        5,
        "x",
        {},
        [],
        [None],
        [5, "x", []],
        [{}],
        [{"parts": None}],
        [{"parts": "x"}],
        [{"parts": {"text": "x"}}],
        [{"parts": []}],
        [{"parts": [None, 5, "x", [], {}]}],
        [{"parts": [{"text": None}, {"text": 5}, {"text": ["x"]}]}],
        [{"parts": [{"kind": "file", "file": {"uri": "x"}}]}],
    ],
)
def test_artifacts_and_messages_without_text_are_no_result_and_no_reason(odd: object) -> None:
    bare = TaskSeen("tsk_1", "working", None, None)
    assert seen({"id": "tsk_1", "status": {"state": "working"}, "artifacts": odd}) == bare
    message = odd[0] if isinstance(odd, list) and odd else odd
    assert seen({"id": "tsk_1", "status": {"state": "working", "message": message}}) == bare


@pytest.mark.spec("P1")
def test_an_empty_result_is_a_result() -> None:
    task = {"id": "tsk_1", "status": {"state": "completed"}, "artifacts": [{"parts": [{"text": ""}]}]}
    assert seen(task) == TaskSeen("tsk_1", "completed", "", None)


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "task",
    [
        None,
        [],
        "x",
        {},
        {"id": "tsk_1"},
        {"status": {"state": "working"}},
        {"id": 5, "status": {"state": "working"}},
        {"id": "tsk_1", "status": None},
        {"id": "tsk_1", "status": "working"},
        {"id": "tsk_1", "status": {}},
        {"id": "tsk_1", "status": {"state": 5}},
        [{"id": "tsk_1", "status": {"state": "working"}}],
    ],
)
def test_a_result_of_another_shape_is_no_task(task: object) -> None:
    assert seen(task) == NoAnswer("the door answered with something that is no task")


@pytest.mark.spec("P1")
def test_a_refused_call_gives_the_doors_own_words() -> None:
    reading = answered({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no such task"}})
    assert read_task(reading, None) == NoAnswer("the door refused: no such task")


@pytest.mark.spec("P1")
@pytest.mark.parametrize("document", [None, [], 5, {"error": None}, {"error": "x"}, {"error": {"message": 5}}])
def test_an_answer_with_neither_a_task_nor_an_error_is_no_task(document: object) -> None:
    assert read_task(answered(document), None) == NoAnswer("the door answered with something that is no task")


@pytest.mark.spec("P1")
def test_a_task_or_state_that_was_not_answered_gives_the_reason() -> None:
    good = {"result": {"id": "tsk_1", "status": {"state": "working"}}}
    for reading, reason in (
        (NoAnswer("connection refused"), "connection refused"),
        (answered(good, 401), "the door answered with HTTP status 401"),
        (Answered(200, b"{"), "the door answered with a body that is not JSON"),
    ):
        assert read_task(reading, TOKEN) == NoAnswer(reason)
        assert read_control(reading, TOKEN) == NoAnswer(reason)


@pytest.mark.spec("I3", "P3")
def test_a_task_or_refusal_that_repeats_the_token_does_not_hold_it() -> None:
    echo = f"x {TOKEN.expose()} x"
    parts = {"parts": [{"text": echo[:8]}, {"text": echo[8:]}]}
    task = {"id": echo, "status": {"state": echo, "message": parts}, "artifacts": [parts]}
    hidden = "x DoorToken(<redacted>) x"
    assert seen(task, TOKEN) == TaskSeen(hidden, hidden, hidden, hidden)
    reading = answered({"error": {"code": 1, "message": echo}})
    assert read_task(reading, TOKEN) == NoAnswer(f"the door refused: {hidden}")


@pytest.mark.spec("P1")
def test_the_state_of_a_session_is_read_as_it_is() -> None:
    state = {"state": "paused", "task": None, "waiting": 2}
    assert read_control(answered(state), TOKEN) == state


@pytest.mark.spec("P1")
@pytest.mark.parametrize("document", [None, [], [{"state": "paused"}], 5, "paused", True])
def test_a_state_that_is_no_object_is_no_answer(document: object) -> None:
    assert read_control(answered(document), TOKEN) == NoAnswer("the door answered with something else than its state")


@pytest.mark.spec("I3", "P3")
@pytest.mark.parametrize(
    "state",
    [
        {"state": TOKEN.expose()},
        {TOKEN.expose(): 1},
        {"task": [TOKEN.expose()]},
        {"task": {"id": TOKEN.expose()}},
        {"task": {TOKEN.expose(): [[{"a": TOKEN.expose()}]]}},
    ],
)
def test_a_state_that_repeats_the_token_anywhere_does_not_hold_it(state: object) -> None:
    read = read_control(answered(state), TOKEN)
    assert "swordfish" not in repr(read)


@pytest.mark.spec("P1")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(status=st.integers(0, 999), body=st.binary(max_size=60))
def test_no_answer_of_any_bytes_is_a_task(status: int, body: bytes) -> None:
    assert isinstance(read_task(Answered(status, body), TOKEN), NoAnswer)
    assert isinstance(read_control(Answered(status, body), TOKEN), NoAnswer | dict)
