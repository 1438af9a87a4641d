"""`mur run`, on real processes (M1, M3-M5, G2, G4, R1)."""

import json
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from murmur.cli.run import app as run_app
from murmur.domain.agent_card import session_id_from_card
from murmur.domain.record import parse_record
from tests.cli.conftest import MUR, SPAWNER, Hosts, mur, mur_json, wait_for_exit

WAITS = (sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()")
# Makes its stdin the controlling terminal of a session of its own, then becomes what it is told.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Told:
    """A pipe with a name, through which a command says how far it is."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self.descriptor = os.open(path, os.O_RDWR)  # Our own write end keeps it from ever ending.

    def wait_for(self, word: str) -> None:
        heard = ""
        while word not in heard:
            assert select.select([self.descriptor], [], [], 10)[0], f"not told {word!r}, only {heard!r}"
            heard += os.read(self.descriptor, 100).decode()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    pipe = Told(tmp_path / "told")
    yield pipe
    os.close(pipe.descriptor)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.spec("M1", "R1", "I1", "G2")
def test_a_session_leaves_a_record_while_it_runs_and_nothing_afterwards(hosts: Hosts, home: Path) -> None:
    hosted = hosts.start(*WAITS)
    running = home / ".murmur" / "running"
    record = parse_record((running / f"{hosted.session_id}.json").read_bytes())
    assert re.fullmatch(r"ses_[0-9a-f]{12}7[0-9a-f]{19}", record.session_id)
    assert re.fullmatch(r"localhost:\d+", record.url)
    assert record.pid == hosted.process.pid == hosted.ready["pid"]
    assert record.process_start
    assert (record.capsule_name, record.capsule_version) == (Path(sys.executable).name, "0.0.0")
    assert (
        Path(record.workdir)
        == hosted.records
        == home / ".murmur/records" / Path.cwd().relative_to("/") / record.session_id
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.started_at)
    assert sorted(path.name for path in running.iterdir()) == [
        f"{record.session_id}.json",
        f"{record.session_id}.origin",
    ]
    assert {path.stat().st_mode & 0o777 for path in running.iterdir()} == {0o600}
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert list(running.iterdir()) == []


@pytest.mark.spec("M1")
def test_the_readiness_line_has_its_keys_sorted(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    assert list(hosted.ready) == ["name", "pid", "records_dir", "session_id", "url", "version", "workdir"]
    assert hosted.ready["workdir"] == str(Path.cwd())


@pytest.mark.spec("M1", "P2")
def test_the_door_serves_a_card_that_names_the_session(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    with urllib.request.urlopen(f"http://{hosted.ready['url']}/.well-known/agent-card.json", timeout=5) as answer:
        assert session_id_from_card(json.load(answer)) == hosted.session_id


@pytest.mark.spec("M1")
def test_the_trace_begins_and_ends_with_the_session(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    hosted.kill(signal.SIGTERM)
    hosted.wait()
    events = [json.loads(line) for line in (hosted.records / "trace.jsonl").read_text().splitlines()]
    assert [event["event_type"] for event in events] == ["session_start", "session_end"]
    assert {event["session_id"] for event in events} == {hosted.session_id}
    assert events[0]["capsule_version"] == "0.0.0"
    assert events[1]["exit_status"] == 0
    assert events[1]["duration_ms"] >= 0


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_ending_signal_ends_the_command_and_is_no_failure(hosts: Hosts, number: signal.Signals) -> None:
    hosted = hosts.start(*WAITS)
    family = children(hosted.process.pid)
    hosted.kill(number)
    assert hosted.wait() == 0
    assert len(family) == 3  # The watcher, its waker and the command.
    assert all(wait_for_exit(pid, 0) for pid in family)


@pytest.mark.spec("M1")
def test_a_stopped_command_is_continued_so_that_it_can_end(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    command = max(children(hosted.process.pid))
    os.kill(command, signal.SIGSTOP)
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert wait_for_exit(command, 0)


@pytest.mark.slow  # The grace is 5 seconds.
@pytest.mark.spec("M1")
def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(hosts: Hosts, told: Told) -> None:
    hosted = hosts.start("sh", "-c", 'trap "" TERM; echo up >"$0"; while :; do sleep 1000; done', told.path)
    told.wait_for("up")
    family = children(hosted.process.pid)
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert all(wait_for_exit(pid, 0) for pid in family)


@pytest.mark.spec("M3", "M5")
def test_a_second_signal_is_immediate_and_forced(hosts: Hosts, told: Told) -> None:
    # The command tells of the first SIGTERM, so that the second one surely comes after it.
    script = 'trap "echo got >"$0"" TERM; echo up >"$0"; while :; do sleep 0.01; done'
    hosted = hosts.start("sh", "-c", script, told.path)
    told.wait_for("up")
    hosted.kill(signal.SIGTERM)
    told.wait_for("got")
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 143


@pytest.mark.spec("M1")
def test_the_command_dies_when_its_host_is_killed(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    family = children(hosted.process.pid)
    hosted.kill(signal.SIGKILL)
    assert all(wait_for_exit(pid, 1) for pid in family)


@pytest.mark.spec("M1", "M5")
def test_what_a_finished_command_leaves_in_its_group_is_killed(hosts: Hosts, tmp_path: Path) -> None:
    left = tmp_path / "pid"
    hosted = hosts.start("sh", "-c", 'trap "" TERM; sleep 1000 & echo $! >"$0"', str(left))
    assert hosted.wait() == 0
    assert wait_for_exit(int(left.read_text()), 0)


@pytest.mark.spec("M1", "M5")
def test_the_group_keeps_its_grace_after_the_command_itself_has_ended(hosts: Hosts, told: Told, tmp_path: Path) -> None:
    done = tmp_path / "done"
    helper = 'trap "sleep 0.3; echo tidy >\\"$0\\"; exit" TERM; echo up >"$1"; while :; do sleep 0.05; done'
    hosted = hosts.start("sh", "-c", f'sh -c \'{helper}\' "$0" "$1" & exec sleep 1000', str(done), told.path)
    told.wait_for("up")
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert done.read_text() == "tidy\n"


@pytest.mark.spec("M5")
def test_a_command_that_fails_is_quoted_with_its_status_and_last_lines(home: Path) -> None:
    ended = mur("run", "--", "sh", "-c", "echo first >&2; echo why >&2; exit 3")
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "error[E-RUN-040]: the command sh ended with exit status: 3; its last stderr lines were:",
        "  first",
        "  why",
    ]
    assert list((home / ".murmur/running").iterdir()) == []


@pytest.mark.spec("M5", "X6")
def test_a_command_that_dies_of_a_signal_is_named_with_it() -> None:
    assert "signal: 9 (SIGKILL)" in mur("run", "--", "sh", "-c", "kill -9 $$").stderr


@pytest.mark.spec("M5")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-command-anywhere", "command not found: no-such-command-anywhere"),
        ("/etc/passwd", "command not executable: /etc/passwd"),
    ],
)
def test_a_command_that_cannot_start_leaves_no_record_and_no_door(home: Path, command: str, message: str) -> None:
    ended = mur("run", "--", command)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"error[E-RUN-902]: {message}")
    assert list((home / ".murmur").glob("running/*")) == []


@pytest.mark.spec("M5")
def test_with_json_stdout_is_one_document_also_when_nothing_started() -> None:
    ended = mur("run", "--json", "--", "no-such-command-anywhere")
    assert json.loads(ended.stdout)["error"]["code"] == "E-RUN-902"
    assert ended.stderr == ""


@pytest.mark.spec("M5")
def test_with_json_a_failure_after_the_readiness_line_goes_to_stderr() -> None:
    ended = mur("run", "--json", "--", "sh", "-c", "exit 3")
    assert json.loads(ended.stdout)["name"] == "sh"
    assert "error[E-RUN-040]" in ended.stderr


@pytest.mark.spec("M1")
def test_the_commands_output_goes_to_its_logs_and_with_verbose_also_to_ours(home: Path) -> None:
    quiet = mur("run", "--", "sh", "-c", "echo out; echo err >&2")
    loud = mur("run", "-v", "--", "sh", "-c", "echo out; echo err >&2; cat")
    both = mur("run", "-v", "--json", "--", "sh", "-c", "echo out; echo err >&2")
    logs = sorted((home / ".murmur/records").rglob("stdout.log"))
    assert [log.read_text() for log in logs] == ["out\n"] * 3
    assert [log.with_name("stderr.log").read_text() for log in logs] == ["err\n"] * 3
    assert ("out" in quiet.stdout.split(), quiet.stderr) == (False, "")
    assert (loud.stdout.splitlines()[-1], loud.stderr) == ("out", "err\n")
    assert json.loads(both.stdout)
    assert sorted(both.stderr.split()) == ["err", "out"]


@pytest.mark.spec("M1")
def test_the_command_learns_its_session_and_nothing_of_our_launch(hosts: Hosts, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    hosted = hosts.start("sh", "-c", 'env >"$0"', str(seen), MURMUR_SPAWNER=SPAWNER, MURMUR_FORMATION_PEERS="x")
    hosted.wait()
    environment = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    assert environment["MURMUR_SESSION_ID"] == hosted.session_id
    assert environment["MURMUR_RECORDS_DIR"] == str(hosted.records)
    assert not environment.keys() & {"MURMUR_SPAWNER", "MURMUR_FORMATION_PEERS"}


@pytest.mark.spec("M1")
def test_nobody_but_the_host_holds_the_write_end_of_the_commands_lifeline(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    for child in children(hosted.process.pid):
        for descriptor in Path(f"/proc/{child}/fd").iterdir():
            try:
                link = str(descriptor.readlink())
                flags = int(Path(f"/proc/{child}/fdinfo/{descriptor.name}").read_text().split()[3], 8)
            except FileNotFoundError:
                continue  # A file that the starting command has read and closed.
            assert not link.startswith("pipe:") or flags & os.O_ACCMODE == os.O_RDONLY


@pytest.mark.spec("H1", "G2")
@pytest.mark.parametrize("home_value", ["", "relative/home"])
def test_without_a_home_a_session_warns_and_runs_unrecorded(tmp_path: Path, home_value: str) -> None:
    ended = mur("run", "--", "true", HOME=home_value, TMPDIR=str(tmp_path))
    assert ended.returncode == 0
    assert ended.stderr.startswith("warning: HOME is ")
    assert [path.name for path in tmp_path.glob("murmur-*/*")] != []


@pytest.mark.spec("H2", "G2")
def test_a_running_directory_that_is_a_file_is_a_warning_for_a_session(home: Path) -> None:
    (home / ".murmur").mkdir()
    (home / ".murmur/running").write_text("")
    ended = mur("run", "--", "true")
    assert ended.returncode == 0
    assert f"warning: {home}/.murmur/running: Not a directory" in ended.stderr


@pytest.mark.spec("R2", "G2")
def test_a_directory_that_is_not_utf_8_cannot_be_recorded(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    ended = subprocess.run([MUR, "run", "--", "true"], cwd=place, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "warning: " in ended.stderr
    assert "not UTF-8" in ended.stderr


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("bind", "recorded"), [("0.0.0.0", "localhost"), ("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("::", "localhost")]
)
def test_the_recorded_url_leads_to_the_door_wherever_it_is_bound(hosts: Hosts, bind: str, recorded: str) -> None:
    hosted = hosts.start(*WAITS, options=("--bind", bind))
    assert hosted.ready["url"].rpartition(":")[0] == recorded
    (row,) = mur_json("ps")
    assert (row["status"], row["reason"]) == ("running", None)


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    "bind",
    ["example.invalid", "203.0.113.1", "not an address", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:127.0.0.1"],
)
def test_a_door_that_cannot_be_bound_is_an_error_and_starts_nothing(tmp_path: Path, bind: str) -> None:
    started = tmp_path / "started"
    ended = mur("run", "--bind", bind, "--", "touch", str(started))
    assert ended.returncode == 1
    assert ended.stderr.startswith("error[E-RUN-903]: cannot bind the door to ")
    assert "\n  hint: " in ended.stderr
    assert not started.exists()


@pytest.mark.spec("M4")
def test_closed_standard_streams_never_end_a_session(tmp_path: Path) -> None:
    done = tmp_path / "done"
    script = f'exec "{MUR}" run -v -- sh -c "echo out; echo err >&2; touch {done}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", script], check=False, timeout=20).returncode == 0
    assert done.exists()


@pytest.mark.spec("M4")
def test_a_reader_that_leaves_never_ends_a_session(tmp_path: Path) -> None:
    done = tmp_path / "done"
    process = subprocess.Popen(
        [MUR, "run", "-v", "--", "sh", "-c", f"yes | head -c 300000; touch {done}"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert done.exists()


@pytest.mark.spec("G4")
def test_a_session_with_a_terminal_does_not_outlive_it(hosts: Hosts) -> None:
    detached = hosts.start(*WAITS)
    leader, follower = pty.openpty()
    attached = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, MUR, "run", "--", *WAITS],
        stdin=follower,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(follower)
    assert attached.stdout is not None
    attached.stdout.readline()
    session_id = attached.stdout.readline().split()[1]
    rows = {row["session_id"]: row["outlives_launcher"] for row in mur_json("ps")}
    assert rows == {detached.session_id: True, session_id: False}
    os.close(leader)  # The window closes: SIGHUP.
    assert attached.wait(timeout=20) == 0
    attached.stdout.close()


@pytest.mark.spec("M1")
def test_an_ignored_sighup_stays_ignored(hosts: Hosts) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hosted = hosts.start(*WAITS)
    finally:
        signal.signal(signal.SIGHUP, previous)
    hosted.kill(signal.SIGHUP)
    assert [row["status"] for row in mur_json("ps")] == ["running"]
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0


@pytest.mark.spec("M1", "M3", "E1")
@pytest.mark.parametrize("leaver", [("timeout", "1000"), ("setsid",)])
def test_a_command_that_leaves_the_watchers_group_is_ended_all_the_same(hosts: Hosts, leaver: tuple[str, ...]) -> None:
    hosted = hosts.start(*leaver, *WAITS)
    family = children(hosted.process.pid)
    hosted.kill(signal.SIGTERM)
    assert hosted.wait() == 0
    assert all(wait_for_exit(pid, 0) for pid in family)


@pytest.mark.spec("M3")
def test_the_several_hangups_of_a_closing_terminal_are_one_wish(hosts: Hosts, told: Told, tmp_path: Path) -> None:
    done = tmp_path / "done"
    tidy = r"""echo got >\"$0\"; sleep 0.3; echo tidy >\"$1\"; exit"""
    script = f'trap "{tidy}" TERM; echo up >"$0"; while :; do sleep 0.01; done'
    hosted = hosts.start("sh", "-c", script, told.path, str(done))
    told.wait_for("up")
    hosted.kill(signal.SIGHUP)
    told.wait_for("got")
    hosted.kill(signal.SIGHUP)
    assert hosted.wait() == 0
    assert done.read_text() == "tidy\n"


@pytest.mark.spec("M5", "M3")
@pytest.mark.slow  # Three sessions, one after the other, each under a storm.
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_storm_of_signals_without_an_end_keeps_no_session_from_its_own(
    hosts: Hosts, options: tuple[str, ...]
) -> None:
    for _ in range(3):
        hosted = hosts.start(*WAITS, options=options)
        ends_by = time.monotonic() + 20
        while hosted.process.poll() is None:  # Ours and not reaped before this says so: its number is its own.
            assert time.monotonic() < ends_by, "it does not end while it is signalled"
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(hosted.process.pid, number)
        assert hosted.wait() in (0, 143)
        events = [json.loads(line)["event_type"] for line in (hosted.records / "trace.jsonl").read_text().splitlines()]
        assert events == ["session_start", "session_end"]
        assert hosted.process.stderr is not None
        assert "Traceback" not in hosted.process.stderr.read()


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize("limit", range(7, 40, 4))
def test_few_descriptors_are_an_error_in_words(limit: int) -> None:
    script = f'ulimit -n {limit}; exec "{MUR}" run -v -- true'
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=20)
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr
    assert "never awaited" not in ended.stderr


@pytest.mark.spec("M3", "M5")
def test_a_door_crowded_with_clients_does_not_make_a_session_deaf(hosts: Hosts) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    try:
        hosted = hosts.start(*WAITS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    host, _, port = hosted.ready["url"].rpartition(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(45)]
    try:
        hosted.kill(signal.SIGTERM)
        assert hosted.wait() == 0
    finally:
        for client in clients:
            client.close()
    assert hosted.process.stderr is not None
    assert "Traceback" not in hosted.process.stderr.read()


@pytest.mark.spec("M4")
def test_a_script_whose_interpreter_is_missing_is_told_apart(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert f"the interpreter of {script} was not found" in mur("run", "--", str(script)).stderr


@pytest.mark.spec("M1")
def test_a_work_folder_behind_a_circle_of_links_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    ended = mur("run", "--workdir", str(tmp_path / "loop"), "--", "true")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error[E-RUN-902]: the work folder {tmp_path}/loop cannot be used: ")


@pytest.mark.spec("M1", "M5")
def test_a_task_that_cannot_be_written_down_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "task.md").mkdir()
    ended = mur("run", "--workdir", str(tmp_path), "--task", "x", "--", "true")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error[E-RUN-904]: ")
    assert f"{tmp_path}/task.md" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.spec("M1")
def test_a_task_s_file_that_cannot_be_read_is_no_task(tmp_path: Path) -> None:
    ended = mur("run", "--json", "--task", str(tmp_path), "--", "true")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"]["message"] == f"the task {tmp_path} cannot be read: it is a directory"


@pytest.mark.spec("M1")
def test_a_task_s_file_that_is_no_text_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "task").write_bytes(b"caf\xe9")
    ended = mur("run", "-v", "--workdir", str(tmp_path), "--task", str(tmp_path / "task"), "--", "cat")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "caf\N{REPLACEMENT CHARACTER}")
    assert ended.stderr.startswith(f"warning: the task {tmp_path}/task is not UTF-8")


@pytest.mark.spec("M1")
@pytest.mark.parametrize("acceptance", ["single", "queue"])
def test_a_script_that_is_to_take_tasks_is_refused_since_it_has_no_door(tmp_path: Path, acceptance: str) -> None:
    manifest = tmp_path / "murmur.yaml"
    manifest.write_text('{"name": "s", "version": "1", "process": {"command": ["true"], "kind": "script"}}')
    refused = mur("run", "--manifest", str(manifest), "--lifecycle-task-acceptance", acceptance)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"--lifecycle-task-acceptance {acceptance}" in refused.stderr
    assert "kind: script" in refused.stderr
    assert mur("run", "--manifest", str(manifest), "--lifecycle-task-acceptance", "none").returncode == 0


@pytest.mark.spec("M5")
@pytest.mark.parametrize("option", ["--manifest", "--workdir"])
def test_what_may_not_be_read_is_no_fault_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    # A manifest is refused by its own error, and a work folder need not be read. A mode means nothing to root.
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    command = get_command(run_app)
    (parameter,) = (each for each in command.params if option in each.opts)
    context = command.make_context("run", [option, str(tmp_path), "--", "true"])
    assert context.params[str(parameter.name)] == str(tmp_path)
