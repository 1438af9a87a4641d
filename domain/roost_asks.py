"""What is a referee asked, and what does its answer mean? (wire facts of the door: Roost).

Tokens go to loopback addresses alone. What a referee says of its own is shown without them, on one line, cut.
"""

from murmur.domain.door import AskLimits, DoorAsk, DoorReading, NoAnswer, NoSuchAddress, door_address
from murmur.domain.errors import SpawnRefused
from murmur.domain.json_text import NotJson, json_bytes, read_json
from murmur.domain.origin import Origin, render_origin
from murmur.domain.roost_door import APPROVAL_HEADER, CREDENTIAL_HEADER, PROCESS_HEADER
from murmur.domain.secret import Secret, SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Outcome
from murmur.domain.value import Value
from murmur.domain.visible_text import visible, visible_start

REFEREE_LIMITS = AskLimits(2.0, 60.0, 62.0)
"""How long a referee is waited for: it reads all files of a capsule, and maybe those of others before."""
DEREGISTER_LIMITS = AskLimits(2.0, 3.0, 4.0)
"""How long it is waited for to hear of an end, which it can do at once: a session is not to be held up by that."""
_WORDS_SHOWN = 500
_JSON = (("Content-Type", "application/json"), ("Accept", "application/json"))


class SpawnApproved(Value):
    """A launch that a referee approved."""

    approval: SpawnApproval
    sha256: str | None
    """The digest that it is bound to."""
    expires_at_ms: int | None


class RegisteredChild(Value):
    """What a child gets when it registers: a referee of another make may leave out all but the credential."""

    credential: SpawnCredential
    folder: str | None
    """Where the capsule is, an absolute path."""
    sha256: str | None
    depth_remaining: int | None = None
    """How many launches may follow from one another beneath it."""
    depth_limit: int | None = None
    """How many may beneath a session that nobody launched."""


def spawn_ask(url: str, credential: SpawnCredential | None, name: str, version: str) -> DoorAsk:
    """Make the request that has a launch approved; raise `SpawnRefused` for a url that it cannot be sent to."""
    return _ask(url, "/spawn", {"name": name, "version": version}, CREDENTIAL_HEADER, credential)


def register_ask(url: str, approval: SpawnApproval, session_id: str, name: str, version: str) -> DoorAsk:
    """Make the request that a child registers with; raise `SpawnRefused` for a url that it cannot be sent to."""
    body = {"session_id": session_id, "name": name, "version": version}
    return _ask(url, "/register", body, APPROVAL_HEADER, approval)


def naming_process(ask: DoorAsk, process: Origin) -> DoorAsk:
    """Say in a `register_ask` which process the child is: a referee can see then when it was killed."""
    return ask.replaced(headers=(*ask.headers, (PROCESS_HEADER, render_origin(process).decode())))


def deregister_ask(url: str, credential: SpawnCredential, outcome: Outcome) -> DoorAsk:
    """Make the request that tells of a session's end; raise `SpawnRefused` for a url that it cannot be sent to."""
    return _ask(url, "/deregister", {"outcome": outcome}, CREDENTIAL_HEADER, credential)


def read_approval(ask: DoorAsk, reading: DoorReading) -> SpawnApproved:
    """Read the answer to `spawn_ask`; raise `SpawnRefused`."""
    match _answered(ask, reading):
        case {"approval": str(approval), **rest} if approval:
            expires = rest.get("expires_at_ms")
            return SpawnApproved(
                SpawnApproval(approval), _text(rest.get("sha256")), expires if type(expires) is int else None
            )
        case _:
            raise SpawnRefused(f"{_who(ask)} answered without an approval")


def read_registration(ask: DoorAsk, reading: DoorReading) -> RegisteredChild:
    """Read the answer to `register_ask`; raise `SpawnRefused`."""
    match _answered(ask, reading):
        case {"credential": str(credential), **rest} if credential:
            folder = _text(rest.get("folder"))
            if folder is not None and (not folder.startswith("/") or "\0" in folder):
                raise SpawnRefused(f"{_who(ask)} answered with a folder that is none")
            return RegisteredChild(
                SpawnCredential(credential),
                folder,
                _text(rest.get("sha256")),
                _count(rest.get("depth_remaining")),
                _count(rest.get("depth_limit")),
            )
        case _:
            raise SpawnRefused(f"{_who(ask)} answered without a credential")


def read_deregistration(ask: DoorAsk, reading: DoorReading) -> None:
    """Read the answer to `deregister_ask`; raise `SpawnRefused`."""
    _answered(ask, reading)


def _ask(url: str, target: str, body: dict[str, str], header: str, secret: Secret | None) -> DoorAsk:
    try:
        address = door_address(url)
    except NoSuchAddress:
        raise SpawnRefused(
            f"{visible_start(url, _WORDS_SHOWN)} is not the url of a referee", hint="such as http://127.0.0.1:7700"
        ) from None
    if not address.loopback:
        raise SpawnRefused(f"the referee at {address.authority} is not on loopback, so it was not asked")
    secrets = () if secret is None else ((header, secret),)
    return DoorAsk(address, "POST", target, _JSON, json_bytes(body), secrets=secrets, wants_refusal=True)


def _answered(ask: DoorAsk, reading: DoorReading) -> dict[str, object]:
    """Return the object that a referee answered with; raise `SpawnRefused` in its own words where it refused."""
    if isinstance(reading, NoAnswer):
        raise SpawnRefused(f"{_who(ask)} did not answer: {visible(reading.reason)}")
    try:
        document = read_json(reading.body)
    except NotJson:
        document = None
    body = document if isinstance(document, dict) else {}
    if not 200 <= reading.status < 300:
        words = body.get("error")
        said = _shown(ask, words) if isinstance(words, str) and words else f"HTTP status {reading.status}"
        raise SpawnRefused(f"{_who(ask)} refused: {said}")
    if not isinstance(document, dict):
        raise SpawnRefused(f"{_who(ask)} answered with something that is no JSON object")
    return document


def _who(ask: DoorAsk) -> str:
    return f"the referee at {ask.address.authority}"


def _shown(ask: DoorAsk, words: str) -> str:
    for _, secret in ask.secrets:
        if secret.expose():
            words = words.replace(secret.expose(), str(secret))
    return visible_start(words, _WORDS_SHOWN)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if type(value) is int else None
