"""`mur watch` and `mur send --stream`, on real sessions (M1, P4, O4, and the door's streams)."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import MUR, Hosted, Hosts, mur, write_record

STEPS = "echo one; echo oops >&2; read -r _ <gate-1; echo two; read -r _ <gate-2; printf three"
TASK = """read -r word; echo "$word begun"; read -r _ <gate-"$word"; echo "$word done"
[ "$word" != ill ] || { echo why >&2; exit 1; }"""
WORDS = ("1", "2", "well", "ill", "first", "second")


@pytest.fixture
def gate(tmp_path: Path) -> Callable[[str], None]:
    """Open the gate of a name, at which a command waits. Each is passed once: whoever comes again may find it open."""
    for word in WORDS:
        os.mkfifo(tmp_path / f"gate-{word}")

    def opened(word: str) -> None:
        (tmp_path / f"gate-{word}").write_text("go\n")

    return opened


class Watcher:
    """A `mur watch` or `mur send` under way. Its output is read line by line, so nothing is waited for blindly."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [MUR, *arguments], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def note(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def event(self) -> dict[str, Any]:
        event = json.loads(self.line())
        assert isinstance(event, dict)
        return event

    def finish(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Not `communicate`: it knows nothing of what `readline` has read ahead.
        out, errors = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(timeout=20), out, errors


@pytest.fixture
def watching() -> Iterator[Callable[..., Watcher]]:
    """Start commands that watch; those still there are ended."""
    started: list[Watcher] = []

    def start(*arguments: str) -> Watcher:
        started.append(Watcher(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


Watching = Callable[..., Watcher]


@pytest.fixture
def stepping(hosts: Hosts, tmp_path: Path, gate: Callable[[str], None]) -> Hosted:
    """A session whose command goes on at the gate."""
    return hosts.start("sh", "-c", STEPS, options=("--workdir", str(tmp_path)))


@pytest.fixture
def worker(hosts: Hosts, tmp_path: Path, gate: Callable[[str], None]) -> Hosted:
    """A session that takes tasks, each of which goes on at the gate."""
    manifest = {
        "name": "worker",
        "version": "0.1.0",
        "process": {"command": ["sh", "-c", TASK]},
        "lifecycle": {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": 5},
        "network": {"authentication": {"scheme": "bearer", "credentials": {"other": {"scopes": ["tasks/get"]}}}},
    }
    path = tmp_path / "murmur.yaml"
    path.write_text(json.dumps(manifest))
    return hosts.from_manifest(path)


@pytest.mark.spec("M1", "O4")
def test_a_command_is_watched_to_its_end(stepping: Hosted, watching: Watching, gate: Callable[[str], None]) -> None:
    watcher = watching("watch")
    assert watcher.line() == "one\n"
    gate("1")
    assert watcher.line() == "two\n"
    gate("2")
    status, out, errors = watcher.finish()
    assert (status, out) == (0, "three\n")  # A line that its command left without an end has one.
    task = f"task tsk_{stepping.session_id.removeprefix('ses_')}"
    lines = errors.splitlines()
    assert lines[0] == f"watching {stepping.session_id} (sh@0.0.0)"
    assert sorted(lines[1:]) == sorted([f"{task}: working", "oops", f"{task}: completed", "session ended"])
    assert stepping.wait() == 0


@pytest.mark.spec("O4")
def test_each_event_is_a_line_of_json(stepping: Hosted, watching: Watching, gate: Callable[[str], None]) -> None:
    watcher = watching("watch", stepping.session_id, "--json")
    working, output, errors = (watcher.event() for _ in range(3))
    own = stepping.session_id.removeprefix("ses_")
    assert working == {
        "event": "status",
        "number": 1,
        "task_id": f"tsk_{own}",
        "state": "working",
        "message": None,
        "is_final": False,
    }
    assert {each["channel"]: each["text"] for each in (output, errors)} == {"stdout": "one\n", "stderr": "oops\n"}
    gate("1")
    assert watcher.event()["text"] == "two\n"
    gate("2")
    status, out, errors_said = watcher.finish()
    rest = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in rest] == ["output", "status", "closed"]
    assert [each["number"] for each in rest] == [5, 6, None]
    assert (status, errors_said) == (0, "")


@pytest.mark.spec("O4")
def test_a_watch_that_was_cut_off_goes_on_behind_the_event_it_names(
    stepping: Hosted, watching: Watching, gate: Callable[[str], None]
) -> None:
    first = watching("watch", "--json")
    assert [first.event()["number"] for _ in range(3)] == [1, 2, 3]
    first.process.kill()
    first.finish()
    gate("1")
    second = watching("watch", "--after", "3", "--json")
    event = second.event()
    assert event.get("text") == "two\n", event
    gate("2")
    status, out, _ = second.finish()
    assert status == 0
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["output", "status", "closed"]


@pytest.mark.spec("O4", "S2")
def test_a_killed_session_is_a_lost_watch_and_says_after_which_event(stepping: Hosted, watching: Watching) -> None:
    watcher = watching("watch")
    assert watcher.line() == "one\n"
    assert watcher.note().startswith("watching")
    while "oops" not in watcher.note():
        pass
    stepping.kill(signal.SIGKILL)
    status, _, errors = watcher.finish()
    assert status == 1
    assert errors.startswith(f"error[E-RUN-921]: session {stepping.session_id}: the connection was lost after event 3")
    assert "the session is gone" in errors
    assert str(stepping.records) in errors


@pytest.mark.spec("O4")
def test_a_session_that_is_asked_to_end_is_watched_to_its_end(stepping: Hosted, watching: Watching) -> None:
    watcher = watching("watch")
    assert watcher.line() == "one\n"
    stepping.kill(signal.SIGTERM)
    status, _, errors = watcher.finish()
    assert status == 0
    assert ": canceled" in errors
    assert errors.endswith("session ended\n")


@pytest.mark.spec("O4")
def test_a_reader_that_leaves_ends_the_watching_and_nothing_else(stepping: Hosted, gate: Callable[[str], None]) -> None:
    watcher = subprocess.Popen([MUR, "watch"], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == b"one\n"
    watcher.stdout.close()
    gate("1")
    assert watcher.wait(20) == 141
    gate("2")
    assert stepping.wait() == 0


@pytest.mark.spec("O4")
def test_interrupting_the_watching_leaves_the_session(stepping: Hosted, watching: Watching) -> None:
    watcher = watching("watch")
    assert watcher.line() == "one\n"
    watcher.process.send_signal(signal.SIGINT)
    assert watcher.finish()[0] == 130
    assert stepping.process.poll() is None


@pytest.mark.spec("O4")
def test_without_an_address_the_only_session_is_meant(home: Path, hosts: Hosts) -> None:
    none = mur("watch")
    assert none.returncode == 3
    assert "no session is running" in none.stderr
    for _ in range(2):
        hosts.start("sleep", "60")
    several = mur("watch")
    assert several.returncode == 3
    assert "2 sessions are running, so one must be named" in several.stderr


@pytest.mark.spec("M1", "O4")
def test_a_task_is_streamed_to_its_end(worker: Hosted, watching: Watching, gate: Callable[[str], None]) -> None:
    sender = watching("send", "@1", "well", "--stream")
    assert sender.line() == "well begun\n"
    submitted = sender.note()
    assert submitted.startswith("task tsk_")
    assert submitted.endswith(": submitted\n")
    gate("well")
    status, out, errors = sender.finish()
    assert (status, out) == (0, "well done\n")
    assert errors == submitted.replace("submitted", "working")
    task_id = submitted.split()[1].removesuffix(":")
    assert (worker.records / "out" / f"result_{task_id}.txt").read_text() == "well begun\nwell done\n"


@pytest.mark.spec("M1", "O4")
def test_a_streamed_task_that_fails_fails_the_sending(
    worker: Hosted, watching: Watching, gate: Callable[[str], None]
) -> None:
    sender = watching("send", "@1", "ill", "--stream")
    assert sender.line() == "ill begun\n"
    gate("ill")
    status, out, errors = sender.finish()
    assert (status, out) == (1, "ill done\n")
    assert "error[E-RUN-910]: task tsk_" in errors
    assert errors.endswith("is failed: the command ended with exit status: 1\n")


@pytest.mark.spec("M1")
def test_a_streamed_task_shows_nothing_of_another(
    worker: Hosted, watching: Watching, gate: Callable[[str], None]
) -> None:
    first = watching("send", "@1", "first", "--stream", "--json")
    assert [first.event()["event"] for _ in range(3)] == ["status", "status", "output"]
    second = watching("send", "@1", "second", "--stream", "--json")
    assert second.event()["state"] == "submitted"
    gate("first")
    assert first.finish()[0] == 0
    gate("second")
    status, out, _ = second.finish()
    said = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert "".join(each["text"] for each in said if each["event"] == "output") == "second begun\nsecond done\n"
    assert len({each["task_id"] for each in said}) == 1


@pytest.mark.spec("M1")
def test_a_waiting_task_that_is_canceled_ends_its_stream_at_once(
    worker: Hosted, watching: Watching, gate: Callable[[str], None]
) -> None:
    first = watching("send", "@1", "first", "--stream")
    assert first.line() == "first begun\n"
    waiting = watching("send", "@1", "second", "--stream")
    task_id = waiting.note().split()[1].removesuffix(":")
    assert mur("cancel", "@1", task_id).returncode == 0
    status, out, errors = waiting.finish()
    assert (status, out) == (1, "")
    assert "is canceled: the task was canceled before it started" in errors
    gate("first")
    assert first.finish()[0] == 0


@pytest.mark.spec("M1", "I4")
def test_the_token_is_asked_for_and_sent_and_shown_to_nobody(worker: Hosted, watching: Watching) -> None:
    watcher = watching("watch", "--json")
    sender = watching("send", "@1", "first", "--stream", "--json")
    events = [watcher.event() for _ in range(2)]
    assert [each["event"] for each in events] == ["status", "output"]
    worker.kill(signal.SIGTERM)
    for watched, status in ((watcher, 0), (sender, 1)):
        ended, out, errors = watched.finish()
        assert ended == status
        assert "mdt1." not in out + errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.spec("M1", "I4")
def test_another_user_does_not_see_what_a_public_session_says(stepping: Hosted) -> None:
    host, _, port = stepping.ready["url"].rpartition(":")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "stream/watch", "params": {}})
    door = HTTPConnection(host, int(port))
    os.seteuid(65534)  # A socket belongs to who makes it.
    try:
        door.sock = socket.socket()
    finally:
        os.seteuid(0)
    with closing(door):
        door.sock.connect(("127.0.0.1", int(port)))
        door.request("POST", "/", body)
        answer = door.getresponse()
        assert answer.status == 403
        assert json.loads(answer.read())["error"] == "forbidden_user"


@pytest.mark.spec("O4")
@pytest.mark.parametrize("number", ["-1", str(2**64), "x"])
def test_only_a_number_can_be_gone_on_behind(home: Path, number: str) -> None:
    refused = mur("watch", "@1", f"--after={number}")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--after" in refused.stderr


@pytest.mark.spec("O4")
def test_streaming_waits_so_it_cannot_be_told_not_to(home: Path) -> None:
    refused = mur("send", "@1", "x", "--stream", "--no-wait")
    assert refused.returncode == 2
    assert "--stream waits for the task's end" in refused.stderr


class RustDoor(BaseHTTPRequestHandler):
    """Streams as the Rust runtime's door does: events of its own shape, and no chunks."""

    events = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.events.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def rust(running: Path) -> Iterator[Callable[[str], str]]:
    """Record a session of this very process, behind a door that says these events and hangs up."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), RustDoor)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def saying(events: str) -> str:
        RustDoor.events = events
        session_id = "ses_0199c4e2f1b7712a9d3e4f5061728394"
        write_record(running, session_id=session_id, url=f"localhost:{server.server_address[1]}")
        return session_id

    yield saying
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.spec("O4", "P4")
def test_a_session_of_the_rust_runtime_is_watched_as_well(rust: Callable[[str], str]) -> None:
    session_id = rust(
        'event: connection-ack\ndata: {"role":"observer","conversation_mode":"stateless"}\n\n'
        'event: gap\ndata: {"first_available_id":37}\n\n'
        ":heartbeat\n\n"
        'id: 37\nevent: status\ndata: {"id":"tsk_1","context_id":"ctx_1","status":{"state":"working","message":'
        '"inference turn 1"},"final":false}\n\n'
        'id: 38\nevent: text\ndata: {"id":"tsk_1","text":"Hello","final":false}\n\n'
        'id: 39\nevent: text\ndata: {"id":"tsk_1","text":" there.\\n","final":false}\n\n'
        'id: 40\nevent: thinking\ndata: {"id":"tsk_1","text":"hm","final":false}\n\n'
        'id: 41\nevent: artifact\ndata: {"id":"tsk_1","artifact":{"tool_name":"bash","content":"hi"}}\n\n'
        'event: lagged\ndata: {"missed":3}\n\n'
        'id: 42\nevent: status\ndata: {"id":"tsk_1","context_id":"ctx_1","status":{"state":"completed","message":'
        '"session ended","response":"Hello there."},"final":true}\n\n'
        "event: capsule-closed\ndata: {}\n\n"
    )
    watched = mur("watch", session_id)
    assert watched.stderr.splitlines()[1:] == [
        "warning: what came before event 37 is not kept any more",
        "task tsk_1: working: inference turn 1",
        "[bash] hi",
        "warning: the door has left out 3 events",
        "task tsk_1: completed: session ended",
        "session ended",
    ]
    assert (watched.returncode, watched.stdout) == (0, "Hello there.\n")


@pytest.mark.spec("O4")
def test_a_stream_that_ends_without_saying_so_is_lost_although_its_session_is_there(rust: Callable[[str], str]) -> None:
    session_id = rust('id: 7\nevent: text\ndata: {"id":"tsk_1","text":"a\\n"}\n\n')
    lost = mur("watch", session_id)
    assert (lost.returncode, lost.stdout) == (1, "a\n")
    assert "the stream ended after event 7, and did not say that the session had" in lost.stderr
    assert "the session is still there" in lost.stderr
    assert f"`mur watch {session_id} --after 7` goes on" in lost.stderr


@pytest.mark.spec("O4")
def test_a_door_that_ends_the_stream_is_believed_and_quoted(rust: Callable[[str], str]) -> None:
    session_id = rust('event: error\ndata: {"error":"too \\u001b[31mslow"}\n\n')
    lost = mur("watch", session_id, "--json")
    assert lost.returncode == 1
    said = [json.loads(line) for line in lost.stdout.splitlines()]
    assert said[0]["reason"] == "too \x1b[31mslow"
    assert "ended the stream before any event: too" in said[1]["error"]["message"]
    assert "\x1b" not in mur("watch", session_id).stderr


# Slow: a hundred million bytes are read, for two seconds at the end.
@pytest.mark.slow
@pytest.mark.spec("M1", "O4")
def test_a_task_that_says_more_than_can_be_shown_in_time_ends_as_it_ended(hosts: Hosts, tmp_path: Path) -> None:
    manifest = {
        "name": "flood",
        "version": "0.1.0",
        "process": {"command": ["sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' '\\n'; echo last"]},
        "lifecycle": {"task_acceptance": "single", "after_task": "exit"},
    }
    (tmp_path / "murmur.yaml").write_text(json.dumps(manifest))
    hosts.from_manifest(tmp_path / "murmur.yaml")
    with subprocess.Popen(
        [MUR, "send", "@1", "x", "--stream"], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as sender:
        assert sender.stdout is not None
        assert sender.stderr is not None
        size, end = 0, b""
        while data := sender.stdout.read(1 << 20):
            size, end = size + len(data), (end + data)[-200:]
        errors = sender.stderr.read().decode()
    assert sender.returncode == 0, errors
    # Whole, or with what is left out named, and in any case with its end.
    assert size == 100_000_005 or b" bytes are left out here; out/result_tsk_" in end


@pytest.mark.spec("O4")
def test_a_delegating_session_is_watched_to_its_end(home: Path, watching: Watching, tmp_path: Path) -> None:
    capsule = tmp_path / "home" / ".murmur" / "artifacts" / "waiter" / "1.0"
    capsule.mkdir(parents=True)
    (tmp_path / "home" / ".murmur").chmod(0o700)
    os.mkfifo(tmp_path / "go")
    manifest = {
        "name": "waiter",
        "version": "1.0",
        "process": {"command": ["sh", "-c", f"cat {tmp_path}/go"]},
        "lifecycle": {"task_acceptance": "single"},
    }
    (capsule / "murmur.yaml").write_text(json.dumps(manifest))
    delegating = watching("delegate", "waiter@1.0", "--task", "x")
    with (tmp_path / "go").open("w"):  # Once the child's command is there.
        address = next(
            each["session_id"] for each in json.loads(mur("ps", "--json").stdout) if each["capsule_name"] == "delegate"
        )
        watcher = watching("watch", str(address))
        assert watcher.note().startswith(f"watching {address}")
    assert delegating.finish()[0] == 0
    status, out, errors = watcher.finish()
    assert (status, out, errors) == (0, "", "session ended\n")
