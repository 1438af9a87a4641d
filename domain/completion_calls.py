"""How does a session's door take in how one of its delegations ended? (W6).

Such a post carries no token: what it may do is to end the being outstanding of one delegation, and nothing else.
"""

from collections.abc import Callable

from murmur.domain.door_http import DoorRequest, DoorResponse, refused
from murmur.domain.ids import IdPrefix
from murmur.domain.rpc import INVALID_PARAMS, NO_SUCH_METHOD, RpcError, checked_call, checked_id, decoded
from murmur.domain.served_door import rpc

Completed = Callable[[str, str], bool]
"""Takes in a delegation's id and how it ended, in words; says whether that delegation was outstanding."""
TEXT_LIMIT = 4000
"""Characters of the words that are kept."""
_ID_LIMIT = 256


def answer_completion(
    request: DoorRequest, session_id: str, mint: Callable[[IdPrefix], str], completed: Completed
) -> DoorResponse:
    """Answer a post that says it is a completion. Whatever is wrong with it, the delegation stays outstanding."""
    if request.headers.get("x-murmur-completion-session") != session_id:
        return refused(403, "foreign_completion", "this door is not the door of the session that delegated")
    id_ = None
    try:
        call = decoded(request.body)
        id_ = checked_id(call)
        context_id, text = _message(*checked_call(call))
    except RpcError as error:
        return rpc(id_, error={"code": error.code, "message": error.message})
    if not completed(request.headers.get("x-murmur-delegation-id", ""), text[:TEXT_LIMIT]):
        return refused(403, "not_outstanding", "this session waits for no such delegation, or it has ended already")
    task = {"kind": "task", "id": mint("tsk_"), "contextId": context_id or mint("ctx_")}
    return rpc(id_, result={**task, "status": {"state": "completed"}})


def _message(method: str, params: dict[str, object]) -> tuple[str | None, str]:
    """Return the context and the words of the one message there is; raise `RpcError`."""
    if method != "message/send":
        raise RpcError(NO_SUCH_METHOD, "a completion is sent by message/send")
    match params.get("message"):
        case {"role": "user", "parts": [{"text": str(text)}], **message}:
            context_id = message.get("contextId")
            if context_id is None or (isinstance(context_id, str) and len(context_id) <= _ID_LIMIT):
                return context_id, text
    raise RpcError(INVALID_PARAMS, "a completion is one message of the user's, with one text part")
