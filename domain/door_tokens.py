"""Who may do what at an authenticated door? Minting and checking its tokens (wire facts of the door, I4).

A token is `mdt1.<payload>.<mac>`: the payload names a credential and its scopes, the MAC binds both to one session
under a key that never leaves the process. The key is given; nothing here is random.
"""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from murmur.domain.json_text import NotJson, read_json
from murmur.domain.secret import ControlToken, DoorToken, Secret
from murmur.domain.value import Value

OPERATOR = "operator"
_DOOR, _DOOR_DOMAIN = "mdt1", "murmur-door-token-v1"
_CONTROL, _CONTROL_DOMAIN = "ctl1", "murmur-control-token-v1"


class TokenKey(Secret):
    """32 random bytes, in hex: the key of one session's tokens."""

    __slots__ = ()

    def mac(self, *parts: str) -> str:
        """Return the MAC of the parts, joined by the unit separator."""
        key = bytes.fromhex(self.expose())
        return _text(hmac.digest(key, "\x1f".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256))


class Granted(Value):
    """The token is this session's; these are its credential and scopes."""

    credential: str
    scopes: tuple[str, ...]


class Unauthenticated(Value):
    """There was no token."""


class InvalidToken(Value):
    """There was one, and it is not this session's."""


Identification = Granted | Unauthenticated | InvalidToken


class DoorKeys(NamedTuple):
    """What one session's door checks its callers with."""

    key: TokenKey
    session_id: str

    def mint(self, credential: str, scopes: Sequence[str]) -> DoorToken:
        """Make the token of a credential."""
        payload = _text(json.dumps({"credential": credential, "scopes": list(scopes)}, separators=(",", ":")).encode())
        return DoorToken(f"{_DOOR}.{payload}.{self.key.mac(_DOOR_DOMAIN, payload, self.session_id)}")

    def mint_all(
        self, credentials: Mapping[str, Sequence[str]], methods: Sequence[str]
    ) -> tuple[DoorToken, dict[str, DoorToken]]:
        """Make the operator's token, which holds every scope, and one for each declared credential."""
        return self.mint(OPERATOR, methods), {name: self.mint(name, scopes) for name, scopes in credentials.items()}

    def identify(self, authorization: str | None) -> Identification:
        """Say who calls, from the `Authorization` header's value."""
        if authorization is None:
            return Unauthenticated()
        scheme, _, token = authorization.partition(" ")
        parts = token.strip().split(".")
        if scheme.lower() != "bearer" or len(parts) != 3 or parts[0] != _DOOR:
            return InvalidToken()
        _, payload, mac = parts
        if not _same(mac, self.key.mac(_DOOR_DOMAIN, payload, self.session_id)):
            return InvalidToken()
        return _granted(payload)

    def mint_control(self) -> ControlToken:
        """Make the token that the control endpoint takes."""
        payload = _text(json.dumps({"control": self.session_id}, separators=(",", ":")).encode())
        return ControlToken(f"{_CONTROL}.{payload}.{self.key.mac(_CONTROL_DOMAIN, payload, self.session_id)}")

    def is_control(self, authorization: str | None) -> bool:
        """Whether a caller holds the control token."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and _same(token.strip(), self.mint_control().expose())


def _granted(payload: str) -> Granted | InvalidToken:
    """Read a payload whose MAC has been checked: it is ours, unless the key is not."""
    try:
        document = read_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (NotJson, ValueError):
        return InvalidToken()
    if not isinstance(document, dict) or not isinstance(document.get("credential"), str):
        return InvalidToken()
    scopes = document.get("scopes")
    if not isinstance(scopes, list):
        return InvalidToken()
    return Granted(document["credential"], tuple(scope for scope in scopes if isinstance(scope, str)))


def fingerprint(token: Secret) -> str:
    """Return what names a token in logs: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(token.expose().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
