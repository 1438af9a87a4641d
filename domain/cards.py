"""How does a session describe itself? The public card and the extended one (wire facts of the door)."""

from murmur.domain.agent_card import CAPSULE_EXTENSION
from murmur.domain.value import Value

DOOR_EXTENSION = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"
EXTENDED_CARD = "agent/getAuthenticatedExtendedCard"
STREAM_EXTENSION = "https://docs.murmur.nexus/reference/streaming-protocol/#murmur-stream-v1"
STOP = "session/stop"
STREAM, WATCH = "message/stream", "stream/watch"
TASK_METHODS = ("message/send", STREAM, "tasks/get", "tasks/cancel")
WATCH_FRAMES = ("status", "artifact", "gap", "connection-ack", "capsule-closed", "error")
"""The kinds of events that every stream may have; those about one task begin with it."""


class ServedSession(Value):
    """The session behind a door. `authority` is `host:port`, as recorded."""

    session_id: str
    capsule_name: str
    capsule_version: str
    authority: str
    accepts_tasks: bool = False
    authenticated: bool = False
    wildcard: bool = False
    """Whether the door is on every address of the machine."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The JSON-RPC methods served, in the order of the card; also the scopes that the operator holds."""
        sending, asking = (TASK_METHODS[:2], TASK_METHODS[2:]) if self.accepts_tasks else ((), ())
        return (*sending, WATCH, *asking, STOP, *((EXTENDED_CARD,) if self.authenticated else ()))


def public_card(session: ServedSession) -> dict[str, object]:
    """Describe the session to whoever asks, in the A2A 1.0 shape.

    Behind an authenticated door it does not say which session it is. Where no tasks are accepted there are no skills.
    """
    schemes: dict[str, object] = {}
    requirements: list[object] = []
    if session.authenticated:
        schemes = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "description": _BEARER}}}
        requirements = [{"schemes": {"bearer": {"list": []}}}]
    return {
        "name": session.capsule_name,
        "description": _described(session),
        "version": session.capsule_version,
        "supportedInterfaces": [
            {"url": f"http://{session.authority}", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
        ],
        "capabilities": {
            "streaming": session.accepts_tasks,
            "pushNotifications": False,
            "extendedAgentCard": session.authenticated,
            "extensions": [_door(session), *([] if session.authenticated else [_capsule(session)]), _stream(session)],
        },
        "securitySchemes": schemes,
        "securityRequirements": requirements,
        **_modes_and_skills(session),
    }


def extended_card(session: ServedSession) -> dict[str, object]:
    """Describe the session to a caller with a token, in the A2A 0.3 shape."""
    return {
        "protocolVersion": "0.3.0",
        "name": session.capsule_name,
        "description": _described(session),
        "version": session.capsule_version,
        "url": f"http://{session.authority}",
        "preferredTransport": "JSONRPC",
        "capabilities": {
            "streaming": session.accepts_tasks,
            "pushNotifications": False,
            "extensions": [_door(session), _capsule(session), _stream(session)],
        },
        "securitySchemes": {"bearer": {"type": "http", "scheme": "Bearer"}},
        "security": [{"bearer": []}],
        "supportsAuthenticatedExtendedCard": True,
        **_modes_and_skills(session),
    }


_BEARER = "A token of this session, as `mur token` prints it"


def _described(session: ServedSession) -> str:
    return f"Murmur capsule {session.capsule_name} {session.capsule_version}"


def _modes_and_skills(session: ServedSession) -> dict[str, object]:
    skill = {"id": "task", "name": "Run a task", "description": f"Give {session.capsule_name} a task", "tags": ["task"]}
    return {
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill] if session.accepts_tasks else [],
    }


def _door(session: ServedSession) -> dict[str, object]:
    params = {"methods": list(session.methods), "peerTasks": False}
    return _extension(DOOR_EXTENSION, "The methods this door serves", params)


def _capsule(session: ServedSession) -> dict[str, object]:
    return _extension(
        CAPSULE_EXTENSION,
        "The session behind this door, and what its command may do",
        {"sessionId": session.session_id, "tools": [], "shell": True, "network": True, "planes": []},
    )


def _stream(session: ServedSession) -> dict[str, object]:
    frames = [*WATCH_FRAMES, "task"] if session.accepts_tasks else list(WATCH_FRAMES)
    return _extension(STREAM_EXTENSION, "The kinds of events that a stream of this door has", {"frames": frames})


def _extension(uri: str, description: str, params: dict[str, object]) -> dict[str, object]:
    return {"uri": uri, "required": False, "description": description, "params": params}
