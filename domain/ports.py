"""What the domain asks of the world: one small protocol a question, batch-shaped where order does not matter.

Each has one fake in `tests/fakes` and one contract test that runs against the fake and the real adapter.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from murmur.domain.door import DoorAsk, DoorReading
from murmur.domain.files import Leftover, OriginFile, RecordFile, Removal
from murmur.domain.origin import Here
from murmur.domain.process import Claim, ProcessIdentity, ProcessReading
from murmur.domain.signals import SignalOutcome, StopSignal


class Clock(Protocol):
    """What time it is."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that only goes forward."""
        ...


class ProcessTable(Protocol):
    """The kernel's processes, as far as this process may see them."""

    def here(self) -> Here:
        """Say which machine, boot and namespaces pids and start tokens are read in."""
        ...

    def readings(self, identities: Sequence[ProcessIdentity]) -> Sequence[ProcessReading]:
        """Look at each identity's pid once, in order (L2-L7). Raises `OutOfDescriptors`."""
        ...

    def signal(self, claim: Claim, signal: StopSignal) -> SignalOutcome:
        """Verify the claim and signal its process in one step, that process alone (K1-K4)."""
        ...


class Exits(Protocol):
    """Waiting for processes that are not our children."""

    def wait_any(self, claims: Sequence[Claim], deadline: float) -> Collection[int]:
        """Wait until at least one claim's process is gone; return the positions of all that are.

        Empty when the monotonic `deadline` passed first.
        """
        ...


class Doors(Protocol):
    """The HTTP endpoints of sessions."""

    def probe(self, asks: Sequence[DoorAsk]) -> Sequence[DoorReading]:
        """Ask every door at once and wait for the slowest, within the limits of P4. Raises `OutOfDescriptors`."""
        ...


class RunningDirectory(Protocol):
    """`~/.murmur/running`, read through one descriptor of it."""

    def batches(self, only: str | None = None) -> Iterator[AbstractContextManager[Sequence[RecordFile]]]:
        """Read every `*.json` entry, or `only` that one, some at a time.

        A batch's files stay open until its context is left. Raises `RegistryUnusable`.
        """
        ...

    def leftovers(self) -> Sequence[Leftover]:
        """Look at every `*.tmp`, `*.control` and `*.origin`: what crashed writers may have left."""
        ...

    def origin_of(self, stem: str) -> OriginFile:
        """Read the origin file of that stem and try its lock."""
        ...

    def remove(self, file: RecordFile | Leftover) -> Removal:
        """Unlink that file if its name still holds what was judged (S4)."""
        ...

    def remove_companion(self, name: str) -> Removal:
        """Unlink the `.control` or `.origin` of a session judged gone (G1)."""
        ...
