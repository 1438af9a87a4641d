"""Doors that lie, stall, flood or break off: each costs its own row, within the limits, and learns nothing (P1-P4)."""

import gzip
import json
import os

import pytest

from murmur.adapters.doors import HttpDoors
from murmur.adapters.processes import SystemProcesses
from murmur.domain.door import BODY_LIMIT, Answered, AskLimits, NoAnswer, card_ask, read_stop_answer, stop_ask
from murmur.domain.liveness import Live, Liveness, Unreachable, verify
from murmur.domain.record import RunningRecord
from murmur.domain.secret import DoorToken
from tests.adapters.doors_for_tests import (
    OTHER_SESSION,
    SESSION,
    Caller,
    ScriptedDoor,
    answering,
    blackhole,
    card,
    elapsed_below,
    http,
    silent,
)

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

LIMITS = AskLimits(connect=0.2, read=0.3, total=0.5)
SLACK = 0.4
"""Seconds granted to a busy machine on top of a limit."""
DOORS = HttpDoors(LIMITS)
PROCESSES = SystemProcesses()
TOKEN = DoorToken("mdt1.secret-payload.secret-mac")
NOT_JSON = "the door answered with a body that is not JSON"
NOT_HTTP = "the door answered with something that is not HTTP"


@pytest.fixture(params=[None, TOKEN], ids=["public", "with a token"])
def token(request: pytest.FixtureRequest) -> DoorToken | None:
    found: DoorToken | None = request.param
    return found


def verdict(url: str, token: DoorToken | None) -> Liveness:
    """Verify a session of this very process, recorded with that door; see that no reason holds the token."""
    record = RunningRecord(
        session_id=SESSION,
        url=url,
        pid=os.getpid(),
        process_start=PROCESSES.own_origin().process_start or "",
        capsule_name="worker",
        capsule_version="1.0.0",
        workdir="/work",
        outlives_launcher=True,
        started_at="2026-01-01T00:00:00Z",
        door_token=token,
    )
    found = verify(record, PROCESSES, DOORS)
    if token is not None:
        assert "secret" not in repr(found)
    return found


def result(document: object, token: DoorToken | None) -> object:
    """Wrap a card as the answer that this ask gets it in."""
    return document if token is None else {"jsonrpc": "2.0", "id": 1, "result": document}


@pytest.mark.spec("P4")
@pytest.mark.parametrize("reads_first", [True, False])
def test_a_silent_door_times_out(token: DoorToken | None, reads_first: bool) -> None:
    with ScriptedDoor(silent, reads_first=reads_first) as door, elapsed_below(LIMITS.read + SLACK):
        assert verdict(door.url, token) == Unreachable("timed out after 0.3s without an answer")


@pytest.mark.spec("P4")
def test_a_connection_that_is_not_taken_times_out(token: DoorToken | None) -> None:
    with blackhole() as port, elapsed_below(LIMITS.connect + SLACK):
        found = verdict(f"127.0.0.1:{port}", token)
    assert found == Unreachable("timed out after 0.2s without a connection")


def drip(caller: Caller) -> None:
    caller.drip(http(card()), every=0.05)


def drip_a_body(caller: Caller) -> None:
    answer = http(card())
    head = answer.index(b"\r\n\r\n") + 4
    caller.send(answer[:head])
    caller.drip(answer[head:], every=0.05)


def drip_go_ahead(caller: Caller) -> None:
    while not caller.closing.wait(0.05):
        caller.send(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.spec("P4")
@pytest.mark.parametrize("script", [drip, drip_a_body, drip_go_ahead])
def test_a_door_that_drips_is_left_at_the_deadline_of_the_whole_exchange(
    script: object, token: DoorToken | None
) -> None:
    assert callable(script)
    with ScriptedDoor(script) as door, elapsed_below(LIMITS.total + SLACK):
        assert verdict(door.url, token) == Unreachable("timed out after 0.5s before the answer was whole")


@pytest.mark.spec("P4")
def test_a_door_that_stops_half_way_is_left_at_the_read_limit(token: DoorToken | None) -> None:
    def stop_half_way(caller: Caller) -> None:
        caller.send(http(result(card(), token))[:-1])
        caller.silence()

    with ScriptedDoor(stop_half_way) as door, elapsed_below(LIMITS.total + SLACK):
        assert verdict(door.url, token) == Unreachable("timed out after 0.3s without an answer")


def endless_body(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    caller.endlessly(b" " * 65536)


def endless_chunks(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    caller.endlessly(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


def huge_announced(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    caller.endlessly(b" " * 65536)


@pytest.mark.spec("P4")
@pytest.mark.parametrize("script", [endless_body, endless_chunks, huge_announced])
def test_a_body_without_end_is_cut_off_at_a_mebibyte(script: object, token: DoorToken | None) -> None:
    assert callable(script)
    with ScriptedDoor(script) as door, elapsed_below(LIMITS.total + SLACK):
        assert verdict(door.url, token) == Unreachable(f"the door's answer is larger than {BODY_LIMIT} bytes")


def endless_header(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    caller.endlessly(b"a" * 4096)


def endless_headers(caller: Caller) -> None:
    caller.send(b"HTTP/1.1 200 OK\r\n")
    caller.endlessly(b"X-More: a\r\n" * 100)


def endless_status(caller: Caller) -> None:
    caller.endlessly(b"a" * 4096)


@pytest.mark.spec("P4")
@pytest.mark.parametrize("script", [endless_header, endless_headers, endless_status])
def test_a_head_without_end_is_no_http(script: object, token: DoorToken | None) -> None:
    assert callable(script)
    with ScriptedDoor(script) as door, elapsed_below(LIMITS.total + SLACK):
        assert verdict(door.url, token) == Unreachable(NOT_HTTP)


@pytest.mark.spec("P4")
def test_a_flood_of_interim_answers_ends_with_the_exchange(token: DoorToken | None) -> None:
    def flood(caller: Caller) -> None:
        caller.endlessly(b"HTTP/1.1 102 Processing\r\n\r\n" * 20)

    with ScriptedDoor(flood) as door, elapsed_below(LIMITS.total + SLACK):
        assert verdict(door.url, token) == Unreachable("timed out after 0.5s before the answer was whole")


@pytest.mark.spec("P1", "P3")
def test_a_door_that_answers_for_another_session_is_found_out(token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(OTHER_SESSION), token)))) as door:
        reason = f"the capsule at {door.url} answers for session {OTHER_SESSION}"
        assert verdict(door.url, token) == Unreachable(reason)


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "status", ["401 Unauthorized", "403 Forbidden", "404 Not Found", "500 Internal Server Error", "304 Not Modified"]
)
def test_only_a_2xx_answer_counts_whatever_card_it_carries(status: str, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token), status))) as door:
        reason = f"the door answered with HTTP status {status[:3]}"
        assert verdict(door.url, token) == Unreachable(reason)


@pytest.mark.spec("P1", "P4")
@pytest.mark.parametrize("status", ["302 Found", "404 Not Found", "503 Service Unavailable"])
def test_the_body_of_any_other_answer_is_not_waited_for(status: str, token: DoorToken | None) -> None:
    def keep_the_body(caller: Caller) -> None:
        caller.send(f"HTTP/1.1 {status}\r\nContent-Length: 10\r\n\r\n".encode())
        caller.silence()

    with ScriptedDoor(keep_the_body) as door:
        reason = f"the door answered with HTTP status {status[:3]}"
        assert verdict(door.url, token) == Unreachable(reason)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("status", ["200 OK", "201 Created", "299 ", "200"])
def test_any_2xx_answer_counts(status: str, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token), status))) as door:
        assert verdict(door.url, token) == Live()


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "body",
    [
        b"<!doctype html><title>It works</title>",
        b"",
        b"\x1f\x8b\x08junk",
        gzip.compress(json.dumps(card()).encode()),
        b'{"result": ',
        b"[" * 100_000,
        b"9" * 10_000,
        b"\xff\xfe\xfd",
        b'{"a": "\xff"}',
    ],
)
def test_a_body_that_is_not_json_is_no_card(body: bytes, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(body))) as door:
        assert verdict(door.url, token) == Unreachable(NOT_JSON)


@pytest.mark.spec("P1")
def test_an_answer_without_content_is_no_card(token: DoorToken | None) -> None:
    with ScriptedDoor(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as door:
        assert verdict(door.url, token) == Unreachable(NOT_JSON)


@pytest.mark.spec("P2", "P3")
@pytest.mark.parametrize(
    "document",
    [
        None,
        True,
        1,
        "card",
        [],
        {},
        {"capabilities": None},
        {"capabilities": {"extensions": {}}},
        {"capabilities": {"extensions": [None, {"uri": "other", "params": {"sessionId": SESSION}}]}},
        card(None),
        card(1),
        card([SESSION]),
    ],
)
def test_a_card_that_names_no_session_is_told_as_such(document: object, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(document, token)))) as door:
        assert verdict(f"http://{door.url}", token) == Unreachable(f"the agent card from {door.url} names no session")


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    "document", [card(), {"jsonrpc": "2.0", "id": 1, "error": {"code": -32007, "message": "no"}}, {}, [], None, "a", 1]
)
def test_an_answer_without_a_result_is_no_extended_card(document: object) -> None:
    with ScriptedDoor(answering(http(document))) as door:
        reason = f"the capsule at {door.url} did not return its extended agent card"
        assert verdict(f"https://{door.url}", TOKEN) == Unreachable(reason)


@pytest.mark.spec("P4")
def test_a_reset_is_told_as_such(token: DoorToken | None) -> None:
    with ScriptedDoor(Caller.reset) as door:
        assert verdict(door.url, token) == Unreachable("connection reset by peer")


@pytest.mark.spec("P4")
def test_a_reset_before_the_request_was_read_is_told_as_a_broken_connection(token: DoorToken | None) -> None:
    with ScriptedDoor(Caller.reset, reads_first=False) as door:
        found = verdict(door.url, token)
    assert found in (Unreachable("connection reset by peer"), Unreachable("broken pipe"))


@pytest.mark.spec("P4")
def test_a_close_without_an_answer_is_told_as_such(token: DoorToken | None) -> None:
    with ScriptedDoor(answering()) as door:
        assert verdict(door.url, token) == Unreachable("the door closed the connection without an answer")


@pytest.mark.spec("P4")
@pytest.mark.parametrize("cut", [-1, -20])
def test_a_close_within_the_answer_is_told_as_such(cut: int, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token))[:cut])) as door:
        reason = "the door closed the connection before the end of its answer"
        assert verdict(door.url, token) == Unreachable(reason)


@pytest.mark.spec("P4")
@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_close_within_the_head_is_no_answer(cut: int, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token))[:cut])) as door:
        found = verdict(door.url, token)
    assert found == Unreachable("the door closed the connection without an answer")


@pytest.mark.spec("P4")
@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent"])
def test_a_redirect_is_not_followed(status: str, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token)))) as other:
        location = f"Location: http://127.0.0.1:{other.port}/.well-known/agent-card.json"
        with ScriptedDoor(answering(http(result(card(), token), status, location))) as door:
            reason = f"the door answered with HTTP status {status[:3]}"
            assert verdict(door.url, token) == Unreachable(reason)
    assert other.connections == 0


@pytest.mark.spec("P1")
def test_an_answer_of_http_1_0_ends_with_the_connection(token: DoorToken | None) -> None:
    body = json.dumps(result(card(), token)).encode()
    with ScriptedDoor(answering(b"HTTP/1.0 200 OK\r\n\r\n" + body)) as door:
        assert verdict(door.url, token) == Live()


@pytest.mark.spec("P1")
def test_a_chunked_answer_is_put_together(token: DoorToken | None) -> None:
    body = json.dumps(result(card(), token)).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[at : at + 7]), body[at : at + 7]) for at in range(0, len(body), 7))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with ScriptedDoor(answering(head + chunks, b"0\r\nX-Trailer: a\r\n\r\n")) as door:
        assert verdict(door.url, token) == Live()


@pytest.mark.spec("P1")
def test_an_interim_answer_comes_before_the_real_one(token: DoorToken | None) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    with ScriptedDoor(answering(interim, http(result(card(), token)))) as door:
        assert verdict(door.url, token) == Live()


@pytest.mark.spec("P1")
def test_what_follows_the_answer_is_not_read(token: DoorToken | None) -> None:
    with ScriptedDoor(answering(http(result(card(), token)) + http(result(card(OTHER_SESSION), token)))) as door:
        assert verdict(door.url, token) == Live()


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.7\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0" * 100_000,
    ],
)
def test_bytes_that_are_not_http_are_no_card(answer: bytes, token: DoorToken | None) -> None:
    with ScriptedDoor(answering(answer)) as door:
        assert verdict(door.url, token) == Unreachable(NOT_HTTP)


@pytest.mark.spec("P4")
def test_a_card_of_a_mebibyte_is_read_and_one_of_a_byte_more_is_not(token: DoorToken | None) -> None:
    body = json.dumps(result(card(), token)).encode()
    whole = body + b" " * (BODY_LIMIT - len(body))
    with ScriptedDoor(answering(http(whole))) as door:
        assert verdict(door.url, token) == Live()
    with ScriptedDoor(answering(http(whole + b" "))) as door:
        assert verdict(door.url, token) == Unreachable(f"the door's answer is larger than {BODY_LIMIT} bytes")


@pytest.mark.spec("I3", "P3")
@pytest.mark.parametrize(
    "text",
    [
        "secret\r\nX-Injected: 1",
        "secret\nX-Injected: 1",
        "secret\0",
        "secret ",
        "secret\t",
        "secret-é",
        "secret-秘密",
        "secret-\udc80",
    ],
)
def test_a_token_that_no_header_can_carry_never_reaches_the_wire(text: str) -> None:
    with ScriptedDoor(answering(http(result(card(), TOKEN)))) as door:
        found = verdict(door.url, DoorToken(text))
        ask = stop_ask(door.url, DoorToken(text))
        (reading,) = DOORS.probe([ask])
    assert found == Unreachable("the recorded token cannot be sent in a header")
    assert isinstance(read_stop_answer(reading), NoAnswer)
    assert "secret" not in repr(reading)
    assert door.connections == 0


@pytest.mark.spec("I3", "P3")
def test_a_door_that_echoes_the_token_cannot_get_it_into_a_reason() -> None:
    def echo(caller: Caller) -> None:
        caller.send(http(b"unauthorized: Bearer " + TOKEN.expose().encode(), "401 Unauthorized"))

    with ScriptedDoor(echo) as door:
        assert verdict(door.url, TOKEN) == Unreachable("the door answered with HTTP status 401")


@pytest.mark.spec("I3", "P3")
def test_a_door_that_names_the_token_as_its_session_cannot_get_it_into_a_reason() -> None:
    with ScriptedDoor(answering(http(result(card(TOKEN.expose()), TOKEN)))) as door:
        assert isinstance(verdict(door.url, TOKEN), Unreachable)


@pytest.mark.spec("P6")
def test_hostile_doors_take_nothing_from_an_honest_one() -> None:
    scripts = (silent, drip, endless_body, endless_header, endless_status, Caller.reset, drip_go_ahead)
    hostile = [ScriptedDoor(script) for script in scripts]
    honest = [ScriptedDoor(answering(http(card()))) for _ in scripts]
    doors = [door for pair in zip(hostile, honest, strict=True) for door in pair]
    for door in doors:
        door.__enter__()
    try:
        with elapsed_below(LIMITS.total + SLACK):
            readings = DOORS.probe([card_ask(door.url, None) for door in doors])
    finally:
        for door in doors:
            door.__exit__(None, None, None)
    assert [type(reading) for reading in readings] == len(scripts) * [NoAnswer, Answered]
