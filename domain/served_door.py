"""What does a session's own door answer, and to whom? (wire facts of the door).

A request in, a response out, or a task to wait for before there is one. The adapter carries the bytes; what
follows for the session is on its task board. The order is: host, path, token, scope, request.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeGuard, assert_never

from murmur.domain.cards import EXTENDED_CARD, STOP, TASK_METHODS, ServedSession, extended_card, public_card
from murmur.domain.door import CARD_PATH
from murmur.domain.ids import IdPrefix
from murmur.domain.json_text import NotJson, json_bytes, read_json
from murmur.domain.task_board import TaskBoard
from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.domain.completion_calls import Completed
    from murmur.domain.door_tokens import DoorKeys
    from murmur.domain.task_board import Task

PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NO_SUCH_TASK, NOT_CANCELABLE, UNSUPPORTED, NO_SUCH_CONTENT = -32001, -32002, -32004, -32005
NO_EXTENDED_CARD = -32007
NO_PLACE_TO_WAIT = -32000
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?", re.ASCII)
_ZONE = re.compile(r"%[^\]]*")
CONTROL_PATH = "/control"

RpcId = str | int | float | None


class DoorRequest(NamedTuple):
    """One HTTP request: method, path, body, the headers that matter, and whether its answer may come later."""

    method: str
    target: str
    body: bytes
    host: str | None = None
    authorization: str | None = None
    origin: str | None = None
    crowd: int | None = None
    """How many callers wait for tasks, when that is as many as may; `None` while there is room for another."""
    headers: Mapping[str, str] = MappingProxyType({})
    """The headers whose names start with `x-murmur-`, the names in lower case."""

    def __repr__(self) -> str:
        """Leave the headers and the body out: they may hold secrets."""
        return f"DoorRequest({self.method} {self.target})"


class DoorResponse(NamedTuple):
    """One HTTP response: status, JSON body, further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Leave the body out: it may hold secrets."""
        return f"DoorResponse({self.status})"


class AwaitTask(Value):
    """The answer can be given when the task is over."""

    task: "Task"
    respond: Callable[[], DoorResponse]


class RpcError(Exception):
    """A JSON-RPC error to be answered. The message never repeats what was sent."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Door:
    """One session's door."""

    def __init__(  # noqa: PLR0913 - what a door is made of
        self,
        session: ServedSession,
        board: TaskBoard,
        mint: Callable[[IdPrefix], str],
        keys: "DoorKeys | None" = None,
        *,
        controlled: bool = False,
        completed: "Completed | None" = None,
    ) -> None:
        """Serve a session: its tasks, new ids, and the keys of an authenticated or controlled door.

        `completed` takes in how the session's own delegations ended; without it they are not told of here.
        """
        self._completed = completed
        self._session = session
        self._board = board
        self._mint = mint
        self._keys = keys
        self._controlled = controlled

    def answer(self, request: DoorRequest) -> DoorResponse | AwaitTask:
        """Answer one request."""
        if not is_addressed(request.host, self._session.authority, wildcard=self._session.wildcard):
            return refused(403, "forbidden_host", "this door is not called by that name")
        if request.origin is not None:
            # Only browsers send it, for the page that asks: no page has any business here, and none gets CORS.
            return refused(403, "forbidden_origin", "this door is not called from web pages")
        path = request.target.partition("?")[0]
        if path == CARD_PATH:
            if request.method in ("GET", "HEAD"):
                return self._card
            return refused(405, "method_not_allowed", "the agent card is read with GET", ("allow", "GET, HEAD"))
        if path == CONTROL_PATH and self._controlled:
            return self._control(request)
        if path == "/":
            if request.method == "POST" and request.headers.get("x-murmur-task-origin") == "completion":
                return self._complete(request)
            if request.method == "POST":
                return self._call(request)
            return refused(405, "method_not_allowed", "the door is called with POST", ("allow", "POST"))
        return refused(404, "not_found", f"this door serves {CARD_PATH} and POST /")

    @cached_property
    def _card(self) -> DoorResponse:
        return document(200, public_card(self._session))

    def _complete(self, request: DoorRequest) -> DoorResponse:
        if self._completed is None:
            return refused(403, "not_outstanding", "this session delegates nothing")
        # Imported by the first delegation that ends: most sessions have none.
        from murmur.domain.completion_calls import answer_completion  # noqa: PLC0415

        return answer_completion(request, self._session.session_id, self._mint, self._completed)

    def _call(self, request: DoorRequest) -> DoorResponse | AwaitTask:
        scopes: tuple[str, ...] | None = None
        if self._keys is not None and self._session.authenticated:
            from murmur.domain.door_tokens import Granted, InvalidToken, Unauthenticated  # noqa: PLC0415

            match self._keys.identify(request.authorization):
                case Granted(_, granted):
                    scopes = granted
                case Unauthenticated():
                    return self._unauthenticated("unauthenticated", "this door needs a token; `mur token` prints it")
                case InvalidToken():
                    return self._unauthenticated("invalid_token", "the token is not one of this session")
                case _ as never:
                    assert_never(never)
        id_: RpcId = None
        try:
            call = decoded(request.body)
            method = call.get("method")
            if scopes is not None and method in self._session.methods and method not in scopes:
                return self._insufficient(str(method))
            id_ = checked_id(call)
            result = self._result(*checked_call(call), request.crowd)
        except RpcError as error:
            return rpc(id_, error={"code": error.code, "message": error.message})
        if isinstance(result, Later):
            later = result
            return AwaitTask(later.task, lambda: rpc(id_, result=later.result()))
        return rpc(id_, result=result)

    def _result(self, method: str, params: dict[str, object], crowd: int | None) -> "object | Later":
        if method == STOP:
            canceled = self._board.cancel_all()
            return {"canceled": [task.id for task in canceled], "residue": []}
        if method == EXTENDED_CARD:
            if self._session.authenticated:
                return extended_card(self._session)
            raise RpcError(NO_EXTENDED_CARD, "this door is public and has no extended card")
        if method in TASK_METHODS and self._session.accepts_tasks:
            # Its models are imported by sessions that accept tasks, and only at the first one.
            from murmur.domain.task_calls import call_task_method  # noqa: PLC0415

            return call_task_method(method, params, self._board, self._mint, crowd)
        raise RpcError(NO_SUCH_METHOD, "this door does not serve that method")

    def _control(self, request: DoorRequest) -> DoorResponse:
        assert self._keys is not None
        if request.method != "POST":
            return refused(405, "method_not_allowed", "control is asked with POST", ("allow", "POST"))
        if request.authorization is None:
            return self._unauthenticated("unauthenticated", "control needs the session's control token")
        if not self._keys.is_control(request.authorization):
            return self._unauthenticated("invalid_token", "the token is not this session's control token")
        try:
            call = read_json(request.body)
        except NotJson:
            return refused(400, "bad_request", "the body is not JSON")
        board = self._board
        match call:
            case {"op": "status"}:
                pass
            case {"op": "pause"}:
                # A drained session goes on to its end: paused it would never come to it.
                board.paused = not board.draining
            case {"op": "resume"}:
                board.paused = False
            case {"op": "drain"}:
                board.draining, board.paused = True, False
            case _:
                return refused(400, "bad_request", "op is one of status, pause, resume, drain")
        state = "draining" if board.draining else "paused" if board.paused else "running"
        running = None if board.running is None else board.running.id
        return document(200, {"state": state, "task": running, "waiting": board.waiting})

    def _unauthenticated(self, error: str, message: str) -> DoorResponse:
        return refused(401, error, message, self._challenge)

    def _insufficient(self, method: str) -> DoorResponse:
        return refused(403, "insufficient_scope", f"the token's credential may not call {method}", self._challenge)

    @property
    def _challenge(self) -> tuple[str, str]:
        realm = "".join(each for each in self._session.capsule_name if each.isascii() and each.isprintable())
        quoted = realm.replace("\\", "\\\\").replace('"', '\\"')
        return ("www-authenticate", f'Bearer realm="{quoted}"')


class Later(Value):
    """The result of a call that waits for a task."""

    task: "Task"
    result: Callable[[], object]


def is_addressed(host: str | None, authority: str, *, wildcard: bool = False) -> bool:
    """Whether the caller named this machine, or the address that the door is bound to, with whatever port.

    A page in a browser that had its own name resolve to this machine names itself here: that is refused.
    """
    name, authority = (host or "").lower(), authority.lower()
    if name == authority:
        return True
    bare = _without_port(name)
    # The zone of a link-local address is this machine's affair: callers do not send it.
    bound = _without_port(_ZONE.sub("", authority))
    return bare == "localhost" or _is_ours(bare, bound, wildcard)


def _without_port(authority: str) -> str:
    """Return the host of a `host:port`, or nothing where it is none."""
    match = _HOST.fullmatch(authority)
    return (match[1] or match[2]) if match else ""


def _is_ours(name: str, bound: str, wildcard: bool) -> bool:  # noqa: FBT001
    """Whether a name is a loopback address, the bound one, or any address at all for a door on all of them."""
    from ipaddress import ip_address  # noqa: PLC0415 - hosts other than localhost are rare

    try:
        address = ip_address(name)
    except ValueError:
        return False
    if wildcard or address.is_loopback:
        return True
    try:
        return address == ip_address(bound)
    except ValueError:  # The bound one is `localhost`.
        return False


def decoded(body: bytes) -> dict[str, object]:
    """Read a JSON-RPC call; raise `RpcError`."""
    try:
        call = read_json(body)
    except NotJson:
        raise RpcError(PARSE_ERROR, "the request is not JSON") from None
    if not isinstance(call, dict):
        raise RpcError(INVALID_REQUEST, "the request is not one JSON-RPC 2.0 call")
    return call


def checked_id(call: dict[str, object]) -> RpcId:
    """Return the id of a call, to be given back; raise `RpcError`."""
    id_ = call.get("id")
    if not _is_id(id_):
        raise RpcError(INVALID_REQUEST, "an id is a string or a number")
    return id_


def checked_call(call: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return a call's method and params; raise `RpcError`."""
    method, params = call.get("method"), call.get("params")
    params = {} if params is None else params
    if call.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "the request is not one JSON-RPC 2.0 call")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params are an object")
    return method, params


def _is_id(value: object) -> TypeGuard[RpcId]:
    # A number beyond the range of floats, such as 1e999, is read as an infinity, which JSON cannot give back.
    return isinstance(value, str | int | float | None) and not isinstance(value, bool) and value not in (inf, -inf)


def rpc(id_: RpcId, **outcome: object) -> DoorResponse:
    """Make the answer to a call: its `result`, or its `error`."""
    return document(200, {"jsonrpc": "2.0", "id": id_, **outcome})


def refused(status: int, error: str, message: str, *headers: tuple[str, str]) -> DoorResponse:
    """Make the answer that refuses a request by HTTP."""
    return document(status, {"error": error, "message": message}, headers)


def document(status: int, content: object, headers: tuple[tuple[str, str], ...] = ()) -> DoorResponse:
    """Make an answer of a JSON document."""
    return DoorResponse(status, json_bytes(content), headers)
