"""What commands and sessions do to each other's files leaves every task with its own text and its own result (M1)."""

import json
import os
import resource
import signal
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Hosted, Hosts
from tests.cli.test_tasks import QUEUE, call, send

SINGLE = ("--lifecycle-task-acceptance", "single")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def start(hosts: Hosts, work: Path) -> Callable[..., Hosted]:
    """Start a session in the one work folder."""

    def started(script: str, *options: str) -> Hosted:
        return hosts.start("sh", "-c", script, options=("--workdir", str(work), *(options or QUEUE)))

    return started


def text_of(task: Any) -> str:
    return str(task["artifacts"][0]["parts"][0]["text"])


def reason_of(task: Any) -> str:
    return str(task["status"]["message"]["parts"][0]["text"])


# Slow: it starts two sessions, and each has its first task.
@pytest.mark.slow
@pytest.mark.spec("M1")
def test_a_command_reads_its_own_task_also_when_another_session_works_in_its_folder(
    start: Callable[..., Hosted], work: Path
) -> None:
    os.mkfifo(work / "up")
    os.mkfifo(work / "gate")
    first = start("echo up >up; read word <gate; cat", *SINGLE)
    send(first, "of the first", blocking=False)
    assert (work / "up").read_text() == "up\n"
    assert text_of(send(start("cat"), "a secret of the second")) == "a secret of the second"
    (work / "gate").write_text("go\n")
    assert first.wait() == 0
    assert (first.records / "out" / "result.txt").read_text() == "of the first"


@pytest.mark.spec("M1")
def test_a_task_is_written_over_no_file_that_a_link_leads_to(
    start: Callable[..., Hosted], work: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (work / "task.md").symlink_to(target)
    assert text_of(send(start("cat task.md"), "from a caller")) == "from a caller"
    assert target.read_text() == "kept"
    assert (work / "task.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("M1")
def test_a_task_that_has_no_place_in_the_work_folder_fails_and_not_the_session(
    start: Callable[..., Hosted], work: Path
) -> None:
    (work / "task.md").mkdir()
    hosted = start("cat")
    failed = send(hosted, "x")
    assert failed["status"]["state"] == "failed"
    assert reason_of(failed) == f"cannot make {work}/task.md: is a directory"
    (work / "task.md").rmdir()
    assert send(hosted, "x")["status"] == {"state": "completed"}


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize(
    "done",
    [
        "for each in out/result_*; do rm $each; mkdir $each; done",
        "for each in out/result_*; do rm $each; mkfifo $each; done",
        "for each in out/result_*; do ln -sf /etc/passwd $each; done",
        "rm -r out",
        "rm -r out logs trace.jsonl",
        "mkdir out/result.txt",
    ],
)
def test_a_result_is_what_was_written_whatever_became_of_its_file(start: Callable[..., Hosted], done: str) -> None:
    hosted = start(f'echo one; cd "$MURMUR_RECORDS_DIR"; {done}; echo two')
    task = send(hosted, "x")
    assert (task["status"], text_of(task)) == ({"state": "completed"}, "one\ntwo\n")
    alias = hosted.records / "out" / "result.txt"
    assert alias.is_dir() if "mkdir out" in done else not (alias.exists() or alias.is_symlink())
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0


@pytest.mark.spec("M1", "M5")
def test_a_fifo_in_a_files_place_freezes_nothing(start: Callable[..., Hosted]) -> None:
    names = "logs/stderr.log logs/host.log trace.jsonl"
    hosted = start(f'cd "$MURMUR_RECORDS_DIR"; for each in {names}; do rm $each; mkfifo $each; done; echo done')
    assert text_of(send(hosted, "x")) == "done\n"
    failed = send(hosted, "x")
    assert failed["status"]["state"] == "failed"
    assert reason_of(failed) == f"cannot make {hosted.records}/logs/stderr.log: it is not a regular file"
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert hosted.process.stderr is not None
    warnings = set(hosted.process.stderr.read().splitlines())
    assert warnings == {f"warning: the trace of {hosted.records} could not be written: it is not a regular file"}


@pytest.mark.spec("M5", "O2")
@pytest.mark.parametrize("method", ["tasks/cancel", "session/stop"])
def test_a_session_whose_one_task_was_canceled_is_a_failure(
    start: Callable[..., Hosted], work: Path, method: str
) -> None:
    os.mkfifo(work / "up")
    hosted = start("echo up >up; exec sleep 1000", *SINGLE)
    task = send(hosted, "x", blocking=False)
    (work / "up").read_text()
    assert "result" in call(hosted, method, {"id": task["id"]} if method == "tasks/cancel" else {})
    assert hosted.wait() == 1
    assert hosted.process.stderr is not None
    assert hosted.process.stderr.read() == f"error[E-RUN-040]: task {task['id']} was canceled\n"
    events = [json.loads(line) for line in (hosted.records / "trace.jsonl").read_text().splitlines()]
    assert events[-1]["exit_status"] == 1


# Slow: a door that could not accept a caller tries again after a second.
@pytest.mark.slow
def test_a_door_without_descriptors_for_what_a_task_needs_answers_so(start: Callable[..., Hosted]) -> None:
    hosted = start("cat")
    pid = hosted.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(1000) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free + 1, before[1]))  # Enough for one connection.
    with pytest.raises(urllib.error.HTTPError) as refused:
        send(hosted, "x")
    assert (refused.value.code, json.load(refused.value)["error"]) == (503, "unavailable")
    refused.value.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert text_of(send(hosted, "x")) == "x"
