"""What time is it?"""

import time
from collections.abc import Callable


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()


def steady_milliseconds() -> Callable[[], int]:
    """Return a clock of Unix milliseconds that nobody sets: it goes on from now as the monotonic one does."""
    began = time.time_ns() - time.monotonic_ns()
    return lambda: (began + time.monotonic_ns()) // 1_000_000
