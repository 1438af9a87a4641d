"""What do the payloads of a door look like? Every one of them, as pydantic models; `docs/schemas/` is made from here.

Requests are read strictly and ignore what they do not know, since callers of later protocol versions say more.
Nothing here is imported by the commands that only list and stop.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

Text = Annotated[str, Field(strict=True)]
Name = Annotated[str, Field(strict=True, max_length=256)]
"""An id that a caller makes up. Bounded, since a thousand tasks keep theirs."""


class _Payload(BaseModel):
    """Snake case in Python, camel case on the wire; input is never quoted in an error, since it may hold a token."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]),
        populate_by_name=True,
        hide_input_in_errors=True,
        extra="ignore",
    )


class Part(_Payload):
    """One part of a message. Only text parts are read; the others are named by their `kind`."""

    kind: Text | None = None
    text: Text | None = None


class TextPart(_Payload):
    """A text part as this door writes it."""

    kind: Literal["text"] = "text"
    text: str


class ReceivedMessage(_Payload):
    """What a caller sends."""

    message_id: Name
    role: Literal["user", "agent"]
    # Read up to the first fault: one error for each of half a million parts would cost half a gigabyte.
    parts: Annotated[list[Part], Field(min_length=1, max_length=10_000), FailFast()]
    context_id: Name | None = None
    task_id: Name | None = None


class SendConfiguration(_Payload):
    """How a caller wants `message/send` answered."""

    blocking: Annotated[
        Annotated[bool, Field(strict=True)] | None,
        Field(description="The answer waits for the task's end unless this is false."),
    ] = None


class SendParams(_Payload):
    """The params of `message/send`."""

    message: ReceivedMessage
    configuration: SendConfiguration | None = None


class TaskParams(_Payload):
    """The params of `tasks/get` and `tasks/cancel`."""

    id: Name


class SentMessage(_Payload):
    """What this door says about a task."""

    kind: Literal["message"] = "message"
    message_id: str
    role: Literal["agent"] = "agent"
    parts: list[TextPart]
    task_id: str
    context_id: str


class TaskStatus(_Payload):
    """A task's state, and why it is in it."""

    state: Literal["submitted", "working", "input-required", "completed", "failed", "canceled", "rejected"]
    message: SentMessage | None = None


class Artifact(_Payload):
    """A task's result."""

    artifact_id: str
    name: str
    parts: list[TextPart]


class TaskDocument(_Payload):
    """A task, as `message/send`, `tasks/get` and `tasks/cancel` answer it."""

    kind: Literal["task"] = "task"
    id: str
    context_id: str
    status: TaskStatus
    artifacts: list[Artifact] | None = None


class StatusUpdate(_Payload):
    """An event of a stream: a task has come into that state."""

    kind: Literal["status-update"] = "status-update"
    task_id: str
    context_id: str
    status: TaskStatus
    final: Annotated[bool, Field(description="Whether nothing of this task comes behind it.")]


class ArtifactUpdate(_Payload):
    """An event of a stream: whole lines of a task's output, its stdout named `result` and its stderr `stderr`."""

    kind: Literal["artifact-update"] = "artifact-update"
    task_id: str
    context_id: str
    artifact: Artifact
    append: Annotated[bool, Field(description="Whether it goes on with what came before of the same artifact.")]


class StreamEvent(_Payload):
    """The data of an event that is about a task. Beside this it has the same in the keys of `murmur-stream-v1`."""

    model_config = ConfigDict(extra="allow")

    jsonrpc: Literal["2.0"]
    id: Annotated[int | float | str | None, Field(description="That of the call which opened the stream.")]
    result: Annotated[StatusUpdate | ArtifactUpdate | TaskDocument, Field(discriminator="kind")]


class WatchParams(_Payload):
    """The params of `stream/watch`."""

    id: Annotated[
        Text | None, Field(description="The one task to be followed to its end; all of the session without it.")
    ] = None


class Residue(_Payload):
    """Something that a stopped session leaves behind."""

    model_config = ConfigDict(alias_generator=None)

    kind: Literal["delegation"]
    delegation_id: str
    capsule: str
    version: str


class StopResult(_Payload):
    """The result of `session/stop`."""

    canceled: list[str]
    residue: list[Residue]


class ControlRequest(_Payload):
    """The body of `POST /control`."""

    op: Literal["status", "pause", "resume", "drain"]


class ControlStatus(_Payload):
    """What `POST /control` answers."""

    model_config = ConfigDict(alias_generator=None)

    state: Literal["running", "paused", "draining"]
    task: str | None
    waiting: int


class Refusal(_Payload):
    """An answer that refuses a request by HTTP."""

    error: str
    message: str


class RpcRequest(_Payload):
    """A JSON-RPC 2.0 call."""

    jsonrpc: Literal["2.0"]
    id: int | float | str | None = None
    method: Text
    params: dict[str, Any] | None = None


class RpcFailure(_Payload):
    """The error of a JSON-RPC answer."""

    code: int
    message: str


class Tokens(_Payload):
    """The tokens of a readiness line asked for with `--readiness-tokens`: credential name to token."""

    model_config = ConfigDict(extra="allow")

    operator: str


class ReadinessLine(_Payload):
    """The one JSON line that `mur run --json` prints."""

    model_config = ConfigDict(alias_generator=None)

    formation_id: str | None = None
    name: str
    pid: int
    records_dir: str
    session_id: str
    tokens: Tokens | None = None
    url: str
    version: str
    workdir: str


PAYLOADS: dict[str, type[BaseModel]] = {
    "message-send-params": SendParams,
    "task-params": TaskParams,
    "task": TaskDocument,
    "watch-params": WatchParams,
    "stream-event": StreamEvent,
    "stop-result": StopResult,
    "control-request": ControlRequest,
    "control-status": ControlStatus,
    "refusal": Refusal,
    "rpc-request": RpcRequest,
    "rpc-failure": RpcFailure,
    "readiness-line": ReadinessLine,
}
"""Every payload that has a schema in `docs/schemas/`, by the name of its file."""
