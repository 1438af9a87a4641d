"""What is a session's door asked to do with tasks, and what does it say of them? (wire facts of the door)."""

from murmur.domain.door import (
    DoorAsk,
    DoorReading,
    NoAnswer,
    addressed,
    decoded_answer,
    items_of,
    rpc_ask,
    without,
)
from murmur.domain.json_text import json_bytes
from murmur.domain.secret import DoorToken
from murmur.domain.value import Value


def send_ask(  # noqa: PLR0913 - where it goes, and what it says
    url: str,
    token: DoorToken | None,
    text: str,
    message_id: str,
    *,
    blocking: bool,
    context_id: str | None = None,
) -> DoorAsk:
    """Make the request that gives a session a task, in that conversation or a new one; raise `NoSuchAddress`."""
    params = {"message": message_of(text, message_id, context_id), "configuration": {"blocking": blocking}}
    return rpc_ask(addressed(url, token), "message/send", params, token)


def message_of(text: str, message_id: str, context_id: str | None) -> dict[str, object]:
    """Write a task as the message that gives it, in that conversation or a new one."""
    message: dict[str, object] = {
        "messageId": message_id,
        "role": "user",
        "parts": [{"kind": "text", "text": text}],
        "kind": "message",
    }
    return message if context_id is None else {**message, "contextId": context_id}


def cancel_ask(url: str, token: DoorToken | None, task_id: str) -> DoorAsk:
    """Make the request that cancels a task; raise `NoSuchAddress`."""
    return rpc_ask(addressed(url, token), "tasks/cancel", {"id": task_id}, token)


def control_ask(url: str, token: DoorToken, op: str) -> DoorAsk:
    """Make the request that controls a session; raise `NoSuchAddress`. The token is the session's control token."""
    headers = (("Content-Type", "application/json"), ("Accept", "application/json"))
    return DoorAsk(addressed(url, token), "POST", "/control", headers, json_bytes({"op": op}), token)


class TaskSeen(Value):
    """What a door says of a task: its id and state, its result's text and why it is in that state."""

    id: str
    state: str
    result: str | None
    message: str | None


def read_task(reading: DoorReading, token: DoorToken | None) -> TaskSeen | NoAnswer:
    """Read a task from a door's answer; `NoAnswer` says why there is none."""
    document = decoded_answer(reading)
    if isinstance(document, NoAnswer):
        return document
    match document:
        case {"result": {"id": str(task_id), "status": {"state": str(state), **status}, **task}}:
            result = text_of(task.get("artifacts"), "parts")
            message = text_of([status.get("message")], "parts")
            return TaskSeen(
                without(token, task_id),
                without(token, state),
                None if result is None else without(token, result),
                None if message is None else without(token, message),
            )
        case {"error": {"message": str(message)}}:
            return NoAnswer(f"the door refused: {without(token, message)}")
        case _:
            return NoAnswer("the door answered with something that is no task")


def read_control(reading: DoorReading, token: DoorToken) -> dict[str, object] | NoAnswer:
    """Read what a session says of itself in answer to `control_ask`."""
    document = decoded_answer(reading)
    if isinstance(document, NoAnswer):
        return document
    known = {name: document.get(name) for name in ("state", "task", "waiting")} if isinstance(document, dict) else {}
    if not isinstance(known.get("state"), str) or any(
        not isinstance(each, str | int | None) for each in known.values()
    ):
        return NoAnswer("the door answered with something else than its state")
    return {name: without(token, value) if isinstance(value, str) else value for name, value in known.items()}


def text_of(holders: object, key: str) -> str | None:
    """Join the text parts of artifacts or messages; `None` where there are none."""
    parts = [
        part
        for holder in items_of(holders, dict)
        for part in items_of(holder.get(key), dict)
        if isinstance(part.get("text"), str)
    ]
    return "".join(part["text"] for part in parts) if parts else None
