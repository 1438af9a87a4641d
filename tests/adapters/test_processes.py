"""Signals reach exactly the process that an identity names, or nobody (K1-K4)."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from murmur.adapters import procfs
from murmur.adapters.processes import SystemProcesses
from murmur.domain.origin import Origin
from murmur.domain.process import Claim, ProcessIdentity, StatLine
from murmur.domain.signals import AlreadyGone, Refused, Sent, StopSignal
from tests.adapters.processes_for_tests import (
    NO_PIDFDS,
    Process,
    call_inside,
    changed,
    exhaust_pidfds,
    is_running,
    open_descriptors,
    running,
    stopped,
    without_leader,
    zombie,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about pidfds and their absence on Linux")

PROCESSES = SystemProcesses()
Recorder = list[tuple[int, int]]


def claim_on(process: Process, **changes: str) -> Claim:
    (reading,) = PROCESSES.readings([ProcessIdentity(process.pid, "")])
    return Claim(ProcessIdentity(process.pid, changes.get("process_start", reading.start_token or "")))


@pytest.fixture(params=("pidfds", *NO_PIDFDS))
def with_or_without_pidfds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "pidfds":
        exhaust_pidfds(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Every signal but the empty one that is sent, instead of sending it."""
    recorded: Recorder = []
    kill = os.kill

    def record(target: int, number: int) -> None:
        if number:
            recorded.append((target, number))
        else:
            kill(target, number)

    monkeypatch.setattr(os, "kill", record)
    monkeypatch.setattr(os, "killpg", lambda target, number: recorded.append((-target, number)))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda target, number: recorded.append((target, number)))
    return recorded


@pytest.mark.spec("K4")
def test_sigterm_and_sigcont_end_a_stopped_process(with_or_without_pidfds: str) -> None:
    with stopped() as process:
        assert PROCESSES.signal(claim_on(process), StopSignal.TERM) == Sent()
        assert process.wait(timeout=5) == -signal.SIGTERM


@pytest.mark.spec("K1", "K4")
def test_sigterm_is_followed_by_sigcont_and_sigkill_by_nothing(with_or_without_pidfds: str, sent: Recorder) -> None:
    own = Claim(own_identity())
    PROCESSES.signal(own, StopSignal.TERM)
    PROCESSES.signal(own, StopSignal.KILL)
    assert [number for _, number in sent] == [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL]
    if with_or_without_pidfds == "pidfds":
        assert all(target != os.getpid() for target, _ in sent)
    else:
        assert {target for target, _ in sent} == {os.getpid()}


def own_identity() -> ProcessIdentity:
    origin = PROCESSES.own_origin()
    assert origin.pid is not None
    assert origin.process_start is not None
    return ProcessIdentity(origin.pid, origin.process_start)


@pytest.mark.spec("K1")
def test_sigkill_ends_a_process(with_or_without_pidfds: str) -> None:
    with running() as process:
        assert PROCESSES.signal(claim_on(process), StopSignal.KILL) == Sent()
        assert process.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.spec("K1", "L7")
def test_a_process_without_its_leader_thread_is_signalled() -> None:
    with without_leader() as process:
        assert PROCESSES.signal(claim_on(process), StopSignal.KILL) == Sent()
        assert process.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.spec("K1", "K2")
@pytest.mark.parametrize("start", ["1", "", "not a number"])
def test_a_process_of_another_start_time_is_never_signalled(
    start: str, with_or_without_pidfds: str, sent: Recorder
) -> None:
    own = ProcessIdentity(os.getpid(), start)
    for number in StopSignal:
        assert PROCESSES.signal(Claim(own), number) == AlreadyGone()
    assert sent == []


@pytest.mark.spec("K1", "L6", "L9")
def test_a_process_whose_start_time_cannot_be_read_is_refused_without_a_signal(
    with_or_without_pidfds: str, sent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_identity()
    monkeypatch.setattr(procfs, "proc_is_ours", lambda: False)
    for number in StopSignal:
        outcome = PROCESSES.signal(Claim(own), number)
        assert outcome == Refused(f"pid {own.pid}'s start time could not be read")
    assert sent == []


@pytest.mark.spec("K1", "L2")
@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**32 - 1])
def test_a_number_that_no_single_process_can_have_is_already_gone(
    pid: int, with_or_without_pidfds: str, sent: Recorder
) -> None:
    for number in StopSignal:
        assert PROCESSES.signal(Claim(ProcessIdentity(pid, "")), number) == AlreadyGone()
    assert sent == []


@pytest.mark.spec("K1", "L7")
def test_a_thread_id_is_never_signalled(with_or_without_pidfds: str, sent: Recorder) -> None:
    started, over = threading.Event(), threading.Event()

    def stay() -> None:
        started.set()
        over.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    started.wait()
    try:
        assert thread.native_id is not None
        token = procfs._stat_line(thread.native_id).start_token
        assert token is not None
        claim = Claim(ProcessIdentity(thread.native_id, token))
        assert [type(PROCESSES.signal(claim, number)) for number in StopSignal] == [Refused, Refused]
    finally:
        over.set()
        thread.join()
    assert sent == []


@pytest.mark.spec("K1", "L2")
def test_a_zombie_is_already_gone_and_not_signalled(with_or_without_pidfds: str, sent: Recorder) -> None:
    with zombie() as process:
        line = procfs._stat_line(process.pid)
        claim = Claim(ProcessIdentity(process.pid, line.start_token or ""))
        assert PROCESSES.signal(claim, StopSignal.TERM) == AlreadyGone()
        assert sent == []


@pytest.mark.spec("K1", "L8")
def test_an_equal_start_token_with_another_pidfd_inode_is_never_signalled(sent: Recorder) -> None:
    origin = PROCESSES.own_origin()
    if origin.pidfd_inode is None:
        pytest.skip("pidfds share one inode on this kernel")
    impostor = changed(origin, pidfd_inode=origin.pidfd_inode + 1)
    claim = Claim(own_identity(), impostor)
    assert PROCESSES.signal(claim, StopSignal.TERM) == AlreadyGone()
    assert sent == []
    assert PROCESSES.signal(claim._replace(origin=origin), StopSignal.TERM) == Sent()
    assert len(sent) == 2


@pytest.mark.spec("K1", "L8")
def test_a_pid_recorded_in_another_namespace_is_refused_without_a_signal(sent: Recorder) -> None:
    elsewhere = changed(PROCESSES.own_origin(), pid_namespace="pid:[1]")
    outcome = PROCESSES.signal(Claim(own_identity(), elsewhere), StopSignal.TERM)
    assert isinstance(outcome, Refused)
    assert "another pid namespace" in outcome.reason
    assert sent == []


@pytest.mark.spec("K2", "L5")
def test_a_process_that_exits_while_it_is_verified_is_already_gone(
    sent: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as process:
        claim = claim_on(process)

        def exit_meanwhile(pid: int) -> StatLine:
            monkeypatch.undo()
            process.kill()
            process.wait()
            return StatLine("S", claim.identity.process_start)

        monkeypatch.setattr(procfs, "_stat_line", exit_meanwhile)
        assert PROCESSES.signal(claim, StopSignal.KILL) == AlreadyGone()
    assert sent == []


def failing(number: int, *, after: int = 0) -> Callable[[int, int], None]:
    """Make a sender that succeeds so many times, then fails with that errno."""
    left = iter(range(after))

    def send(target: int, signal_number: int) -> None:
        if signal_number and next(left, None) is None:
            raise OSError(number, os.strerror(number))

    return send


@pytest.mark.spec("K1")
@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        (errno.ESRCH, AlreadyGone()),
        (errno.EPERM, Refused("operation not permitted")),
        (errno.EINVAL, Refused("invalid argument")),
        (errno.ENOSYS, Refused("function not implemented")),
    ],
)
@pytest.mark.parametrize("pidfds", [True, False])
def test_a_failed_signal_says_what_the_kernel_said(
    number: int, outcome: object, pidfds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim(own_identity())
    if not pidfds:
        exhaust_pidfds("ENOSYS", monkeypatch)
    monkeypatch.setattr(signal, "pidfd_send_signal", failing(number))
    monkeypatch.setattr(os, "kill", failing(number))
    assert PROCESSES.signal(claim, StopSignal.TERM) == outcome
    assert PROCESSES.signal(claim, StopSignal.KILL) == outcome


@pytest.mark.spec("K1", "K4")
@pytest.mark.parametrize("number", [errno.ESRCH, errno.EPERM])
def test_a_sigterm_that_was_sent_stays_sent_when_the_sigcont_after_it_fails(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "pidfd_send_signal", failing(number, after=1))
    assert PROCESSES.signal(Claim(own_identity()), StopSignal.TERM) == Sent()


def refusals_as_nobody() -> list[str]:
    """Signal the process named in the environment as a user who may not; say what came of it."""
    pid = int(os.environ["TARGET"])
    (reading,) = PROCESSES.readings([ProcessIdentity(pid, "")])
    claim = Claim(ProcessIdentity(pid, reading.start_token or ""))
    os.setresuid(65534, 65534, 65534)
    found = [repr(PROCESSES.signal(claim, number)) for number in StopSignal]
    del os.pidfd_open
    return found + [repr(PROCESSES.signal(claim, number)) for number in StopSignal]


@pytest.mark.spec("K1")
def test_another_user_s_process_is_refused_with_the_kernel_s_text() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with running() as process:
        found = call_inside((), "tests.adapters.test_processes", "refusals_as_nobody", TARGET=str(process.pid))
        assert found == 4 * [repr(Refused("operation not permitted"))]
        assert is_running(process)


@pytest.mark.spec("K3")
def test_one_process_is_signalled_and_never_its_group(with_or_without_pidfds: str) -> None:
    with running(process_group=0) as leader, running(process_group=leader.pid) as member:
        assert PROCESSES.signal(claim_on(leader), StopSignal.KILL) == Sent()
        assert leader.wait(timeout=5) == -signal.SIGKILL
        assert is_running(member)


@pytest.mark.spec("K2")
def test_signalling_leaves_no_descriptor_open() -> None:
    with running() as process, zombie() as dead:
        PROCESSES.readings([ProcessIdentity(process.pid, "")])
        before = open_descriptors()
        PROCESSES.signal(claim_on(process, process_start="1"), StopSignal.KILL)
        PROCESSES.signal(claim_on(dead), StopSignal.KILL)
        PROCESSES.signal(claim_on(process), StopSignal.KILL)
        assert open_descriptors() == before


@pytest.mark.spec("L2", "L5")
def test_many_readings_come_in_the_order_of_their_identities() -> None:
    with running() as alive, zombie() as dead, stopped() as held:
        pids = [dead.pid, alive.pid, 0, held.pid, os.getpid()]
        readings = PROCESSES.readings([ProcessIdentity(pid, "") for pid in pids])
        assert [reading.pid_alive for reading in readings] == [False, True, False, True, True]
        assert [reading.stopped for reading in readings] == [False, False, False, True, False]


@pytest.mark.spec("L8")
def test_a_session_s_own_origin_names_this_process_and_this_place() -> None:
    origin, here = PROCESSES.own_origin(), PROCESSES.here()
    (reading,) = PROCESSES.readings([ProcessIdentity(os.getpid(), "")])
    assert origin == Origin(
        os.getpid(), reading.start_token, here.machine_id, here.boot_id, here.pid_namespace, here.time_namespace,
        reading.pidfd_inode,
    )  # fmt: skip


_OUT_OF_DESCRIPTORS = """
import os, resource
from murmur.adapters.processes import SystemProcesses
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.process import ProcessIdentity
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for pid in (os.getpid(), 1):
    try:
        print(SystemProcesses().readings([ProcessIdentity(pid, "1")]))
    except OutOfDescriptors as error:
        print("out of descriptors")
"""


@pytest.mark.spec("L2", "L7", "S3")
def test_a_process_without_a_descriptor_to_spare_calls_nobody_gone() -> None:
    done = subprocess.run(
        (sys.executable, "-c", _OUT_OF_DESCRIPTORS), capture_output=True, text=True, timeout=10, check=False
    )
    assert done.stdout.splitlines() == ["out of descriptors", "out of descriptors"], done.stderr
