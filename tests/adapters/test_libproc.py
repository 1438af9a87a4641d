"""What does macOS's description of a process make of it? The pure parts, which run on any platform (L2, L4)."""

import errno
import os

import pytest

from murmur.adapters import libproc
from murmur.domain.bsdinfo import SSTOP, SZOMB, BsdInfo
from murmur.domain.process import ProcessReading

SRUN = 2
TOKEN = "1700000000.000042"


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids that were looked up; each is described as running, and is held by somebody."""
    asked: list[int] = []

    def describe(pid: int) -> tuple[BsdInfo | None, int]:
        asked.append(pid)
        return BsdInfo(SRUN, TOKEN, 1), 0

    monkeypatch.setattr(libproc, "_bsdinfo", describe)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    return asked


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    ("info", "error", "reading"),
    [
        (BsdInfo(SRUN, TOKEN, 1), 0, ProcessReading(True, TOKEN)),
        (BsdInfo(SSTOP, TOKEN, 1), 0, ProcessReading(True, TOKEN, stopped=True)),
        (BsdInfo(SZOMB, TOKEN, 1), 0, ProcessReading(False)),
        (None, errno.ESRCH, ProcessReading(False)),
        (None, errno.EPERM, ProcessReading(True)),
        (None, errno.ENOMEM, ProcessReading(True)),
        (None, 0, ProcessReading(True)),
    ],
)
def test_only_a_zombie_or_esrch_makes_a_held_pid_nobody(
    info: BsdInfo | None, error: int, reading: ProcessReading
) -> None:
    assert libproc.reading_from(info, error) == reading


@pytest.mark.spec("L2")
@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**31, 2**32 - 1])
def test_a_number_that_no_single_process_can_have_is_nobody_and_reaches_no_system_call(
    pid: int, described: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda pid, number: described.append(pid))
    assert libproc.read_process(pid) == ProcessReading(False)
    assert described == []


@pytest.mark.spec("L2", "L4")
def test_a_pid_that_nobody_holds_is_not_looked_up(described: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", refuse)
    assert libproc.read_process(4242) == ProcessReading(False)
    assert described == []


@pytest.mark.spec("L2", "L4")
def test_a_pid_that_may_not_be_signalled_is_looked_up(described: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert libproc.read_process(4242) == ProcessReading(True, TOKEN)
    assert described == [4242]


@pytest.mark.spec("K2", "L4")
def test_there_is_no_descriptor_to_hold_a_process_by(described: list[int]) -> None:
    with libproc.held(4242) as found:
        assert found == (None, ProcessReading(True, TOKEN))
