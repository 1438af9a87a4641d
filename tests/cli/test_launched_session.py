"""`mur run` as a child, launched by hand: what it is handed, when it ends, and what it tells (M2, M3, W6)."""

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.doors_for_tests import Caller, ScriptedDoor, answering, closed_port, http, silent
from tests.cli.capsules_for_tests import LIMIT, Project, completion, event, events, until
from tests.cli.conftest import MUR, mur_json, wait_for_exit

PARENT = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
DLG = "dlg_0198a7b3c4d57e6f8a9b0c1d2e3f4053"
FORMATION = "frm_0198a7b3c4d57e6f8a9b0c1d2e3f4054"
TAKEN = http({"jsonrpc": "2.0", "id": 1, "result": {"kind": "task", "status": {"state": "completed"}}})
REGISTERED = http({"credential": "msc1.a.b"})


class Child:
    """A `mur run` that the test launched, and the write end of its lifeline."""

    def __init__(self, opened: ExitStack, project: Project, *arguments: str, **environment: str) -> None:
        read_end, self._write_end = os.pipe()
        self.workdir = project.path / "work"
        self.workdir.mkdir(exist_ok=True)
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [MUR, "run", "--json", "--workdir", str(self.workdir), *arguments],
            cwd=project.path,
            env=os.environ | {"MURMUR_SPAWNER_LIFELINE": str(read_end)} | environment,
            pass_fds=[read_end],
            process_group=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        os.close(read_end)
        self.ready: dict[str, Any] = {}
        opened.callback(self._end)

    def hand(self, grant: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{grant}\n")
        self.process.stdin.flush()

    def until_ready(self) -> "Child":
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], LIMIT)[0], "no readiness line"
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.ready = json.loads(line)
        return self

    @property
    def records(self) -> Path:
        return Path(self.ready["records_dir"])

    def cut(self) -> None:
        """End the lifeline, as the end of a launcher does."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str, str]:
        """Return its exit status and the rest of its stdout and stderr."""
        stdout, stderr = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, stdout, stderr

    def _end(self) -> None:
        self.cut()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


Launch = Callable[..., Child]


@pytest.fixture
def launch(project: Project) -> Iterator[Launch]:
    with ExitStack() as opened:
        yield lambda *arguments, **environment: Child(opened, project, *arguments, **environment)


def spawner(url: str | None = None, **more: object) -> str:
    document = {"session_id": PARENT, "context_id": "ctx_1", "delegation_id": DLG, **more}
    return json.dumps(document if url is None else document | {"url": url})


def head_of(request: bytes) -> Mapping[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


# ---- what it is handed (M2) ----


@pytest.mark.spec("M2", "C6")
@pytest.mark.parametrize("handle", ["{", "[]", "null", '{"session_id":"ses_1"}', spawner(1), spawner(session_id="a b")])  # type: ignore[arg-type]
def test_a_malformed_spawner_handle_refuses_the_launch_with_nothing_begun(
    launch: Launch, project: Project, handle: str
) -> None:
    ran = project.path / "ran"
    status, stdout, _ = launch("--", "touch", str(ran), MURMUR_SPAWNER=handle).wait()
    assert status == 1
    assert json.loads(stdout)["error"]["code"] == "E-RUN-020"
    assert not ran.exists()
    assert project.records == []


@pytest.mark.spec("M2", "X2")
@pytest.mark.parametrize(
    "lifeline", ["", "0", "2", "-1", "3.0", "text", "0x5", "\u0665", "999", "99999999999999999999"]
)
def test_a_lifeline_that_is_no_number_of_an_open_pipe_refuses_the_launch(
    launch: Launch, project: Project, lifeline: str
) -> None:
    status, stdout, _ = launch("--", "true", MURMUR_SPAWNER_LIFELINE=lifeline).wait()
    assert (status, json.loads(stdout)["error"]["code"]) == (1, "E-RUN-020")
    assert project.records == []


@pytest.mark.spec("M2", "X2")
@pytest.mark.parametrize("kind", ["file", "write end", "socket", "both ways"])
def test_a_lifeline_that_is_no_pipe_to_be_read_refuses_the_launch(project: Project, kind: str) -> None:
    with ExitStack() as opened:
        if kind == "file":
            descriptor = os.open(project.path / "file", os.O_RDONLY | os.O_CREAT)
        elif kind == "write end":
            read_end, descriptor = os.pipe()
            opened.callback(os.close, read_end)
        elif kind == "socket":
            descriptor = opened.enter_context(socket.socket()).detach()
        else:
            os.mkfifo(project.path / "fifo")
            descriptor = os.open(project.path / "fifo", os.O_RDWR)
        opened.callback(os.close, descriptor)
        done = subprocess.run(
            [MUR, "run", "--", "true"],
            env=os.environ | {"MURMUR_SPAWNER_LIFELINE": str(descriptor)}, pass_fds=[descriptor],
            cwd=project.path, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "error[E-RUN-020]" in done.stderr
    assert project.records == []


@pytest.mark.spec("M2", "C6")
def test_a_blank_handle_is_none_and_an_unknown_key_of_one_is_not_read(launch: Launch) -> None:
    child = launch("--", "true", MURMUR_SPAWNER=" ").until_ready()
    assert child.wait()[0] == 0
    assert "spawned_by" not in event(child.records, "session_start")
    child = launch("--", "true", MURMUR_SPAWNER=spawner(trust="full")).until_ready()
    assert child.wait()[0] == 0
    assert event(child.records, "session_start")["spawned_by"] == PARENT
    assert completion(child.records)["delivered"] is False


@pytest.mark.spec("M2")
@pytest.mark.parametrize("swap", ["other", "link", "device"])
def test_another_work_folder_than_the_launcher_made_is_refused_with_nothing_written_there(
    launch: Launch, project: Project, swap: str
) -> None:
    other = project.path / "other"
    other.mkdir()
    (project.path / "work").mkdir()
    found = (project.path / "work").stat()
    device = found.st_dev + 1 if swap == "device" else found.st_dev
    (project.path / "work").rename(project.path / "aside")
    if swap == "link":
        (project.path / "work").symlink_to(other)
    elif swap == "device":
        (project.path / "aside").rename(project.path / "work")
    status, stdout, _ = launch(
        "--workdir-identity", f"{device}:{found.st_ino}", "--task", "x", "--", "touch", "ran"
    ).wait()
    assert (status, json.loads(stdout)["error"]["code"]) == (1, "E-RUN-051")
    assert os.listdir(other) == os.listdir(project.path / "work") == []
    assert project.records == []


@pytest.mark.spec("M2", "C3")
@pytest.mark.parametrize(
    "identity",
    ["", "1", "1:", ":1", "a:b", "1:2:3", " 1:2", "1_0:2", "-1:2", "\u0665:\u0665", "1:18446744073709551616"],
)
def test_a_malformed_identity_is_a_usage_error_that_names_the_flag(launch: Launch, identity: str) -> None:
    status, _, stderr = launch(f"--workdir-identity={identity}", "--", "true").wait()
    assert status == 2
    assert "--workdir-identity" in stderr


@pytest.mark.spec("M2", "C2")
def test_the_command_works_in_the_folder_that_the_launcher_made_wherever_its_path_leads_later(
    launch: Launch, project: Project
) -> None:
    up, gate = project.fifo(), project.fifo()
    (project.path / "work").mkdir()
    found = (project.path / "work").stat()
    child = launch(
        f"--workdir-identity={found.st_dev}:{found.st_ino}",
        "--",
        "sh",
        "-c",
        f"echo up >{up}; read -r _ <{gate}; touch ran",
    )
    child.until_ready()
    up.line()
    (project.path / "work").rename(project.path / "aside")
    gate.let_on()
    assert child.wait()[0] == 0
    assert os.listdir(project.path / "aside") == ["ran"]


# ---- its approval ----


@pytest.mark.spec("M2")
def test_a_launch_without_its_approval_is_refused(launch: Launch, project: Project) -> None:
    project.put("worker", "cat")
    for grant in ("", "   "):
        child = launch("--capsule", "worker", "--capsule-version", "1.0", "--spawn-grant-stdin")
        child.hand(grant)
        status, stdout, stderr = child.wait()
        assert (status, stdout) == (1, "")
        assert "error[E-RUN-020]" in stderr
    assert project.records == []


@pytest.mark.spec("M2")
@pytest.mark.parametrize("roost", ["none", "unset", "refuses", "rude"])
def test_a_referee_that_is_not_there_or_refuses_is_told_of_on_stderr_and_nothing_begins(
    launch: Launch, project: Project, roost: str
) -> None:
    project.put("worker", "cat")
    scripts = {
        "refuses": answering(http({"error": "the approval was spent"}, "403 Forbidden")),
        "rude": answering(b"no HTTP at all"),
    }
    with ExitStack() as opened:
        if roost in scripts:
            url = f"http://127.0.0.1:{opened.enter_context(ScriptedDoor(scripts[roost])).port}"
        else:
            url = "" if roost == "unset" else f"http://127.0.0.1:{opened.enter_context(closed_port())}"
        child = launch("--capsule", "worker", "--capsule-version", "1.0", "--spawn-grant-stdin", MURMUR_ROOST_URL=url)
        child.hand("msa1.secret.secret")
        status, stdout, stderr = child.wait()
    assert status == (1 if roost == "unset" else 4)
    assert stdout == ""
    assert ("error[E-RUN-020]" if roost == "unset" else "error[E-RUN-047]") in stderr
    assert ("the approval was spent" in stderr) == (roost == "refuses")
    assert "msa1" not in stderr
    assert project.records == []


@pytest.mark.spec("M2")
def test_a_registered_child_says_so_and_deregisters_at_its_end(launch: Launch, project: Project) -> None:
    project.put("worker", "true", lifecycle={"task_acceptance": "none"})

    with ScriptedDoor(answering(REGISTERED)) as roost:
        child = launch(
            "--capsule", "worker", "--capsule-version", "1.0", "--spawn-grant-stdin",
            MURMUR_ROOST_URL=f"http://127.0.0.1:{roost.port}",
        )  # fmt: skip
        child.hand("msa1.a.b")
        child.until_ready()
        assert child.wait()[0] == 0
        assert [request.split()[1] for request in roost.requests] == [b"/register", b"/deregister"]
    assert head_of(roost.requests[0])["x-murmur-spawn-approval"] == "msa1.a.b"
    assert head_of(roost.requests[1])["x-murmur-spawn-credential"] == "msc1.a.b"
    assert b'"complete"' in roost.requests[1]
    assert json.loads(roost.requests[0].partition(b"\r\n\r\n")[2])["session_id"] == child.ready["session_id"]


# ---- its lifeline (M3) ----


@pytest.mark.spec("M3", "X2")
def test_the_end_of_the_lifeline_at_rest_ends_the_session_in_order(launch: Launch) -> None:
    child = launch(
        "--lifecycle-task-acceptance", "queue", "--lifecycle-after-task", "sleep", "--", "cat", MURMUR_SPAWNER=spawner()
    ).until_ready()
    child.cut()
    assert child.wait()[0] == 0
    assert events(child.records) == ["session_start", "spawner_ended", "session_end"]
    ended = event(child.records, "spawner_ended")
    assert (ended["spawned_by"], ended["delegation_id"]) == (PARENT, DLG)
    assert mur_json("ps") == []
    assert completion(child.records)["status"] == "terminated"


@pytest.mark.spec("M3", "M5")
def test_the_end_of_the_lifeline_during_a_task_cancels_it(launch: Launch, project: Project) -> None:
    up = project.fifo()
    child = launch(
        "--lifecycle-task-acceptance", "single", "--task", "x", "--", "sh", "-c", f"echo up >{up}; exec sleep 1000",
        MURMUR_SPAWNER=spawner(),
    ).until_ready()  # fmt: skip
    up.line()
    child.cut()
    status, _, stderr = child.wait()
    assert status == 1
    assert "error[" not in stderr  # Its spawner is told, and tells.
    seen = events(child.records)
    assert seen.index("spawner_ended") < seen.index("task_canceled") < seen.index("session_end")
    assert completion(child.records)["status"] == "error"
    assert project.processes == {}


@pytest.mark.spec("M3")
def test_the_end_of_the_lifeline_before_the_session_is_there_ends_it_as_soon_as_it_is(
    launch: Launch, project: Project
) -> None:
    child = launch("--", "sleep", "1000", MURMUR_SPAWNER=spawner())
    child.cut()
    child.until_ready()
    assert child.wait()[0] == 0
    assert events(child.records) == ["session_start", "spawner_ended", "session_end"]
    assert project.processes == {}


@pytest.mark.spec("M3")
def test_the_end_of_the_lifeline_after_a_sigterm_changes_nothing(launch: Launch, project: Project) -> None:
    told, gate = project.fifo(), project.fifo()
    script = f"trap 'echo told >{told}; read -r _ <{gate}; exit' TERM; echo up >{told}; while :; do sleep 0.01; done"
    child = launch("--", "sh", "-c", script, MURMUR_SPAWNER=spawner()).until_ready()
    told.line()
    child.signal()
    told.line()
    child.cut()
    # It is still there, waiting for its command, and asks it nothing a second time.
    assert not wait_for_exit(child.process.pid, 0.3)
    gate.let_on()
    assert child.wait()[0] == 0
    assert events(child.records) == ["session_start", "session_end"]


@pytest.mark.spec("M3")
@pytest.mark.parametrize("first", ["SIGTERM", "lifeline"])
def test_a_sigterm_after_the_first_word_is_immediate(launch: Launch, project: Project, first: str) -> None:
    told = project.fifo()
    script = f"trap 'echo told >{told}' TERM; echo up >{told}; while :; do sleep 0.01; done"
    child = launch("--", "sh", "-c", script, MURMUR_SPAWNER=spawner()).until_ready()
    told.line()
    child.cut() if first == "lifeline" else child.signal()
    told.line()
    child.signal()
    assert wait_for_exit(child.process.pid, 2)
    assert child.wait()[0] == 143
    assert events(child.records)[-1] == "session_end"
    assert completion(child.records)["status"] == "error"
    assert mur_json("ps") == []


@pytest.mark.spec("M3")
@pytest.mark.parametrize("attempt", range(3))
def test_a_script_ends_at_once_with_143_when_its_launcher_is_gone(
    launch: Launch, project: Project, attempt: int
) -> None:
    up = project.fifo()
    project.script("notes", "sh", "-c", f"trap '' TERM; echo up >{up}; while :; do sleep 0.01; done")
    child = launch("--capsule", "notes", "--capsule-version", "1.0", MURMUR_SPAWNER=spawner())
    up.line()
    child.cut()
    assert wait_for_exit(child.process.pid, 2)
    assert child.wait()[0] == 143
    (records,) = project.records
    assert events(records) == ["session_start", "spawner_ended", "session_end"]
    assert completion(records)["status"] == "error"
    assert project.processes == {}


@pytest.mark.spec("X2")
def test_the_command_of_a_launched_session_holds_no_lifeline_and_no_handle(launch: Launch) -> None:
    child = launch(
        "--", "sh", "-c", "env; ls -l /proc/self/fd", MURMUR_SPAWNER=spawner(), MURMUR_FORMATION_ID=FORMATION
    ).until_ready()
    assert child.wait()[0] == 0
    said = (child.records / "logs" / "stdout.log").read_text()
    assert "MURMUR_SPAWNER" not in said
    assert "pipe:" not in said.replace("0 -> pipe", "")


# ---- what it tells (W5, W6) ----


@pytest.mark.spec("W5", "W6")
def test_a_completion_is_posted_once_with_the_three_headers_and_recorded_as_delivered(launch: Launch) -> None:
    with ScriptedDoor(answering(TAKEN)) as door:
        child = launch("--", "true", MURMUR_SPAWNER=spawner(f"http://{door.url}")).until_ready()
        status, _, stderr = child.wait()
    assert (status, stderr) == (0, "")
    (request,) = door.requests
    head, body = head_of(request), json.loads(request.partition(b"\r\n\r\n")[2])
    assert request.startswith(b"POST / HTTP/1.1\r\n")
    assert head["x-murmur-task-origin"] == "completion"
    assert head["x-murmur-delegation-id"] == DLG
    assert head["x-murmur-completion-session"] == PARENT
    assert "authorization" not in head
    assert body["method"] == "message/send"
    message = body["params"]["message"]
    assert message["contextId"] == "ctx_1"
    assert (message["role"], len(message["parts"])) == ("user", 1)
    assert message["parts"][0]["text"].startswith(f"delegation {DLG} (true@")
    told = completion(child.records)
    assert (told["status"], told["reported_by"], told["delivered"]) == ("ok", "child", True)
    assert "delivery_error" not in told
    assert told["session_id"] == child.ready["session_id"]
    assert (child.records / "completion.json").stat().st_mode & 0o777 == 0o600


def closes(caller: Caller) -> None:
    """Hang up without an answer."""


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answering(http({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no\x1b[31m"}})), "refused: no"),
        (answering(http({"error": "unlucky"}, "500 Internal Server Error")), "HTTP status 500"),
        (answering(http({"result": {"status": {"state": "rejected"}}})), "rejected"),
        (answering(http(b"not JSON")), "not JSON"),
        (closes, "without an answer"),
        (None, "refused"),
    ],
)
def test_a_completion_that_is_not_delivered_is_a_warning_and_no_failure(
    launch: Launch, script: Callable[[Caller], None] | None, reason: str
) -> None:
    with ExitStack() as opened:
        if script is None:
            number = opened.enter_context(closed_port())
        else:
            number = opened.enter_context(ScriptedDoor(script)).port
        child = launch("--", "true", MURMUR_SPAWNER=spawner(f"localhost:{number}")).until_ready()
        status, _, stderr = child.wait()
    assert status == 0
    told = completion(child.records)
    assert (told["status"], told["delivered"]) == ("ok", False)
    assert reason in told["delivery_error"]
    assert f"warning: the completion of delegation {DLG} was not delivered: " in stderr
    assert "\x1b" not in stderr
    assert mur_json("ps") == []


@pytest.mark.spec("W6", "M3")
def test_a_door_that_never_answers_is_not_waited_for_once_the_end_is_forced(launch: Launch) -> None:
    asked_at = time.monotonic()
    with ScriptedDoor(silent) as door:
        child = launch("--", "true", MURMUR_SPAWNER=spawner(f"http://{door.url}")).until_ready()
        until(lambda: door.requests)
        child.signal()
        # Of two that arrive together there would be one.
        until(lambda: "asked to end" in (child.records / "logs" / "host.log").read_text())
        child.signal()
        assert wait_for_exit(child.process.pid, 2)
        assert child.wait()[0] == 0
    assert time.monotonic() - asked_at < LIMIT
    told = completion(child.records)
    assert (told["status"], told["delivered"]) == ("ok", False)
    assert events(child.records)[-1] == "session_end"


@pytest.mark.spec("M3", "W6")
def test_a_launcher_that_goes_while_it_is_told_leaves_session_end_the_last_event(launch: Launch) -> None:
    with ScriptedDoor(silent) as door:
        child = launch("--", "true", MURMUR_SPAWNER=spawner(f"http://{door.url}")).until_ready()
        until(lambda: door.requests)
        child.cut()
        until(lambda: "the end of its launcher" in (child.records / "logs" / "host.log").read_text())
    assert child.wait()[0] == 0
    assert events(child.records) == ["session_start", "session_end"]


# ---- what else it inherits ----


@pytest.mark.spec("C7", "Y1")
def test_a_formation_is_joined_and_said_in_every_place(launch: Launch, project: Project) -> None:
    gate = project.fifo()
    child = launch("--", "sh", "-c", f"read -r _ <{gate}", MURMUR_FORMATION_ID=FORMATION).until_ready()
    assert child.ready["formation_id"] == FORMATION
    assert event(child.records, "session_start")["formation_id"] == FORMATION
    (row,) = mur_json("ps")
    assert row["formation_id"] == FORMATION
    gate.let_on()
    assert child.wait()[0] == 0


@pytest.mark.spec("C7", "M2")
@pytest.mark.parametrize("formation", ["frm_1", f" {FORMATION}", FORMATION.upper(), PARENT])
def test_what_is_no_formation_refuses_the_launch(launch: Launch, project: Project, formation: str) -> None:
    status, stdout, _ = launch("--", "true", MURMUR_FORMATION_ID=formation).wait()
    assert (status, json.loads(stdout)["error"]["code"]) == (1, "E-RUN-020")
    assert project.records == []


@pytest.mark.spec("C3")
def test_the_launcher_s_deadline_ends_the_session_even_one_that_is_over_already(launch: Launch) -> None:
    child = launch(f"--inherited-deadline={int(time.time() * 1000) - 5000}", "--", "sleep", "1000").until_ready()
    assert child.wait()[0] == 0
    assert events(child.records) == ["session_start", "session_end"]


@pytest.mark.spec("C3")
def test_of_two_deadlines_the_earlier_one_counts(launch: Launch) -> None:
    child = launch(
        "--deadline", "1000s", f"--inherited-deadline={int(time.time() * 1000) + 100}", "--", "sleep", "1000"
    ).until_ready()
    assert child.wait()[0] == 0


@pytest.mark.spec("C1")
def test_a_script_takes_no_deadline_from_its_launcher(launch: Launch, project: Project) -> None:
    project.script("notes", "echo", "done")
    child = launch(
        "--capsule", "notes", "--capsule-version", "1.0", f"--inherited-deadline={int(time.time() * 1000) - 5000}"
    ).until_ready()
    assert child.ready["url"] == ""
    assert child.wait()[0] == 0
    assert (child.records / "out" / "result.txt").read_text() == "done\n"
    assert project.recorded == []
