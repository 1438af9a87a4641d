"""Who may do what at an authenticated door? Minting and checking its tokens (wire facts of the door, I4).

A token is `mdt1.<payload>.<mac>`: the payload names a credential and its scopes, the MAC binds both to one session
under a key that never leaves the process. The key is given; nothing here is random. Other kinds of tokens, a
referee's among them, have the same three parts under a prefix and a domain of their own.
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


class TokenKind(NamedTuple):
    """What tells tokens of one kind from all others: the first part, and what the MAC's input starts with."""

    prefix: str
    domain: str


_DOOR = TokenKind("mdt1", "murmur-door-token-v1")
_CONTROL = TokenKind("ctl1", "murmur-control-token-v1")


class TokenKey(Secret):
    """32 random bytes, in hex: the key of one session's tokens, or of one referee's."""

    __slots__ = ()

    def mac(self, *parts: str) -> str:
        """Return the MAC of the parts, joined by the unit separator."""
        key = bytes.fromhex(self.expose())
        return _text(hmac.digest(key, "\x1f".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256))

    def sealed(self, kind: TokenKind, payload: Mapping[str, object], owner: str) -> str:
        """Make a token of that kind, which means something to that owner alone."""
        text = _text(json.dumps(payload, separators=(",", ":")).encode())
        return f"{kind.prefix}.{text}.{self.mac(kind.domain, text, owner)}"

    def opened(self, kind: TokenKind, token: str, owner: str) -> dict[str, object] | None:
        """Return what a token of ours says; `None` for every other text."""
        parts = token.split(".")
        if len(parts) != 3 or parts[0] != kind.prefix:
            return None
        _, payload, mac = parts
        if not _same(mac, self.mac(kind.domain, payload, owner)):
            return None
        try:
            document = read_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (NotJson, ValueError):  # It is ours, unless the key is not.
            return None
        return document if isinstance(document, dict) else None


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
        payload = {"credential": credential, "scopes": list(scopes)}
        return DoorToken(self.key.sealed(_DOOR, payload, self.session_id))

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
        opened = self.key.opened(_DOOR, token.strip(), self.session_id) if scheme.lower() == "bearer" else None
        return InvalidToken() if opened is None else _granted(opened)

    def mint_control(self) -> ControlToken:
        """Make the token that the control endpoint takes."""
        return ControlToken(self.key.sealed(_CONTROL, {"control": self.session_id}, self.session_id))

    def is_control(self, authorization: str | None) -> bool:
        """Whether a caller holds the control token."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and _same(token.strip(), self.mint_control().expose())


def _granted(payload: dict[str, object]) -> Granted | InvalidToken:
    match payload:
        case {"credential": str(credential), "scopes": list(scopes)}:
            return Granted(credential, tuple(scope for scope in scopes if isinstance(scope, str)))
        case _:
            return InvalidToken()


def fingerprint(token: Secret) -> str:
    """Return what names a token in logs: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(token.expose().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
