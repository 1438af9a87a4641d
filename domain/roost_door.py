"""What does a referee answer over HTTP? (wire facts of the door: Roost).

A request in; a response out, or a look into the store that comes first. The adapter carries the bytes and looks.
What is refused by what is known is refused before that: only who holds a credential or an approval has files read.
Every refusal is `{"error": "..."}`.
"""

from collections.abc import Callable
from typing import assert_never

from murmur.domain.capsule_store import CapsuleReference, capsule_reference
from murmur.domain.door_http import DoorRequest, DoorResponse, document, is_addressed
from murmur.domain.errors import CapsuleNotFound
from murmur.domain.ids import is_session_id
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.origin import Origin, parse_origin
from murmur.domain.process import PID_MAX
from murmur.domain.referee import Referee
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Approved, Child, Outcome, Refusal, Registered
from murmur.domain.value import Value

CREDENTIAL_HEADER = "x-murmur-spawn-credential"
APPROVAL_HEADER = "x-murmur-spawn-approval"
PROCESS_HEADER = "x-murmur-process"
"""Which process registers, as its session's origin file will say it. A referee need not look at it."""
_STATUS = "/status/"


class InStore(Value):
    """A capsule as the store holds it now."""

    folder: str
    digest: str
    allow: frozenset[str]
    """The capsules that its manifest lets it launch."""


class NotInStore(Value):
    """No store holds it."""

    reason: str


class StoreUnusable(Value):
    """Whether, and as what, a store holds it cannot be said."""

    reason: str


Looked = InStore | NotInStore | StoreUnusable


class LookUp(Value):
    """The answer can be given when the store has been looked into; `respond` takes the time then, in Unix ms."""

    reference: CapsuleReference
    respond: Callable[[Looked, int], DoorResponse]


Registrant = Callable[[str, Origin], None]
"""Takes a session's id, and the process that says it is that session's."""


class RoostDoor:
    """The door of one referee."""

    def __init__(
        self,
        referee: Referee,
        authority: str,
        unnamed: SpawnCredential | None = None,
        registered: Registrant | None = None,
    ) -> None:
        """Serve a referee at a loopback `host:port`. Who sends no credential asks by `unnamed`, if there is one.

        `registered` is called for each child that said which process it is.
        """
        self._referee = referee
        self._authority = authority
        self._unnamed = unnamed
        self._registered = registered

    def is_about_what_runs(self, request: DoorRequest) -> bool:
        """Whether the answer depends on which sessions run now, and is worth a look at that."""
        if not is_addressed(request.host, self._authority) or request.origin is not None:
            return False
        path = request.target.partition("?")[0]
        return (request.method, path) == ("POST", "/spawn") or path.startswith(_STATUS)

    def answer(self, request: DoorRequest, now: int) -> DoorResponse | LookUp:
        """Answer one request that arrived at `now`, in Unix ms."""
        if not is_addressed(request.host, self._authority):
            return error(403, "the referee is not called by that name")
        if request.origin is not None:
            # Only browsers send it, for the page that asks: no page has any business here.
            return error(403, "the referee is not called from web pages")
        try:
            match request.method, request.target.partition("?")[0]:
                case (("GET" | "HEAD"), "/health"):
                    return document(200, {})
                case (("GET" | "HEAD"), path) if path.startswith(_STATUS):
                    return self._status(path.removeprefix(_STATUS))
                case "POST", "/spawn":
                    return self._spawn(request, now)
                case "POST", "/register":
                    return self._register(request, now)
                case "POST", "/deregister":
                    return self._deregister(request)
        except _BadRequest as refused:
            return error(400, str(refused))
        except CapsuleNotFound as refused:
            return error(400, refused.message)
        return error(404, "a referee serves GET /health, GET /status/SESSION and POST /spawn, /register, /deregister")

    def _status(self, session_id: str) -> DoorResponse:
        status = self._referee.status(session_id)
        if status is None:
            return error(404, "the referee knows no such session")
        return document(
            200,
            {
                "status": status.status,
                "depth_remaining": status.depth_remaining,
                "live_children": status.live_children,
            },
        )

    def _spawn(self, request: DoorRequest, now: int) -> DoorResponse | LookUp:
        credential = self._credential(request)
        if credential is None:
            return _without(CREDENTIAL_HEADER)
        body = _body(request)
        reference = _reference(body)
        refusal = self._referee.refusal_to_approve(credential, reference.name, now)
        if refusal is not None:
            return self._refused(refusal)

        def respond(looked: Looked, then: int) -> DoorResponse:
            if not isinstance(looked, InStore):
                return _not_found(looked)
            approved = self._referee.approve(credential, reference, looked.digest, then)
            match approved:
                case Refusal():
                    return self._refused(approved)
                case Approved():
                    return document(
                        200,
                        {
                            "approval": approved.approval.expose(),
                            "name": reference.name,
                            "version": reference.version,
                            "sha256": looked.digest,
                            "expires_at_ms": approved.expires_at_ms,
                        },
                    )
                case _:
                    assert_never(approved)

        return LookUp(reference, respond)

    def _register(self, request: DoorRequest, now: int) -> DoorResponse | LookUp:
        sent = request.headers.get(APPROVAL_HEADER)
        if sent is None:
            return _without(APPROVAL_HEADER)
        approval, body = SpawnApproval(sent), _body(request)
        reference, session_id = _reference(body), _text(body, "session_id")
        if not is_session_id(session_id):
            raise _BadRequest("a session_id is `ses_` followed by exactly 32 digits of 0-9a-f")
        refusal = self._referee.refusal_to_register(approval, session_id, reference, now)
        if refusal is not None:
            return self._refused(refusal)

        def respond(looked: Looked, then: int) -> DoorResponse:
            if not isinstance(looked, InStore):
                return _not_found(looked)
            child = Child(session_id, reference, looked.digest, looked.allow)
            registered = self._referee.register(approval, child, then)
            match registered:
                case Refusal():
                    return self._refused(registered)
                case Registered():
                    origin = _process(request)
                    if self._registered is not None and origin is not None:
                        self._registered(session_id, origin)
                    # The folder, since a child's own directory is not in the project: it could not find the store.
                    return document(
                        200,
                        {
                            "credential": registered.credential.expose(),
                            "folder": looked.folder,
                            "sha256": looked.digest,
                            # A child whose command launches has a referee of its own for it, and passes this on.
                            "depth_remaining": registered.depth_remaining,
                            "depth_limit": self._referee.limits.depth,
                        },
                    )
                case _:
                    assert_never(registered)

        return LookUp(reference, respond)

    def _deregister(self, request: DoorRequest) -> DoorResponse:
        sent = request.headers.get(CREDENTIAL_HEADER)
        if sent is None:
            return _without(CREDENTIAL_HEADER)
        refusal = self._referee.deregister(SpawnCredential(sent), _outcome(_body(request)))
        return document(200, {}) if refusal is None else self._refused(refusal)

    def _refused(self, refusal: Refusal) -> DoorResponse:
        self._referee.tell("refused", refusal.reason)
        return error(403, refusal.reason)

    def _credential(self, request: DoorRequest) -> SpawnCredential | None:
        sent = request.headers.get(CREDENTIAL_HEADER)
        return self._unnamed if sent is None else SpawnCredential(sent)


class _BadRequest(Exception):
    """A body that means nothing. The message repeats none of it."""


def error(status: int, reason: str) -> DoorResponse:
    """Make an answer that refuses."""
    return document(status, {"error": reason})


def _without(header: str) -> DoorResponse:
    return error(403, f"the request has no {header} header")


def _not_found(looked: NotInStore | StoreUnusable) -> DoorResponse:
    return error(404 if isinstance(looked, NotInStore) else 500, looked.reason)


def _process(request: DoorRequest) -> Origin | None:
    """Return the process that the caller says it is; `None` where it does not, or in words that name none."""
    sent = request.headers.get(PROCESS_HEADER)
    origin = None if sent is None else parse_origin(sent.encode("utf-8", "replace"))
    if origin is None or origin.pid is None or not 0 < origin.pid <= PID_MAX or not origin.process_start:
        return None
    return origin


def _body(request: DoorRequest) -> dict[str, object]:
    try:
        body = read_json(request.body)
    except NotJson:
        raise _BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise _BadRequest("the body is not an object")
    return body


def _text(body: dict[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise _BadRequest(f"the body has no {key} that is a string")
    return value


def _reference(body: dict[str, object]) -> CapsuleReference:
    return capsule_reference(_text(body, "name"), _text(body, "version"))


def _outcome(body: dict[str, object]) -> Outcome:
    match body.get("outcome"):
        case "complete":
            return "complete"
        case "failed":
            return "failed"
        case _:
            raise _BadRequest("an outcome is `complete` or `failed`")
