"""How is a JSON-RPC 2.0 call read, and which errors may it be answered with? (wire facts of the door)."""

from math import inf
from typing import TypeGuard

from murmur.domain.json_text import NotJson, read_json

PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NO_SUCH_TASK, NOT_CANCELABLE, UNSUPPORTED, NO_SUCH_CONTENT = -32001, -32002, -32004, -32005
NO_EXTENDED_CARD = -32007
NO_PLACE_TO_WAIT = -32000

RpcId = str | int | float | None


class RpcError(Exception):
    """A JSON-RPC error to be answered. The message never repeats what was sent."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


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


_LONGEST_ID = 1024
"""Characters of an id: it comes back with the answer, and with every event of a stream."""


def _is_id(value: object) -> TypeGuard[RpcId]:
    if isinstance(value, str) and len(value) > _LONGEST_ID:
        return False
    # A number beyond the range of floats, such as 1e999, is read as an infinity, which JSON cannot give back.
    return isinstance(value, str | int | float | None) and not isinstance(value, bool) and value not in (inf, -inf)
