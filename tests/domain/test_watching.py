"""An event is understood whichever runtime wrote it; what is none means nothing, and no token is repeated (O4, P4)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.door import NoSuchAddress
from murmur.domain.json_text import read_json
from murmur.domain.secret import DoorToken
from murmur.domain.sse import Event, EventReader
from murmur.domain.stream_frames import (
    Frame,
    ack_bytes,
    closed_bytes,
    error_bytes,
    gap_bytes,
    output_frame,
    status_frame,
    task_frame,
)
from murmur.domain.task_board import Task, TaskState
from murmur.domain.task_calls import task_document
from murmur.domain.watching import (
    WATCH_LIMITS,
    BegunSeen,
    ClosedSeen,
    ErrorSeen,
    GapSeen,
    MissedSeen,
    NothingSeen,
    OutputSeen,
    Seen,
    StatusSeen,
    read_event,
    stream_ask,
    watch_ask,
)

TOKEN = DoorToken("mdt1.c3dvcmRmaXNo.bWFj")
TASK, CONTEXT = "tsk_1", "ctx_1"


def of(kind: str, data: object, token: DoorToken | None = None) -> Seen:
    return read_event(Event(kind, data if isinstance(data, str) else json.dumps(data)), token)


def ours(written: bytes | Frame, token: DoorToken | None = None) -> Seen:
    """Read an event of our own door."""
    (event,) = EventReader().feed(written.written(b'"an id"', 3) if isinstance(written, Frame) else written)
    return read_event(event, token)


@pytest.mark.spec("O4")
@pytest.mark.parametrize("message", [None, "why", 'two\n"lines"\u2028'])
@pytest.mark.parametrize(("state", "is_final"), [("working", False), ("completed", True), ("failed", True)])
def test_a_status_is_read_alike_from_either_runtime(message: str | None, state: str, is_final: bool) -> None:
    rust = {
        "id": TASK,
        "context_id": CONTEXT,
        "status": {"state": state, "message": message or ""},
        "final": is_final,
        **({"response": "text"} if state == "completed" else {}),
    }
    assert of("status", rust) == StatusSeen(TASK, state, message, is_final)
    own = status_frame(TASK, CONTEXT, state, message, is_final=is_final)
    assert ours(own) == StatusSeen(TASK, state, message, is_final)


@pytest.mark.spec("O4")
@pytest.mark.parametrize("channel", ["stdout", "stderr"])
@pytest.mark.parametrize("text", ["one\n", "one\ntwo\n", "\n"])
def test_output_is_read_alike_from_either_runtime(channel: str, text: str) -> None:
    artifact = {"tool_name": channel, "content": text, "fence_source": None, "tool_call_id": "1", "is_error": False}
    assert of("artifact", {"id": TASK, "artifact": artifact}) == OutputSeen(TASK, channel, text)
    assert ours(output_frame(TASK, CONTEXT, channel, text, is_first=True)) == OutputSeen(TASK, channel, text)


@pytest.mark.spec("O4")
def test_what_a_rust_sessions_tool_said_has_a_line_of_its_own_and_ours_is_left_as_it_is() -> None:
    artifact = {"tool_name": "bash", "content": "no line end"}
    assert of("artifact", {"id": TASK, "artifact": artifact}) == OutputSeen(TASK, "bash", "no line end\n")
    own = output_frame(TASK, CONTEXT, "stdout", "no line end", is_first=False)
    assert ours(own) == OutputSeen(TASK, "stdout", "no line end")


@pytest.mark.spec("O4")
def test_text_of_a_rust_session_is_its_stdout_as_it_comes() -> None:
    assert of("text", {"id": TASK, "text": "half a sen", "final": False}) == OutputSeen(TASK, "stdout", "half a sen")


@pytest.mark.spec("O4")
@pytest.mark.parametrize("state", TaskState)
def test_a_task_that_is_shown_tells_its_state_and_is_not_its_end(state: TaskState) -> None:
    task = Task(TASK, CONTEXT, "do it")
    task.state, task.message, task.result = state, "why", "all of it\n"
    assert ours(task_frame(TASK, task_document(task))) == StatusSeen(TASK, state.value, "why", is_final=False)


@pytest.mark.spec("O4")
def test_what_is_about_the_stream_is_read_alike_from_either_runtime() -> None:
    assert of("gap", {"first_available_id": 37}) == ours(gap_bytes(37)) == GapSeen(37)
    assert of("lagged", {"missed": 3}) == MissedSeen(3)
    assert of("connection-ack", {"role": "observer"}) == ours(ack_bytes(threaded=True)) == BegunSeen()
    assert of("capsule-closed", {}) == ours(closed_bytes()) == ClosedSeen()
    assert of("error", {"error": "why"}) == ours(error_bytes("why")) == ErrorSeen("why")


@pytest.mark.spec("O4")
@pytest.mark.parametrize("kind", ["thinking", "message", "", "Status", "status ", "task-update", "__class__"])
def test_an_event_of_an_unknown_kind_means_nothing(kind: str) -> None:
    rust = {"id": TASK, "status": {"state": "working", "message": ""}, "final": False, "text": "a"}
    assert of(kind, rust) == NothingSeen()


@pytest.mark.spec("O4")
@pytest.mark.parametrize("reason", [None, 7, "", [], {"a": 1}])
def test_a_door_that_ends_a_stream_for_no_reason_is_said_to_have_said_none(reason: object) -> None:
    assert of("error", {"error": reason}) == of("error", "no JSON") == ErrorSeen("it did not say why")


GOOD_STATUS: dict[str, Any] = {"id": TASK, "status": {"state": "working", "message": ""}, "final": False}
HOSTILE = ["", "{", "null", "7", "[]", '"text"', "NaN", '{"final":', "\x00", "\ufffd", "[" * 100_000, "9" * 100_000]


@pytest.mark.spec("O4")
@pytest.mark.parametrize("data", [*HOSTILE, '{"result":' * 50_000, "x" * 2_000_000], ids=lambda data: data[:9])
@pytest.mark.parametrize("kind", ["status", "task", "artifact"])
def test_what_is_no_json_object_means_nothing(kind: str, data: str) -> None:
    assert of(kind, data) == NothingSeen()


@pytest.mark.spec("O4")
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:9])
def test_what_is_no_json_object_says_nothing_of_itself(data: str) -> None:
    assert of("text", data) == OutputSeen("", "stdout", "")
    assert of("gap", data) == GapSeen(0)
    assert of("lagged", data) == MissedSeen(0)
    assert of("capsule-closed", data) == ClosedSeen()


@pytest.mark.spec("O4")
@pytest.mark.parametrize("kind", ["gap", "lagged"])
@pytest.mark.parametrize("number", [None, "7", 7.5, [], {}, True])
def test_what_is_no_number_counts_as_none(kind: str, number: object) -> None:
    seen = of(kind, {"first_available_id": number, "missed": number})
    assert seen in (GapSeen(0), MissedSeen(0))


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "change",
    [
        {"id": 7},
        {"id": None},
        {"status": "working"},
        {"status": {}},
        {"status": {"state": None}},
        {"status": ["state"]},
        {"final": None},
        {"final": "true"},
        {"final": 1},
    ],
)
def test_a_status_of_wrong_types_means_nothing(change: dict[str, object]) -> None:
    assert of("status", GOOD_STATUS) == StatusSeen(TASK, "working", None, is_final=False)
    assert of("status", {**GOOD_STATUS, **change}) == NothingSeen()


@pytest.mark.spec("O4")
@pytest.mark.parametrize("message", [7, None, [], {"parts": 7}, {"parts": [7, {}, {"text": 7}]}])
def test_a_message_of_wrong_types_is_none(message: object) -> None:
    rust = {**GOOD_STATUS, "status": {"state": "working", "message": message}}
    result = {"taskId": TASK, "status": {"state": "working", "message": message}, "final": False}
    assert of("status", rust) == of("status", {"result": result}) == StatusSeen(TASK, "working", None, is_final=False)
    assert of("task", {"result": {"id": TASK, **result}}) == StatusSeen(TASK, "working", None, is_final=False)


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "artifact", [None, 7, "a", [], {}, {"tool_name": "a"}, {"content": "a"}, {"tool_name": 7, "content": "a"}]
)
def test_output_of_wrong_types_means_nothing(artifact: object) -> None:
    assert of("artifact", {"id": TASK, "artifact": artifact}) == NothingSeen()
    assert of("artifact", {"result": {"taskId": TASK, "artifact": artifact}}) == NothingSeen()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "result",
                    "taskId",
                    "status",
                    "state",
                    "message",
                    "parts",
                    "text",
                    "final",
                    "artifact",
                    "name",
                    "tool_name",
                    "content",
                    "error",
                    "missed",
                    "first_available_id",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)
KINDS = ["status", "task", "artifact", "text", "gap", "lagged", "capsule-closed", "error", "connection-ack", "x"]


@pytest.mark.spec("O4")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(st.sampled_from(KINDS), JSON)
def test_whatever_a_door_says_is_read_as_something_with_the_right_types(kind: str, data: object) -> None:
    seen = of(kind, data)
    match seen:
        case StatusSeen(task_id, state, message, is_final):
            assert (type(task_id), type(state), type(is_final)) == (str, str, bool)
            assert message is None or isinstance(message, str)
        case OutputSeen(task_id, channel, text):
            assert {type(task_id), type(channel), type(text)} == {str}
        case GapSeen(number) | MissedSeen(number):
            assert type(number) is int
        case ErrorSeen(reason):
            assert isinstance(reason, str)
            assert reason
        case BegunSeen() | ClosedSeen() | NothingSeen():
            pass


def escaped(text: str) -> str:
    """Write a text as JSON does that has an escape for each character."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


@pytest.mark.spec("O4", "P3", "I3")
@pytest.mark.parametrize("written", [str, escaped])
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("status", '{"id":"a T","status":{"state":"T b","message":"T"},"final":true}'),
        ("status", '{"result":{"taskId":"T","status":{"state":"T","message":{"parts":[{"text":"T"}]}},"final":true}}'),
        ("task", '{"result":{"id":"T","status":{"state":"T","message":{"parts":[{"text":"T"},{"text":"T"}]}}}}'),
        ("artifact", '{"id":"T","artifact":{"tool_name":"T","content":"Bearer T\\n"}}'),
        ("artifact", '{"result":{"taskId":"T","artifact":{"name":"T","parts":[{"text":"T"}]}}}'),
        ("text", '{"id":"T","text":"T","final":false}'),
        ("error", '{"error":"T is not welcome"}'),
    ],
)
def test_a_token_that_a_door_repeats_is_taken_out_however_it_is_written(kind: str, data: str, written: Any) -> None:
    secret = TOKEN.expose()
    seen = of(kind, data.replace("T", written(secret)), TOKEN)
    assert secret not in repr(seen)
    assert str(TOKEN) in repr(seen)
    # And nothing else is.
    assert secret in repr(of(kind, data.replace("T", written(secret)), DoorToken("mdt1.another.token")))


@pytest.mark.spec("O4", "P3", "I3")
def test_a_token_in_pieces_that_become_one_text_is_taken_out_as_well() -> None:
    first, second = TOKEN.expose()[:9], TOKEN.expose()[9:]
    parts = [{"text": first}, {"text": second}]
    result = {"taskId": TASK, "status": {"state": "failed", "message": {"parts": parts}}, "final": True}
    assert TOKEN.expose() not in repr(of("status", {"result": result}, TOKEN))


@pytest.mark.spec("O4")
def test_watching_asks_for_all_that_is_kept_or_what_is_behind_an_event() -> None:
    for after, header in ((None, "0"), (0, "0"), (37, "37")):
        ask = watch_ask("localhost:7", TOKEN, after)
        assert (ask.method, ask.target, ask.token) == ("POST", "/", TOKEN)
        assert dict(ask.headers) == {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Last-Event-ID": header,
        }
        assert read_json(ask.body) == {"jsonrpc": "2.0", "id": 1, "method": "stream/watch", "params": {}}


@pytest.mark.spec("O4")
def test_a_task_that_is_streamed_is_asked_for_without_a_number() -> None:
    ask = stream_ask("localhost:7", None, "do it", "msg_1", "ctx_1")
    assert dict(ask.headers) == {"Content-Type": "application/json", "Accept": "text/event-stream"}
    call = read_json(ask.body)
    assert isinstance(call, dict)
    assert call["method"] == "message/stream"
    assert call["params"]["message"]["parts"] == [{"kind": "text", "text": "do it"}]
    assert (call["params"]["message"]["messageId"], call["params"]["message"]["contextId"]) == ("msg_1", "ctx_1")


@pytest.mark.spec("O4", "P4")
@pytest.mark.parametrize(
    "make", [lambda: watch_ask("192.0.2.7:1", TOKEN, None), lambda: watch_ask("nobody", None, None)]
)
def test_where_a_token_must_not_go_nothing_is_asked(make: Any) -> None:
    with pytest.raises(NoSuchAddress) as refusal:
        make()
    assert TOKEN.expose() not in str(refusal.value)


@pytest.mark.spec("O4")
def test_a_stream_may_last_for_ever_and_is_lost_after_three_silences() -> None:
    assert WATCH_LIMITS.total == float("inf")
    assert (WATCH_LIMITS.connect, WATCH_LIMITS.read) == (2.0, 45.0)
