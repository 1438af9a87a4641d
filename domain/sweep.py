"""What did crashed writers leave in the running directory, or in a store, and which of it may go? (H5)."""

from typing import NamedTuple, assert_never

from murmur.domain.files import FileMark, Leftover, Removed
from murmur.domain.listing import FileNote, Listing
from murmur.domain.liveness import states_of
from murmur.domain.origin import LockReading, UnreadOrigin
from murmur.domain.ports import Clock, ProcessTable, RunningDirectory
from murmur.domain.process import Alive, Claim, Gone, ProcessIdentity
from murmur.domain.staged_names import staged_by

STAGED_AGE = 60.0
"""Seconds after which a staged write of a process that is gone is swept."""
STAGED_AGE_ANY = 86400.0
"""Seconds after which any staged write is swept."""


def is_abandoned(lock: LockReading, *, age: float, pid_alive: bool) -> bool:
    """Whether a staged folder may go. Its writer holds a lock on it from its first moment on.

    A free lock speaks before the pid: it does so for writers in other containers too, whose pids mean nothing here,
    and for a pid that is another process's by now. It says nothing of the moment before it was taken.
    """
    match lock:
        case LockReading.HELD:
            return False
        case LockReading.FREE:
            return not pid_alive or age > STAGED_AGE
        case LockReading.UNREADABLE:  # A file system without locks.
            return not pid_alive and age > STAGED_AGE_ANY
        case _:
            assert_never(lock)


class Sweep(NamedTuple):
    """One pass over what is no record. `run` adds what it found and removed to the listing of the records."""

    directory: RunningDirectory
    processes: ProcessTable
    clock: Clock
    listing: Listing
    prune: bool

    def run(self) -> None:
        """Look at every leftover; with `prune`, remove what evidence allows."""
        orphans: dict[str, list[Leftover]] = {}
        for leftover in self.directory.leftovers():
            if (pid := staged_by(leftover.name)) is not None:
                reason = self._why_stale(leftover.mark, pid)
                if reason is not None:
                    self._remove(leftover, reason)
            elif leftover.name.endswith((".control", ".origin")):
                stem = leftover.name.rpartition(".")[0]
                if stem not in self.listing.stems:
                    orphans.setdefault(stem, []).append(leftover)
        for stem, files in sorted(orphans.items()):
            self._orphan(stem, sorted(files, key=lambda file: file.name))

    def _remove(self, leftover: Leftover, reason: str) -> None:
        removal = self.directory.remove(leftover) if self.prune else Removed()
        self.listing.note_removal(self.listing.removed, leftover.name, reason, removal)

    def _keep(self, leftover: Leftover, reason: str) -> None:
        self.listing.kept.append(FileNote(leftover.name, reason))

    def _why_stale(self, mark: FileMark | None, pid: int) -> str | None:
        if mark is None:
            return None
        age = self.clock.now() - mark.mtime_ns / 1e9
        if age > STAGED_AGE_ANY:
            return "a staged write over a day old"
        if age <= STAGED_AGE:
            return None
        (reading,) = self.processes.readings([ProcessIdentity(pid, "")])
        return None if reading.pid_alive else f"a staged write of pid {pid}, which is gone"

    def _orphan(self, stem: str, files: list[Leftover]) -> None:
        """Decide on a control token and an origin that have no record: only the origin can say whose they are."""
        found = self.directory.origin_of(stem)
        origin = found.origin
        if isinstance(origin, UnreadOrigin):
            for file in files:
                self._keep(file, f"it has no record, and its origin file could not be read: {origin.reason}")
            return
        if origin is None or origin.pid is None:
            for file in files:
                self._keep(file, "it has no record, and no origin file says whose it is")
            return
        claim = Claim(ProcessIdentity(origin.pid, origin.process_start or ""), origin, found.lock)
        (state,) = states_of([claim], self.processes)
        match state:
            case Alive():
                pass  # A session that is just starting, or that runs on without its record.
            case Gone(reason):
                for file in files:
                    self._remove(file, f"it has no record, and {reason}")
            case _:
                for file in files:
                    self._keep(file, f"it has no record, and {state.reason}")
