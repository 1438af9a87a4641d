"""A session outlives its launcher when it has no controlling terminal (G4)."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from murmur.adapters.terminal import has_controlling_terminal
from tests.adapters.processes_for_tests import open_descriptors

_ANSWER = """
import os, sys
if len(sys.argv) > 1:
    os.close(os.open(sys.argv[1], os.O_RDWR))  # A session leader's first terminal becomes its controlling one.
from murmur.adapters.terminal import has_controlling_terminal
print(has_controlling_terminal())
"""


@pytest.fixture
def terminal() -> Iterator[str]:
    ours, theirs = os.openpty()
    yield os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


def answer(*arguments: str) -> str:
    done = subprocess.run(
        (sys.executable, "-c", _ANSWER, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
        start_new_session=True,
    )
    return done.stdout.strip()


@pytest.mark.spec("G4")
def test_a_process_in_a_session_of_its_own_has_no_terminal() -> None:
    assert answer() == "False"


@pytest.mark.spec("G4")
def test_a_process_with_a_controlling_terminal_has_one_although_its_streams_are_redirected(terminal: str) -> None:
    assert answer(terminal) == "True"


@pytest.mark.spec("G4")
def test_asking_for_the_terminal_leaves_no_descriptor_open() -> None:
    before = open_descriptors()
    has_controlling_terminal()
    assert open_descriptors() == before


@pytest.mark.spec("G4")
def test_a_terminal_that_opens_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, closed = os.open(os.devnull, os.O_RDONLY), []
    asked: list[tuple[str, int]] = []
    close = os.close

    def answer_with_null(path: str, flags: int) -> int:
        asked.append((path, flags))
        return opened

    def remember(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "open", answer_with_null)
    monkeypatch.setattr(os, "close", remember)
    assert has_controlling_terminal()
    assert closed == [opened]
    ((path, flags),) = asked
    assert path == "/dev/tty"
    assert flags & os.O_NOCTTY
    assert flags & os.O_CLOEXEC
