"""What the payloads of a door look like, as models (I3, and the wire facts of the door)."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from murmur.domain.wire import (
    PAYLOADS,
    ControlRequest,
    ControlStatus,
    ReadinessLine,
    Residue,
    SendParams,
    StopResult,
    TaskDocument,
    TaskParams,
    Tokens,
)

TEXT_PART = {"kind": "text", "text": "hello"}


def message(**changed: object) -> dict[str, object]:
    said = {"messageId": "msg_1", "role": "user", "parts": [TEXT_PART], **changed}
    return {"message": {name: value for name, value in said.items() if value is not ...}}


def schema_properties(model: type[BaseModel]) -> set[str]:
    return set(model.model_json_schema(by_alias=True)["properties"])


@pytest.mark.spec("M1")
def test_the_message_of_the_official_client_is_read() -> None:
    params = SendParams.model_validate(
        {**message(kind="message", contextId="ctx_1", taskId="tsk_1"), "configuration": {"blocking": False}}
    )
    assert params.message.context_id == "ctx_1"
    assert params.message.task_id == "tsk_1"
    assert params.configuration is not None
    assert params.configuration.blocking is False


@pytest.mark.spec("M1")
def test_what_is_not_known_is_ignored_wherever_it_stands() -> None:
    odd = {"later": {"deep": [1]}}
    params = SendParams.model_validate(
        {
            **message(parts=[{**TEXT_PART, **odd, "metadata": {}}], extensions=[], **odd),
            "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 0, **odd},
            "metadata": {},
            **odd,
        }
    )
    assert params.message.parts[0].text == "hello"
    assert params.configuration is not None
    assert params.configuration.blocking is None


@pytest.mark.spec("M1")
@pytest.mark.parametrize("configuration", [None, {}, {"blocking": None}])
def test_null_is_as_good_as_nothing(configuration: object) -> None:
    params = SendParams.model_validate({**message(contextId=None, taskId=None), "configuration": configuration})
    assert params.message.context_id is None
    assert (params.configuration and params.configuration.blocking) is None


@pytest.mark.spec("M1")
def test_a_message_of_ten_thousand_parts_and_ids_of_256_characters_are_read() -> None:
    name = "\u4e2d" * 256
    params = SendParams.model_validate(message(parts=[TEXT_PART] * 10_000, messageId=name, contextId=name, taskId=name))
    assert len(params.message.parts) == 10_000
    assert params.message.context_id == name


@pytest.mark.spec("M1")
def test_reading_parts_ends_at_the_first_that_is_wrong() -> None:
    # One error for each of half a million took half a gigabyte.
    with pytest.raises(ValidationError) as refusal:
        SendParams.model_validate(message(parts=[1] * 5000))
    assert refusal.value.error_count() == 1


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": None},
        {"message": "hello"},
        {"message": [TEXT_PART]},
        message(messageId=...),
        message(messageId=5),
        message(messageId=None),
        message(role=...),
        message(role="User"),
        message(role="system"),
        message(role=None),
        message(role=["user"]),
        message(parts=...),
        message(parts=[]),
        message(parts=None),
        message(parts=TEXT_PART),
        message(parts="hello"),
        message(parts=[None]),
        message(parts=["hello"]),
        message(parts=[TEXT_PART, 5]),
        message(parts=[{"kind": "text", "text": 5}]),
        message(parts=[{"kind": 5, "text": "hello"}]),
        message(contextId=5),
        message(taskId=True),
        {**message(), "configuration": []},
        {**message(), "configuration": {"blocking": "false"}},
        {**message(), "configuration": {"blocking": 0}},
        {**message(), "configuration": {"blocking": 1}},
        message(parts=[TEXT_PART] * 10_001),
        *(message(**{name: "x" * 257}) for name in ("messageId", "contextId", "taskId")),
    ],
    ids=range(32),
)
def test_a_message_of_wrong_types_is_not_read(params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SendParams.model_validate(params)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("id_", [None, 5, True, b"tsk_1", ["tsk_1"], {"id": "tsk_1"}])
def test_a_task_is_named_by_a_text(id_: object) -> None:
    with pytest.raises(ValidationError):
        TaskParams.model_validate({"id": id_})
    assert TaskParams.model_validate({"id": "tsk_1"}).id == "tsk_1"
    with pytest.raises(ValidationError):
        TaskParams.model_validate({"id": "x" * 257})


@pytest.mark.spec("M1")
@pytest.mark.parametrize("op", ["status", "pause", "resume", "drain"])
def test_the_four_operations_are_read(op: str) -> None:
    assert ControlRequest.model_validate({"op": op}).op == op


@pytest.mark.spec("M1")
@pytest.mark.parametrize("op", ["", "Status", "stop", None, 5, ["status"], {"status": 1}])
def test_another_operation_is_not_read(op: object) -> None:
    with pytest.raises(ValidationError):
        ControlRequest.model_validate({"op": op})


@pytest.mark.spec("I3")
@pytest.mark.parametrize("model", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(
    "held",
    [
        {"swordfish": 1, "id": ["swordfish"]},
        "swordfish",
        ["swordfish"],
        {"message": "swordfish", "id": ["swordfish"], "op": "swordfish", "tokens": "swordfish", "state": "swordfish"},
        {
            "tokens": {"operator": ["swordfish"]},
            "error": ["swordfish"],
            "jsonrpc": "swordfish",
            "kind": "swordfish",
            "id": [1],
        },
    ],
    ids=range(5),
)
def test_no_error_of_a_payload_quotes_what_was_read(model: type[BaseModel], held: object) -> None:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(held)
    assert "swordfish" not in str(refusal.value)
    assert "swordfish" not in repr(refusal.value)


@pytest.mark.spec("M1")
def test_an_unfinished_task_is_written_without_what_it_has_not() -> None:
    read = TaskDocument.model_validate({"id": "tsk_1", "contextId": "ctx_1", "status": {"state": "submitted"}})
    assert read.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "kind": "task",
        "id": "tsk_1",
        "contextId": "ctx_1",
        "status": {"state": "submitted"},
    }


@pytest.mark.spec("M1")
@pytest.mark.parametrize("state", ["Submitted", "cancelled", "unknown", "auth-required", "", None])
def test_a_task_has_one_of_the_seven_states(state: object) -> None:
    with pytest.raises(ValidationError):
        TaskDocument.model_validate({"id": "tsk_1", "contextId": "ctx_1", "status": {"state": state}})


@pytest.mark.spec("O2")
def test_the_names_of_a_stop_answer_are_the_wires() -> None:
    assert schema_properties(StopResult) == {"canceled", "residue"}
    assert schema_properties(Residue) == {"kind", "delegation_id", "capsule", "version"}


@pytest.mark.spec("M1")
def test_the_names_of_a_readiness_line_and_a_control_answer_are_the_wires() -> None:
    assert schema_properties(ReadinessLine) == {
        "formation_id",
        "name",
        "pid",
        "records_dir",
        "session_id",
        "tokens",
        "url",
        "version",
        "workdir",
    }
    assert schema_properties(ControlStatus) == {"state", "task", "waiting"}


@pytest.mark.spec("M1")
def test_a_readiness_lines_tokens_are_the_operators_and_any_others() -> None:
    assert Tokens.model_validate({"operator": "a", "watcher": "b"}).model_dump() == {"operator": "a", "watcher": "b"}
    with pytest.raises(ValidationError):
        Tokens.model_validate({"watcher": "b"})


@pytest.mark.spec("M1")
@pytest.mark.parametrize("name", PAYLOADS)
def test_each_payload_has_a_schema_that_is_json(name: str) -> None:
    schema: dict[str, Any] = PAYLOADS[name].model_json_schema(by_alias=True)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert schema["type"] == "object"
    assert schema["description"]
    assert name == name.lower().strip()
    assert all("_" not in each for each in schema["properties"]) or name == "readiness-line"


@pytest.mark.spec("M1")
def test_each_payload_is_there_once() -> None:
    assert len(set(PAYLOADS.values())) == len(PAYLOADS)
