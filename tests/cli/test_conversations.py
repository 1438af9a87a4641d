"""`lifecycle.conversation: threaded`: a command reads what was said before it in its conversation (M1)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Hosted, Hosts, mur, mur_json
from tests.cli.test_tasks import call, send

TELLS = 'cat "$MURMUR_CONVERSATION" >&2; cp "$MURMUR_CONVERSATION" read; stat -c %a "$MURMUR_CONVERSATION" >mode; '


@pytest.fixture
def start(hosts: Hosts, tmp_path: Path) -> Callable[..., Hosted]:
    """Start a session whose command is a shell script, threaded unless it is said otherwise."""

    def started(script: str, conversation: str = "threaded", **environment: str) -> Hosted:
        document = {
            "name": "worker",
            "version": "0.1.0",
            "process": {"command": ["sh", "-c", script]},
            "lifecycle": {
                "task_acceptance": "queue",
                "after_task": "sleep",
                "queue_depth": 5,
                "conversation": conversation,
            },
            "capabilities": {"env": {"allow": ["MURMUR_CONVERSATION"]}},
        }
        path = tmp_path / "murmur.yaml"
        path.write_text(json.dumps(document))
        return hosts.from_manifest(path, **environment)

    return started


def send_in(hosted: Hosted, context: str, text: str) -> Any:
    message = {"messageId": "m", "role": "user", "parts": [{"text": text}], "contextId": context}
    return call(hosted, "message/send", {"message": message})["result"]


def turns(path: Path) -> list[tuple[str, str, str]]:
    return [
        (turn["role"], turn["text"], turn["task_id"]) for turn in map(json.loads, path.read_text("utf-8").splitlines())
    ]


@pytest.mark.spec("M1")
def test_the_earlier_turns_of_a_conversation_are_read_in_order_and_the_task_on_stdin(
    start: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = start(TELLS + "tr a-z A-Z")
    first = send_in(hosted, "trip", "one")
    assert (tmp_path / "read").read_text() == ""
    send_in(hosted, "other", "two")
    assert (tmp_path / "read").read_text() == ""
    third = send_in(hosted, "trip", "three\n")
    assert third["artifacts"][0]["parts"][0]["text"] == "THREE\n"
    assert turns(tmp_path / "read") == [("user", "one", first["id"]), ("agent", "ONE", first["id"])]
    send_in(hosted, "trip", "four")
    assert turns(tmp_path / "read")[2:] == [("user", "three\n", third["id"]), ("agent", "THREE\n", third["id"])]
    assert (tmp_path / "mode").read_text() == "600\n"
    files = list((hosted.records / "conversations").iterdir())
    assert len(files) == 2
    assert all(file.suffix == ".jsonl" and len(file.stem) == 64 for file in files)


@pytest.mark.spec("M1")
def test_what_failed_was_never_said(start: Callable[..., Hosted], tmp_path: Path) -> None:
    hosted = start(TELLS + 'read -r word; echo "$word"; [ "$word" = well ]')
    assert send_in(hosted, "c", "ill\n")["status"]["state"] == "failed"
    assert send_in(hosted, "c", "well\n")["status"]["state"] == "completed"
    assert (tmp_path / "read").read_text() == ""
    send_in(hosted, "c", "well\n")
    assert [text for _, text, _ in turns(tmp_path / "read")] == ["well\n", "well\n"]


@pytest.mark.spec("M1")
def test_a_task_without_a_context_begins_a_conversation_of_its_own(
    start: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = start(TELLS + "cat")
    first = send(hosted, "one")
    send(hosted, "two")
    assert (tmp_path / "read").read_text() == ""
    send_in(hosted, first["contextId"], "three")
    assert [text for _, text, _ in turns(tmp_path / "read")] == ["one", "one"]


@pytest.mark.spec("M1")
def test_mur_send_goes_on_with_the_conversation_that_it_names(start: Callable[..., Hosted], tmp_path: Path) -> None:
    start(TELLS + "cat")
    for text in ("one", "two"):
        assert mur("send", "@1", "--context", "../../trip", text).stdout == f"{text}\n"
    assert [text for _, text, _ in turns(tmp_path / "read")] == ["one", "one"]
    refused = mur("send", "@1", "--context", "x" * 257, "three")
    assert refused.returncode != 0
    assert "contextId" in refused.stderr


@pytest.mark.spec("M1")
def test_a_command_that_spoils_the_file_spoils_it_for_itself_alone(
    start: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = start(TELLS + 'echo spoilt >"$MURMUR_CONVERSATION"; cat')
    for text in ("one", "two"):
        send_in(hosted, "c", text)
    assert [text for _, text, _ in turns(tmp_path / "read")] == ["one", "one"]


@pytest.mark.spec("M1")
def test_a_conversation_that_cannot_be_written_fails_its_task_and_not_the_session(
    start: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = start("cat")
    folder = hosted.records / "conversations"
    folder.symlink_to(tmp_path)
    failed = send_in(hosted, "c", "one")
    assert failed["status"]["state"] == "failed"
    reason = failed["status"]["message"]["parts"][0]["text"]
    assert reason == f"cannot make {folder}: it is a symbolic link"
    assert not list(tmp_path.glob("*.jsonl"))
    folder.unlink()
    assert send_in(hosted, "c", "two")["status"]["state"] == "completed"


@pytest.mark.spec("M1")
def test_without_it_nothing_is_remembered_and_the_variable_is_nobody_else_s(start: Callable[..., Hosted]) -> None:
    hosted = start('echo "${MURMUR_CONVERSATION-none}"', "none", MURMUR_CONVERSATION="of a session around it")
    for _ in range(2):
        assert send_in(hosted, "c", "x")["artifacts"][0]["parts"][0]["text"] == "none\n"
    assert not (hosted.records / "conversations").exists()


@pytest.mark.spec("M1")
def test_a_plain_command_does_not_get_the_conversation_of_a_session_around_it(hosts: Hosts, tmp_path: Path) -> None:
    script = f'echo "${{MURMUR_CONVERSATION-none}}" >{tmp_path}/told'
    assert hosts.start("sh", "-c", script, MURMUR_CONVERSATION="x").wait() == 0
    assert (tmp_path / "told").read_text() == "none\n"


@pytest.mark.spec("M1")
def test_a_task_that_was_given_at_the_start_counts_as_any_other(hosts: Hosts, tmp_path: Path) -> None:
    manifest = tmp_path / "murmur.yaml"
    lifecycle = {"task_acceptance": "queue", "after_task": "sleep", "conversation": "threaded"}
    manifest.write_text(
        json.dumps({"name": "a", "version": "1", "process": {"command": ["cat"]}, "lifecycle": lifecycle})
    )
    hosted = hosts.from_manifest(manifest, "--task", "one")
    assert mur_json("send", "@1", "two")["state"] == "completed"
    files = list((hosted.records / "conversations").iterdir())
    assert [file.read_text() for file in files] == ["", ""]
