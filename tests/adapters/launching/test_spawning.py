"""The one place that starts `mur run` processes: what they get of ours, and what not (X8)."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters import spawning
from murmur.adapters.lifelines import Lifeline
from murmur.adapters.spawning import Cleared, Inherited, ProcessLaunch, StartedProcess, start_process
from murmur.domain.secret import SpawnApproval
from tests.adapters.processes_for_tests import ROOT, open_descriptors

PATH = Cleared([("PATH", os.environ["PATH"])])


def said_by(launch: ProcessLaunch) -> str:
    """Start it, and return all that it writes to stdout."""
    return read(start_process(launch))


def read(started: StartedProcess) -> str:
    process = started.process
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout, process.stderr:
        return process.stdout.read().decode()


def sh(code: str, **fields: Any) -> ProcessLaunch:
    return ProcessLaunch(("/bin/sh", "-c", code), PATH, **fields)


@pytest.mark.spec("X8", "C5")
def test_a_cleared_environment_is_exactly_its_pairs_the_last_of_two_counting() -> None:
    pairs = [("A", "1"), ("B", "zwei ü"), ("A", "2")]
    assert said_by(ProcessLaunch(("/usr/bin/env",), Cleared(pairs))).splitlines() == ["A=2", "B=zwei ü"]


@pytest.mark.spec("X8")
def test_an_inherited_environment_loses_names_and_then_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KEPT", "1"), ("REMOVED", "1"), ("BOTH", "old"), ("CHANGED", "old")):
        monkeypatch.setenv(name, value)
    environment = Inherited(("REMOVED", "BOTH", "NOT_THERE"), (("BOTH", "new"), ("CHANGED", "new"), ("ADDED", "1")))
    lines = set(said_by(ProcessLaunch(("/usr/bin/env",), environment)).splitlines())
    assert {"KEPT=1", "BOTH=new", "CHANGED=new", "ADDED=1"} <= lines
    assert not any(line.startswith("REMOVED=") for line in lines)
    assert os.environ["BOTH"] == "old"


@pytest.mark.spec("X8")
def test_it_runs_in_the_folder_that_is_named_or_else_in_ours(tmp_path: Path) -> None:
    assert Path(said_by(sh("pwd -P", cwd=tmp_path)).strip()) == tmp_path.resolve()
    assert Path(said_by(sh("pwd -P")).strip()) == Path.cwd().resolve()


@pytest.mark.spec("X8")
def test_its_input_is_one_line_and_then_ends_or_nothing_at_all() -> None:
    assert said_by(sh("cat", stdin_line=SpawnApproval("msa1.x"))) == "msa1.x\n"
    assert said_by(sh("cat; readlink /proc/self/fd/0")) == "/dev/null\n"


@pytest.mark.spec("X8")
def test_inherited_output_is_ours_and_has_no_pipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    started = start_process(sh("echo out; echo err >&2", inherit_output=True))
    assert started.process.stdout is None
    assert started.process.stderr is None
    assert started.process.wait(20) == 0
    assert capfd.readouterr() == ("out\n", "err\n")


@pytest.mark.spec("X8")
@pytest.mark.parametrize("own", [True, False])
def test_a_group_of_its_own_only_when_asked_for(own: bool) -> None:
    code = "import os; print(os.getpgid(0) == os.getpid())"
    launch = ProcessLaunch((sys.executable, "-ISc", code), PATH, own_process_group=own)
    assert said_by(launch) == f"{own}\n"


@pytest.mark.spec("X8")
def test_one_descriptor_is_kept_at_its_number_in_that_process_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept\n")
    kept = os.open(tmp_path / "kept", os.O_RDONLY)
    other = os.open(tmp_path / "kept", os.O_RDONLY)
    try:
        code = f"cat <&{kept}" if kept < 10 else f"cat /dev/fd/{kept}"
        test = f"{code}; test -e /proc/self/fd/{other} && echo leaked"
        assert said_by(sh(test, inherit_descriptor=kept)) == "kept\n"
        assert not os.get_inheritable(kept)
        assert said_by(sh(f"test -e /proc/self/fd/{kept} || echo none")) == "none\n"
    finally:
        os.close(kept)
        os.close(other)


@pytest.mark.spec("X8")
def test_a_lifeline_and_a_kept_descriptor_go_together_and_nothing_else_does() -> None:
    read_end, write_end = os.pipe()
    lifeline = Lifeline()
    wanted = {0, 1, 2, read_end, lifeline.read_end}
    try:
        code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
        started = start_process(
            ProcessLaunch((sys.executable, "-ISc", code), PATH, inherit_descriptor=read_end, lifeline=lifeline)
        )
        found = set(map(int, read(started).strip("[]\n").split(", ")))
        assert wanted <= found
        assert len(found - wanted) == 1, "more than the listing's own is open"
    finally:
        os.close(read_end)
        os.close(write_end)
        lifeline.close()


_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 900))
from murmur.adapters.spawning import Cleared, ProcessLaunch, raise_limit, start_process
from murmur.domain.secret import SpawnApproval
raise_limit()
raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (900, 900)
code = "read -r _; ulimit -Sn; ulimit -Hn"
started = start_process(ProcessLaunch(("/bin/sh", "-c", code), Cleared([]), stdin_line=SpawnApproval("x")))
print(started.process.stdout.read().decode().split())
started.process.wait()
"""


@pytest.mark.spec("X7", "X8")
def test_our_own_limit_is_raised_and_a_child_that_has_read_its_line_has_the_old_one() -> None:
    done = subprocess.run(
        (sys.executable, "-Wignore", "-c", _LIMITED), cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "['300', '900']\n"


def test_a_limit_that_cannot_be_raised_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(what: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(spawning, "_given", None)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    spawning.raise_limit()
    assert spawning._given is None


@pytest.mark.spec("X3")
@pytest.mark.parametrize("program", ["missing", "not executable", "a directory", "a null"])
def test_what_cannot_be_started_leaves_nothing(program: str, tmp_path: Path) -> None:
    (tmp_path / "not executable").write_text("#!/bin/sh\n")
    (tmp_path / "a directory").mkdir()
    path = "a\0b" if program == "a null" else str(tmp_path / program)
    before = open_descriptors()
    with pytest.raises((OSError, ValueError)):
        start_process(ProcessLaunch((path,), PATH, stdin_line=SpawnApproval("x")))
    assert open_descriptors() == before


@pytest.mark.spec("X6")
def test_a_line_that_nobody_can_read_any_more_is_said_to_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The moment between start and line is stretched until the process is gone.
    monkeypatch.setattr(
        spawning, "_restore_limit", lambda pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) and None
    )
    started = start_process(sh("exit 0", stdin_line=SpawnApproval("x")))
    assert started.stdin_refused == "broken pipe"
    read(started)


@pytest.mark.spec("E1")
def test_a_signal_that_the_calling_thread_holds_back_is_not_let_in_by_a_launch() -> None:
    said: list[str] = []

    def start() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # Its default would end this process.
        said.append(said_by(ProcessLaunch(("grep", "SigBlk", "/proc/self/status"), PATH)))  # dash clears its own.
        assert signal.SIGUSR1 in signal.sigpending()
        signal.sigwait([signal.SIGUSR1])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(20)
    assert said == [f"SigBlk:\t{1 << (signal.SIGUSR1 - 1):016x}\n"]


@pytest.mark.spec("E5")
def test_a_process_outlives_the_thread_that_started_it() -> None:
    started: list[StartedProcess] = []
    thread = threading.Thread(target=lambda: started.append(start_process(sh("cat", stdin_line=SpawnApproval("x")))))
    thread.start()
    thread.join(20)
    assert read(started[0]) == "x\n"
    assert started[0].process.returncode == 0
