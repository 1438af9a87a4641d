"""What comes first: a child's readiness line, its end, or the end of our patience? (X5, X6)."""

import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import assert_never

from murmur.adapters.child_process import ChildProcess
from murmur.adapters.child_streams import (
    DRAIN_TIMEOUT,
    ChildErrors,
    ChildExited,
    GivenUp,
    LineSeen,
    LineTooLong,
    OutputEnded,
    Overdue,
    Seen,
)
from murmur.adapters.exit_status import UNKNOWN_STATUS
from murmur.domain.errors import ChildNotLaunched


class ReadinessWait:
    """One started child that has not reported itself yet."""

    def __init__(self, workdir: Path, process: ChildProcess, errors: ChildErrors, seen: "SimpleQueue[Seen]") -> None:
        self.child = f"the child capsule '{workdir}'"
        """What it is called in a refusal."""
        self._process = process
        self._errors = errors
        self._seen = seen

    def first_line(self, deadline: float, timeout: float) -> bytes | Overdue:
        """Wait for the first line until a monotonic time; raise `ChildNotLaunched` for anything else.

        `timeout` is how that time is told. `Overdue` is what a deadline of somebody else's puts in.
        """
        has_exited = False
        while True:
            try:
                seen = self._seen.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                if has_exited:
                    raise self._exited() from None
                raise ChildNotLaunched(f"{self.child} did not report a launch line within {timeout:g}s") from None
            match seen:
                case LineSeen(line):
                    return line
                case Overdue():
                    return seen
                case ChildExited():
                    # Its line may still be on the way; a process it left behind may hold the pipe for ever.
                    has_exited, deadline = True, min(deadline, time.monotonic() + DRAIN_TIMEOUT)
                case LineTooLong() | OutputEnded() | GivenUp():
                    raise self._refusal(seen)
                case _:
                    assert_never(seen)

    def not_handed_over(self, why: str) -> ChildNotLaunched:
        """Say that the child could not be handed its approval: mostly because it ended first."""
        if self._process.wait(DRAIN_TIMEOUT):
            return self._ended("exited before its launch grant could be handed over")
        return ChildNotLaunched(f"failed to hand the child its launch grant: {why}")

    def _refusal(self, seen: LineTooLong | OutputEnded | GivenUp) -> ChildNotLaunched:
        match seen:
            case LineTooLong():
                return ChildNotLaunched("the child capsule's first --json line did not parse: it is longer than 1 MiB")
            case OutputEnded():
                if self._process.wait(DRAIN_TIMEOUT):
                    return self._exited()
                return ChildNotLaunched(f"{self.child} closed its output without reporting a launch line")
            case GivenUp():
                return ChildNotLaunched(f"{self.child} was given up before it reported itself")
            case _:
                assert_never(seen)

    def _exited(self) -> ChildNotLaunched:
        return self._ended("exited without reporting a launch line")

    def _ended(self, how: str) -> ChildNotLaunched:
        status = self._process.status or UNKNOWN_STATUS
        tail = "\n".join(self._errors.lines_at_end(DRAIN_TIMEOUT))
        return ChildNotLaunched(f"{self.child} {how} ({status}): {tail}")
