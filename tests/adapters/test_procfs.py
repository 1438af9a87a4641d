"""What one look at one pid says, against the running kernel (L2, L3, L5-L8)."""

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters import procfs
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.process import Claim, Gone, ProcessIdentity, ProcessReading, StatLine, Unverified, classify, judge
from tests.adapters.processes_for_tests import (
    NO_PIDFDS,
    exhaust_pidfds,
    is_running,
    open_descriptors,
    running,
    stopped,
    without_leader,
    zombie,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pidfds and /proc are Linux's")

NUMBERS_OF_NOBODY = (0, -1, -(2**31), 2**31, 2**32 - 1, 2**64)


@pytest.fixture(params=("pidfds", *NO_PIDFDS))
def with_or_without_pidfds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pidfds":
        if not hasattr(os, "pidfd_open"):
            pytest.skip("this kernel has no pidfds")
    else:
        exhaust_pidfds(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def thread_id() -> Iterator[int]:
    """The id of a thread of this process that is not its leader."""
    started, over = threading.Event(), threading.Event()

    def stay() -> None:
        started.set()
        over.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    started.wait()
    assert thread.native_id is not None
    yield thread.native_id
    over.set()
    thread.join()


@pytest.mark.spec("L2", "L3", "L7")
def test_this_process_is_alive_with_its_start_token(with_or_without_pidfds: str) -> None:
    reading = procfs.read_process(os.getpid())
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    assert reading.pid_alive
    assert reading.start_token == fields[19].decode()
    assert not reading.stopped


@pytest.mark.spec("L2", "L7")
def test_a_zombie_is_not_alive(with_or_without_pidfds: str) -> None:
    with zombie() as process:
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L2", "L7")
def test_a_reaped_process_is_not_alive(with_or_without_pidfds: str) -> None:
    with running("true") as process:
        process.wait()
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L7")
def test_a_stopped_process_is_alive_and_reads_as_stopped(with_or_without_pidfds: str) -> None:
    with stopped() as process:
        reading = procfs.read_process(process.pid)
        assert reading.pid_alive
        assert reading.stopped
        assert reading.start_token is not None


@pytest.mark.spec("L7")
def test_a_process_whose_leader_thread_has_exited_is_alive_while_another_thread_works() -> None:
    with without_leader() as process:
        line = procfs._stat_line(process.pid)
        assert line.state == "Z"
        reading = procfs.read_process(process.pid)
        assert reading.pid_alive
        assert reading.start_token == line.start_token is not None
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L2", "L7")
def test_a_thread_id_names_no_process_whatever_its_start_time(thread_id: int, with_or_without_pidfds: str) -> None:
    os.kill(thread_id, 0)
    token = procfs._stat_line(thread_id).start_token
    assert token is not None
    reading = procfs.read_process(thread_id)
    state = judge(Claim(ProcessIdentity(thread_id, token)), reading, procfs.here())
    assert state == Unverified(f"pid {thread_id} is the number of a thread, not of a process")
    assert isinstance(judge(Claim(ProcessIdentity(thread_id, "1")), reading, procfs.here()), Gone)


@pytest.mark.spec("L2")
@pytest.mark.parametrize("pid", NUMBERS_OF_NOBODY)
def test_a_number_that_no_single_process_can_have_is_nobody_and_reaches_no_system_call(
    pid: int, with_or_without_pidfds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append(pid))
    monkeypatch.setattr(os, "open", lambda path, flags: asked.append(path))
    if with_or_without_pidfds == "pidfds":
        monkeypatch.setattr(os, "pidfd_open", asked.append)
    assert procfs.read_process(pid) == procfs.NOBODY
    with procfs.held(pid) as found:
        assert found == (None, procfs.NOBODY)
    assert asked == []


@pytest.mark.spec("L2")
def test_a_process_that_may_not_be_signalled_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    exhaust_pidfds("ENOSYS", monkeypatch)

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with running() as process:
        monkeypatch.setattr(os, "kill", refuse)
        reading = procfs.read_process(process.pid)
        monkeypatch.undo()
    assert reading.pid_alive
    assert reading.start_token is not None


_RENAMING = """
import ctypes, sys
prctl = ctypes.CDLL(None, use_errno=True).prctl
for line in sys.stdin:
    assert prctl(15, ctypes.c_char_p(bytes.fromhex(line)), 0, 0, 0) == 0
    print("named", flush=True)
"""


@pytest.mark.spec("L3")
def test_a_name_of_any_bytes_hides_neither_state_nor_start_token() -> None:
    names = (b"a b", b"a) S 1 2 (b", b") Z 1 1", b"new\nline)", b"\xff\xfe) \x80", b"((((", b"))))", b" ", b"")
    with running(sys.executable, "-c", _RENAMING, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        token = procfs.read_process(process.pid).start_token
        assert token is not None
        for name in names:
            process.stdin.write(name.hex().encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"named\n"
            assert Path(f"/proc/{process.pid}/comm").read_bytes() == name + b"\n"
            assert procfs.read_process(process.pid) == ProcessReading(
                True, token, False, procfs.read_process(process.pid).pidfd_inode
            )


@pytest.mark.spec("L5")
def test_a_process_that_exits_while_it_is_read_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as process:
        token = procfs.read_process(process.pid).start_token

        def exit_meanwhile(pid: int) -> StatLine:
            process.kill()
            process.wait()
            return StatLine("S", token)  # What a newcomer of the same clock tick would read as.

        monkeypatch.setattr(procfs, "_stat_line", exit_meanwhile)
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L6")
@pytest.mark.parametrize(
    ("own", "numbers", "ours"),
    [
        ("{pid}", "{pid}", True),
        ("1", "{pid}", False),
        ("{pid}", "{pid} 1", False),
        ("{pid}", "4242 {pid}", False),
        ("1", "1", False),
        ("{pid}", "", False),
        ("{pid}", None, False),
        (None, "{pid}", False),
        (None, None, False),
    ],
)
def test_proc_counts_only_when_it_names_us_and_holds_one_number_for_us(
    own: str | None, numbers: str | None, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "/proc/self/stat": [] if own is None else [f"{own} (a) S 1".encode()],
        "/proc/self/status": [] if numbers is None else [b"Name:\ta\n", f"NSpid:\t{numbers}\n".encode()],
    }
    here = os.getpid()
    monkeypatch.setattr(
        procfs, "_lines", lambda path: [line.replace(b"{pid}", str(here).encode()) for line in content[path]]
    )
    assert procfs.proc_is_ours.__wrapped__() is ours


@pytest.mark.spec("L6", "L7")
def test_a_foreign_proc_makes_start_times_unreadable_and_never_a_mismatch(
    with_or_without_pidfds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "proc_is_ours", lambda: False)
    with stopped() as process:
        reading = procfs.read_process(process.pid)
        assert reading._replace(pidfd_inode=None) == ProcessReading(pid_alive=True)
        state = classify(process.pid, "1", reading.pid_alive, reading.start_token)
        assert state == Unverified(f"pid {process.pid}'s start time could not be read")


@pytest.mark.spec("L6", "L7")
def test_an_exit_is_seen_through_the_pidfd_although_proc_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "proc_is_ours", lambda: False)
    with zombie() as process:
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L6")
def test_a_foreign_proc_makes_no_zombie_where_there_is_no_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    exhaust_pidfds("ENOSYS", monkeypatch)
    with without_leader() as process:
        monkeypatch.setattr(procfs, "proc_is_ours", lambda: False)
        assert procfs.read_process(process.pid) == ProcessReading(pid_alive=True)


@pytest.mark.spec("L2", "L7")
@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPERM, errno.ESRCH])
def test_a_stat_file_that_cannot_be_opened_leaves_a_live_process_unverified(
    number: int, with_or_without_pidfds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(path: str, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    with running() as process:
        monkeypatch.setattr(os, "open", hide)
        reading = procfs.read_process(process.pid)
        monkeypatch.undo()
        assert reading.pid_alive
        assert reading.start_token is None
        assert isinstance(classify(process.pid, "1", reading.pid_alive, reading.start_token), Unverified)


@pytest.mark.spec("L2")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_reader_out_of_descriptors_says_nothing_about_any_process(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OutOfDescriptors):
        procfs.read_process(os.getpid())


@pytest.mark.spec("L7")
@pytest.mark.parametrize("why", ["ENOMEM", "ENODEV", "EACCES"])
def test_any_other_failure_of_pidfd_open_falls_back_to_layer_1(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exhaust_pidfds(why, monkeypatch)
    reading = procfs.read_process(os.getpid())
    assert reading.pid_alive
    assert reading.start_token is not None
    with zombie() as process:
        assert procfs.read_process(process.pid) == procfs.NOBODY


@pytest.mark.spec("L7")
@pytest.mark.parametrize("why", ["ESRCH", "ENOENT", "EINVAL"])
def test_a_number_whose_pidfd_cannot_be_opened_because_of_what_it_is_never_falls_through_to_kill(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    exhaust_pidfds(why, monkeypatch)
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append(pid))
    reading = procfs.read_process(os.getpid())
    token = procfs._stat_line(os.getpid()).start_token or ""
    state = judge(Claim(ProcessIdentity(os.getpid(), token)), reading, procfs.here())
    assert isinstance(state, Gone if why == "ESRCH" else Unverified)
    assert asked == []


@pytest.mark.spec("L8")
def test_a_pidfd_inode_is_one_process_s_own() -> None:
    if not procfs.inodes_are_unique():
        pytest.skip("pidfds share one inode on this kernel")
    with running() as first, running() as second:
        inodes = [procfs.read_process(process.pid).pidfd_inode for process in (first, second, first)]
    assert inodes[0] == inodes[2]
    assert len(set(inodes)) == 2
    assert None not in inodes


@pytest.mark.spec("L8")
def test_a_pidfd_inode_that_all_processes_share_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "eventfd", lambda value: os.pidfd_open(os.getpid()))
    assert procfs.inodes_are_unique.__wrapped__() is False
    monkeypatch.setattr(procfs, "inodes_are_unique", lambda: False)
    assert procfs.read_process(os.getpid()).pidfd_inode is None


@pytest.mark.spec("L8")
def test_the_reader_s_place_is_read_from_the_kernel() -> None:
    here = procfs.here.__wrapped__()
    assert here.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert here.pid_namespace == str(Path("/proc/self/ns/pid").readlink())
    assert here.pid_namespace.startswith("pid:[")


@pytest.mark.spec("L8")
def test_what_cannot_be_read_of_the_reader_s_place_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "_lines", lambda path: [])
    monkeypatch.setattr(procfs, "_link", lambda path: None)
    assert procfs.here.__wrapped__() == (None, None, None, None)


@pytest.mark.spec("K2")
def test_a_held_pidfd_names_the_same_process_after_its_end_and_is_closed_afterwards() -> None:
    before = open_descriptors()
    with running() as process, procfs.held(process.pid) as (pidfd, reading):
        assert reading.pid_alive
        assert pidfd is not None
        assert not select.select([pidfd], [], [], 0)[0]
        process.kill()
        process.wait()
        assert select.select([pidfd], [], [], 0)[0]
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    assert open_descriptors() == before


@pytest.mark.spec("L2")
def test_looking_leaves_no_descriptor_open(thread_id: int, with_or_without_pidfds: str) -> None:
    with running() as alive, zombie() as dead:
        procfs.read_process(alive.pid)
        before = open_descriptors()
        for pid in (alive.pid, dead.pid, thread_id, os.getpid(), 0):
            procfs.read_process(pid)
        assert open_descriptors() == before


@pytest.mark.spec("M1")
def test_the_members_of_a_group_are_its_processes_without_the_dead() -> None:
    with running(process_group=0) as leader:
        with running(process_group=leader.pid) as second, running("true", process_group=leader.pid) as third:
            os.waitid(os.P_PID, third.pid, os.WEXITED | os.WNOWAIT)
            assert sorted(procfs.group_members(leader.pid) or []) == sorted([leader.pid, second.pid])
            assert is_running(second)
        assert procfs.group_members(leader.pid) == [leader.pid]


@pytest.mark.spec("L6")
def test_a_foreign_proc_says_nothing_of_any_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "proc_is_ours", lambda: False)
    assert procfs.group_members(os.getpgrp()) is None


@pytest.mark.spec("L1", "L3")
def test_a_recorded_start_of_another_process_is_gone_by_the_real_reading() -> None:
    identity = ProcessIdentity(os.getpid(), "1")
    reading = procfs.read_process(identity.pid)
    state = classify(identity.pid, identity.process_start, reading.pid_alive, reading.start_token)
    assert state == Gone(f"pid {identity.pid} is held by a process that started at another time")
