"""A signal ends a session that rests, whenever it comes and whichever thread the kernel gives it to (M1)."""

import subprocess
import sys

import pytest

# The signal is given to another thread: then, as when it comes right before the main thread begins to wait, nothing
# interrupts that wait. Python would act on the signal when the main thread wakes by itself.
PROGRAM = """
import asyncio
import signal
import threading

from murmur.adapters.ending_signals import EndingSignals


async def rest(signals):
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with signals.waking(loop):
        signals.tell(lambda number: loop.call_soon_threadsafe(ended.set))
        resting = threading.Event()

        def strike():
            resting.wait()
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            threading.Event().wait()  # It stays, and takes whatever else comes.

        threading.Thread(target=strike, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        loop.call_soon(resting.set)
        await ended.wait()


asyncio.run(rest(EndingSignals()))
print("ended")
"""


@pytest.mark.spec("M1")
def test_a_signal_wakes_a_session_at_rest_also_where_nothing_interrupts_its_wait() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=10, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("ended\n", "", 0)
