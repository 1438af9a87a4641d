"""A file that grows is told of once, by the kernel, and where that cannot be it is looked at again (M1, X7)."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters import growth
from murmur.adapters.growth import Growth
from tests.adapters.processes_for_tests import open_descriptors

WITHIN = 5.0
"""Seconds after which a growth counts as not told of; nothing here takes so long."""


class Told:
    """What a `Growth` tells."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = asyncio.Event()
        self.growth = Growth(self._tell)

    def _tell(self) -> None:
        self.count += 1
        self._happened.set()

    async def again(self) -> None:
        """Wait until it has told once more."""
        await asyncio.wait_for(self._happened.wait(), WITHIN)
        self._happened.clear()


async def looked() -> None:
    """Have the loop look at its descriptors, and call whoever waits for those that are ready."""
    for _ in range(3):
        await asyncio.sleep(0)


def numbers_open() -> set[str]:
    """Return the numbers of the descriptors that are open: what they lead to is renamed here."""
    return {descriptor.split()[0] for descriptor in open_descriptors()}


def during(test: Callable[[Told], Awaitable[None]]) -> None:
    """Run a test with a `Growth`; nothing of it may be left, and nothing may go wrong in the loop."""
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        before = numbers_open()
        told = Told()
        try:
            await test(told)
        finally:
            told.growth.close()
        told.growth.close()
        assert numbers_open() <= before
        timers: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
        assert [timer for timer in timers if not timer.cancelled()] == []

    asyncio.run(run())
    assert complaints == []


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    with opened(tmp_path / "log") as descriptor:
        yield descriptor


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.spec("M1")
def test_a_file_that_grows_is_told_of_once_until_it_is_asked_for_again(log: int) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        for count in (1, 2, 3):
            told.growth.arm()
            await looked()
            assert told.count == count - 1
            for _ in range(3):
                os.write(log, b"a")
            await told.again()
            os.write(log, b"a")
            await looked()
            assert told.count == count

    during(test)


@pytest.mark.spec("M1")
def test_who_has_not_asked_is_not_told_and_what_was_before_is_not_told_of(log: int) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        os.write(log, b"a")
        await looked()
        assert told.count == 0
        told.growth.arm()
        await looked()
        assert told.count == 0  # Whoever arms looks at the file after that.
        os.write(log, b"a")
        await told.again()

    during(test)


@pytest.mark.spec("M1")
def test_asking_twice_is_asking_once_and_loses_nothing(log: int) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        told.growth.arm()
        os.write(log, b"a")
        told.growth.arm()
        await told.again()
        assert told.count == 1

    during(test)


@pytest.mark.spec("M1")
def test_what_another_process_writes_under_the_files_name_is_told_of(log: int, tmp_path: Path) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        told.growth.arm()
        process = await asyncio.create_subprocess_exec("sh", "-c", f"echo a >> {tmp_path}/log")
        await told.again()
        await process.wait()

    during(test)


@pytest.mark.spec("M1")
def test_any_of_several_files_is_told_of(log: int, tmp_path: Path) -> None:
    async def test(told: Told) -> None:
        with opened(tmp_path / "other") as other:
            told.growth.follow([log, other])
            for written in (other, log, other):
                told.growth.arm()
                os.write(written, b"a")
                await told.again()

    during(test)


@pytest.mark.spec("M1")
def test_files_are_followed_instead_of_those_before(log: int, tmp_path: Path) -> None:
    async def test(told: Told) -> None:
        with opened(tmp_path / "other") as other:
            for descriptors, followed, left in (([log], log, other), ([other], other, log), ([log], log, other)):
                told.growth.follow(descriptors)
                told.growth.arm()
                os.write(left, b"a")
                await looked()
                assert told.count == 0
                os.write(followed, b"a")
                await told.again()
                told.count = 0
            told.growth.follow([])
            told.growth.arm()
            os.write(log, b"a")
            os.write(other, b"a")
            await looked()
            assert told.count == 0

    during(test)


@pytest.mark.spec("M1")
def test_two_descriptors_of_one_file_are_followed_and_left_each_on_its_own(log: int) -> None:
    async def test(told: Told) -> None:
        second = os.dup(log)
        try:
            told.growth.follow([log, second])
            told.growth.follow([second])
            told.growth.arm()
            os.write(log, b"a")
            await told.again()
            told.growth.follow([])
        finally:
            os.close(second)

    during(test)


@pytest.mark.spec("M1")
@pytest.mark.parametrize("when", ["before it is followed", "after"])
@pytest.mark.parametrize("moved", ["renamed", "unlinked", "replaced"])
def test_it_is_the_open_file_whatever_has_its_name(log: int, tmp_path: Path, moved: str, when: str) -> None:
    def move() -> None:
        match moved:
            case "renamed":
                (tmp_path / "log").rename(tmp_path / "log.1")
            case "unlinked":
                (tmp_path / "log").unlink()
            case _:
                (tmp_path / "new").write_text("another")
                (tmp_path / "new").replace(tmp_path / "log")

    async def test(told: Told) -> None:
        if when != "after":
            move()
        told.growth.follow([log])
        if when == "after":
            move()
        told.growth.arm()
        await looked()
        assert told.count == 0
        os.write(log, b"a")
        await told.again()

    during(test)


@pytest.mark.spec("M1")
def test_a_file_that_is_gone_by_then_can_be_left() -> None:
    async def test(told: Told) -> None:
        descriptor = os.memfd_create("log")
        told.growth.follow([descriptor])
        os.close(descriptor)
        told.growth.follow([])

    during(test)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_AGAIN", 0.01)


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.spec("M1")
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSYS])
def test_where_the_kernel_does_not_tell_files_are_looked_at_again(
    log: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_Inotify", "_Kqueue"):
        monkeypatch.setattr(growth, name, failing(number))

    async def test(told: Told) -> None:
        told.growth.follow([log])
        for count in (1, 2):
            told.growth.arm()
            told.growth.arm()
            await told.again()
            assert told.count == count
        told.growth.arm()  # Closing takes the timer back.

    during(test)


@pytest.mark.spec("M1")
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("armed", [True, False])
def test_where_no_further_file_may_be_watched_they_are_looked_at_again(
    log: int, armed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(told: Told) -> None:
        before = open_descriptors()
        if armed:
            told.growth.follow([log])
            told.growth.arm()
        with monkeypatch.context() as patch:
            for kind in (growth._Inotify, growth._Kqueue):
                patch.setattr(kind, "follow", failing(errno.ENOSPC))
            told.growth.follow([log, log])
        assert open_descriptors() < before  # What nothing comes from any more is closed.
        told.growth.arm()
        await told.again()
        told.growth.follow([])
        told.growth.follow([log])
        told.growth.arm()
        await told.again()

    during(test)


@pytest.mark.spec("X7")
def test_waiting_for_growth_takes_no_timer(log: int) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        told.growth.arm()
        timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        assert timers == []

    during(test)


@pytest.mark.spec("M1")
def test_who_has_closed_is_not_told_any_more(log: int) -> None:
    async def test(told: Told) -> None:
        told.growth.follow([log])
        told.growth.arm()
        os.write(log, b"a")
        told.growth.close()
        await looked()
        assert told.count == 0

    during(test)
