"""What a referee is asked, and what its answers mean, whatever it says (wire facts of the door: Roost)."""

import json

import pytest

from murmur.domain.door import Answered, DoorAsk, DoorReading, NoAnswer
from murmur.domain.errors import SpawnRefused
from murmur.domain.origin import Origin, parse_origin
from murmur.domain.roost_asks import (
    RegisteredChild,
    SpawnApproved,
    deregister_ask,
    naming_process,
    read_approval,
    read_deregistration,
    read_registration,
    register_ask,
    spawn_ask,
)
from murmur.domain.secret import SpawnApproval, SpawnCredential

URL = "http://127.0.0.1:7700"
CREDENTIAL = SpawnCredential("msc1.swordfish.mac")
APPROVAL = SpawnApproval("msa1.swordfish.mac")
SPAWN = spawn_ask(URL, CREDENTIAL, "worker", "1.0.0")
REGISTER = register_ask(URL, APPROVAL, "ses_1", "worker", "1.0.0")
DEREGISTER = deregister_ask(URL, CREDENTIAL, "failed")
READERS = [(SPAWN, read_approval), (REGISTER, read_registration), (DEREGISTER, read_deregistration)]


def answered(document: object, status: int = 200) -> Answered:
    return Answered(status, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("ask", "target", "header", "body"),
    [
        (SPAWN, "/spawn", "x-murmur-spawn-credential", {"name": "worker", "version": "1.0.0"}),
        (
            REGISTER,
            "/register",
            "x-murmur-spawn-approval",
            {"session_id": "ses_1", "name": "worker", "version": "1.0.0"},
        ),
        (DEREGISTER, "/deregister", "x-murmur-spawn-credential", {"outcome": "failed"}),
    ],
)
def test_a_request_is_as_the_wire_facts_say(ask: DoorAsk, target: str, header: str, body: object) -> None:
    assert (ask.method, ask.target, json.loads(ask.body)) == ("POST", target, body)
    assert [name for name, _ in ask.secrets] == [header]
    assert (ask.address.hosts, ask.address.port, ask.token) == (("127.0.0.1",), 7700, None)


def test_a_child_says_which_process_it_is_in_a_header_of_its_own() -> None:
    ask = naming_process(REGISTER, Origin(7, "70", boot_id="boot"))
    assert ask.headers[:-1] == REGISTER.headers
    name, value = ask.headers[-1]
    assert name == "x-murmur-process"
    assert parse_origin(value.encode()) == Origin(7, "70", boot_id="boot")
    assert (ask.body, ask.secrets) == (REGISTER.body, REGISTER.secrets)


def test_without_a_credential_none_is_sent() -> None:
    assert spawn_ask(URL, None, "worker", "1.0.0").secrets == ()


@pytest.mark.spec("I3")
@pytest.mark.parametrize("ask", [SPAWN, REGISTER, DEREGISTER])
def test_a_request_s_repr_shows_no_token(ask: DoorAsk) -> None:
    assert "swordfish" not in repr(ask)


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:7700", "http://[2001:db8::1]:7700", "http://example.com:7700", "127.0.0.1", "", "\x1b[2J"]
)
def test_a_token_goes_to_loopback_and_nowhere_else(url: str) -> None:
    with pytest.raises(SpawnRefused) as refused:
        spawn_ask(url, CREDENTIAL, "worker", "1.0.0")
    assert refused.value.code == "E-RUN-047"
    assert refused.value.message.isprintable()
    with pytest.raises(SpawnRefused):
        register_ask(url, APPROVAL, "ses_1", "worker", "1.0.0")
    with pytest.raises(SpawnRefused):
        deregister_ask(url, CREDENTIAL, "complete")


@pytest.mark.parametrize("url", [URL, f"{URL}/", "127.0.0.1:7700", "http://localhost:7700", "http://[::1]:7700"])
def test_any_way_to_write_a_loopback_address_is_taken(url: str) -> None:
    assert spawn_ask(url, CREDENTIAL, "worker", "1.0.0").address.port == 7700


def test_an_approval_is_read_with_what_it_is_bound_to() -> None:
    document = {"approval": "msa1.a.b", "name": "worker", "version": "1.0.0", "sha256": "ab", "expires_at_ms": 7}
    assert read_approval(SPAWN, answered(document)) == SpawnApproved(SpawnApproval("msa1.a.b"), "ab", 7)
    assert read_approval(SPAWN, answered({"approval": "a"})) == SpawnApproved(SpawnApproval("a"), None, None)
    odd = {"approval": "a", "sha256": 5, "expires_at_ms": True}
    assert read_approval(SPAWN, answered(odd)) == SpawnApproved(SpawnApproval("a"), None, None)


def test_a_registration_is_read_with_or_without_the_folder() -> None:
    document = {"credential": "msc1.a.b", "folder": "/store/\udcff", "sha256": "ab"}
    child = RegisteredChild(SpawnCredential("msc1.a.b"), "/store/\udcff", "ab")
    assert read_registration(REGISTER, answered(document)) == child
    depth = {"credential": "c", "depth_remaining": 1, "depth_limit": 5}
    assert read_registration(REGISTER, answered(depth)) == RegisteredChild(SpawnCredential("c"), None, None, 1, 5)
    depth = {"credential": "c", "depth_remaining": True, "depth_limit": "5"}
    assert read_registration(REGISTER, answered(depth)) == RegisteredChild(SpawnCredential("c"), None, None)
    child = RegisteredChild(SpawnCredential("c"), None, None)
    assert read_registration(REGISTER, answered({"credential": "c"})) == child


@pytest.mark.parametrize("folder", ["store", "../x", "/a\0b"])
def test_a_folder_that_could_be_none_is_refused(folder: str) -> None:
    with pytest.raises(SpawnRefused, match="a folder that is none"):
        read_registration(REGISTER, answered({"credential": "c", "folder": folder}))


def test_the_end_is_taken_from_any_object() -> None:
    read_deregistration(DEREGISTER, answered({}))


REFUSALS: list[tuple[DoorReading, str]] = [
    (NoAnswer("connection refused"), "the referee at 127.0.0.1:7700 did not answer: connection refused"),
    (NoAnswer("timed out after 60s without an answer"), "did not answer: timed out after 60s"),
    (answered({"error": "not allowed"}, 403), "the referee at 127.0.0.1:7700 refused: not allowed"),
    (answered({"error": "a\x1b[2J\nb\u202e"}, 403), r"refused: a\x1b[2J\x0ab\u202e"),
    (answered({"error": "x" * 9999}, 500), "refused: " + "x" * 500 + " […]"),
    (answered({"error": ""}, 404), "refused: HTTP status 404"),
    (answered({"error": {"a": 1}}, 404), "refused: HTTP status 404"),
    (answered([], 404), "refused: HTTP status 404"),
    (Answered(302, b"<html>"), "refused: HTTP status 302"),
    (Answered(200, b""), "answered with something that is no JSON object"),
    (Answered(200, b"[]"), "answered with something that is no JSON object"),
    (Answered(200, b"\xff"), "answered with something that is no JSON object"),
    (answered("x"), "answered with something that is no JSON object"),
]


@pytest.mark.parametrize(("reading", "words"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_refusal_is_told_in_the_referee_s_own_words_on_one_line(reading: DoorReading, words: str) -> None:
    for ask, read in READERS:
        with pytest.raises(SpawnRefused) as refused:
            read(ask, reading)
        assert words in refused.value.message
        assert refused.value.message.isprintable()


@pytest.mark.parametrize("document", [{}, {"approval": ""}, {"approval": None, "credential": 5}, {"error": "x"}])
def test_an_answer_without_its_token_is_no_approval(document: dict[str, object]) -> None:
    for ask, read in READERS[:2]:
        with pytest.raises(SpawnRefused, match="answered without a"):
            read(ask, answered(document))


@pytest.mark.spec("I3")
def test_a_token_that_a_referee_repeats_is_not_shown() -> None:
    for ask, read in READERS:
        (secret,) = (secret for _, secret in ask.secrets)
        for padding in ("", "x" * 480):
            with pytest.raises(SpawnRefused) as refused:
                read(ask, answered({"error": f"{padding}unknown {secret.expose()} here"}, 403))
            assert "swordf" not in refused.value.message
