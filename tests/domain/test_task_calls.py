"""What `message/send`, `tasks/get` and `tasks/cancel` do, and how a task is shown (wire facts of the door)."""

from itertools import count
from typing import Any

import pytest
from a2a.compat.v0_3.types import Task as OfficialTask

from murmur.domain.ids import IdPrefix
from murmur.domain.rpc import RpcError
from murmur.domain.served_door import Later
from murmur.domain.task_board import Acceptance, TaskBoard, TaskState
from murmur.domain.task_calls import call_task_method

TEXT = {"kind": "text", "text": "hello"}


class Calls:
    """A board, and calls on it."""

    def __init__(self, acceptance: Acceptance = "queue", queue_depth: int = 3) -> None:
        self.board = TaskBoard(acceptance, "sleep", queue_depth)
        self._numbers = count()

    def mint(self, prefix: IdPrefix) -> str:
        return f"{prefix}{next(self._numbers):032x}"

    def call(self, method: str, params: dict[str, object], crowd: int | None = None) -> Any:
        return call_task_method(method, params, self.board, self.mint, crowd)

    def send(self, *parts: object, blocking: object = False, **more: object) -> Any:
        message = {"messageId": "msg_1", "role": "user", "parts": list(parts or (TEXT,)), **more}
        return self.call("message/send", {"message": message, "configuration": {"blocking": blocking}})

    def get(self, task_id: object) -> Any:
        return self.call("tasks/get", {"id": task_id})

    def cancel(self, task_id: object) -> Any:
        return self.call("tasks/cancel", {"id": task_id})

    def refusal(self, method: str, params: dict[str, object]) -> RpcError:
        with pytest.raises(RpcError) as refused:
            self.call(method, params)
        return refused.value

    def finish(self, *, succeeded: bool = True, result: str = "done\n", message: str | None = None) -> None:
        self.board.finished(succeeded=succeeded, result=result, message=message)

    def next_text(self) -> str:
        task = self.board.start_next()
        assert task is not None
        return task.text


def said(document: Any) -> str:
    """Return why a task is in its state, having held what such a message has."""
    message = document["status"]["message"]
    assert set(message) == {"kind", "messageId", "role", "parts", "taskId", "contextId"}
    assert (message["kind"], message["role"]) == ("message", "agent")
    assert (message["taskId"], message["contextId"]) == (document["id"], document["contextId"])
    assert message["messageId"].startswith("msg_")
    (part,) = message["parts"]
    assert part["kind"] == "text"
    text = part["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.spec("M1")
def test_a_task_sent_without_waiting_is_submitted_under_new_ids() -> None:
    calls = Calls()
    document = calls.send()
    assert document == {
        "kind": "task",
        "id": document["id"],
        "contextId": document["contextId"],
        "status": {"state": "submitted"},
    }
    assert document["id"].startswith("tsk_")
    assert document["contextId"].startswith("ctx_")
    assert calls.send()["id"] != document["id"]
    assert calls.board.waiting == 2


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "configuration", [{}, {"configuration": None}, {"configuration": {}}, {"configuration": {"blocking": None}}]
)
def test_a_call_waits_for_its_task_unless_it_says_otherwise(configuration: dict[str, object]) -> None:
    calls = Calls()
    message = {"messageId": "msg_1", "role": "user", "parts": [TEXT]}
    later = calls.call("message/send", {"message": message, **configuration})
    assert isinstance(later, Later)
    assert later.task.state is TaskState.SUBMITTED
    calls.board.start_next()
    calls.finish()
    document: Any = later.result()
    assert document["id"] == later.task.id
    assert document["status"] == {"state": "completed"}


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([TEXT], "hello"),
        ([{"text": "hello"}], "hello"),
        ([{"kind": "text", "text": ""}], ""),
        ([TEXT, {"kind": "text", "text": "world\n"}, {"text": "!"}], "hello\nworld\n\n!"),
        ([{"kind": "file", "file": {"uri": "x"}}, TEXT, {"kind": "data", "data": {}}], "hello"),
        ([{"kind": "file", "text": "not this"}, TEXT], "hello"),
        ([{"kind": "Text", "text": "not this"}, TEXT], "hello"),
        ([{"kind": "text"}, TEXT], "hello"),
    ],
)
def test_the_text_parts_joined_by_newlines_are_the_task(parts: list[object], text: str) -> None:
    calls = Calls()
    calls.send(*parts)
    assert calls.next_text() == text


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "parts", [[{"kind": "file", "file": {}}], [{}], [{"kind": "data", "text": "x"}], [{"kind": "text"}]]
)
def test_a_message_without_a_text_part_is_refused_and_no_task(parts: list[object]) -> None:
    calls = Calls()
    message = {"messageId": "msg_1", "role": "user", "parts": parts}
    assert calls.refusal("message/send", {"message": message}).code == -32005
    assert calls.board.waiting == 0


@pytest.mark.spec("M1")
def test_a_context_that_the_caller_names_is_kept() -> None:
    calls = Calls()
    document = calls.send(contextId="ctx_theirs")
    assert document["contextId"] == "ctx_theirs"
    assert calls.get(document["id"])["contextId"] == "ctx_theirs"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("context", [None, ""])
def test_a_context_that_names_nothing_is_a_new_one(context: str | None) -> None:
    assert Calls().send(contextId=context)["contextId"].startswith("ctx_")


@pytest.mark.spec("M1")
def test_a_message_to_a_task_is_refused_and_to_an_unknown_one_not_found() -> None:
    calls = Calls()
    known = calls.send()["id"]
    message = {"messageId": "msg_1", "role": "user", "parts": [TEXT]}
    assert calls.refusal("message/send", {"message": {**message, "taskId": known}}).code == -32004
    assert calls.refusal("message/send", {"message": {**message, "taskId": "tsk_x"}}).code == -32001
    assert calls.board.waiting == 1


@pytest.mark.spec("M1")
@pytest.mark.parametrize("blocking", [True, False])
def test_a_full_queue_answers_at_once_with_a_rejected_task(blocking: bool) -> None:
    calls = Calls(queue_depth=0)
    calls.send()
    calls.board.start_next()
    document = calls.send(blocking=blocking)
    assert document["status"]["state"] == "rejected"
    assert "queue is full" in said(document)
    assert "artifacts" not in document
    assert calls.get(document["id"])["status"]["state"] == "rejected"


@pytest.mark.spec("M1")
def test_a_task_is_shown_in_each_state_it_goes_through() -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    assert calls.get(task_id)["status"] == {"state": "submitted"}
    calls.board.start_next()
    assert calls.get(task_id)["status"] == {"state": "working"}
    calls.finish(result="done\n")
    document = calls.get(task_id)
    assert document["status"] == {"state": "completed"}
    (artifact,) = document["artifacts"]
    assert set(artifact) == {"artifactId", "name", "parts"}
    assert artifact["parts"] == [{"kind": "text", "text": "done\n"}]


@pytest.mark.spec("M1")
def test_a_failed_task_says_why_and_what_it_wrote() -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    calls.board.start_next()
    calls.finish(succeeded=False, result="half", message="exit status 3")
    document = calls.get(task_id)
    assert document["status"]["state"] == "failed"
    assert said(document) == "exit status 3"
    assert document["artifacts"][0]["parts"] == [{"kind": "text", "text": "half"}]


@pytest.mark.spec("M1")
def test_an_empty_result_is_an_artifact() -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    calls.board.start_next()
    calls.finish(result="")
    assert calls.get(task_id)["artifacts"][0]["parts"] == [{"kind": "text", "text": ""}]


@pytest.mark.spec("M1")
def test_a_waiting_task_is_canceled_at_once_and_again() -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    for _ in range(2):
        document = calls.cancel(task_id)
        assert document["status"]["state"] == "canceled"
        assert said(document)
    assert calls.board.start_next() is None


@pytest.mark.spec("M1")
def test_a_blocking_call_hears_that_its_waiting_task_was_canceled() -> None:
    calls = Calls()
    later = calls.send(blocking=True)
    calls.cancel(later.task.id)
    assert later.task.state is TaskState.CANCELED
    assert later.result()["status"]["state"] == "canceled"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("succeeded", [True, False])
def test_canceling_a_running_task_waits_for_its_command_and_is_canceled(succeeded: bool) -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    calls.board.start_next()
    answers = [calls.cancel(task_id), calls.cancel(task_id)]
    assert calls.get(task_id)["status"]["state"] == "working"
    calls.finish(succeeded=succeeded)
    for later in answers:
        assert isinstance(later, Later)
        document: Any = later.result()
        assert (document["id"], document["status"]["state"]) == (task_id, "canceled")
    assert calls.cancel(task_id)["status"]["state"] == "canceled"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("succeeded", [True, False])
def test_a_task_that_is_over_is_not_cancelable_and_stays_as_it_is(succeeded: bool) -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    calls.board.start_next()
    calls.finish(succeeded=succeeded)
    before = calls.get(task_id)["status"]["state"]
    assert calls.refusal("tasks/cancel", {"id": task_id}).code == -32002
    assert calls.get(task_id)["status"]["state"] == before


@pytest.mark.spec("M1")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
@pytest.mark.parametrize("task_id", ["tsk_x", "", "x" * 256])
def test_a_task_that_is_not_there_is_not_found(method: str, task_id: str) -> None:
    calls = Calls()
    calls.send()
    assert calls.refusal(method, {"id": task_id}).code == -32001
    assert calls.board.waiting == 1


@pytest.mark.spec("M1")
@pytest.mark.parametrize("method", ["message/send", "tasks/get", "tasks/cancel"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"id": 5},
        {"id": None},
        {"id": ["swordfish"]},
        {"id": "swordfish" * 29},
        {"id": "swordfish\ud800"},
        {"Id": "swordfish"},
        {"message": "swordfish"},
        {"message": {"messageId": "m", "role": "swordfish", "parts": [TEXT]}},
        {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": ["swordfish"]}]}},
        {"message": {"messageId": "m", "role": "user", "parts": "swordfish"}},
        {"message": {"messageId": "m", "role": "user", "parts": [TEXT]}, "configuration": {"blocking": "swordfish"}},
        {"swordfish": {"message": {}}},
    ],
)
def test_params_of_wrong_types_are_invalid_and_not_repeated(method: str, params: dict[str, object]) -> None:
    calls = Calls()
    refused = calls.refusal(method, params)
    assert refused.code == -32602
    assert refused.message
    assert "swordfish" not in refused.message
    assert calls.board.waiting == 0


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", ["messageId", "contextId", "taskId"])
def test_an_id_that_fills_memory_is_invalid_and_no_task(name: str) -> None:
    calls = Calls()
    message = {"messageId": "msg_1", "role": "user", "parts": [TEXT], name: "x" * 257}
    refused = calls.refusal("message/send", {"message": message})
    assert (refused.code, refused.message.partition(":")[0]) == (-32602, f"message.{name}")
    assert calls.board.waiting == 0


@pytest.mark.spec("M1")
@pytest.mark.parametrize("configuration", [{}, {"configuration": {"blocking": True}}])
def test_where_no_further_caller_may_wait_a_task_is_refused_and_not_taken_in(configuration: dict[str, object]) -> None:
    calls = Calls()
    message = {"messageId": "msg_1", "role": "user", "parts": [TEXT]}
    with pytest.raises(RpcError, match=r"^48 callers wait .*`blocking: false`") as refused:
        calls.call("message/send", {"message": message, **configuration}, crowd=48)
    assert refused.value.code == -32000
    assert calls.board.waiting == 0
    sent = calls.call("message/send", {"message": message, "configuration": {"blocking": False}}, crowd=48)
    assert sent["status"] == {"state": "submitted"}
    assert calls.board.waiting == 1


@pytest.mark.spec("M1")
def test_where_no_further_caller_may_wait_a_task_is_cancelled_all_the_same() -> None:
    calls = Calls()
    task_id = calls.send()["id"]
    calls.board.start_next()
    assert calls.call("tasks/cancel", {"id": task_id}, crowd=48)["status"] == {"state": "working"}
    calls.finish()
    assert calls.call("tasks/cancel", {"id": task_id}, crowd=48)["status"]["state"] == "canceled"


@pytest.mark.spec("M1")
def test_a_refusal_names_the_param_that_is_wrong() -> None:
    message = {"messageId": "m", "role": "user", "parts": [TEXT, {"text": 5}]}
    assert Calls().refusal("message/send", {"message": message}).message.startswith("message.parts.1.text: ")
    assert Calls().refusal("tasks/get", {}).message.startswith("id: ")


@pytest.mark.spec("M1")
def test_the_official_client_reads_a_task_in_every_state() -> None:
    calls = Calls(queue_depth=5)
    done, failed, canceled, working, waiting = (calls.send()["id"] for _ in range(5))
    calls.board.start_next()
    calls.finish(result="the result")
    calls.board.start_next()
    calls.finish(succeeded=False, result="", message="exit status 3")
    calls.cancel(canceled)
    calls.board.start_next()
    calls.board.queue_depth = 0
    rejected = calls.send()["id"]
    expected = {
        done: "completed",
        failed: "failed",
        canceled: "canceled",
        working: "working",
        waiting: "submitted",
        rejected: "rejected",
    }
    read = {task_id: OfficialTask.model_validate(calls.get(task_id)) for task_id in expected}
    assert {task_id: task.status.state.value for task_id, task in read.items()} == expected
    assert read[failed].status.message is not None
    artifacts = read[done].artifacts
    assert artifacts is not None
    part = artifacts[0].parts[0].root
    assert part.model_dump(exclude_none=True) == {"kind": "text", "text": "the result"}
