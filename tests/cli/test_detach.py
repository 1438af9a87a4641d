"""`mur run --detach`: the session that stays, and what whoever started it hears of it."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import MUR, mur, mur_json, wait_for_exit

SLEEP = ("--", "sleep", "1000")


@pytest.fixture(autouse=True)
def home_without_sessions(home: Path) -> Iterator[Path]:
    yield home
    mur("stop", "--all", "--timeout", "0")


def run(*arguments: str, cwd: Path | None = None, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [MUR, "run", *arguments],
        **{"cwd": cwd, "stdout": subprocess.PIPE, **more},
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )


def manifest(place: Path, kind: str = "agent", more: str = "") -> str:
    path = place / "murmur.yaml"
    path.write_text(f'name: worker\nversion: "1"\nprocess: {{command: [cat], kind: {kind}}}\n{more}')
    return str(path)


def at_start(place: Path, code: str) -> dict[str, str]:
    """Return the environment in which the session that stays first does what that code says."""
    (place / "sitecustomize.py").write_text(f"import os, signal\nif 'MURMUR_DETACHED' in os.environ:\n    {code}\n")
    return os.environ | {"PYTHONPATH": str(place)}


@pytest.mark.spec("M1", "M4")
def test_a_ready_session_says_nothing_more_and_keeps_no_stream_of_ours() -> None:
    ready = json.loads(run("--detach", "--json", "-v", *SLEEP).stdout)
    assert [row["session_id"] for row in mur_json("ps")] == [ready["session_id"]]
    streams = {str(Path(f"/proc/{ready['pid']}/fd/{number}").readlink()) for number in range(3)}
    assert streams == {os.devnull}


@pytest.mark.spec("M1")
def test_modules_in_the_caller_s_directory_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not ours')")
    ended = run("--detach", *SLEEP, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.spec("M5")
def test_the_document_of_an_error_is_no_readiness() -> None:
    ended = run("--detach", "--json", "--", "no-such-command-anywhere")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"]["code"] == "E-RUN-902"


@pytest.mark.spec("M1")
def test_what_is_warned_of_before_the_readiness_is_passed_on_however_much_it_is(tmp_path: Path) -> None:
    unknown = [f"unknown_{number:04}" for number in range(1000)]
    path = manifest(tmp_path, more="".join(f"{key}: 1\n" for key in unknown))
    ended = run("--detach", "--manifest", path, cwd=tmp_path)
    assert ended.returncode == 0
    assert len(ended.stderr) > 64 * 1024
    assert all(key in line for key, line in zip(unknown, ended.stderr.splitlines(), strict=True))


@pytest.mark.spec("M1")
def test_a_script_is_not_detached_since_it_has_no_door_to_wait_for(tmp_path: Path) -> None:
    ended = run("--detach", "--manifest", manifest(tmp_path, "script"), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--detach" in ended.stderr
    assert "kind: script" in ended.stderr


@pytest.mark.spec("M1")
def test_a_command_keeps_its_own_detach_and_learns_nothing_of_ours(tmp_path: Path) -> None:
    hosted = ("sh", "-c", 'env >environment; echo "$*" >words; exec sleep 1000', "x", "--detach", "--", "--detach")
    os.mkfifo(tmp_path / "words")
    words = os.open(tmp_path / "words", os.O_RDWR)
    ended = run("--detach", "--", *hosted, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert select.select([words], [], [], 10)[0]
    assert os.read(words, 100) == b"--detach -- --detach\n"
    os.close(words)
    assert "MURMUR_DETACHED" not in (tmp_path / "environment").read_text()


@pytest.mark.spec("M1")
def test_a_task_that_only_we_can_read_is_handed_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "told")
    told = os.open(tmp_path / "told", os.O_RDWR)
    read, write = os.pipe()
    os.write(write, b"from a pipe")
    os.close(write)
    hosted = ("sh", "-c", "cat >told; exec sleep 1000")
    ended = run("--detach", "--task", f"/dev/fd/{read}", "--", *hosted, cwd=tmp_path, pass_fds=[read])
    os.close(read)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert select.select([told], [], [], 10)[0]
    assert os.read(told, 100) == b"from a pipe"
    os.close(told)
    (row,) = mur_json("ps")
    assert Path(f"/proc/{row['pid']}/fd/0").readlink() == Path(os.devnull)


@pytest.mark.spec("M5", "X6")
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
def test_a_session_that_is_killed_before_it_is_ready_is_told_with_the_signal(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    killed = at_start(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    ended = run("--detach", *options, *SLEEP, env=killed)
    assert ended.returncode == 1
    told = json.loads(ended.stdout)["error"]["message"] if options else ended.stderr
    assert "the session ended before it was ready: signal: 9 (SIGKILL)" in told


@pytest.mark.spec("M1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_ends_the_wait_ends_the_session_that_is_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "told")
    told = os.open(tmp_path / "told", os.O_RDWR)
    waits = at_start(tmp_path, f"open('{tmp_path}/told', 'w').write(str(os.getpid())); signal.pause()")
    waiting = subprocess.Popen([MUR, "run", "--detach", *SLEEP], env=waits)
    assert select.select([told], [], [], 10)[0]
    session = int(os.read(told, 100))
    os.close(told)
    waiting.send_signal(number)
    try:
        assert waiting.wait(timeout=20) == 128 + number
        assert wait_for_exit(session, 0)
    finally:
        with suppress(ProcessLookupError):
            os.kill(session, signal.SIGKILL)


@pytest.mark.spec("M4")
def test_a_full_stdout_is_told_and_the_session_stays() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = run("--detach", *SLEEP, stdout=full)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error[E-RUN-913]")
    assert len(ended.stderr.splitlines()) == 1
    assert len(mur_json("ps")) == 1


@pytest.mark.spec("M1")
def test_where_the_task_cannot_be_handed_on_nothing_is_started() -> None:
    script = f'ulimit -f 0; exec "{MUR}" run --detach --task x {" ".join(SLEEP)}'  # No byte of it can be written.
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error[E-RUN-902]: the session could not be started: ")
