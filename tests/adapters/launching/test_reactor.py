"""The one thread that watches all children: it sleeps until something happens, and nothing stops it (X7)."""

import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from murmur.adapters import reactor as module
from murmur.adapters.reactor import Reactor, Timer, shared_reactor
from tests.adapters.launching.children_for_tests import OBEDIENT, PATIENCE, Launching
from tests.adapters.processes_for_tests import ROOT, open_descriptors


def in_turn(reactor: Reactor) -> None:
    """Wait until the reactor has done what it was asked to do by now."""
    done = threading.Event()
    reactor.call(done.set)
    assert done.wait(PATIENCE)


def switches(reactor: Reactor) -> int:
    """Return how often the reactor's thread has gone to sleep."""
    lines = Path(f"/proc/self/task/{reactor._thread.native_id}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("voluntary_ctxt_switches")]
    return int(line.split()[1])


@pytest.fixture
def reactor() -> Reactor:
    return shared_reactor()


@pytest.mark.spec("X7")
def test_there_is_one_a_process_and_calls_are_made_in_its_thread_in_their_order(reactor: Reactor) -> None:
    assert shared_reactor() is reactor
    seen: list[int] = []
    inside: list[bool] = []
    for number in range(2000):
        reactor.call(partial(seen.append, number))
    reactor.call(lambda: inside.append(reactor.is_this_thread()))
    in_turn(reactor)
    assert seen == list(range(2000))
    assert inside == [True]
    assert not reactor.is_this_thread()


@pytest.mark.spec("X7")
def test_timers_fire_in_their_order_and_not_too_early_and_a_cancelled_one_never_does(reactor: Reactor) -> None:
    fired: list[tuple[str, float]] = []
    done = threading.Event()
    begun = time.monotonic()

    def fire(name: str) -> None:
        fired.append((name, time.monotonic() - begun))

    def set_all() -> None:
        reactor.call_at(begun + 0.06, lambda: fire("last"))
        reactor.call_at(begun + 0.06, done.set)
        reactor.call_at(begun + 0.02, lambda: fire("first"))
        reactor.call_at(begun - 1.0, lambda: fire("overdue"))
        cancelled: Timer = reactor.call_at(begun + 0.03, lambda: fire("cancelled"))
        reactor.call_at(begun + 0.04, lambda: fire("middle"))
        cancelled.cancel()
        cancelled.cancel()

    reactor.call(set_all)
    assert done.wait(PATIENCE)
    assert [name for name, _ in fired] == ["overdue", "first", "middle", "last"]
    assert all(at >= due for (_, at), due in zip(fired[1:], (0.02, 0.04, 0.06), strict=True))


@pytest.mark.spec("X7")
def test_a_descriptor_is_called_for_as_long_as_it_can_be_read_and_not_once_it_was_left(reactor: Reactor) -> None:
    read_end, write_end = os.pipe()
    seen: list[bytes] = []
    told = threading.Event()

    def read() -> None:
        seen.append(os.read(read_end, 1))
        if len(seen) == 3:
            reactor.leave(read_end)
            reactor.leave(read_end)
            told.set()

    reactor.call(lambda: reactor.on_readable(read_end, read))
    os.write(write_end, b"abcd")
    assert told.wait(PATIENCE)
    in_turn(reactor)
    assert seen == [b"a", b"b", b"c"]
    os.close(read_end)
    os.close(write_end)


@pytest.mark.spec("X7")
def test_an_event_is_stale_once_another_one_had_its_descriptor_left(reactor: Reactor) -> None:
    # Both become readable before the reactor looks. Whichever is called first leaves the other's descriptor, closes
    # it, and puts another pipe under its number, which cannot be read.
    pipes = [os.pipe(), os.pipe()]
    other = os.pipe()
    called: list[int] = []

    def handler(own: int, its: int) -> None:
        called.append(own)
        reactor.leave(own)
        reactor.leave(its)
        os.dup2(other[0], its, inheritable=False)
        reactor.on_readable(its, lambda: called.append(-1))

    def both() -> None:
        for (own, _), (its, _) in (pipes, pipes[::-1]):
            reactor.on_readable(own, partial(handler, own, its))
        for _, end in pipes:
            os.write(end, b"x")

    reactor.call(both)
    in_turn(reactor)
    in_turn(reactor)
    assert len(called) == 1
    assert called[0] in {pipes[0][0], pipes[1][0]}
    for end, _ in pipes:
        reactor.call(partial(reactor.leave, end))
    in_turn(reactor)
    for end in (*pipes[0], *pipes[1], *other):
        os.close(end)


@pytest.mark.slow  # It looks for a whole second whether anything wakes.
@pytest.mark.spec("X7")
def test_nothing_wakes_while_nothing_happens_however_many_children_there_are(launching: Launching) -> None:
    reactor = shared_reactor()
    launching.program(OBEDIENT)
    for _ in range(5):
        launching.launch()
    in_turn(reactor)
    # It may be on its way back to sleep still: what counts is a second in which it stays there.
    before = switches(reactor)
    time.sleep(0.2)
    before = switches(reactor)
    time.sleep(1.0)
    assert switches(reactor) == before
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("children") == 1
    assert "exit" not in names


_FORKED = """
import os, threading, warnings
warnings.simplefilter("ignore")
from murmur.adapters.reactor import shared_reactor
first = shared_reactor()
if (copy := os.fork()) == 0:
    done = threading.Event()
    again = shared_reactor()
    again.call(done.set)
    os._exit(0 if again is not first and done.wait(20) else 1)
print(os.waitpid(copy, 0)[1])
"""


@pytest.mark.spec("X7")
def test_a_forked_copy_starts_a_thread_of_its_own() -> None:
    done = subprocess.run(
        (sys.executable, "-c", _FORKED), cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("fails", ["pipe", "thread"])
def test_a_reactor_that_cannot_start_leaves_nothing(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files") if fails == "pipe" else RuntimeError("can't start new thread")

    monkeypatch.setattr(*((os, "pipe", refuse) if fails == "pipe" else (module, "start_thread", refuse)))
    before = open_descriptors()
    with pytest.raises((OSError, RuntimeError)):
        Reactor()
    monkeypatch.undo()
    assert open_descriptors() == before
