"""The pipe whose end tells a child that its launcher is gone: who holds it, who does not, and who may take it (X2)."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters import lifelines
from murmur.adapters.lifelines import Lifeline, accept_lifeline
from murmur.adapters.spawning import Cleared, ProcessLaunch, start_process
from murmur.domain.errors import LaunchRefused
from tests.adapters.launching.children_for_tests import OBEDIENT, Launching, ended, holders
from tests.adapters.processes_for_tests import ROOT, open_descriptors, running


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    lifeline = Lifeline()
    yield lifeline
    lifeline.close()


def inode_of(lifeline: Lifeline) -> int:
    return os.fstat(lifeline.read_end).st_ino


def writers(inode: int) -> set[int]:
    return {pid for pid, modes in holders(inode).items() if os.O_WRONLY in modes}


_CLOSED = """
import json, os, sys
for number in {closed}:
    os.close(number)
from murmur.adapters.lifelines import Lifeline
lifeline = Lifeline()
ends = [lifeline._read_end, lifeline._write_end]
left = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{{number}}")]
with open({result!r}, "w") as result:
    json.dump([ends, left, [os.get_inheritable(end) for end in ends]], result)
"""


@pytest.mark.spec("X2")
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2), ()])
def test_no_end_is_ever_a_standard_stream_also_when_those_are_closed(closed: tuple[int, ...], tmp_path: Path) -> None:
    result = tmp_path / "result"
    subprocess.run(
        (sys.executable, "-c", _CLOSED.format(closed=closed, result=str(result))),
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )
    ends, left, inheritable = json.loads(result.read_text())
    assert min(ends) >= 3
    assert left == [number for number in range(3) if number not in closed]
    assert inheritable == [False, False]


@pytest.mark.spec("X2")
def test_both_ends_close_by_exec_and_closing_is_idempotent(lifeline: Lifeline) -> None:
    before = open_descriptors()
    assert not os.get_inheritable(lifeline.read_end)
    other = Lifeline()
    other.close()
    other.close()
    assert open_descriptors() == before


@pytest.mark.spec("X2")
def test_the_child_alone_gets_the_read_end_and_the_launcher_alone_has_the_write_end(lifeline: Lifeline) -> None:
    inode = inode_of(lifeline)
    number = lifeline.read_end
    code = f"test -p /dev/fd/{number} && echo held; read -r _ < /dev/fd/{number}; echo over"
    launch = ProcessLaunch(("sh", "-c", code), Cleared([("PATH", os.environ["PATH"])]), lifeline=lifeline)
    with ended(start_process(launch).process) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"held\n"
        with running() as unrelated:
            found = holders(inode)
            assert unrelated.pid not in found
            assert found == {started.pid: {os.O_RDONLY}, os.getpid(): {os.O_WRONLY}}
        lifeline.close()
        assert started.stdout.readline() == b"over\n"


@pytest.mark.spec("X2")
def test_no_sibling_grandchild_or_unrelated_process_holds_a_write_end(launching: Launching) -> None:
    launching.program('sleep 1000 & echo "$!" > ' + f"{launching.words.path}; trap 'kill $!' TERM; ready; orphaned")
    children = [launching.launch() for _ in range(2)]
    grandchildren = {int(launching.words.next()) for _ in range(2)}
    with running() as unrelated:
        inodes = {os.fstat(child._process._lifeline._write_end or -1).st_ino for child in children}
        assert len(inodes) == 2
        for inode in inodes:
            assert writers(inode) == {os.getpid()}
            assert unrelated.pid not in holders(inode)
    for pid in grandchildren:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.spec("X2")
def test_a_copy_of_the_launcher_that_python_forked_lets_go(lifeline: Lifeline) -> None:
    inode = inode_of(lifeline)
    ready, say_ready = os.pipe()
    wait, go_on = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.close(go_on)
        os.write(say_ready, b"x")
        os.read(wait, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        assert set(holders(inode)) == {os.getpid()}
    finally:
        for end in (ready, say_ready, wait, go_on):
            os.close(end)
        assert os.waitpid(copy, 0) == (copy, 0)


@pytest.mark.spec("X2")
def test_no_fork_comes_between_the_making_of_a_pipe_and_its_being_known(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a fork in another thread would: `before` hooks run first, and wait for whoever makes a lifeline.
    tried: list[bool] = []
    pipe = os.pipe

    def fork() -> None:
        tried.append(lifelines._no_fork.acquire(blocking=False))
        if tried[0]:
            lifelines._no_fork.release()

    def forking_pipe() -> tuple[int, int]:
        other = threading.Thread(target=fork)
        other.start()
        other.join()
        return pipe()

    monkeypatch.setattr(os, "pipe", forking_pipe)
    Lifeline().close()
    assert tried == [False]


def test_a_launcher_out_of_descriptors_makes_no_half_of_a_lifeline(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    real, calls = fcntl.fcntl, []

    def refuse(descriptor: int, *arguments: int) -> int:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(24, "Too many open files")
        return real(descriptor, *arguments)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="Too many"):
        Lifeline()
    monkeypatch.undo()
    assert open_descriptors() == before


@pytest.mark.spec("X2", "M2")
@pytest.mark.parametrize("pad", ["{}", "  {}\n", "000{}"])
def test_a_child_takes_an_open_pipe_that_it_can_only_read_and_hands_it_on_to_nobody(pad: str) -> None:
    read_end, write_end = os.pipe()
    try:
        os.set_inheritable(read_end, True)
        assert accept_lifeline(pad.format(read_end)) == read_end
        assert not os.get_inheritable(read_end)
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.spec("X2")
def test_no_variable_is_no_lifeline() -> None:
    assert accept_lifeline(None) is None


@pytest.mark.spec("X2", "M2")
@pytest.mark.parametrize(
    "value",
    ["", " ", "0", "1", "2", "-3", "+3", "3.0", "0x3", "1_0", "three", "٣", "3 4", "²", "99999", "2147483648",
     "9" * 30, "9" * 5000, "3\0"],
)  # fmt: skip
def test_what_is_no_number_of_an_open_descriptor_is_refused(value: str) -> None:
    with pytest.raises(LaunchRefused, match="MURMUR_SPAWNER_LIFELINE") as refusal:
        accept_lifeline(value)
    assert refusal.value.code == "E-RUN-020"


@pytest.mark.spec("X2", "M2")
@pytest.mark.parametrize("kind", ["file", "directory", "socket", "write end", "both ways", "path only"])
def test_what_is_no_pipe_that_can_only_be_read_is_refused(kind: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "file").touch()
    one, other = socket.socketpair()
    read_end, write_end = os.pipe()
    descriptor = {
        "file": lambda: os.open(tmp_path / "file", os.O_RDONLY),
        "directory": lambda: os.open(tmp_path, os.O_RDONLY),
        "socket": lambda: os.dup(one.fileno()),
        "write end": lambda: os.dup(write_end),
        "both ways": lambda: os.open(fifo, os.O_RDWR),
        "path only": lambda: os.open(fifo, os.O_PATH),
    }[kind]()
    with one, other:
        try:
            with pytest.raises(LaunchRefused):
                accept_lifeline(str(descriptor))
        finally:
            for end in (descriptor, read_end, write_end):
                os.close(end)


@pytest.mark.spec("X2", "E1")
def test_the_write_end_is_open_for_as_long_as_the_child_is(launching: Launching) -> None:
    launching.program(OBEDIENT)
    child = launching.launch()
    inode = os.fstat(child._process._lifeline._write_end or -1).st_ino
    assert writers(inode) == {os.getpid()}
    child.shutdown()
    assert holders(inode) == {}
