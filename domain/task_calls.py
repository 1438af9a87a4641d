"""What do `message/send`, `message/stream`, `tasks/get` and `tasks/cancel` do? (wire facts of the door)."""

from collections.abc import Callable
from typing import TypeVar, assert_never

from pydantic import BaseModel, ValidationError

from murmur.domain.ids import IdPrefix
from murmur.domain.rpc import (
    INVALID_PARAMS,
    NO_PLACE_TO_WAIT,
    NO_SUCH_CONTENT,
    NO_SUCH_TASK,
    NOT_CANCELABLE,
    UNSUPPORTED,
    RpcError,
)
from murmur.domain.served_door import Later, Streamed
from murmur.domain.task_board import Canceled, NotCancelable, Stopping, Task, TaskBoard, Unknown
from murmur.domain.wire import Artifact, SendParams, SentMessage, TaskDocument, TaskParams, TaskStatus, TextPart

Mint = Callable[[IdPrefix], str]
_Model = TypeVar("_Model", bound=BaseModel)


def call_task_method(
    method: str, params: dict[str, object], board: TaskBoard, mint: Mint, crowd: int | None = None
) -> object | Later | Streamed:
    """Carry out one call; return its result, or the task to wait for first or to stream. Raises `RpcError`.

    `crowd` is how many callers wait, where no further one may: then nothing is returned that is to be waited for.
    """
    match method:
        case "message/send":
            return _send(_read(SendParams, params), board, mint, crowd)
        case "message/stream":
            sent = _read(SendParams, params)
            return Streamed(_offer(sent, _text(sent, board), board, mint), submitted=True)
        case "tasks/get":
            return task_document(_known(board.find(_read(TaskParams, params).id)))
        case _:
            return _cancel(_read(TaskParams, params), board, crowd)


def _read(model: type[_Model], params: dict[str, object]) -> _Model:
    try:
        return model.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "params"
        raise RpcError(INVALID_PARAMS, f"{where}: {first['msg']}") from None


def _known(task: Task | None) -> Task:
    if task is None:
        raise RpcError(NO_SUCH_TASK, "there is no task of that id")
    return task


def _send(params: SendParams, board: TaskBoard, mint: Mint, crowd: int | None) -> object | Later:
    blocking = params.configuration is None or params.configuration.blocking is not False
    text = _text(params, board)
    if blocking and crowd is not None:
        # Decided before the task is taken in: one whose caller was refused must not run.
        raise RpcError(
            NO_PLACE_TO_WAIT,
            f"{crowd} callers wait for their tasks, and no more may; wait for one to be answered, or send with"
            " `blocking: false` and ask by tasks/get",
        )
    task = _offer(params, text, board, mint)
    if task.state.is_terminal or not blocking:
        return task_document(task)
    return Later(task, lambda: task_document(task))


def _offer(params: SendParams, text: str, board: TaskBoard, mint: Mint) -> Task:
    return board.offer(mint("tsk_"), params.message.context_id or mint("ctx_"), text)


def _text(params: SendParams, board: TaskBoard) -> str:
    """Return what a message asks for; raise `RpcError` where that is nothing that can be a new task."""
    message = params.message
    if message.task_id is not None:
        _known(board.find(message.task_id))
        raise RpcError(UNSUPPORTED, "a task takes one message; leave taskId out to start another")
    texts = [part.text for part in message.parts if part.text is not None and part.kind in (None, "text")]
    if not texts:
        raise RpcError(NO_SUCH_CONTENT, "the message has no text part, and this door takes nothing else")
    return "\n".join(texts)


def _cancel(params: TaskParams, board: TaskBoard, crowd: int | None) -> object | Later:
    answer = board.cancel(params.id)
    match answer:
        case Unknown():
            raise RpcError(NO_SUCH_TASK, "there is no task of that id")
        case NotCancelable(task):
            raise RpcError(NOT_CANCELABLE, f"the task is {task.state.value} and cannot be canceled")
        case Canceled(task):
            return task_document(task)
        case Stopping(task):
            # Cancelling is what empties a full door, so it is done in any case; asking again says whether it is over.
            return Later(task, lambda: task_document(task)) if crowd is None else task_document(task)
        case _:
            assert_never(answer)


def task_document(task: Task) -> object:
    """Write a task as the wire shows it."""
    message = None
    if task.message is not None:
        message = SentMessage(
            message_id=f"msg_{task.id.removeprefix('tsk_')}",
            parts=[TextPart(text=task.message)],
            task_id=task.id,
            context_id=task.context_id,
        )
    artifacts = None
    if task.result is not None:
        artifacts = [Artifact(artifact_id=f"{task.id}-result", name="result", parts=[TextPart(text=task.result)])]
    shown = TaskDocument(
        id=task.id,
        context_id=task.context_id,
        status=TaskStatus(state=task.state.value, message=message),
        artifacts=artifacts,
    )
    return shown.model_dump(mode="json", by_alias=True, exclude_none=True)
