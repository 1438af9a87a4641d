"""What does a session owe whoever launched it? Its lineage, its end when theirs comes, and word of it (M2, M3)."""

from collections.abc import Callable, Mapping

from murmur.adapters.completions import CompletionStore, deliver, record
from murmur.adapters.doors import HttpDoors
from murmur.adapters.launched_by import LaunchedBy
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.session_host import Lifeline, SessionEnd
from murmur.cli import wiring
from murmur.cli.launch import Launch
from murmur.cli.output import warn
from murmur.domain.errors import MurmurError
from murmur.domain.launch.completion import POST_LIMITS, DelegationOutcome
from murmur.domain.launch.watcher import duration_ms

Trace = Callable[[str, Mapping[str, object]], None]


class Launched:
    """One launched session's dealings with its launcher."""

    def __init__(self, launch: Launch, session_id: str, records: RecordsDirectory, started: float) -> None:
        self._launch = launch
        self._session_id = session_id
        self._records = records
        self._started = started
        by = launch.launched_by or LaunchedBy()
        self._handle = by.handle
        self._lifeline = by.lifeline
        self.formation_id = by.formation_id
        self._store = CompletionStore(records.descriptor)
        self._recorded: DelegationOutcome | None = None
        self._is_over = False

    @property
    def lineage(self) -> Mapping[str, str]:
        """What `session_start` says of where the session comes from."""
        known = self._delegation
        return known if self.formation_id is None else {**known, "formation_id": self.formation_id}

    @property
    def spawned_by(self) -> str | None:
        """The session that it was delegated by."""
        return None if self._handle is None else self._handle.session_id

    def lifeline(self, trace: Trace) -> Lifeline | None:
        """Return what ends with the launcher. A script then ends at once (M3)."""
        if self._lifeline is None:
            return None
        patience = 0.0 if self._launch.script else Lifeline.patience

        def ended() -> None:
            if not self._is_over:  # Nothing follows a session's end in its trace.
                trace("spawner_ended", self._delegation)

        return Lifeline(self._lifeline, ended, patience)

    def record(self, end: SessionEnd) -> None:
        """Record how the delegation ended, as undelivered. At once: an end that is forced waits for no post."""
        self._is_over = True
        if self._handle is not None:
            self._recorded = self._outcome(self._handle.delegation_id, end)
            record(self._recorded, self._store, warn)

    def report(self, end: SessionEnd, asked: bool) -> None:  # noqa: FBT001 - called by the host with what it knows
        """Tell the spawner what was recorded, and the referee that the session ended. What fails is a warning.

        A spawner that asked for the end has its own account of it, and need not take ours.
        """
        if self._handle is not None and self._recorded is not None:
            tell = (lambda _: None) if asked else warn
            deliver(self._handle, self._recorded, self._store, HttpDoors(POST_LIMITS), tell)
        if self._launch.membership is not None:
            # Only who has a referee pays for asking it.
            from murmur.adapters.referee_client import deregister  # noqa: PLC0415

            member = self._launch.membership
            try:
                complete = end.exit_status == 0 and not end.cut_short
                deregister(member.roost, member.credential, "complete" if complete else "failed")
            except MurmurError as error:
                warn(f"the referee was not told of the session's end: {error.message}")

    @property
    def _delegation(self) -> Mapping[str, str]:
        if self._handle is None:
            return {}
        return {"spawned_by": self._handle.session_id, "delegation_id": self._handle.delegation_id}

    def _outcome(self, delegation_id: str, end: SessionEnd) -> DelegationOutcome:
        result = self._records.path / "out" / "result.txt"
        return DelegationOutcome(
            delegation_id=delegation_id,
            capsule_name=self._launch.name,
            capsule_version=self._launch.version,
            session_id=self._session_id,
            status="error" if end.exit_status != 0 else "terminated" if end.cut_short else "ok",
            workdir=str(self._launch.workdir),
            duration_ms=duration_ms(self._started, wiring.clock.monotonic()),
            reported_by="child",
            result_path=str(result) if result.exists() else None,
            detail="the session was asked to end before its work was done" if end.cut_short else end.reason,
        )
