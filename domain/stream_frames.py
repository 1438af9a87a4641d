"""What does an event of a stream say? (the door's streams; ADR 14).

One frame has two readers. Its data is a JSON-RPC answer, as clients of A2A read it, and has beside that the keys by
which Murmur's own clients read the same. The answer's id is the caller's, so it is put in for each.
"""

from typing import NamedTuple

from murmur.domain.json_text import json_line
from murmur.domain.rpc import RpcId
from murmur.domain.sse import event_bytes


class Frame(NamedTuple):
    """One event for every reader, but for its number and the caller's id."""

    kind: str
    task_id: str | None
    is_final: bool
    """Whether it is its task's last."""
    head: bytes
    """Its data up to the caller's id, and behind it."""
    tail: bytes
    is_error: bool = False
    """Whether it is what a command has said on stderr."""

    @property
    def size(self) -> int:
        """About how many bytes it takes to keep."""
        return len(self.head) + len(self.tail)

    def written(self, caller: bytes, number: int | None = None) -> bytes:
        """Write it for the caller whose id is that JSON."""
        return event_bytes(self.kind, b"%b%b%b" % (self.head, caller, self.tail), number)


def caller_id(id_: RpcId) -> bytes:
    """Write a caller's id, once for all of its frames."""
    return json_line(id_)


def _frame(kind: str, task_id: str, result: bytes, beside: bytes = b"", *, is_final: bool = False) -> Frame:
    """Put a result, as JSON, into its answer; `beside` are further members of that, each behind a comma."""
    return Frame(kind, task_id, is_final, b'{"jsonrpc":"2.0","id":', b',"result":%b%b}' % (result, beside))


def status_frame(task_id: str, context_id: str, state: str, message: str | None, *, is_final: bool) -> Frame:
    """Say that a task is in that state now, and why."""
    status: dict[str, object] = {"state": state}
    if message is not None:
        status["message"] = {
            "kind": "message",
            "messageId": f"msg_{task_id.removeprefix('tsk_')}",
            "role": "agent",
            "parts": [{"kind": "text", "text": message}],
            "taskId": task_id,
            "contextId": context_id,
        }
    update = {"kind": "status-update", "taskId": task_id, "contextId": context_id, "status": status, "final": is_final}
    murmur = {"context_id": context_id, "status": {"state": state, "message": message or ""}, "final": is_final}
    return _frame("status", task_id, json_line(update), b"," + json_line(murmur)[1:-1], is_final=is_final)


def output_frame(task_id: str, context_id: str, channel: str, text: str, *, is_first: bool) -> Frame:
    """Pass on output of a task: whole lines, as `result` (its stdout) or `stderr`.

    The texts of all of one channel, put together, are the output. `is_first` is that of the channel.
    """
    name = "result" if channel == "stdout" else channel
    update = {
        "kind": "artifact-update",
        "taskId": task_id,
        "contextId": context_id,
        "artifact": {"artifactId": f"{task_id}-{name}", "name": name, "parts": [{"kind": "text", "text": text}]},
        "append": not is_first,
    }
    murmur = {
        "context_id": context_id,
        "artifact": {
            "tool_name": channel,
            "content": text,
            "fence_source": None,
            "tool_call_id": None,
            "is_error": False,
            "duration_ms": None,
            "exit_code": None,
            "truncated": False,
        },
    }
    frame = _frame("artifact", task_id, json_line(update), b"," + json_line(murmur)[1:-1])
    return frame._replace(is_error=channel == "stderr")


def task_frame(task_id: str, document: object) -> Frame:
    """Show a task as it is when a stream about it begins."""
    return _frame("task", task_id, json_line(document))


def ack_bytes(*, threaded: bool) -> bytes:
    """Say that the caller observes the session, and whether it remembers conversations."""
    mode = "threaded" if threaded else "stateless"
    return event_bytes("connection-ack", json_line({"role": "observer", "conversation_mode": mode}))


def gap_bytes(first: int) -> bytes:
    """Say that earlier events are not kept any more."""
    return event_bytes("gap", json_line({"first_available_id": first}))


def closed_bytes() -> bytes:
    """Say that the session has ended, and nothing comes behind."""
    return event_bytes("capsule-closed", b"{}")


def error_bytes(reason: str) -> bytes:
    """Say why the stream ends before its time."""
    return event_bytes("error", json_line({"error": reason}))
