"""Waiting that takes no time: the clock jumps to the next exit, or to the deadline."""

from collections.abc import Collection, Sequence

from murmur.domain.ports import Exits
from murmur.domain.process import Claim, Gone, judge
from tests.fakes.processes import FakeProcesses


class FakeExits:
    """Exits of the processes of a `FakeProcesses`, on its clock."""

    def __init__(self, processes: FakeProcesses) -> None:
        self._processes = processes
        self.waits: list[tuple[list[int], float]] = []
        """The pids of every wait, and its deadline."""

    def wait_any(self, claims: Sequence[Claim], deadline: float) -> Collection[int]:
        self.waits.append(([claim.identity.pid for claim in claims], deadline))
        clock = self._processes.clock
        while True:
            gone = [position for position, claim in enumerate(claims) if self._is_gone(claim)]
            if gone or clock.monotonic() >= deadline:
                return gone
            clock.advance_to(min(deadline, self._processes.next_end))

    def _is_gone(self, claim: Claim) -> bool:
        reading = self._processes.look(claim.identity.pid)
        return isinstance(judge(claim, reading, self._processes.place), Gone)


_PORT: type[Exits] = FakeExits
