"""What does a session's own door answer, and to whom? (wire facts of the door).

A request in, a response out; or a task to wait for before there is one, or a stream to open. The adapter carries the
bytes; what follows for the session is on its task board. The order is: host, path, token, scope, request.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, assert_never

from murmur.domain.cards import (
    EXTENDED_CARD,
    STOP,
    STREAM,
    TASK_METHODS,
    WATCH,
    ServedSession,
    extended_card,
    public_card,
)
from murmur.domain.door import CARD_PATH
from murmur.domain.door_http import DoorRequest, DoorResponse, document, is_addressed, refused
from murmur.domain.ids import IdPrefix
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.rpc import (
    INVALID_PARAMS,
    NO_EXTENDED_CARD,
    NO_PLACE_TO_WAIT,
    NO_SUCH_METHOD,
    NO_SUCH_TASK,
    RpcError,
    RpcId,
    checked_call,
    checked_id,
    decoded,
)
from murmur.domain.task_board import TaskBoard
from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.domain.completion_calls import Completed
    from murmur.domain.door_tokens import DoorKeys
    from murmur.domain.task_board import Task

CONTROL_PATH = "/control"
_LONGEST_ID = 20
"""Digits of the largest number of 64 bits."""


class AwaitTask(Value):
    """The answer can be given when the task is over."""

    task: "Task"
    respond: Callable[[], DoorResponse]


class OpenStream(Value):
    """The answer is a stream of events, for as long as there are any."""

    id: RpcId
    task: "Task | None"
    """The one whose events are wanted, to its end; `None` for all of the session's."""
    after: int | None
    """Which event the caller has last seen, if it said so."""
    submitted: bool = False
    """Whether the task came with this very call."""
    with_errors: bool = True
    """Whether what is said on stderr is for this caller."""


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

    def answer(self, request: DoorRequest) -> "DoorAnswer":
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

    def withdraw(self, answer: OpenStream) -> None:
        """Take back a task that came with a call which could not be answered after all: it must not run."""
        if answer.submitted and answer.task is not None:
            self._board.cancel(answer.task.id)

    @cached_property
    def _card(self) -> DoorResponse:
        return document(200, public_card(self._session))

    def _complete(self, request: DoorRequest) -> DoorResponse:
        if self._completed is None:
            return refused(403, "not_outstanding", "this session delegates nothing")
        # Imported by the first delegation that ends: most sessions have none.
        from murmur.domain.completion_calls import answer_completion  # noqa: PLC0415

        return answer_completion(request, self._session.session_id, self._mint, self._completed)

    def _call(self, request: DoorRequest) -> "DoorAnswer":
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
            checked = checked_call(call)
            stranger = self._is_watched_by_a_stranger(checked[0], request)
            if stranger and checked[1].get("id") is None:
                return refused(403, "forbidden_user", "a public session is watched by its own user; name a task's id")
            result = self._result(*checked, request)
        except RpcError as error:
            return rpc(id_, error={"code": error.code, "message": error.message})
        if isinstance(result, Later):
            later = result
            return AwaitTask(later.task, lambda: rpc(id_, result=later.result()))
        if isinstance(result, Streamed):
            return OpenStream(id_, result.task, _seen(request.last_event_id), result.submitted, not stranger)
        return rpc(id_, result=result)

    def _result(self, method: str, params: dict[str, object], request: DoorRequest) -> "object | Later | Streamed":
        if method in (STREAM, WATCH) and method in self._session.methods and request.watched is not None:
            # Decided before a task is taken in: one whose caller was refused must not run.
            raise RpcError(NO_PLACE_TO_WAIT, f"{request.watched} streams are open, and no more may be")
        if method == WATCH:
            return self._watch(params.get("id"))
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

            return call_task_method(method, params, self._board, self._mint, request.crowd)
        raise RpcError(NO_SUCH_METHOD, "this door does not serve that method")

    def _is_watched_by_a_stranger(self, method: str, request: DoorRequest) -> bool:
        """Whether somebody wants to watch a public session who could not read its files.

        One task's result is for whoever knows its id, as with `tasks/get`; its stderr is not. Raises `OSError`.
        """
        return method == WATCH and not self._session.authenticated and not request.from_own_user()

    def _watch(self, task_id: object) -> "Streamed":
        if task_id is None:
            return Streamed(None)
        if not isinstance(task_id, str):
            raise RpcError(INVALID_PARAMS, "id: the id of a task is a string")
        task = self._board.find(task_id)
        if task is None:
            raise RpcError(NO_SUCH_TASK, "there is no task of that id")
        return Streamed(task)

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


class Streamed(Value):
    """The result of a call that is a stream: of one task's events, or of all."""

    task: "Task | None"
    submitted: bool = False


DoorAnswer = DoorResponse | AwaitTask | OpenStream


def _seen(text: str | None) -> int | None:
    """Read the number of an event; what is none is as good as not said."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= _LONGEST_ID else None


def rpc(id_: RpcId, **outcome: object) -> DoorResponse:
    """Make the answer to a call: its `result`, or its `error`."""
    return document(200, {"jsonrpc": "2.0", "id": id_, **outcome})
