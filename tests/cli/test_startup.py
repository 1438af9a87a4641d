"""What does a command import? Start-up is a feature: each run pays for every module it touches."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from murmur.adapters.processes import SystemProcesses
from murmur.domain.agent_card import CAPSULE_EXTENSION
from murmur.domain.process import ProcessIdentity
from murmur.domain.record import RunningRecord, render_record
from murmur.domain.secret import DoorToken

HEAVY = {
    "asyncio",
    "http.client",
    "httpx",
    "hypercorn",
    "pydantic",
    "pydantic_core",
    "rich",
    "starlette",
    "structlog",
    "uuid_utils",
    "uvicorn",
    "wcwidth",
    "murmur.adapters.command",
    "murmur.adapters.door_server",
    "murmur.adapters.session_host",
    "murmur.cli.run",
}
"""What no operator command needs for plain names on a terminal's table or a program's document."""
HTTP = {"h11", "murmur.adapters.door_exchange"}
"""What only a door to ask is worth."""
COMMANDS = {f"murmur.cli.{name}" for name in ("ps", "stop", "token", "run", "prune")}

SESSION = "ses_0198f3a27c6e7d4281f0a1b2c3d4e5f6"
_RUN = """
import json, sys
from murmur.cli.main import main
told = sys.argv.pop(1)
try:
    main()
finally:
    with open(told, "w") as file:
        json.dump(sorted(sys.modules), file)
"""


def imported_by(home: Path, *arguments: str, **variables: str) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """Run `mur` for real; return the modules it had imported at its end, and what came of it."""
    told = home / "modules.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(told), *arguments],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    return set(json.loads(told.read_text())), done


@contextmanager
def a_process() -> Iterator[ProcessIdentity]:
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL) as process:
        try:
            (reading,) = SystemProcesses().readings([ProcessIdentity(process.pid, "")])
            yield ProcessIdentity(process.pid, reading.start_token or "")
        finally:
            process.kill()


@contextmanager
def a_door() -> Iterator[int]:
    """Answer one caller with the card of `SESSION`."""
    card = {"capabilities": {"extensions": [{"uri": CAPSULE_EXTENSION, "params": {"sessionId": SESSION}}]}}
    body = json.dumps(card).encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer() -> None:
            caller, _ = listener.accept()
            with caller:
                if caller.recv(4096):
                    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        answering = threading.Thread(target=answer)
        answering.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Whoever never called leaves the thread waiting: call in its place.
            socket.create_connection(listener.getsockname()).close()
            answering.join()


def record(home: Path, process: ProcessIdentity, port: int = 9, token: str | None = None) -> None:
    running = home / ".murmur" / "running"
    running.mkdir(parents=True, mode=0o700)
    content = render_record(
        RunningRecord(
            session_id=SESSION,
            url=f"localhost:{port}",
            pid=process.pid,
            process_start=process.process_start,
            capsule_name="worker",
            capsule_version="1.0.0",
            workdir=f"/home/someone/.murmur/records/{SESSION}",
            outlives_launcher=False,
            started_at="2026-01-01T00:00:00Z",
            door_token=None if token is None else DoorToken(token),
        )
    )
    (running / f"{SESSION}.json").write_bytes(content)


def other_commands(name: str | None) -> set[str]:
    return COMMANDS - {f"murmur.cli.{name}"}


@pytest.mark.spec("O1", "O2", "O3")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--version"], 0), (["ps"], 0), (["ps", "--json"], 0), (["stop", "--all", "--dry-run"], 0), (["token"], 3)],
    ids=str,
)
def test_on_an_empty_machine_a_command_imports_nothing_heavy_and_no_http(
    home: Path, arguments: Sequence[str], status: int
) -> None:
    modules, done = imported_by(home, *arguments)
    assert done.returncode == status, done.stderr
    command = None if arguments[0].startswith("-") else arguments[0]
    assert not modules & (HEAVY | HTTP | other_commands(command))


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["uninstall", "worker@1.0"]], ids=" ".join)
def test_what_is_in_the_stores_is_told_without_reading_a_manifest(
    home: Path, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ".murmur" / "artifacts" / "worker" / "1.0"
    folder.mkdir(parents=True)
    (folder / "murmur.yaml").touch()
    monkeypatch.chdir(tmp_path)
    modules, done = imported_by(home, *arguments)
    assert done.returncode == 0, done.stderr
    assert "worker" in done.stdout
    # Only what is staged needs a name that nobody else has.
    needed = {"uuid_utils"} if arguments[0] == "uninstall" else set()
    assert not modules & ((HEAVY | HTTP | {"yaml"} | COMMANDS) - needed)


@pytest.mark.spec("O1")
def test_printing_the_version_imports_no_adapter_and_no_record_codec(home: Path) -> None:
    modules, done = imported_by(home, "--version")
    assert done.stdout.startswith("mur ")
    assert not {name for name in modules if name.startswith("murmur.adapters")}
    assert not modules & (COMMANDS | {"murmur.domain.record", "murmur.domain.listing", "murmur.cli.wiring"})


@pytest.mark.spec("O1")
@pytest.mark.parametrize("arguments", [["ps"], ["ps", "--json"]], ids=" ".join)
def test_listing_a_session_whose_door_answers_imports_h11_and_nothing_heavy(
    home: Path, arguments: Sequence[str]
) -> None:
    with a_process() as process, a_door() as port:
        record(home, process, port)
        modules, done = imported_by(home, *arguments)
    assert done.returncode == 0
    assert "running" in done.stdout, done.stderr
    assert modules >= HTTP
    assert not modules & (HEAVY | other_commands("ps"))


@pytest.mark.spec("O1", "P5")
def test_listing_only_sessions_that_are_gone_imports_no_http(home: Path) -> None:
    with a_process() as process:
        record(home, process)
    modules, done = imported_by(home, "ps")
    assert done.stdout == "no running capsules\n"
    assert "pruned 1 stale record" in done.stderr
    assert not modules & (HEAVY | HTTP)


@pytest.mark.spec("O1")
def test_a_listing_pays_nothing_for_the_tree_and_the_tree_nothing_for_the_width_of_what_it_draws(home: Path) -> None:
    with a_process() as process:
        record(home, process)
        file = home / ".murmur" / "running" / f"{SESSION}.json"
        child = json.loads(file.read_text()) | {"session_id": f"{SESSION[:-1]}7", "spawned_by": SESSION}
        file.with_name(f"{child['session_id']}.json").write_text(json.dumps(child))
        plain, _ = imported_by(home, "ps", LC_ALL="C.UTF-8")
        tree, done = imported_by(home, "ps", "--tree", LC_ALL="C.UTF-8")
    assert "└─ worker@1.0.0" in done.stdout, done.stderr
    assert not plain & {"murmur.cli.tree", "murmur.domain.family_tree"}
    assert not tree & HEAVY


@pytest.mark.spec("O2")
def test_planning_a_stop_asks_no_door_and_imports_nothing_for_it(home: Path) -> None:
    with a_process() as process:
        record(home, process)
        modules, done = imported_by(home, "stop", "@1", "--dry-run")
    assert done.stdout.startswith("would signal SIGTERM"), done.stderr
    assert not modules & (HEAVY | HTTP | other_commands("stop"))


@pytest.mark.spec("O3")
def test_printing_a_token_asks_no_door_and_imports_nothing_for_it(home: Path) -> None:
    with a_process() as process:
        record(home, process, token="mdt1.a.b")
        modules, done = imported_by(home, "token", "@1")
    assert done.stdout == "mdt1.a.b\n", done.stderr
    assert not modules & (HEAVY | HTTP | other_commands("token"))


@pytest.mark.spec("O1")
def test_completing_a_command_name_imports_nothing_heavy(home: Path) -> None:
    modules, done = imported_by(home, _MUR_COMPLETE="complete_bash", COMP_WORDS="mur p", COMP_CWORD="1")
    assert done.stdout.split() == ["ps", "prune"], done.stderr
    assert not modules & (HEAVY | HTTP)


@pytest.mark.spec("O1")
def test_a_name_that_is_not_ascii_is_the_one_thing_the_width_tables_are_imported_for(home: Path) -> None:
    with a_process() as process, ExitStack() as opened:
        port = opened.enter_context(a_door())
        record(home, process, port)
        file = home / ".murmur" / "running" / f"{SESSION}.json"
        file.write_bytes(file.read_bytes().replace(b"worker", "作業者".encode()))
        modules, _ = imported_by(home, "ps")
    assert modules & HEAVY == {"wcwidth"}


def test_a_session_that_writes_its_log_imports_structlog_and_no_rich_for_it(home: Path) -> None:
    modules, done = imported_by(home, "run", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "structlog" in modules
    assert "rich" not in modules


def test_at_the_end_of_a_command_python_has_next_to_nothing_to_look_through_for_cycles(home: Path) -> None:
    told = home / "left"
    code = f"""
import atexit, gc
from murmur.cli.main import main
atexit.register(lambda: open({str(told)!r}, "w").write(str(len(gc.get_objects()))))
main()
"""
    subprocess.run([sys.executable, "-c", code, "ps"], stdin=subprocess.DEVNULL, check=True, timeout=30)
    assert int(told.read_text()) < 100
