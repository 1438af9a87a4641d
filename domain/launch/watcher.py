"""A watched child has ended: what is recorded, and who is told? (W1-W4, E3)."""

from collections.abc import Sequence
from typing import assert_never

from murmur.domain.launch.completion import DelegationOutcome, DelegationStatus, cut_detail
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.value import Value

PARENT_ENDED_DETAIL = "the parent ended this delegation"
_UNKNOWN_STATUS = "unknown exit status"


class Exited(Value):
    """The child ended on its own. `status` says how, in words; `None` when nobody could read it."""

    status: str | None


class Deliberate(Value):
    """Our SIGTERM was sent to a child that had not exited by then (E3)."""


ChildEnd = Exited | Deliberate


class LeaveAlone(Value):
    """The child's own completion was delivered: nothing is to be done."""


class RetryOnce(Value):
    """The child's own completion is to be posted once more, and its file rewritten with the result."""


class PostTerminated(Value):
    """The deadline ended it: `expired_outcome` is to be recorded and posted."""


class RecordTerminated(Value):
    """The parent ended it: `terminated_outcome` is to be recorded over whatever there is, and posted to nobody."""


class PostCrashed(Value):
    """It ended without a word: `crashed_outcome` is to be recorded and posted."""


WatcherAction = LeaveAlone | RetryOnce | PostTerminated | RecordTerminated | PostCrashed


def decide(ending: ChildEnd, recorded: DelegationOutcome | None, expired: bool) -> WatcherAction:  # noqa: FBT001
    """Say what is to be done about an ended child (W1, W2).

    What the child recorded counts only if it ended on its own: what it records while it winds down is its account
    of an ending that our side chose. A deadline that passed counts only if it ended the child (E3): one that had
    exited by then is judged by what it recorded.
    """
    match ending:
        case Deliberate():
            return PostTerminated() if expired else RecordTerminated()
        case Exited():
            if recorded is None:
                return PostCrashed()
            return LeaveAlone() if recorded.delivered else RetryOnce()
        case _:
            assert_never(ending)


class WatchedChild(Value):
    """What the launcher knows of a child that it reports for."""

    delegation_id: str
    capsule_name: str
    capsule_version: str
    session_id: str
    workdir: str

    def outcome(self, status: DelegationStatus, detail: str, duration_ms: int) -> DelegationOutcome:
        """Make an outcome of the launcher's own. It names no result: the launcher never saw one named (W2)."""
        return DelegationOutcome(
            delegation_id=self.delegation_id,
            capsule_name=self.capsule_name,
            capsule_version=self.capsule_version,
            session_id=self.session_id,
            status=status,
            workdir=self.workdir,
            duration_ms=duration_ms,
            reported_by="launcher",
            detail=cut_detail(detail),
        )


def crashed_outcome(
    child: WatchedChild, duration_ms: int, status: str | None, tail: Sequence[str]
) -> DelegationOutcome:
    """Make the outcome of a child that recorded none, with its exit status and its last lines of stderr (W2)."""
    detail = f"the child process ended without recording a completion ({status or _UNKNOWN_STATUS})"
    lines = "\n".join(tail)
    if lines:
        detail += f"; its last stderr lines were:\n{lines}"
    return child.outcome("crashed", detail, duration_ms)


def terminated_outcome(child: WatchedChild, duration_ms: int) -> DelegationOutcome:
    """Make the outcome of a child that its parent ended (W2)."""
    return child.outcome("terminated", PARENT_ENDED_DETAIL, duration_ms)


def expired_outcome(child: WatchedChild, duration_ms: int, bound: float) -> DelegationOutcome:
    """Make the outcome of a child that the deadline ended, `bound` seconds after it was ready (W2, W3)."""
    return child.outcome(
        "terminated",
        f"the capsule was still running after {int(bound)}s and was ended at the delegation deadline",
        duration_ms,
    )


def is_watched(handle: SpawnerHandle | None) -> bool:
    """Whether anybody wants to be told: a spawner without a url has no watcher (W4)."""
    return handle is not None and handle.url is not None


def expiry(ready_at: float, bound: float | None) -> float | None:
    """Return when a child is ended: so many seconds after it was ready, not after its spawn (W3)."""
    return None if bound is None else ready_at + bound


def duration_ms(spawned_at: float, ended_at: float) -> int:
    """Return the whole milliseconds from a child's spawn to its end, both on one monotonic clock (W3)."""
    return max(0, int((ended_at - spawned_at) * 1000))
