"""What a main thread is told by other threads and by signals, and that it misses neither (X7)."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from murmur.adapters.mailbox import Mailbox
from tests.adapters.processes_for_tests import open_descriptors


def test_what_is_put_in_comes_out_in_order_whoever_put_it_in() -> None:
    with Mailbox[int]() as mailbox:
        mailbox.put(1)
        thread = threading.Thread(target=mailbox.put, args=[2])
        thread.start()
        thread.join()
        assert [mailbox.take(), mailbox.take()] == [1, 2]
        later = threading.Timer(0.05, mailbox.put, [3])
        later.start()
        assert mailbox.take() == 3
        later.join()


def test_more_than_the_pipe_holds_is_no_more_than_it_holds() -> None:
    with Mailbox[int]() as mailbox:
        for number in range(70_000):
            mailbox.put(number)
        assert [mailbox.take() for _ in range(70_000)] == list(range(70_000))


@pytest.fixture
def handled() -> Iterator[signal.Signals]:
    """A signal that Python has a handler for."""
    before = signal.signal(signal.SIGURG, lambda *_: None)
    yield signal.SIGURG
    signal.signal(signal.SIGURG, before)


def test_a_signal_that_comes_before_the_wait_begins_is_in_the_pipe_already(handled: signal.Signals) -> None:
    with Mailbox[int]() as mailbox:
        assert not select.select([mailbox._read_end], [], [], 0)[0]
        signal.raise_signal(handled)
        assert select.select([mailbox._read_end], [], [], 0)[0]


def test_at_the_end_nothing_is_left_and_what_comes_later_goes_nowhere(handled: signal.Signals) -> None:
    before = open_descriptors()
    with Mailbox[int]() as mailbox:
        pass
    assert open_descriptors() == before
    read_end, write_end = os.pipe()  # Under the numbers of its pipe.
    os.set_blocking(read_end, False)
    try:
        mailbox.put(1)
        signal.raise_signal(handled)
        with pytest.raises(BlockingIOError):
            os.read(read_end, 1)
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_signal_is_acted_on_while_nothing_is_put_in() -> None:
    program = (
        "import signal\nfrom murmur.adapters.mailbox import Mailbox\n"
        "with Mailbox() as mailbox:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: mailbox.put('told'))\n"
        "    print('up', flush=True)\n"
        "    print(mailbox.take())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == "told\n"
