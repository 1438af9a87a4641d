"""Whatever becomes of a launcher, its children are told, and end (X2, E5)."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from murmur.domain.launch.completion import parse_completion
from tests.adapters.launching.children_for_tests import (
    OBEDIENT,
    PATIENCE,
    STUBBORN,
    Launching,
    Words,
    own_children,
    sh,
    wait_for_exit,
)
from tests.adapters.processes_for_tests import ROOT

_SUBREAPER = 36
_CODE = "from tests.adapters.launching import launchers_for_tests as launchers; launchers.run()"


class Launcher:
    """A launcher in a process of its own."""

    def __init__(self, launching: Launching) -> None:
        self.launching = launching
        self.said = launching.place / "said"
        self.said.touch()

    def start(self, name: str, **environment: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            (sys.executable, "-c", _CODE, name),
            cwd=ROOT,
            env=os.environ | {"SAID": str(self.said)} | environment,
            stdin=subprocess.DEVNULL,
        )

    def run(self, name: str, **environment: str) -> int:
        with self.start(name, **environment) as process:
            try:
                return process.wait(PATIENCE)
            finally:
                process.kill()

    def words(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.said.read_text().splitlines()]


@pytest.fixture
def launcher(launching: Launching) -> Launcher:
    return Launcher(launching)


@contextmanager
def adopting() -> Iterator[None]:
    """Have what dead launchers leave become our own children, and see all of them end."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def see_all_end(before: set[int]) -> None:
    """Wait until every process that was adopted has ended, and reap it."""
    while left := own_children() - before:
        for pid in left:
            wait_for_exit(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def obedient(words: Words, first: str = "ready") -> str:
    """In sh: say when it is ready, if that is asked for, and when its launcher is gone."""
    return f"{first}{f' > {words.path}' if first != 'ready' else ''}; orphaned; echo orphaned > {words.path}"


@pytest.mark.spec("E5", "W2")
@pytest.mark.parametrize("how", ["left_open", "exited_by_exception"])
def test_an_interpreter_that_ends_with_a_child_open_ends_it_and_records_so(how: str, launcher: Launcher) -> None:
    launcher.launching.program(OBEDIENT)
    assert launcher.run(how) == (0 if how == "left_open" else 1)
    ((pid, records),) = launcher.words()
    assert not Path(f"/proc/{pid}").exists()
    outcome = parse_completion(Path(records, "completion.json").read_bytes())
    assert outcome is not None
    assert outcome.status == "terminated"


@pytest.mark.slow  # The grace of 5 s is the contract's.
@pytest.mark.spec("E2", "E5")
def test_an_interpreter_that_ends_gives_all_its_children_one_grace(launcher: Launcher) -> None:
    launcher.launching.program(STUBBORN)
    begun = time.monotonic()
    assert launcher.run("many_together") == 0
    assert time.monotonic() - begun < 9.0
    ((pids,),) = launcher.words()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.spec("X2", "E5")
def test_a_launcher_that_is_killed_tells_its_child_by_the_end_of_the_lifeline(launcher: Launcher) -> None:
    words = launcher.launching.words
    launcher.launching.program(obedient(words, "ready; echo ready"))
    before = own_children()
    with adopting():
        with launcher.start("killed") as process:
            assert words.next() == "ready"
            process.kill()
        assert words.next() == "orphaned"
        see_all_end(before)


@pytest.mark.slow  # A dozen interpreters, each killed at another moment.
@pytest.mark.spec("X2", "E5")
def test_a_launcher_that_is_killed_at_any_moment_leaves_nobody(launcher: Launcher) -> None:
    words = launcher.launching.words
    launcher.launching.program(obedient(words, "ready; echo ready"))
    with adopting():
        before = own_children()
        begun = time.monotonic()
        with launcher.start("killed") as process:
            words.next()
            whole = time.monotonic() - begun
            process.kill()
        assert words.next() == "orphaned"
        see_all_end(before)
        for attempt in range(12):
            with launcher.start("killed") as process:
                time.sleep(whole * (0.5 + attempt / 20))  # Spreads the kills over the launch; nothing is waited for.
                process.kill()
            see_all_end(before)


@pytest.mark.spec("X2")
def test_a_forked_copy_of_a_killed_launcher_keeps_no_child_alive(launcher: Launcher) -> None:
    words = launcher.launching.words
    launcher.launching.program(obedient(words))
    before = own_children()
    with adopting():
        assert launcher.run("forked_copy_that_stays") == -signal.SIGKILL
        ((pid, copy),) = launcher.words()
        try:
            assert words.next() == "orphaned"
            wait_for_exit(pid)
            assert Path(f"/proc/{copy}").exists()
        finally:
            os.kill(copy, signal.SIGKILL)
        see_all_end(before)


@pytest.mark.spec("E5", "E6")
def test_a_forked_copy_that_leaves_the_block_ends_nothing_and_waits_for_nothing(launcher: Launcher) -> None:
    launcher.launching.program(OBEDIENT)
    assert launcher.run("forked_copy") == 0
    assert launcher.words() == [[0, True, False, False, True], ["signal: 15 (SIGTERM)"]]


@pytest.mark.spec("E5")
def test_a_forked_copy_that_runs_to_its_end_ends_nothing(launcher: Launcher) -> None:
    launcher.launching.program(OBEDIENT)
    assert launcher.run("forked_copy_that_ends") == 0
    assert launcher.words() == [[0, False, False]]


@pytest.mark.spec("E5", "X2")
def test_a_child_lives_on_when_its_launchers_thread_ends_and_not_when_the_process_does(launcher: Launcher) -> None:
    words = launcher.launching.words
    launcher.launching.program(obedient(words))
    before = own_children()
    with adopting():
        assert launcher.run("thread_that_ends") == -signal.SIGKILL
        ((pid, had_ended),) = launcher.words()
        assert not had_ended
        assert words.next() == "orphaned"
        wait_for_exit(pid)
        see_all_end(before)


@pytest.mark.spec("X6", "E3", "E5")
def test_with_sigchld_ignored_no_status_is_made_up(launcher: Launcher, tmp_path: Path) -> None:
    launcher.launching.program(OBEDIENT)
    exits = sh(tmp_path / "exits", "ready; exit 3")
    assert launcher.run("sigchld_ignored", EXITS=str(exits)) == 0
    ended, crashed, refused = launcher.words()
    assert ended[1:] == [None, "terminated"]
    assert not Path(f"/proc/{ended[0]}").exists()
    assert crashed[:2] == [None, "crashed"]
    assert "(unknown exit status)" in crashed[2]
    assert "(unknown exit status)" in refused[0]


@pytest.mark.spec("X2", "X8")
def test_a_launcher_without_standard_streams_launches_as_any_other(launcher: Launcher) -> None:
    launcher.launching.program(OBEDIENT)
    assert launcher.run("closed_streams") == 0
    assert launcher.words() == [[True], ["signal: 15 (SIGTERM)"]]
