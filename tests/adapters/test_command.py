"""A hosted command ends with everything it started, however its host ends (M1, X6)."""

import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from murmur.adapters import command, procfs
from murmur.adapters.command import GroupedCommand, Tee
from murmur.adapters.exit_status import status_text
from murmur.domain.errors import CommandNotStarted, OutOfDescriptors
from murmur.domain.hosting import GroupAction
from tests.adapters.processes_for_tests import Process, exhaust_pidfds, open_descriptors, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they look at processes through pidfds and /proc")

# A grandchild and a great-grandchild that ignore what they can; the readiness line comes after their traps.
STUBBORN = """
trap '' TERM HUP INT
sh -c 'trap "" TERM HUP INT; sh -c "trap \\"\\" TERM HUP INT; sleep 1000 & echo ready; wait" & wait' &
wait
"""


class Output:
    """A pipe for a command's output: its end tells that no process holds the write end any more."""

    def __init__(self, opened: ExitStack) -> None:
        self.read_end, self.write_end = os.pipe()
        opened.callback(os.close, self.read_end)
        self._held = opened.enter_context(ExitStack())
        self._held.callback(os.close, self.write_end)

    @property
    def streams(self) -> tuple[int, int]:
        return self.write_end, self.write_end

    def let_go(self) -> None:
        """Close the own copy of the write end."""
        self._held.close()

    def read(self) -> bytes:
        """Read what there is, at most five seconds from now; nothing at the end."""
        assert select.select([self.read_end], [], [], 5)[0], "nothing was written, and somebody holds the pipe"
        return os.read(self.read_end, 65536)

    def line(self) -> bytes:
        """Read one line and nothing after it, within five seconds for every byte."""
        found = b""
        while not found.endswith(b"\n"):
            assert select.select([self.read_end], [], [], 5)[0]
            found += os.read(self.read_end, 1)
        return found

    def at_its_end(self) -> bool:
        """Whether the pipe ends within five seconds for every read."""
        self.let_go()
        while self.read():
            pass
        return True


@pytest.fixture
def output() -> Iterator[Output]:
    with ExitStack() as opened:
        yield Output(opened)


@contextmanager
def pidfds(pids: Sequence[int]) -> Iterator[list[int]]:
    with ExitStack() as opened:
        found = [os.pidfd_open(pid) for pid in pids]
        for pidfd in found:
            opened.callback(os.close, pidfd)
        yield found


def all_exit(held: Sequence[int]) -> bool:
    """Whether each of these processes has exited within five seconds."""
    return all(select.select([pidfd], [], [], 5)[0] for pidfd in held)


def start(output: Output, *argv: str, **environment: str) -> GroupedCommand:
    return GroupedCommand(argv, {"PATH": os.environ["PATH"]} | environment, output.streams)


@pytest.mark.spec("M1")
def test_nothing_of_the_group_is_left_after_leaving(output: Output) -> None:
    with start(output, "sh", "-c", STUBBORN) as grouped:
        assert output.line() == b"ready\n"
        members = procfs.group_members(grouped.watcher.pid) or []
        assert len(members) == 5  # The watcher, three shells and a sleep.
        others = set(grouped.others() or [])
        assert others == set(members) - {grouped.watcher.pid, grouped.command.pid}
        opened = ExitStack()
        held = opened.enter_context(pidfds(members))
    with opened:
        assert select.select(held, [], [], 0)[0] == held
    assert procfs.group_members(grouped.watcher.pid) == []
    assert grouped.command.returncode == -signal.SIGKILL
    assert grouped.watcher.returncode == -signal.SIGKILL
    assert output.at_its_end()


@pytest.mark.spec("M1")
def test_leaving_a_command_that_has_ended_kills_what_it_left_behind(output: Output) -> None:
    with start(output, "sh", "-c", "sh -c 'trap \"\" TERM; echo ready; sleep 1000' & exit 3") as grouped:
        assert output.line() == b"ready\n"
        assert grouped.command.wait() == 3
        assert grouped.others()
    assert output.at_its_end()


@pytest.mark.spec("M1")
def test_an_exception_inside_ends_the_group_as_well(output: Output) -> None:
    with pytest.raises(KeyboardInterrupt), start(output, "sleep", "1000"):
        raise KeyboardInterrupt
    assert output.at_its_end()


@pytest.mark.spec("M1")
def test_a_group_of_the_command_s_own_start_is_led_by_the_watcher(output: Output) -> None:
    with start(output, "sleep", "1000") as grouped:
        assert os.getpgid(grouped.command.pid) == grouped.watcher.pid == os.getpgid(grouped.watcher.pid)
        assert os.getpgrp() != grouped.watcher.pid
        assert grouped.others() == []


@pytest.mark.spec("M1", "K4")
def test_term_ends_a_stopped_command_and_not_its_watcher(output: Output) -> None:
    with start(output, "sleep", "1000") as grouped:
        os.killpg(grouped.watcher.pid, signal.SIGSTOP)
        for pid in (grouped.watcher.pid, grouped.command.pid):
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        grouped.act(GroupAction.TERM)
        assert grouped.command.wait(timeout=5) == -signal.SIGTERM
        assert grouped.watcher.poll() is None


@pytest.mark.spec("M1")
def test_the_watcher_outlives_the_signals_of_a_terminal(output: Output) -> None:
    with start(output, "sleep", "1000") as grouped:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.killpg(grouped.watcher.pid, number)
        grouped.command.wait(timeout=5)
        assert grouped.watcher.poll() is None


@pytest.mark.spec("M1")
def test_signalling_a_group_that_has_ended_is_nothing(output: Output) -> None:
    with start(output, "true") as grouped:
        grouped.command.wait()
        grouped.act(GroupAction.KILL)
        grouped.watcher.wait()
        grouped.act(GroupAction.TERM)


@pytest.mark.spec("M1")
def test_the_command_gets_no_input_its_own_output_and_exactly_the_given_environment(output: Output) -> None:
    with start(output, "sh", "-c", "cat; env; echo error >&2", GIVEN="1") as grouped:
        assert grouped.command.wait() == 0
        lines = output.read().splitlines()
    assert b"GIVEN=1" in lines
    assert b"error" in lines
    assert not any(line.startswith(b"HOME=") for line in lines)


@pytest.mark.spec("M1")
def test_the_command_inherits_no_descriptor_but_its_three(output: Output) -> None:
    with start(output, "sh", "-c", "echo /proc/self/fd/*") as grouped:
        grouped.command.wait()
        # The shell's own, and the one that lists.
        assert len(output.read().split()) <= 4


@pytest.mark.spec("M1")
def test_leaving_leaves_no_descriptor_open(output: Output) -> None:
    with start(output, "true"):
        pass
    before = open_descriptors()
    with start(output, "sleep", "1000"):
        assert open_descriptors() > before
    assert open_descriptors() == before


@pytest.mark.spec("M1", "L7")
def test_leaving_waits_no_longer_without_pidfds(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    exhaust_pidfds("ENOSYS", monkeypatch)
    seen = iter([True])
    group_members = procfs.group_members

    def see_one_too_many(group: int) -> list[int]:
        # A member that is still there at the first look and gone right after it.
        return [*(group_members(group) or []), *([dead.pid] if next(seen, False) else [])]

    with running("true") as dead, start(output, "sleep", "1000"):
        dead.wait()
        monkeypatch.setattr(procfs, "group_members", see_one_too_many)
        started = time.monotonic()
    assert time.monotonic() - started < 0.5 * command._REAP


@pytest.mark.spec("M1")
def test_leaving_reaps_and_closes_although_the_group_cannot_be_listed(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(group: int) -> list[int]:
        raise OutOfDescriptors("no descriptor left")

    before = open_descriptors()
    with pytest.raises(OutOfDescriptors), start(output, "sleep", "1000") as grouped:
        monkeypatch.setattr(procfs, "group_members", refuse)
    watcher_was_reaped, left = grouped.watcher.returncode is not None, open_descriptors() - before
    grouped._started.close()
    assert watcher_was_reaped
    assert left == set()


def not_started(argv: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> CommandNotStarted:
    """Fail to start a command; see that no process and no descriptor is left of the attempt."""
    watchers: list[Process] = []
    start_watcher = command._start_watcher

    def remember(opened: ExitStack) -> Process:
        watchers.append(start_watcher(opened))
        return watchers[-1]

    monkeypatch.setattr(command, "_start_watcher", remember)
    before = open_descriptors()
    with pytest.raises(CommandNotStarted) as failed:
        GroupedCommand(argv, {"PATH": os.environ["PATH"]}, (2, 2))
    assert open_descriptors() == before
    assert [watcher.returncode for watcher in watchers] == [-signal.SIGKILL]
    return failed.value


@pytest.mark.spec("M1")
def test_a_command_that_is_not_there_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    error = not_started(["no-such-command-here", "x"], monkeypatch)
    assert error.message == "command not found: no-such-command-here"


@pytest.mark.spec("M1")
@pytest.mark.parametrize("mode", [0o644, 0o000])
def test_a_command_that_is_not_executable_leaves_nothing(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(mode)
    assert not_started([str(program)], monkeypatch).message == f"command not executable: {program}"
    assert not_started([str(tmp_path)], monkeypatch).message == f"command not executable: {tmp_path}"


@pytest.mark.spec("M1")
def test_a_command_of_an_unknown_format_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00\x01junk")
    program.chmod(0o755)
    assert "exec format error" in not_started([str(program)], monkeypatch).message


@pytest.mark.spec("M1")
def test_a_null_character_in_the_command_line_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "null character" in not_started(["true", "a\0b"], monkeypatch).message


@pytest.mark.spec("M1")
def test_a_missing_shell_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = open_descriptors()
    with pytest.raises(CommandNotStarted, match="/bin/sh"):
        GroupedCommand(["true"], {}, (2, 2))
    assert open_descriptors() == before


@pytest.mark.spec("M1")
def test_a_watcher_that_ends_at_once_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_WATCHER", "exit 0")
    before = open_descriptors()
    with pytest.raises(CommandNotStarted, match="ended at once"):
        GroupedCommand(["true"], {}, (2, 2))
    assert open_descriptors() == before


_HOST = """
import os, sys
from murmur.adapters.command import GroupedCommand
from murmur.adapters.procfs import group_members
stubborn = sys.argv[1]
with GroupedCommand(["sh", "-c", stubborn], dict(os.environ), (int(sys.argv[2]),) * 2) as grouped:
    os.write(int(sys.argv[4]), b"%d\\n" % grouped.watcher.pid)
    os.read(int(sys.argv[3]), 1)
"""


@contextmanager
def host(output: Output, *shell: str) -> Iterator[tuple[Process, int]]:
    """Run a process that hosts the stubborn command; yield it and its command's group once that is ready."""
    with ExitStack() as opened:
        never, report = Output(opened), Output(opened)
        descriptors = (output.write_end, never.read_end, report.write_end)
        process = opened.enter_context(
            running(*shell, sys.executable, "-c", _HOST, STUBBORN, *map(str, descriptors), pass_fds=descriptors)
        )
        group = int(report.line())
        assert output.line() == b"ready\n"
        output.let_go()
        yield process, group


@pytest.mark.spec("M1")
@pytest.mark.parametrize("attempt", range(20))
def test_a_host_that_is_killed_takes_the_whole_group_along(attempt: int, output: Output) -> None:
    with host(output) as (process, group), pidfds(procfs.group_members(group) or []) as held:
        assert len(held) == 5
        process.kill()
        assert all_exit(held)
    assert output.at_its_end()


@pytest.mark.spec("M1")
@pytest.mark.parametrize("attempt", range(3))
def test_a_host_that_is_killed_takes_a_stopped_group_along(attempt: int, output: Output) -> None:
    with host(output) as (process, group), pidfds(procfs.group_members(group) or []) as held:
        os.killpg(group, signal.SIGSTOP)
        process.kill()
        assert all_exit(held)
    assert output.at_its_end()


@pytest.mark.spec("M1")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_host_with_closed_standard_streams_takes_the_whole_group_along(closed: str, output: Output) -> None:
    with (
        host(output, "/bin/sh", "-c", f'exec "$@" {closed}', "sh") as (process, group),
        pidfds(procfs.group_members(group) or []) as held,
    ):
        assert len(held) == 5
        process.kill()
        assert all_exit(held)
    assert output.at_its_end()


_PHASES = """
import os, sys
from murmur.adapters.command import GroupedCommand
print("begun", flush=True)
while True:
    with GroupedCommand(["sh", "-c", "sleep 1000 & wait"], dict(os.environ), (1, 1)):
        pass
"""


@pytest.mark.spec("M1")
@pytest.mark.parametrize("attempt", range(10))
def test_a_host_that_is_killed_while_it_starts_or_ends_a_command_leaves_nothing(attempt: int, output: Output) -> None:
    with running(sys.executable, "-c", _PHASES, stdout=output.write_end) as process:
        assert output.line() == b"begun\n"
        time.sleep(attempt * 0.0017)  # Spreads the kills over the phases; nothing is waited for by it.
        process.kill()
        assert output.at_its_end()


@pytest.mark.spec("X6")
@pytest.mark.parametrize(
    ("returncode", "text"),
    [
        (0, "exit status: 0"),
        (7, "exit status: 7"),
        (-15, "signal: 15 (SIGTERM)"),
        (-9, "signal: 9 (SIGKILL)"),
        (-200, "signal: 200 (unknown)"),
    ],
)
def test_a_status_is_told_as_number_or_signal(returncode: int, text: str) -> None:
    assert status_text(returncode) == text


@pytest.mark.spec("M1")
def test_a_command_s_output_goes_to_its_log_and_to_the_echo(tmp_path: Path) -> None:
    echoed: list[bytes] = []
    with (tmp_path / "log").open("wb", buffering=0) as log:
        tee = Tee(log.fileno(), echoed.append)
        subprocess.run(["sh", "-c", "echo one; echo two"], stdout=tee.write_end, check=True)
        os.close(tee.write_end)
        tee.finish()
    assert b"".join(echoed) == b"one\ntwo\n" == (tmp_path / "log").read_bytes()


@pytest.mark.spec("M1")
def test_a_log_that_cannot_be_written_loses_lines_and_not_the_echo() -> None:
    echoed: list[bytes] = []
    with open(os.devnull, "rb") as log:  # noqa: PTH123 - its descriptor cannot be written to
        tee = Tee(log.fileno(), echoed.append)
        os.write(tee.write_end, b"one")
        os.close(tee.write_end)
        tee.finish()
    assert echoed == [b"one"]
