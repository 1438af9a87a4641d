"""Who may do what at an authenticated door: its tokens, minted and checked (I3, I4, and the wire facts of the door)."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.door_tokens import (
    OPERATOR,
    DoorKeys,
    Granted,
    Identification,
    InvalidToken,
    TokenKey,
    Unauthenticated,
    fingerprint,
)
from murmur.domain.secret import ControlToken, DoorToken

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
OTHER_SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4052"
RAW_KEY = bytes(range(32))
KEYS = DoorKeys(TokenKey(RAW_KEY.hex()), SES)
WATCHER = KEYS.mint("watcher", ["tasks/get"])
GRANTED = Granted("watcher", ("tasks/get",))


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def padded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def token_of(payload: str, domain: str = "murmur-door-token-v1", session: str = SES, key: bytes = RAW_KEY) -> str:
    """Make a token from the documented bytes, with nothing of the source."""
    covered = domain.encode() + b"\x1f" + payload.encode() + b"\x1f" + session.encode()
    return f"mdt1.{payload}.{encoded(hmac.new(key, covered, hashlib.sha256).digest())}"


def identified(token: str) -> Identification:
    return KEYS.identify(f"Bearer {token}")


@pytest.mark.spec("I4")
def test_a_token_names_its_credential_and_scopes_in_unpadded_base64url() -> None:
    kind, payload, mac = WATCHER.expose().split(".")
    assert kind == "mdt1"
    assert "=" not in WATCHER.expose()
    assert json.loads(padded(payload)) == {"credential": "watcher", "scopes": ["tasks/get"]}
    assert len(padded(mac)) == 32


@pytest.mark.spec("I4")
@pytest.mark.parametrize("credential", ["a", "ab", "abc", "abcd", "\u00e9\u4e2d", "\ud800", "", "a.b"])
def test_the_mac_runs_over_the_domain_the_payloads_text_and_the_session(credential: str) -> None:
    token = KEYS.mint(credential, ["tasks/get", "session/stop"]).expose()
    assert token == token_of(token.split(".")[1])
    assert identified(token) == Granted(credential, ("tasks/get", "session/stop"))


@pytest.mark.spec("I4")
def test_a_token_made_elsewhere_from_the_documented_bytes_is_taken() -> None:
    payload = encoded(b'{ "scopes": ["tasks/get"], "credential": "watcher", "more": 1 }')
    assert identified(token_of(payload)) == GRANTED


@pytest.mark.spec("I4")
def test_the_operator_holds_every_scope_and_each_credential_its_own() -> None:
    methods = ("message/send", "tasks/get", "session/stop")
    operator, others = KEYS.mint_all({"watcher": ["tasks/get"], "idle": []}, methods)
    assert identified(operator.expose()) == Granted(OPERATOR, methods)
    assert {name: identified(token.expose()) for name, token in others.items()} == {
        "watcher": GRANTED,
        "idle": Granted("idle", ()),
    }


def _with(index: int, change: Callable[[str], str]) -> str:
    parts = WATCHER.expose().split(".")
    parts[index] = change(parts[index])
    return ".".join(parts)


def _flipped(text: str) -> str:
    """Return base64 text that decodes to other bytes: its first character changed."""
    return ("A" if text[0] != "A" else "B") + text[1:]


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    "token",
    [
        _with(0, lambda _: "mdt2"),
        _with(0, lambda _: "MDT1"),
        _with(0, lambda _: "ctl1"),
        _with(0, lambda _: ""),
        _with(1, _flipped),
        _with(1, lambda text: text[:-1]),
        _with(1, lambda text: text + "="),
        _with(1, lambda _: encoded(b'{"credential":"watcher","scopes":["session/stop"]}')),
        _with(1, lambda _: ""),
        _with(2, _flipped),
        _with(2, lambda text: text[:-1]),
        _with(2, lambda text: text + "="),
        _with(2, lambda text: text + "A"),
        _with(2, lambda text: text.lower()),
        _with(2, lambda _: ""),
        _with(2, lambda text: text + ".x"),
        WATCHER.expose() + ".",
        "." + WATCHER.expose(),
        WATCHER.expose().rpartition(".")[0],
        WATCHER.expose().upper(),
        WATCHER.expose().replace(".", " "),
        "mdt1",
        "mdt1..",
        "..",
    ],
)
def test_a_token_changed_in_any_part_is_refused(token: str) -> None:
    assert identified(token) == InvalidToken()


@pytest.mark.spec("I4")
def test_every_single_changed_character_is_refused() -> None:
    token = WATCHER.expose()
    for index, character in enumerate(token):
        changed = token[:index] + ("x" if character != "x" else "y") + token[index + 1 :]
        assert identified(changed) == InvalidToken()


@pytest.mark.spec("I4")
def test_a_token_of_another_session_key_or_domain_is_refused() -> None:
    payload = WATCHER.expose().split(".")[1]
    assert identified(token_of(payload)) == GRANTED
    assert identified(token_of(payload, session=OTHER_SES)) == InvalidToken()
    assert identified(token_of(payload, key=RAW_KEY[::-1])) == InvalidToken()
    assert identified(token_of(payload, domain="murmur-spawn-approval-v1")) == InvalidToken()
    assert identified(token_of(payload, domain="murmur-control-token-v1")) == InvalidToken()
    assert DoorKeys(KEYS.key, OTHER_SES).identify(f"Bearer {WATCHER.expose()}") == InvalidToken()


@pytest.mark.spec("I4")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_schemes_case_does_not_matter(scheme: str) -> None:
    assert KEYS.identify(f"{scheme} {WATCHER.expose()}") == GRANTED


@pytest.mark.spec("I4")
def test_two_spaces_after_the_scheme_are_one() -> None:
    assert KEYS.identify(f"Bearer  {WATCHER.expose()}") == GRANTED


@pytest.mark.spec("I4")
def test_without_a_header_nobody_calls() -> None:
    assert KEYS.identify(None) == Unauthenticated()


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Bearer" + WATCHER.expose(),
        " Bearer " + WATCHER.expose(),
        WATCHER.expose(),
        "Basic " + WATCHER.expose(),
        "Token " + WATCHER.expose(),
        "Bearer Bearer " + WATCHER.expose(),
        f"Bearer {WATCHER.expose()}, Bearer {WATCHER.expose()}",
        f"Bearer {WATCHER.expose()} x",
        "Bearer \u00e9.\u00e9.\u00e9",
        "Bearer mdt1.\u00e9.\u00e9",
        "Bearer mdt1.\ud800.\ud800",
        "B\u00e9arer x",
        "Bearer " + "x" * 1_000_000,
        "Bearer " + "." * 100_000,
        "Bearer mdt1." + "A" * 500_000 + "." + "A" * 43,
    ],
    ids=range(19),
)
def test_an_odd_header_is_an_invalid_token(header: str) -> None:
    assert KEYS.identify(header) == InvalidToken()
    assert not KEYS.is_control(header)


@pytest.mark.spec("I4")
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(header=st.text(max_size=40) | st.text("Bearer mdt1.=-_", max_size=30).map("Bearer mdt1.".__add__))
def test_no_text_that_was_not_minted_is_taken(header: str) -> None:
    assert KEYS.identify(header) == InvalidToken()
    assert not KEYS.is_control(header)


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"not json",
        b"null",
        b"[]",
        b"5",
        b"{}",
        b'{"credential":"watcher"}',
        b'{"scopes":[]}',
        b'{"credential":null,"scopes":[]}',
        b'{"credential":["watcher"],"scopes":[]}',
        b'{"credential":"watcher","scopes":"tasks/get"}',
        b'{"credential":"watcher","scopes":{"tasks/get":1}}',
        b'{"credential":"watcher","scopes":null}',
    ],
)
def test_a_payload_of_another_shape_grants_nothing_even_under_our_key(payload: bytes) -> None:
    assert identified(token_of(encoded(payload))) == InvalidToken()


@pytest.mark.spec("I4")
def test_a_payload_that_is_no_base64_grants_nothing_even_under_our_key() -> None:
    assert identified(token_of("A")) == InvalidToken()


@pytest.mark.spec("I4")
def test_scopes_that_are_no_texts_are_passed_over() -> None:
    payload = encoded(b'{"credential":"watcher","scopes":[null,"tasks/get",5,["session/stop"],{}]}')
    assert identified(token_of(payload)) == GRANTED


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Every pair that was compared in constant time."""
    pairs: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        pairs.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    return pairs


@pytest.mark.spec("I4")
def test_a_mac_is_compared_in_constant_time(compared: list[tuple[bytes, bytes]]) -> None:
    mac = WATCHER.expose().split(".")[2].encode()
    assert KEYS.identify(f"Bearer {WATCHER.expose()}") == GRANTED
    assert compared == [(mac, mac)]
    assert identified(_with(2, _flipped)) == InvalidToken()
    assert compared[1:] == [(_flipped(mac.decode()).encode(), mac)]


@pytest.mark.spec("I4")
def test_a_control_token_is_compared_in_constant_time(compared: list[tuple[bytes, bytes]]) -> None:
    control = KEYS.mint_control().expose()
    assert KEYS.is_control(f"Bearer {control}")
    assert not KEYS.is_control("Bearer ctl1.x.y")
    assert compared == [(control.encode(), control.encode()), (b"ctl1.x.y", control.encode())]


@pytest.mark.spec("I4")
def test_a_control_token_has_the_three_parts_and_a_domain_of_its_own() -> None:
    control = KEYS.mint_control()
    kind, payload, mac = control.expose().split(".")
    assert isinstance(control, ControlToken)
    assert kind == "ctl1"
    assert token_of(payload, domain="murmur-control-token-v1").split(".")[2] == mac
    assert KEYS.mint_control() == control


@pytest.mark.spec("I4")
def test_only_the_control_token_of_this_session_and_key_controls() -> None:
    control = KEYS.mint_control().expose()
    assert KEYS.is_control(f"Bearer {control}")
    assert KEYS.is_control(f"bearer  {control}")
    for header in (None, "", control, f"Basic {control}", f"Bearer {control}x", f"Bearer {WATCHER.expose()}"):
        assert not KEYS.is_control(header)
    assert not DoorKeys(KEYS.key, OTHER_SES).is_control(f"Bearer {control}")
    assert not DoorKeys(TokenKey(RAW_KEY[::-1].hex()), SES).is_control(f"Bearer {control}")


@pytest.mark.spec("I4")
def test_a_control_token_opens_no_door_under_either_name() -> None:
    control = KEYS.mint_control().expose()
    assert identified(control) == InvalidToken()
    assert identified("mdt1" + control.removeprefix("ctl1")) == InvalidToken()


@pytest.mark.spec("I4")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "e3b0c44298fc1c14"),
        ("abc", "ba7816bf8f01cfea"),
        (WATCHER.expose(), hashlib.sha256(WATCHER.expose().encode()).hexdigest()[:16]),
    ],
)
def test_a_fingerprint_is_the_first_16_hex_digits_of_the_tokens_sha256(text: str, name: str) -> None:
    assert fingerprint(DoorToken(text)) == name
    assert fingerprint(ControlToken(text)) == name


@pytest.mark.spec("I4")
def test_a_fingerprint_of_a_lone_surrogate_is_no_error() -> None:
    assert len(fingerprint(DoorToken("\ud800"))) == 16


@pytest.mark.spec("I3")
def test_neither_the_key_nor_a_token_shows_in_any_text() -> None:
    operator, others = KEYS.mint_all({"watcher": ["tasks/get"]}, ["tasks/get"])
    shown = f"{KEYS} {KEYS!r} {KEYS.key} {operator} {operator!r} {others} {KEYS.mint_control()!r}"
    for secret in (RAW_KEY.hex(), operator.expose(), others["watcher"].expose(), KEYS.mint_control().expose()):
        assert secret not in shown
    assert "TokenKey(<redacted>)" in repr(KEYS)
    assert "DoorToken(<redacted>)" in repr(others)
    assert "ControlToken(<redacted>)" in repr(KEYS.mint_control())
