"""Where is a session's door, what is it asked, and what does its answer mean? (P1-P4, O2).

Requests and answers are values; carrying them is an adapter's work. A reason made here never holds a token.
"""

from typing import NamedTuple, TypeVar

from murmur.domain.agent_card import session_id_from_card
from murmur.domain.json_text import NotJson, json_bytes, read_json
from murmur.domain.secret import DoorToken, Secret
from murmur.domain.value import Value

CARD_PATH = "/.well-known/agent-card.json"
BODY_LIMIT = 1024 * 1024
"""Bytes of an answer's body that are read (P4)."""
TASK_BODY_LIMIT = 8 * BODY_LIMIT
"""The same of a task: its result has up to 1 MiB, which JSON may write six times as long."""
TOO_LARGE = 413
"""The HTTP status of a door for a body beyond its limit; ours takes 1 MiB."""


class DoorAddress(Value):
    """Where to connect. `hosts` are tried in order, the next one only after a refusal."""

    hosts: tuple[str, ...]
    port: int
    authority: str
    """What the `Host` header says."""
    loopback: bool
    """Whether every host is this machine's own: only then may a token go there (P4)."""


class DoorAsk(Value):
    """One HTTP request to one door. Its `repr` shows no secret: a header is made from one when it is sent."""

    address: DoorAddress
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    token: DoorToken | None = None
    secrets: tuple[tuple[str, Secret], ...] = ()
    """Further headers, whose values are secrets."""
    wants_refusal: bool = False
    """Whether the body is read of an answer that is no success."""


class Answered(Value):
    """The door answered: HTTP status and body."""

    hidden = ("body",)
    status: int
    body: bytes


class NoAnswer(Value):
    """The door did not answer, for the transport's own reason."""

    uncompared = ("was_connected",)
    reason: str
    was_connected: bool = True
    """Whether there was a connection: without one, the door has heard nothing."""


DoorReading = Answered | NoAnswer


class AskLimits(NamedTuple):
    """How long a door is waited for, in seconds, and how much of its answer is read (P4)."""

    connect: float = 2.0
    """To connect, over all hosts tried."""
    read: float = 5.0
    """Without a single byte arriving."""
    total: float = 7.0
    """Over the whole exchange, whatever arrives."""
    body: int = BODY_LIMIT
    """Bytes of the answer's body."""


STOP_LIMITS = AskLimits(2.0, 2.0, 2.0)
"""What `mur stop` grants a door to answer `session/stop` (O2)."""
_WEEK = 7 * 86400.0
TASK_LIMITS = AskLimits(2.0, _WEEK, _WEEK, TASK_BODY_LIMIT)
"""What `mur send` grants a task: the session's own deadline ends it, not ours. A host that dies hangs up."""
HANDOVER_LIMITS = AskLimits(2.0, 10.0, 12.0, TASK_BODY_LIMIT)
"""What a door is granted to take a task in, which it does at once."""
CANCEL_LIMITS = AskLimits(2.0, 15.0, 17.0, TASK_BODY_LIMIT)
"""What a door is granted to end a task: its command has 5 seconds of grace."""

_Item = TypeVar("_Item")

_LOCALHOST = ("127.0.0.1", "::1")


STOP_ITEMS = 64
"""How many canceled tasks, and things left behind, are taken from one door: each is asked about and told."""


class NoSuchAddress(ValueError):
    """A recorded url that names no host and port that could be asked. `str()` says why."""


def recorded_address(url: str) -> str:
    """Drop the scheme of a recorded url: what is asked is always plain HTTP (P1)."""
    for scheme in ("http://", "https://"):
        while url.startswith(scheme):
            url = url.removeprefix(scheme)
    return url


def door_address(url: str) -> DoorAddress:
    """Read a recorded url as the place to connect to; raise `NoSuchAddress`.

    Only IP addresses and `localhost` are asked: the runtime records nothing else, and resolving a name that
    a file holds would send its text to the network. A wildcard address is this machine (P4).
    """
    authority = recorded_address(url).removesuffix("/")
    host, port = _split(authority)
    if host.lower() == "localhost":
        return DoorAddress(_LOCALHOST, port, authority, loopback=True)
    # Imported for addresses other than localhost: most listings meet none.
    from ipaddress import ip_address  # noqa: PLC0415

    try:
        address = ip_address(host)
    except ValueError:
        raise NoSuchAddress(f"the recorded address {authority} is neither an IP address nor localhost") from None
    embedded = address.ipv4_mapped if address.version == 6 else None
    if address.is_unspecified or (embedded is not None and embedded.is_unspecified):
        return DoorAddress(_LOCALHOST, port, authority, loopback=True)
    return DoorAddress((host,), port, authority, address.is_loopback or (embedded is not None and embedded.is_loopback))


def _split(authority: str) -> tuple[str, int]:
    complaint = f"the recorded address {authority} is not host:port"
    if not authority.isascii() or not authority.isprintable():
        raise NoSuchAddress(complaint)
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed or ":" not in host or not rest.startswith(":"):
            raise NoSuchAddress(complaint)
        port = rest[1:]
    else:
        host, _, port = authority.partition(":")
    if not host or not port.isdecimal() or len(port) > len("65535") or not 0 < int(port) <= 0xFFFF:
        raise NoSuchAddress(complaint)
    return host, int(port)


def rpc_ask(address: DoorAddress, method: str, params: dict[str, object], token: DoorToken | None) -> DoorAsk:
    """Make the request that calls a method."""
    body = json_bytes({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = (("Content-Type", "application/json"), ("Accept", "application/json"))
    return DoorAsk(address, "POST", "/", headers, body, token)


def addressed(url: str, token: DoorToken | None) -> DoorAddress:
    """Read a recorded url as `door_address` does; raise `NoSuchAddress` also where a token must not go (P4)."""
    address = door_address(url)
    if token is not None and not address.loopback:
        raise NoSuchAddress(f"the door at {address.authority} is not on loopback, so its token was not sent")
    return address


def card_ask(url: str, token: DoorToken | None) -> DoorAsk:
    """Make the request that has a door name its session (P1); raise `NoSuchAddress`, also to keep a token home."""
    address = addressed(url, token)
    if token is None:
        return DoorAsk(address, "GET", CARD_PATH, (("Accept", "application/json"),))
    return rpc_ask(address, "agent/getAuthenticatedExtendedCard", {}, token)


def stop_ask(url: str, token: DoorToken | None) -> DoorAsk:
    """Make the request that has a session cancel its tasks (O2); raise `NoSuchAddress`."""
    return rpc_ask(addressed(url, token), "session/stop", {}, token)


def task_ask(url: str, token: DoorToken | None, task_id: str) -> DoorAsk:
    """Make the request for one task's state; raise `NoSuchAddress`."""
    return rpc_ask(addressed(url, token), "tasks/get", {"id": task_id}, token)


def refusal_of_card(url: str, session_id: str, ask: DoorAsk, reading: DoorReading) -> str | None:
    """Say why an answer to `card_ask` is not that session's own; `None` when it is (P3)."""
    address = recorded_address(url)
    card = decoded_answer(reading)
    if isinstance(card, NoAnswer):
        return card.reason
    if ask.token is not None:
        if not isinstance(card, dict) or "result" not in card:
            return f"the capsule at {address} did not return its extended agent card"
        card = card["result"]
    named = session_id_from_card(card)
    if named is None:
        return f"the agent card from {address} names no session"
    if named != session_id:
        return f"the capsule at {url} answers for session {without(ask.token, named)}"
    return None


class StopAnswer(Value):
    """What a door said to `session/stop`: the tasks it is cancelling, and what it leaves behind, each in a line."""

    canceled: tuple[str, ...]
    residue: tuple[str, ...]


def read_stop_answer(reading: DoorReading, token: DoorToken | None = None) -> StopAnswer | NoAnswer:
    """Read a door's answer to `session/stop`, without the token that it may repeat."""
    document = decoded_answer(reading)
    if isinstance(document, NoAnswer):
        return document
    result = document.get("result") if isinstance(document, dict) else None
    if not isinstance(result, dict):
        return NoAnswer("the door refused session/stop")
    canceled, residue = result.get("canceled"), result.get("residue")
    return StopAnswer(
        tuple(without(token, task) for task in items_of(canceled, str)[:STOP_ITEMS]),
        tuple(without(token, _residue_text(item)) for item in items_of(residue, dict)[:STOP_ITEMS]),
    )


def items_of(value: object, kind: type[_Item]) -> list[_Item]:
    """Return what a list holds of that kind; nothing of what is no list."""
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


def without(token: DoorToken | None, text: str) -> str:
    """Return what a door said with the token it was sent taken out: a door may repeat it (P3)."""
    secret = token.expose() if token is not None else ""
    return text.replace(secret, str(token)) if secret else text


def _residue_text(item: dict[str, object]) -> str:
    known = [item.get(key) for key in ("kind", "delegation_id", "capsule", "version")]
    return " ".join(part for part in known if isinstance(part, str))


_UNFINISHED = ("submitted", "working", "input-required")


def task_is_unfinished(reading: DoorReading) -> bool:
    """Whether a door's answer to `tasks/get` says that the task still runs. No answer says nothing of the kind."""
    document = decoded_answer(reading)
    result = document.get("result") if isinstance(document, dict) else None
    status = result.get("status") if isinstance(result, dict) else None
    return isinstance(status, dict) and status.get("state") in _UNFINISHED


def decoded_answer(reading: DoorReading) -> object:
    """Return the JSON of a 2xx answer, or `NoAnswer` with what is wrong with it."""
    if isinstance(reading, NoAnswer):
        return reading
    if not 200 <= reading.status < 300:
        return NoAnswer(f"the door answered with HTTP status {reading.status}")
    try:
        return read_json(reading.body)
    except NotJson:
        return NoAnswer("the door answered with a body that is not JSON")
