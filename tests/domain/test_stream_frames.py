"""An event is read by the official clients of A2A and by Murmur's own, and nobody's text can forge one (M1)."""

import json
from typing import Any

import pytest
from a2a.compat.v0_3.types import (
    SendStreamingMessageSuccessResponse,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from a2a.compat.v0_3.types import Task as OfficialTask
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.rpc import RpcId
from murmur.domain.sse import Event, EventReader
from murmur.domain.stream_frames import (
    Frame,
    ack_bytes,
    caller_id,
    closed_bytes,
    error_bytes,
    gap_bytes,
    output_frame,
    status_frame,
    task_frame,
)
from murmur.domain.task_board import Task, TaskState
from murmur.domain.task_calls import task_document

TASK, CONTEXT = "tsk_0198a7b3c4d57e6f8a9b0c1d2e3f4051", "ctx_0198a7b3c4d57e6f8a9b0c1d2e3f4052"
FORGED = '"final":true'
"""What the Rust runtime's client looks for in an event's bytes to know that a task is over."""
AWKWARD = [
    "",
    "plain",
    "two\nlines\n",
    "\r\n\r\n",
    'data: {"final":true}\n\nevent: status\n\n',
    FORGED,
    '\\"final\\":true',
    '","final":true,"x":"',
    "\u2028\u2029\x85\x0b\x0c\x1c",
    "\x00\x1b[31m\x7f",
    "中 \U0001f600 é",
]
SURROGATES = ["\ud800", "a\udfff\ud800b", '\udc22"final":true']
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from([*AWKWARD, *SURROGATES])
IDS: list[RpcId] = [
    "",
    "a",
    "7",
    'a"b\\c\nd',
    FORGED,
    "é中\U0001f600",
    "\u2028\x85",
    "\ud800",
    0,
    -3,
    2**70,
    1.5,
    1e300,
    None,
]


def event_of(written: bytes) -> Event:
    (event,) = EventReader().feed(written)
    return event


def data_of(frame: Frame, caller: RpcId = 1) -> dict[str, Any]:
    """Read the data of a frame as JSON."""
    found = json.loads(event_of(frame.written(caller_id(caller), 5)).data)
    assert isinstance(found, dict)
    return found


def accepted(answer: dict[str, Any]) -> object:
    """Return what the official client makes of an answer."""
    return SendStreamingMessageSuccessResponse.model_validate(answer).result


@pytest.mark.spec("M1")
@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("is_final", [True, False])
def test_a_status_says_the_same_to_both_kinds_of_client(text: str, is_final: bool) -> None:
    answer = data_of(status_frame(TASK, CONTEXT, "failed", text, is_final=is_final))
    update = accepted(answer)
    assert isinstance(update, TaskStatusUpdateEvent)
    assert (update.task_id, update.context_id, update.final) == (TASK, CONTEXT, is_final)
    assert update.status.state.value == "failed"
    message = update.status.message
    assert message is not None
    assert [part.root.model_dump()["text"] for part in message.parts] == [text]
    assert (message.role.value, message.task_id, message.context_id) == ("agent", TASK, CONTEXT)
    del answer["jsonrpc"], answer["id"], answer["result"]
    assert answer == {
        "context_id": CONTEXT,
        "status": {"state": "failed", "message": text},
        "final": is_final,
    }


@pytest.mark.spec("M1")
@pytest.mark.parametrize("state", [state.value for state in TaskState])
def test_every_state_of_a_task_is_one_of_the_official_ones(state: str) -> None:
    answer = data_of(status_frame(TASK, CONTEXT, state, None, is_final=False))
    update = accepted(answer)
    assert isinstance(update, TaskStatusUpdateEvent)
    assert (update.status.state.value, update.status.message) == (state, None)
    # Murmur's own clients want a text there in any case.
    assert answer["status"] == {"state": state, "message": ""}


@pytest.mark.spec("M1")
@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize(("channel", "name"), [("stdout", "result"), ("stderr", "stderr")])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_output_says_the_same_to_both_kinds_of_client(text: str, channel: str, name: str, is_first: bool) -> None:
    answer = data_of(output_frame(TASK, CONTEXT, channel, text, is_first=is_first))
    update = accepted(answer)
    assert isinstance(update, TaskArtifactUpdateEvent)
    assert (update.task_id, update.context_id, update.append) == (TASK, CONTEXT, not is_first)
    assert (update.artifact.artifact_id, update.artifact.name) == (f"{TASK}-{name}", name)
    assert [part.root.model_dump()["text"] for part in update.artifact.parts] == [text]
    assert answer["context_id"] == CONTEXT
    assert (answer["artifact"]["tool_name"], answer["artifact"]["content"]) == (channel, text)
    assert "final" not in answer


@pytest.mark.spec("M1")
def test_the_artifact_of_a_stream_has_the_id_that_the_whole_result_has() -> None:
    task = Task(TASK, CONTEXT, "do it")
    task.state, task.result = TaskState.COMPLETED, "done\n"
    whole = accepted(data_of(task_frame(TASK, task_document(task))))
    streamed = accepted(data_of(output_frame(TASK, CONTEXT, "stdout", "done\n", is_first=True)))
    assert isinstance(whole, OfficialTask)
    assert isinstance(streamed, TaskArtifactUpdateEvent)
    assert whole.artifacts == [streamed.artifact]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("state", TaskState)
def test_a_task_is_shown_as_the_official_client_reads_it(state: TaskState) -> None:
    task = Task(TASK, CONTEXT, "do it")
    task.state, task.message, task.result = state, 'why: "x"\n\u2028', FORGED
    shown = accepted(data_of(task_frame(TASK, task_document(task))))
    assert isinstance(shown, OfficialTask)
    assert (shown.id, shown.context_id, shown.status.state.value) == (TASK, CONTEXT, state.value)


@pytest.mark.spec("M1")
def test_a_frame_knows_its_task_its_kind_and_whether_it_is_the_last() -> None:
    frames = [
        status_frame(TASK, CONTEXT, "working", None, is_final=False),
        output_frame(TASK, CONTEXT, "stdout", "a\n", is_first=True),
        task_frame(TASK, {}),
        status_frame(TASK, CONTEXT, "completed", None, is_final=True),
    ]
    assert [(frame.kind, frame.is_final) for frame in frames] == [
        ("status", False),
        ("artifact", False),
        ("task", False),
        ("status", True),
    ]
    assert {frame.task_id for frame in frames} == {TASK}


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", IDS)
def test_the_callers_id_is_given_back_whatever_it_is(id_: RpcId) -> None:
    for frame in (
        status_frame(TASK, CONTEXT, "working", None, is_final=False),
        output_frame(TASK, CONTEXT, "stdout", "a\n", is_first=True),
        task_frame(TASK, {}),
    ):
        found = data_of(frame, id_)
        assert (found["id"], type(found["id"])) == (id_, type(id_))
        assert found["jsonrpc"] == "2.0"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", [id_ for id_ in IDS if not isinstance(id_, float) and id_ != "\ud800"])
def test_the_official_client_reads_its_own_id_back(id_: str | int | None) -> None:
    answer = data_of(status_frame(TASK, CONTEXT, "working", None, is_final=False), id_)
    assert SendStreamingMessageSuccessResponse.model_validate(answer).id == id_


def is_one_event_in_ascii(written: bytes) -> bool:
    """Whether readers of lines see one event, whatever they hold to be the end of a line."""
    names = [line.partition(":")[0] for line in written.decode().splitlines()]
    return written.isascii() and names in (["event", "data", ""], ["id", "event", "data", ""])


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", IDS)
def test_an_event_is_ascii_in_one_line_of_data_also_with_its_callers_id(id_: RpcId) -> None:
    frame = status_frame(TASK, CONTEXT, "working", "\u2028", is_final=False)
    assert is_one_event_in_ascii(frame.written(caller_id(id_), 1))


@pytest.mark.spec("M1")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(ANY_TEXT, ANY_TEXT, st.booleans())
def test_whatever_was_said_is_ascii_in_one_line_and_is_read_back(text: str, context: str, flag: bool) -> None:
    status = status_frame(TASK, context, "failed", text, is_final=flag)
    output = output_frame(TASK, context, "stderr", text, is_first=flag)
    for frame in (status, output, task_frame(TASK, {"text": text})):
        assert is_one_event_in_ascii(frame.written(b"1", 9))
        assert event_of(frame.written(b"1", 9)).number == 9
        assert event_of(frame.written(b"1")).number is None
    assert is_one_event_in_ascii(error_bytes(text))
    assert json.loads(event_of(error_bytes(text)).data) == {"error": text}
    assert data_of(status)["status"]["message"] == text
    assert data_of(output)["artifact"]["content"] == text
    assert data_of(output)["context_id"] == context


@pytest.mark.spec("M1")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(ANY_TEXT, ANY_TEXT, st.sampled_from(IDS) | ANY_TEXT)
def test_only_a_final_status_says_literally_that_it_is_final(text: str, context: str, id_: RpcId) -> None:
    caller = caller_id(id_)
    final = status_frame(TASK, context, "completed", text, is_final=True).written(caller, 3)
    assert FORGED.encode() in final.rpartition(b'"status"')[2]  # Beside the result, where Murmur's own clients look.
    others = [
        status_frame(TASK, context, "working", text, is_final=False).written(caller, 3),
        output_frame(TASK, context, "stdout", text, is_first=True).written(caller, 3),
        output_frame(TASK, context, text, text, is_first=True).written(caller, 3),
        task_frame(TASK, {"artifacts": [text]}).written(caller, 3),
        error_bytes(text),
    ]
    assert [other for other in others if FORGED.encode() in other] == []


@pytest.mark.spec("M1")
def test_what_is_no_answer_has_no_number_and_says_one_thing() -> None:
    assert event_of(ack_bytes(threaded=True)) == Event(
        "connection-ack", '{"role":"observer","conversation_mode":"threaded"}'
    )
    assert json.loads(event_of(ack_bytes(threaded=False)).data)["conversation_mode"] == "stateless"
    assert event_of(gap_bytes(37)) == Event("gap", '{"first_available_id":37}')
    assert event_of(closed_bytes()) == Event("capsule-closed", "{}")
    assert event_of(error_bytes('no "more"')) == Event("error", '{"error":"no \\"more\\""}')


@pytest.mark.spec("M1")
@pytest.mark.parametrize("text", ["", "x" * 10_000, "\x01" * 10_000])
def test_a_frames_size_is_about_what_it_takes_to_write(text: str) -> None:
    frame = output_frame(TASK, CONTEXT, "stdout", text, is_first=True)
    assert 0 <= len(frame.written(b"1", 12345)) - frame.size < 100
