"""Threads that leave every signal to the main thread."""

import signal
import threading
from collections.abc import Callable


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread. Raises `RuntimeError` when none can be started.

    A signal that such a thread took could reach Python at a moment when its handler is gone already.
    """

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
