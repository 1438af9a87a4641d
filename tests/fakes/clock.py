"""A clock that stands still until a test moves it."""

from murmur.domain.ports import Clock


class FakeClock:
    """Both clocks move together, and only forward."""

    def __init__(self, now: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self._now = now
        self._monotonic = monotonic

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._now += seconds
        self._monotonic += seconds

    def advance_to(self, monotonic: float) -> None:
        """Move to that monotonic time exactly, if it is not past."""
        if monotonic > self._monotonic:
            self._now += monotonic - self._monotonic
            self._monotonic = monotonic


_PORT: type[Clock] = FakeClock
