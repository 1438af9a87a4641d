"""What time is it?"""

import time


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()
