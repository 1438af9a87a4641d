"""What children write reaches our output, and whoever reads that cannot stop the reactor (X4, X5, X7)."""

import errno
import os
import pty
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from murmur.adapters import relay
from murmur.adapters.reactor import Reactor, shared_reactor
from murmur.adapters.relay import Outlet
from tests.adapters.launching.children_for_tests import PATIENCE

T = TypeVar("T")


@pytest.fixture
def reactor() -> Reactor:
    return shared_reactor()


def do(reactor: Reactor, call: Callable[[], T]) -> T:
    """Have that done in the reactor's thread; return what comes of it. Fails when the reactor does not get to it."""
    done = threading.Event()
    results: list[T] = []

    def act() -> None:
        results.append(call())
        done.set()

    reactor.call(act)
    assert done.wait(PATIENCE), "the reactor is stuck"
    return results[0]


@contextmanager
def outlet_on(reactor: Reactor, descriptor: int) -> Iterator[Outlet]:
    outlet = Outlet(reactor, descriptor)
    try:
        yield outlet
    finally:
        do(reactor, outlet._end)


def read_all(descriptor: int, count: int) -> bytes:
    """Read so many bytes."""
    found = b""
    while len(found) < count:
        assert select.select([descriptor], [], [], PATIENCE)[0], f"only {len(found)} bytes came"
        found += os.read(descriptor, 65536)
    return found


@pytest.mark.spec("X4", "X7")
@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_reader_that_never_reads_stops_no_reactor_and_gets_all_of_it_when_it_does(
    kind: str, reactor: Reactor
) -> None:
    reads, writes = os.pipe() if kind == "pipe" else pty.openpty()
    data = b"".join(b"%06d %s\n" % (number, b"x" * 92) for number in range(3000))
    expected = data if kind == "pipe" else data.replace(b"\n", b"\r\n")
    try:
        with outlet_on(reactor, writes) as outlet:
            for line in data.splitlines(keepends=True):
                reactor.call(partial(outlet.write, line))
            assert do(reactor, lambda: outlet._size > 0), "all of it found room: nothing was tested"
            assert read_all(reads, len(expected)) == expected
            assert do(reactor, lambda: outlet._size) == 0
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.spec("X7")
def test_a_full_terminal_does_not_keep_the_reactor_awake(reactor: Reactor) -> None:
    reads, writes = pty.openpty()
    try:
        with outlet_on(reactor, writes) as outlet:
            do(reactor, lambda: outlet.write((b"x" * 98 + b"\n") * 2000))
            begun = time.process_time()
            threading.Event().wait(0.3)
            assert time.process_time() - begun < 0.15
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.spec("X4")
def test_who_fills_an_outlet_is_told_to_stop_and_told_when_to_go_on(reactor: Reactor) -> None:
    reads, writes = os.pipe()
    freed = threading.Event()
    try:
        with outlet_on(reactor, writes) as outlet:
            assert not do(reactor, lambda: outlet.when_free(freed.set))
            written = 0
            while not do(reactor, lambda: outlet.when_free(freed.set)):
                do(reactor, lambda: outlet.write(b"x" * 65536))
                written += 65536
            assert written <= 1024 * 1024
            assert not freed.is_set()
            read_all(reads, written)
            assert freed.wait(PATIENCE)
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.spec("X5")
def test_once_its_reader_is_gone_it_swallows_everything_and_frees_who_waits(reactor: Reactor) -> None:
    reads, writes = os.pipe()
    freed = threading.Event()
    with outlet_on(reactor, writes) as outlet:
        do(reactor, lambda: outlet.write(b"x" * 1024 * 1024))
        assert do(reactor, lambda: outlet.when_free(freed.set))
        os.close(reads)
        assert freed.wait(PATIENCE)
        do(reactor, lambda: outlet.write(b"x" * 1024 * 1024))
        assert do(reactor, lambda: outlet._size) == 0
        assert not do(reactor, lambda: outlet.when_free(freed.set))
    os.close(writes)


@pytest.mark.spec("X5")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EBADF])
def test_an_output_that_fails_is_one_whose_reader_is_gone(
    number: int, reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, piece: bytes) -> int:
        raise OSError(number, os.strerror(number))

    reads, writes = os.pipe()
    monkeypatch.setattr(relay, "_write", refuse)
    with outlet_on(reactor, writes) as outlet:
        do(reactor, lambda: outlet.write(b"x"))
        assert do(reactor, lambda: (outlet._gone, outlet._size)) == (True, 0)
    os.close(reads)
    os.close(writes)


@pytest.mark.spec("X4")
def test_a_regular_file_takes_everything_at_once(reactor: Reactor, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file, outlet_on(reactor, file.fileno()) as outlet:
        do(reactor, lambda: outlet.write(b"x" * 300_000))
        assert do(reactor, lambda: outlet._size) == 0
    assert (tmp_path / "out").stat().st_size == 300_000


@pytest.mark.spec("X4")
def test_what_was_closed_when_the_process_began_is_never_written_to(reactor: Reactor, tmp_path: Path) -> None:
    with (tmp_path / "other").open("wb") as file:
        outlet = Outlet(reactor, file.fileno(), is_open=False)
        do(reactor, lambda: outlet.write(b"x"))
    assert (tmp_path / "other").stat().st_size == 0


@pytest.mark.spec("X7")
def test_a_descriptor_that_is_watched_already_ends_no_reactor(reactor: Reactor) -> None:
    # Its number was closed by somebody, and has become one of the reactor's own.
    reads, writes = os.pipe()
    try:
        do(reactor, lambda: reactor.on_readable(writes, lambda: None))
        with outlet_on(reactor, writes) as outlet:
            do(reactor, lambda: outlet.write(b"x" * 200_000))
            assert do(reactor, lambda: outlet._size) > 0
            read_all(reads, 200_000)
    finally:
        do(reactor, lambda: reactor.leave(writes))
        os.close(reads)
        os.close(writes)


@pytest.mark.spec("X4")
def test_there_is_one_outlet_for_each_of_our_two_outputs(reactor: Reactor) -> None:
    assert do(reactor, lambda: relay.outlets(reactor)) is do(reactor, lambda: relay.outlets(reactor))
