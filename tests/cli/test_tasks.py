"""Tasks at the door of a real session, sent by `mur`, by the official client, and by rude callers."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer

from murmur.adapters.doors import HttpDoors
from murmur.cli import wiring
from murmur.cli.cancel import cancel as cancel_task
from murmur.cli.send import send as send_task
from murmur.domain.door import AskLimits
from tests.adapters.doors_for_tests import ScriptedDoor, answering, http, silent
from tests.cli.conftest import MUR, SPAWNER, Hosted, Hosts, mur, mur_json, wait_for_exit, write_record

QUEUE = ("--lifecycle-task-acceptance", "queue", "--lifecycle-after-task", "sleep")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def start(hosts: Hosts, work: Path) -> Callable[..., Hosted]:
    """Start a session that runs a shell script for each of its tasks."""

    def started(script: str, *options: str) -> Hosted:
        return hosts.start("sh", "-c", script, options=("--workdir", str(work), *(options or QUEUE)))

    return started


def capsule(tmp_path: Path, **more: object) -> Path:
    """Write a manifest; JSON is YAML."""
    document = {
        "name": "worker",
        "version": "0.1.0",
        "process": {"command": ["cat"]},
        "lifecycle": {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": 5},
    }
    path = tmp_path / "murmur.yaml"
    path.write_text(json.dumps(document | more))
    return path


def call(hosted: Hosted, method: str, params: object, token: str | None = None) -> Any:
    """Call one JSON-RPC method and return the whole answer."""
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(f"http://{hosted.ready['url']}/", body, headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def send(hosted: Hosted, text: str, *, blocking: bool = True) -> Any:
    message = {"messageId": "msg_1", "role": "user", "parts": [{"kind": "text", "text": text}]}
    return call(hosted, "message/send", {"message": message, "configuration": {"blocking": blocking}})["result"]


def get(hosted: Hosted, task: Any) -> Any:
    return call(hosted, "tasks/get", {"id": task["id"]})["result"]


@pytest.mark.spec("M1")
def test_a_task_runs_the_command_with_its_text_and_gives_back_what_it_prints(
    start: Callable[..., Hosted], work: Path
) -> None:
    hosted = start('cat; echo; cat task.md; echo "$MURMUR_SESSION_ID"')
    task = send(hosted, "hello\nworld")
    result = f"hello\nworld\nhello\nworld{hosted.session_id}\n"
    assert task["status"] == {"state": "completed"}
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": result}]
    assert (work / "task.md").read_text() == "hello\nworld"
    for name in (f"result_{task['id']}.txt", "result.txt"):
        assert (hosted.records / "out" / name).read_text() == result
    assert get(hosted, task) == task


@pytest.mark.spec("M1")
def test_a_command_that_fails_fails_its_task_and_not_the_session(start: Callable[..., Hosted]) -> None:
    hosted = start("read word; echo half; echo first >&2; echo why >&2; [ $word = well ]")
    failed = send(hosted, "ill")
    assert failed["status"]["state"] == "failed"
    text = failed["status"]["message"]["parts"][0]["text"]
    assert text == "the command ended with exit status: 1; its last stderr lines were:\nfirst\nwhy"
    assert failed["artifacts"][0]["parts"][0]["text"] == "half\n"
    assert send(hosted, "well")["status"] == {"state": "completed"}


@pytest.mark.spec("M1")
def test_a_command_that_is_not_there_fails_its_task_and_not_the_session(hosts: Hosts, work: Path) -> None:
    hosted = hosts.start("no-such-command-anywhere", options=("--workdir", str(work), *QUEUE))
    for _ in range(2):
        status = send(hosted, "x")["status"]
        assert status["state"] == "failed"
        assert status["message"]["parts"][0]["text"] == "command not found: no-such-command-anywhere"


@pytest.mark.spec("M1")
def test_output_that_floods_or_is_no_text_is_kept_whole_and_answered_bounded(start: Callable[..., Hosted]) -> None:
    hosted = start(r"printf '\377\376'; yes | head -c 3000000")
    task = send(hosted, "x")
    text = task["artifacts"][0]["parts"][0]["text"]
    assert text.startswith("\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}y\n")
    assert text.endswith(f"[the whole result is in out/result_{task['id']}.txt]")
    assert len(text) < 1_100_000
    assert (hosted.records / "out" / f"result_{task['id']}.txt").stat().st_size == 3_000_002


@pytest.mark.spec("M1")
def test_a_command_that_closes_its_stdin_or_leaves_a_process_behind_ends_its_task(
    start: Callable[..., Hosted], work: Path
) -> None:
    hosted = start("exec <&-; sleep 1000 & echo $! > left; echo done")
    assert send(hosted, "x" * 1_000_000)["status"] == {"state": "completed"}
    assert wait_for_exit(int((work / "left").read_text()), 0)


@pytest.mark.spec("M5")
def test_a_session_of_one_task_ends_after_it_with_its_outcome(start: Callable[..., Hosted]) -> None:
    well = start("cat", "--lifecycle-task-acceptance", "single")
    assert send(well, "x")["status"] == {"state": "completed"}
    assert well.wait() == 0
    ill = start("exit 3", "--lifecycle-task-acceptance", "single")
    assert send(ill, "x")["status"]["state"] == "failed"
    assert ill.wait() == 1
    assert ill.process.stderr is not None
    assert "error[E-RUN-040]: task tsk_" in ill.process.stderr.read()


@pytest.mark.spec("M1")
def test_more_tasks_than_the_queue_holds_are_rejected(hosts: Hosts, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    manifest = capsule(tmp_path, process={"command": ["sh", "-c", f"cat {gate} >/dev/null; cat"]})
    hosted = hosts.from_manifest(manifest)
    states = [send(hosted, str(number), blocking=False)["status"]["state"] for number in range(8)]
    assert states == ["submitted"] * 6 + ["rejected"] * 2
    writer = os.open(gate, os.O_WRONLY)
    os.close(writer)


@pytest.mark.spec("E1", "K4")
def test_a_running_task_is_cancelled_with_its_whole_group_and_again_to_the_same_end(
    start: Callable[..., Hosted], work: Path
) -> None:
    os.mkfifo(work / "up")
    hosted = start("sleep 1000 & echo $! >pid; echo up >up; wait; echo never")
    task = send(hosted, "x", blocking=False)
    assert (work / "up").read_text() == "up\n"
    assert get(hosted, task)["status"]["state"] == "working"
    for _ in range(2):
        canceled = call(hosted, "tasks/cancel", {"id": task["id"]})["result"]
        assert canceled["status"]["state"] == "canceled"
    assert wait_for_exit(int((work / "pid").read_text()), 0)


def test_two_cancels_racing_the_natural_end_leave_one_terminal_state(start: Callable[..., Hosted]) -> None:
    hosted = start("exit 0")
    for _ in range(20):
        task = send(hosted, "x", blocking=False)
        seen: list[str] = []

        def cancel(task_id: str = task["id"], seen: list[str] = seen) -> None:
            answer = call(hosted, "tasks/cancel", {"id": task_id})
            seen.append(answer["result"]["status"]["state"] if "result" in answer else str(answer["error"]["code"]))

        racers = [threading.Thread(target=cancel) for _ in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        state = get(hosted, task)["status"]["state"]
        assert state in ("completed", "canceled")
        assert set(seen) <= ({"canceled"} if state == "canceled" else {"-32002"})


def test_a_caller_that_leaves_mid_task_changes_nothing_for_the_task(start: Callable[..., Hosted], work: Path) -> None:
    os.mkfifo(work / "up")
    os.mkfifo(work / "gate")
    hosted = start("echo up >up; cat gate; echo done")
    host, _, port = hosted.ready["url"].rpartition(":")
    message = {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}).encode()
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert (work / "up").read_text() == "up\n"
    (work / "gate").write_text("")
    (result,) = (path for path in (hosted.records / "out").iterdir() if path.name.startswith("result_"))
    task_id = result.stem.removeprefix("result_")
    canceled = call(hosted, "tasks/cancel", {"id": task_id})  # Waits for its end, whichever comes first.
    state = get(hosted, {"id": task_id})["status"]["state"]
    assert state in ("completed", "canceled"), canceled


@pytest.mark.spec("M5")
def test_sigterm_during_a_task_cancels_it_and_is_a_failure(start: Callable[..., Hosted], work: Path) -> None:
    os.mkfifo(work / "up")
    hosted = start("echo up >up; exec sleep 1000")
    send(hosted, "x", blocking=False)
    (work / "up").read_text()
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 1
    events = [json.loads(line) for line in (hosted.records / "trace.jsonl").read_text().splitlines()]
    assert [event["event_type"] for event in events] == [
        "session_start", "task_start", "task_canceled", "task_end", "session_end",
    ]  # fmt: skip
    assert events[2]["phase"] == "running"


@pytest.mark.spec("M5")
def test_sigterm_while_idle_is_no_failure(start: Callable[..., Hosted]) -> None:
    hosted = start("cat")
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0


@pytest.mark.spec("O2")
def test_stopping_a_session_reports_the_tasks_it_cancelled(start: Callable[..., Hosted], work: Path) -> None:
    os.mkfifo(work / "up")
    hosted = start("echo up >up; exec sleep 1000")
    task = send(hosted, "x", blocking=False)
    (work / "up").read_text()
    ended = mur("stop", "@1")
    assert ended.returncode == 0
    assert f"canceled: {task['id']}" in ended.stdout.splitlines()
    assert hosted.wait() in (0, 1)


def test_send_prints_the_result_and_its_status_tells_how_it_went(start: Callable[..., Hosted]) -> None:
    start('read word; echo "got $word"; [ "$word" != ill ]')
    ended = mur("send", "@1", "well")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "got well\n", "")
    ended = mur("send", "@1", "ill")
    assert ended.returncode == 1
    assert "error[E-RUN-910]: task tsk_" in ended.stderr
    document = mur_json("send", "@1", "well")
    assert (document["state"], document["result"]) == ("completed", "got well\n")
    piped = subprocess.run([MUR, "send", "@1", "-"], input="piped\n", capture_output=True, text=True, check=True)
    assert piped.stdout == "got piped\n"


def test_a_task_is_cancelled_by_its_id_from_the_command_line(start: Callable[..., Hosted], work: Path) -> None:
    os.mkfifo(work / "up")
    hosted = start("echo up >up; exec sleep 1000")
    task = send(hosted, "x", blocking=False)
    (work / "up").read_text()
    assert mur("cancel", "@1", task["id"]).stdout == f"canceled: {task['id']}\n"
    assert mur_json("cancel", "@1", task["id"])["state"] == "canceled"
    assert mur("cancel", "@1", "tsk_nobody").returncode == 1
    assert hosted.process.poll() is None


def test_send_shows_the_longest_result_that_a_door_sends(start: Callable[..., Hosted]) -> None:
    start("head -c 1048576 /dev/zero")  # As JSON each of these bytes takes six.
    ended = mur("send", "@1", "x")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "\0" * 1_048_576 + "\n"


def test_a_task_is_as_long_as_a_door_takes_in_any_script_and_a_longer_one_is_told(start: Callable[..., Hosted]) -> None:
    start("wc -c")

    def sent(text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([MUR, "send", "@1", "-"], input=text, capture_output=True, text=True, check=False)

    assert sent("\u4e2d" * 340_000).stdout == "1020000\n"
    ended = sent("\u4e2d" * 350_000)
    assert ended.returncode == 1
    assert "error[E-RUN-909]: session ses_" in ended.stderr
    assert "the task is larger than the 1 MiB that a door takes" in ended.stderr
    assert "hint: put it into a file of the work folder" in ended.stderr


def test_breaking_off_a_send_says_that_the_task_goes_on_and_where(start: Callable[..., Hosted], work: Path) -> None:
    os.mkfifo(work / "up")
    os.mkfifo(work / "gate")
    hosted = start("echo up >up; cat gate")
    with subprocess.Popen([MUR, "send", "@1", "x"], stderr=subprocess.PIPE, text=True) as sender:
        assert (work / "up").read_text() == "up\n"
        sender.send_signal(signal.SIGINT)
        _, told = sender.communicate(timeout=20)
    assert sender.returncode == 130
    assert f"session {hosted.session_id} goes on with the task" in told
    assert f"{hosted.records}/trace.jsonl" in told
    assert f"`mur cancel {hosted.session_id} TASK`" in told
    started = json.loads((hosted.records / "trace.jsonl").read_text().splitlines()[1])
    assert mur("cancel", hosted.session_id, started["task_id"]).returncode == 0


def test_a_session_whose_process_is_stopped_is_not_waited_for(hosts: Hosts, tmp_path: Path) -> None:
    hosted = hosts.from_manifest(capsule(tmp_path, control={}))
    hosted.kill(signal.SIGSTOP)
    os.waitid(os.P_PID, hosted.process.pid, os.WSTOPPED | os.WNOWAIT)
    for asked in (
        ("send", "@1", "x"),
        ("send", "@1", "--no-wait", "x"),
        ("cancel", "@1", "tsk_x"),
        ("control", "@1", "status"),
    ):
        ended = mur(*asked)
        assert ended.returncode == 1
        assert f"was not asked: its process {hosted.process.pid} is stopped" in ended.stderr
    hosted.kill(signal.SIGCONT)
    assert mur("send", "@1", "x").stdout == "x\n"


@pytest.mark.parametrize("asked", [lambda: send_task("@1", "x", wait=False), lambda: cancel_task("@1", "tsk_x")])
def test_a_door_that_says_nothing_is_waited_for_no_longer_than_its_answer_can_take(
    asked: Callable[[], None], running: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("handover_doors", "cancel_doors"):
        monkeypatch.setattr(wiring, name, HttpDoors(AskLimits(5, 0.1, 5)))
    monkeypatch.setattr(wiring, "task_doors", None)  # Which would wait a week.
    with ScriptedDoor(silent) as door:
        write_record(running, url=door.url)
        with pytest.raises(typer.Exit) as ended:
            asked()
    assert ended.value.exit_code == 1
    assert "timed out after 0.1s without an answer" in capsys.readouterr().err


def test_a_cancel_that_a_full_door_answers_before_its_end_says_so(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {"id": "tsk_1", "status": {"state": "working"}}
    with ScriptedDoor(answering(http({"jsonrpc": "2.0", "id": 1, "result": task}))) as door:
        write_record(running, url=door.url)
        with pytest.raises(typer.Exit) as ended:
            cancel_task("@1", "tsk_1")
    assert ended.value.exit_code == 1
    told = capsys.readouterr().err
    assert "task tsk_1 is working: its end was asked for, and not waited for" in told
    assert "hint: ask again" in told


def test_callers_that_wait_leave_places_to_those_that_do_not(hosts: Hosts, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    lifecycle = {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": 100}
    hosted = hosts.from_manifest(capsule(tmp_path, process={"command": ["cat", "gate"]}, lifecycle=lifecycle))
    host, _, port = hosted.ready["url"].rpartition(":")
    message = {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}).encode()
    with ExitStack() as opened:
        waiting = {opened.enter_context(socket.create_connection((host, int(port)))) for _ in range(64)}
        for caller in waiting:
            caller.sendall(b"POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        refused: set[socket.socket] = set()
        while len(refused) < 8:
            found = select.select(waiting - refused, [], [], 10)[0]
            assert found
            refused.update(found)
        for caller in refused:
            said = caller.makefile().read()
            assert "56 callers wait for their tasks" in json.loads(said.partition("\n\n")[2])["error"]["message"]
            caller.close()
        assert mur_json("ps")[0]["status"] == "running"
        assert len(call(hosted, "session/stop", {})["result"]["canceled"]) == 56


def test_a_session_that_takes_no_tasks_says_so(hosts: Hosts) -> None:
    hosts.start("sleep", "1000")
    ended = mur("send", "@1", "x")
    assert ended.returncode == 1
    assert "error[E-RUN-909]" in ended.stderr


@pytest.mark.spec("I3", "R1")
def test_an_authenticated_session_is_listed_and_sent_tasks_by_us_and_nobody_without_its_token(
    hosts: Hosts, tmp_path: Path, home: Path
) -> None:
    credentials = {"scheme": "bearer", "credentials": {"watcher": {"scopes": ["tasks/get"]}}}
    hosted = hosts.from_manifest(capsule(tmp_path, network={"authentication": credentials}), "--readiness-tokens")
    assert set(hosted.ready["tokens"]) == {"operator", "watcher"}
    assert mur("token").stdout.strip() == hosted.ready["tokens"]["operator"]
    assert mur("token", "--credential", "watcher").stdout.strip() == hosted.ready["tokens"]["watcher"]
    assert mur("send", "@1", "hello").stdout == "hello\n"
    assert mur_json("ps")[0]["status"] == "running"
    for token, status in ((None, 401), ("mdt1.x.y", 401), (hosted.ready["tokens"]["watcher"], 403)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            call(hosted, "message/send", {}, token)
        assert refused.value.code == status
        assert refused.value.headers["www-authenticate"] == 'Bearer realm="worker"'
        refused.value.close()
    secrets = set(hosted.ready["tokens"].values())
    for process in (hosted.process.pid,):
        for name in ("cmdline", "environ"):
            assert not any(secret in Path(f"/proc/{process}/{name}").read_text() for secret in secrets)
    written = [
        path for path in (home / ".murmur").rglob("*") if path.is_file() and any(s in path.read_text() for s in secrets)
    ]
    assert [path.name for path in written] == [f"{hosted.session_id}.json"]


@pytest.mark.spec("G3", "H2")
def test_a_controlled_session_is_paused_resumed_and_drained(hosts: Hosts, tmp_path: Path, home: Path) -> None:
    hosted = hosts.from_manifest(capsule(tmp_path, control={}))
    control = home / ".murmur/running" / f"{hosted.session_id}.control"
    assert control.read_text().startswith("ctl1.")
    assert control.stat().st_mode & 0o777 == 0o600
    assert mur_json("control", "@1", "pause")["state"] == "paused"
    task = send(hosted, "x", blocking=False)
    assert get(hosted, task)["status"]["state"] == "submitted"
    assert mur_json("control", "@1", "status") == {"state": "paused", "task": None, "waiting": 1}
    assert mur_json("control", "@1", "resume")["state"] == "running"
    assert mur("control", "@1", "drain").stdout.startswith("state: draining")
    assert hosted.wait() == 0
    assert not control.exists()


def test_control_of_a_session_without_it_is_refused(hosts: Hosts) -> None:
    hosts.start("sleep", "1000")
    ended = mur("control", "@1", "status")
    assert ended.returncode == 1
    assert "error[E-RUN-911]" in ended.stderr
    assert mur("control", "@1", "explode").returncode == 2


def test_a_manifest_gives_the_command_only_what_it_allows(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=1\nNOT_ALLOWED=1\n")
    manifest = capsule(
        tmp_path,
        process={"command": [sys.executable, "-c", "import os; print(*sorted(os.environ))"]},
        capabilities={"env": {"allow": ["FROM_FILE", "OURS", "MURMUR_SPAWNER"]}},
    )
    hosted = hosts.from_manifest(manifest, OURS="1", MURMUR_SPAWNER=SPAWNER, SECRET="1")
    names = set(send(hosted, "x")["artifacts"][0]["parts"][0]["text"].split())
    assert {"PATH", "HOME", "FROM_FILE", "OURS", "MURMUR_SESSION_ID", "MURMUR_RECORDS_DIR"} <= names
    assert not names & {"NOT_ALLOWED", "SECRET", "MURMUR_SPAWNER", "PYTEST_CURRENT_TEST"}


@pytest.mark.spec("M1")
def test_a_script_runs_once_without_door_and_record(tmp_path: Path, home: Path) -> None:
    manifest = capsule(tmp_path, process={"command": ["sh", "-c", "cat; echo done"], "kind": "script"})
    ended = mur("run", "--json", "--manifest", str(manifest), "--task", "a task ", "--workdir", str(tmp_path))
    ready = json.loads(ended.stdout)
    assert (ended.returncode, ready["url"]) == (0, "")
    assert Path(ready["records_dir"], "out/result.txt").read_text() == "a task done\n"
    assert list((home / ".murmur").glob("running/*")) == []


def test_a_first_task_may_come_with_the_start(hosts: Hosts, tmp_path: Path) -> None:
    text = tmp_path / "todo"
    text.write_text("from a file")
    for given, expected in ((str(text), "from a file"), ("as it is", "as it is")):
        hosted = hosts.start(
            "cat", options=("--workdir", str(tmp_path), "--task", given, "--lifecycle-task-acceptance", "single")
        )
        assert hosted.wait() == 0
        assert (hosted.records / "out/result.txt").read_text() == expected


@pytest.mark.spec("M5")
def test_a_deadline_ends_the_session_as_a_signal_would(hosts: Hosts) -> None:
    hosted = hosts.start("sleep", "1000", options=("--deadline", "0.1s"))
    assert hosted.wait() == 0
    assert mur("run", "--deadline", "soon", "--", "true").returncode == 2


def test_a_detached_session_outlives_the_command_that_started_it(home: Path, tmp_path: Path) -> None:
    ended = mur("run", "--detach", "--json", "--", "sleep", "1000")
    ready = json.loads(ended.stdout)
    assert ended.returncode == 0
    (row,) = mur_json("ps")
    assert (row["session_id"], row["status"]) == (ready["session_id"], "running")
    assert os.getsid(ready["pid"]) == ready["pid"]
    assert mur_json("stop", "@1")[0]["outcome"] == "stopped"


def test_a_detached_session_that_never_is_ready_says_why(home: Path) -> None:
    ended = mur("run", "--detach", "--", "no-such-command-anywhere")
    assert ended.returncode == 1
    assert "error[E-RUN-902]: command not found: no-such-command-anywhere" in ended.stderr


def test_a_bad_manifest_is_one_error_and_nothing_started(tmp_path: Path, home: Path) -> None:
    manifest = tmp_path / "murmur.yaml"
    manifest.write_text("name: worker\nversion: 0.1\nprocess: {command: [cat]}\n")
    ended = mur("run", "--manifest", str(manifest))
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error[E-RUN-907]: {manifest}:2: version: ")
    assert list(home.iterdir()) == []
