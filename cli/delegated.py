"""What became of a delegation, and how is that told?"""

from murmur.adapters.completions import CompletionStore
from murmur.adapters.launching import LaunchedChild
from murmur.adapters.results import read_result
from murmur.cli.delegable import Planned
from murmur.domain.door import NoAnswer
from murmur.domain.errors import DelegationDeadline, DelegationFailed, MurmurError
from murmur.domain.launch.completion import DelegationOutcome
from murmur.domain.task_asks import TaskSeen
from murmur.domain.value import Value
from murmur.domain.visible_text import visible


class Delegated(Value):
    """What became of a delegation. Without a child that reported itself it has no ids, no records and an error."""

    delegation_id: str | None
    session_id: str | None
    capsule: str
    """`NAME@VERSION`."""
    title: str
    """What it is called where there are several."""
    records_dir: str | None
    seconds: float
    status: str
    """`ok`, `error`, `crashed`, `terminated` or `not_launched`."""
    result: str | None
    error: MurmurError | None

    def document(self) -> dict[str, object]:
        """Say it for a program."""
        name, _, version = self.capsule.partition("@")
        return {
            "delegation_id": self.delegation_id,
            "session_id": self.session_id,
            "capsule_name": name,
            "capsule_version": version,
            "status": self.status,
            "result": self.result,
            "detail": None if self.error is None else self.error.message,
            "code": None if self.error is None else self.error.code,
            "duration_ms": round(1000 * self.seconds),
            "records_dir": self.records_dir,
        }

    @property
    def said(self) -> str:
        """The status in a person's words."""
        return {"error": "failed", "not_launched": "not launched"}.get(self.status, self.status)

    @property
    def named_error(self) -> MurmurError | None:
        """The error, which says of which capsule it is."""
        error = self.error
        if error is None or error.message.startswith(self.title):
            return error
        return type(error)(f"{self.title}: {error.message}", hint=error.hint)

    def line(self) -> str:
        """Say it for a person, on one line."""
        return f"{self.said}: {self.capsule} {visible(self.session_id or '')} ({self.seconds:.1f} s)"


def not_launched(planned: Planned, error: MurmurError, seconds: float, *, was_ended: bool) -> Delegated:
    """Say of a delegation that no child reported itself: it was not launched, or was ended before that."""
    status = "terminated" if was_ended else "not_launched"
    return Delegated(None, None, planned.capsule, planned.title, None, seconds, status, None, error)


def what_became(
    planned: Planned, child: LaunchedChild, task: TaskSeen | NoAnswer | None, ended_by: str | None, seconds: float
) -> Delegated:
    """Judge a delegation whose child has ended, by what its door said of the task and by what is recorded.

    `task` is `None` for a child that was sent none, `ended_by` what ended the delegation, if anything did.
    """
    recorded = CompletionStore(child.records_descriptor).read()
    result, error = _judged(planned.title, child, task, ended_by, recorded)
    status = "ok" if error is None else "error"
    if error is not None and recorded is not None and recorded.status != "ok":
        status = recorded.status
    assert child.delegation_id is not None
    return Delegated(
        child.delegation_id,
        child.session_id,
        planned.capsule,
        planned.title,
        str(child.records_dir),
        seconds,
        status,
        result,
        error,
    )


def _judged(
    title: str,
    child: LaunchedChild,
    task: TaskSeen | NoAnswer | None,
    ended_by: str | None,
    recorded: DelegationOutcome | None,
) -> tuple[str | None, MurmurError | None]:
    where = f"its records are in {child.records_dir}"
    if child.has_expired:
        detail = None if recorded is None else recorded.detail
        return None, DelegationDeadline(f"{title}: {detail or 'it was ended at the deadline'}", hint=where)
    if isinstance(task, TaskSeen) and task.state == "completed":
        return task.result, None
    if task is None and recorded is not None and recorded.status == "ok":
        return read_result(child.records_descriptor), None
    if ended_by is not None:
        return None, DelegationFailed(f"{title} was ended by {ended_by}", hint=where)
    if isinstance(task, TaskSeen):
        why = task.message or "it gave no reason"
        return task.result, DelegationFailed(f"{title}: the task {task.state}: {why}", hint=where)
    if isinstance(task, NoAnswer) and (recorded is None or recorded.status == "terminated"):
        return None, DelegationFailed(f"{title} did not take the task: {task.reason}", hint=where)
    detail = None if recorded is None else recorded.detail
    return None, DelegationFailed(f"{title}: {detail or child.status or 'it ended'}", hint=where)
