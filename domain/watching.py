"""How is a session watched, and what does an event of its stream say, whichever runtime wrote it?

Our door writes each event for clients of A2A and for Murmur's own (`stream_frames`); the door of the Rust runtime
writes it for its own alone. Both are read here. What a stream says never holds the token that it was asked with.
"""

from collections.abc import Callable, Mapping

from murmur.domain.door import AskLimits, DoorAsk, addressed, rpc_ask, without
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.secret import DoorToken
from murmur.domain.sse import HEARTBEAT_INTERVAL, Event
from murmur.domain.task_asks import message_of, text_of
from murmur.domain.value import Value

WATCH_LIMITS = AskLimits(2.0, 3 * HEARTBEAT_INTERVAL, float("inf"))
"""A stream lasts as long as its session. Its door says something every 15 s, so three silences mean that it is gone."""


class StatusSeen(Value):
    """A task is in that state."""

    task_id: str
    state: str
    message: str | None
    is_final: bool


class OutputSeen(Value):
    """A task has said that: on its `stdout`, its `stderr`, or as what else is named."""

    task_id: str
    channel: str
    text: str


class GapSeen(Value):
    """What came before that event is not kept any more."""

    first: int


class MissedSeen(Value):
    """The door has left out that many events."""

    count: int


class ClosedSeen(Value):
    """The session has ended, and this was all."""


class ErrorSeen(Value):
    """The door ends the stream, for that reason."""

    reason: str


class BegunSeen(Value):
    """The session is watched from here on."""


class NothingSeen(Value):
    """An event that means nothing to a watcher, or one of a kind that is not known here."""


Seen = BegunSeen | StatusSeen | OutputSeen | GapSeen | MissedSeen | ClosedSeen | ErrorSeen | NothingSeen


def watch_ask(url: str, token: DoorToken | None, after: int | None) -> DoorAsk:
    """Make the request for a session's events, behind that one or all that are kept; raise `NoSuchAddress`."""
    return _streaming(rpc_ask(addressed(url, token), "stream/watch", {}, token), after or 0)


def stream_ask(url: str, token: DoorToken | None, text: str, message_id: str, context_id: str | None) -> DoorAsk:
    """Make the request that gives a session a task and streams it to its end; raise `NoSuchAddress`."""
    params: dict[str, object] = {"message": message_of(text, message_id, context_id)}
    return _streaming(rpc_ask(addressed(url, token), "message/stream", params, token), None)


def _streaming(ask: DoorAsk, after: int | None) -> DoorAsk:
    headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")]
    if after is not None:
        headers.append(("Last-Event-ID", str(after)))
    return ask.replaced(headers=tuple(headers), wants_refusal=True)


def read_event(event: Event, token: DoorToken | None) -> Seen:
    """Say what an event means, without the token that the door may repeat."""
    seen = _read(event)
    texts = {name: without(token, value) for name, value in vars(seen).items() if isinstance(value, str)}
    return seen.replaced(**texts) if texts else seen


def _read(event: Event) -> Seen:
    try:
        data = read_json(event.data.encode("utf-8", "replace"))
    except NotJson:
        data = {}
    found = data if isinstance(data, dict) else {}
    reader = _READERS.get(event.kind)
    return NothingSeen() if reader is None else reader(found)


def _status(data: dict[str, object]) -> Seen:
    match data:
        case {"result": {"taskId": str(task_id), "status": {"state": str(state), **status}, "final": bool(final)}}:
            return StatusSeen(task_id, state, text_of([status.get("message")], "parts"), final)
        case {"id": str(task_id), "status": {"state": str(state), **status}, "final": bool(final)}:
            return StatusSeen(task_id, state, _text(status.get("message")) or None, final)
        case _:
            return NothingSeen()


def _task(result: object) -> Seen:
    match result:
        case {"id": str(task_id), "status": {"state": str(state), **status}}:
            return StatusSeen(task_id, state, text_of([status.get("message")], "parts"), is_final=False)
        case _:
            return NothingSeen()


def _artifact(data: dict[str, object]) -> Seen:
    match data:
        case {"result": {"taskId": str(task_id), "artifact": {"name": str(name), **artifact}}}:
            return OutputSeen(task_id, "stdout" if name == "result" else name, text_of([artifact], "parts") or "")
        case {"id": str(task_id), "artifact": {"tool_name": str(name), "content": str(content)}}:
            return OutputSeen(task_id, name, content if content.endswith("\n") else content + "\n")
        case _:
            return NothingSeen()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_READERS: Mapping[str, Callable[[dict[str, object]], Seen]] = {
    "connection-ack": lambda _: BegunSeen(),
    "status": _status,
    "task": lambda data: _task(data.get("result")),
    "artifact": _artifact,
    "text": lambda data: OutputSeen(_text(data.get("id")), "stdout", _text(data.get("text"))),
    "gap": lambda data: GapSeen(_number(data.get("first_available_id"))),
    "lagged": lambda data: MissedSeen(_number(data.get("missed"))),
    "capsule-closed": lambda _: ClosedSeen(),
    "error": lambda data: ErrorSeen(_text(data.get("error")) or "it did not say why"),
}
