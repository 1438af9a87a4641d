"""A table of processes that a test fills, and that signals change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from murmur.domain.origin import Here
from murmur.domain.ports import ProcessTable
from murmur.domain.process import Claim, ProcessIdentity, ProcessReading, judge
from murmur.domain.signals import Refused, Sent, SignalOutcome, StopSignal, refusal_before_signal
from tests.fakes.clock import FakeClock

HERE = Here("machine", "boot", "pid:[1]", "time:[1]")
OBEDIENT: Mapping[StopSignal, float] = {StopSignal.TERM: 0.0, StopSignal.KILL: 0.0}
DEAF_TO_TERM: Mapping[StopSignal, float] = {StopSignal.KILL: 0.0}
UNKILLABLE: Mapping[StopSignal, float] = {}


@dataclass(frozen=True, slots=True)
class _Process:
    reading: ProcessReading
    ends_after: Mapping[StopSignal, float]


class FakeProcesses:
    """Pids that are held, each with what is read of it and how it takes signals. Every other pid is nobody's."""

    def __init__(self, clock: FakeClock | None = None, place: Here = HERE) -> None:
        self.clock = clock or FakeClock()
        self.place = place
        self.looks: list[list[int]] = []
        """The pids of every batch that was looked at."""
        self.signals: list[tuple[int, StopSignal]] = []
        """The signals that were sent, in order."""
        self.sent_at: list[float] = []
        """When, on the monotonic clock."""
        self.refusals: dict[int, str] = {}
        """Pids that the kernel lets nobody signal, and its words."""
        self._held: dict[int, _Process] = {}
        self._ends: dict[int, float] = {}

    def hold(
        self,
        pid: int,
        start_token: str | None,
        *,
        stopped: bool = False,
        pidfd_inode: int | None = None,
        ends_after: Mapping[StopSignal, float] = OBEDIENT,
    ) -> None:
        """Have a pid held. It ends so many seconds after each signal of `ends_after`, and ignores the others."""
        self._held[pid] = _Process(ProcessReading(True, start_token, stopped, pidfd_inode), ends_after)
        self._ends.pop(pid, None)

    def end(self, pid: int, after: float = 0.0) -> None:
        """Have a pid's process end so many seconds from now, if it does not end before."""
        self._ends[pid] = min(self._ends.get(pid, float("inf")), self.clock.monotonic() + after)

    @property
    def next_end(self) -> float:
        """When the next process ends on its own; infinity when none will."""
        return min(self._ends.values(), default=float("inf"))

    def look(self, pid: int) -> ProcessReading:
        """Read one pid without leaving a trace in `looks`."""
        for ended in [each for each, at in self._ends.items() if at <= self.clock.monotonic()]:
            del self._ends[ended]
            self._held.pop(ended, None)
        process = self._held.get(pid)
        return ProcessReading(pid_alive=False) if process is None else process.reading

    def here(self) -> Here:
        return self.place

    def readings(self, identities: Sequence[ProcessIdentity]) -> Sequence[ProcessReading]:
        self.looks.append([identity.pid for identity in identities])
        return [self.look(identity.pid) for identity in identities]

    def signal(self, claim: Claim, signal: StopSignal) -> SignalOutcome:
        pid = claim.identity.pid
        refusal = refusal_before_signal(judge(claim, self.look(pid), self.place))
        if refusal is not None:
            return refusal
        if pid in self.refusals:
            return Refused(self.refusals[pid])
        self.signals.append((pid, signal))
        self.sent_at.append(self.clock.monotonic())
        ends_after = self._held[pid].ends_after
        if signal in ends_after:
            self.end(pid, ends_after[signal])
        return Sent()


_PORT: type[ProcessTable] = FakeProcesses
