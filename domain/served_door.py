"""What does a session's own door answer? The public card and the JSON-RPC methods it serves (wire facts of the door).

Pure: a request in, a response out. The adapter carries the bytes.
"""

import json
from math import inf
from typing import NamedTuple, TypeGuard

from murmur.domain.agent_card import CAPSULE_EXTENSION
from murmur.domain.door import CARD_PATH
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.value import Value

DOOR_EXTENSION = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"
METHODS = ("session/stop",)

_PARSE_ERROR, _INVALID_REQUEST, _NO_SUCH_METHOD, _NO_EXTENDED_CARD = -32700, -32600, -32601, -32007


class DoorRequest(NamedTuple):
    """One HTTP request: method, path, body."""

    method: str
    target: str
    body: bytes


class DoorResponse(NamedTuple):
    """One HTTP response: status, JSON body, further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class ServedSession(Value):
    """The session behind the door. `authority` is `host:port`, as recorded."""

    session_id: str
    capsule_name: str
    capsule_version: str
    authority: str


def respond(session: ServedSession, request: DoorRequest) -> DoorResponse:
    """Answer one request."""
    path = request.target.partition("?")[0]
    if path == CARD_PATH:
        if request.method in ("GET", "HEAD"):
            return _json(200, public_card(session))
        return _refused(405, "method_not_allowed", "the agent card is read with GET", ("allow", "GET, HEAD"))
    if path == "/":
        if request.method == "POST":
            return _json(200, _rpc(request.body))
        return _refused(405, "method_not_allowed", "the door is called with POST", ("allow", "POST"))
    return _refused(404, "not_found", f"this door serves {CARD_PATH} and POST /")


def public_card(session: ServedSession) -> dict[str, object]:
    """Describe the session to whoever asks, in the A2A 1.0 shape. It accepts no tasks, so it offers no skills."""
    return {
        "name": session.capsule_name,
        "description": f"Murmur capsule {session.capsule_name} {session.capsule_version}",
        "version": session.capsule_version,
        "supportedInterfaces": [
            {"url": f"http://{session.authority}", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
        ],
        "capabilities": {
            "streaming": False,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [
                _extension(DOOR_EXTENSION, "The methods this door serves", {"methods": METHODS, "peerTasks": False}),
                _extension(
                    CAPSULE_EXTENSION,
                    "The session behind this door, and what its command may do",
                    {
                        "sessionId": session.session_id,
                        "tools": [],
                        "shell": True,
                        "network": True,
                        "planes": [],
                    },
                ),
            ],
        },
        "securitySchemes": {},
        "securityRequirements": [],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


def _extension(uri: str, description: str, params: dict[str, object]) -> dict[str, object]:
    return {"uri": uri, "required": False, "description": description, "params": params}


def _rpc(body: bytes) -> dict[str, object]:
    try:
        call = read_json(body)
    except NotJson:
        return _rpc_error(None, _PARSE_ERROR, "the request is not JSON")
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0" or not isinstance(call.get("method"), str):
        return _rpc_error(None, _INVALID_REQUEST, "the request is not one JSON-RPC 2.0 call")
    id_ = call.get("id")
    if not _is_id(id_):
        return _rpc_error(None, _INVALID_REQUEST, "an id is a string or a number")
    match call["method"]:
        case "session/stop":
            # No task runs behind this door, so there is nothing to cancel; the signal that follows ends the command.
            return {"jsonrpc": "2.0", "id": id_, "result": {"canceled": [], "residue": []}}
        case "agent/getAuthenticatedExtendedCard":
            return _rpc_error(id_, _NO_EXTENDED_CARD, "this door is public and has no extended card")
        case _:
            return _rpc_error(id_, _NO_SUCH_METHOD, "this door does not serve that method")


def _is_id(value: object) -> TypeGuard[str | int | float | None]:
    # A number beyond the range of floats, such as 1e999, is read as an infinity, which JSON cannot give back.
    return isinstance(value, str | int | float | None) and not isinstance(value, bool) and value not in (inf, -inf)


def _rpc_error(id_: str | float | None, code: int, message: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def _refused(status: int, error: str, message: str, *headers: tuple[str, str]) -> DoorResponse:
    return _json(status, {"error": error, "message": message}, headers)


def _json(status: int, document: object, headers: tuple[tuple[str, str], ...] = ()) -> DoorResponse:
    return DoorResponse(status, json.dumps(document, allow_nan=False).encode(), headers)
