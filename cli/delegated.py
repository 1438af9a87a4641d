"""What became of a delegation, and how is that told?"""

from signal import Signals

from murmur.adapters.completions import CompletionStore
from murmur.adapters.launching import LaunchedChild
from murmur.adapters.results import read_result
from murmur.domain.door import NoAnswer
from murmur.domain.errors import DelegationDeadline, DelegationFailed, MurmurError
from murmur.domain.launch.completion import DelegationOutcome
from murmur.domain.task_asks import TaskSeen
from murmur.domain.value import Value
from murmur.domain.visible_text import visible


class Delegated(Value):
    """What became of a delegation whose child was launched."""

    delegation_id: str
    session_id: str
    capsule: str
    """`NAME@VERSION`."""
    records_dir: str
    seconds: float
    status: str
    """`ok`, `error`, `crashed` or `terminated`."""
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

    def line(self) -> str:
        """Say it for a person, on one line."""
        said = "failed" if self.status == "error" else self.status
        return f"{said}: {self.capsule} {visible(self.session_id)} ({self.seconds:.1f} s)"


def what_became(
    capsule: str, child: LaunchedChild, task: TaskSeen | NoAnswer | None, signal: Signals | None, seconds: float
) -> Delegated:
    """Judge a delegation whose child has ended, by what its door said of the task and by what is recorded.

    `task` is `None` for a child that was sent none, `signal` what ended the delegation, if anything did.
    """
    recorded = CompletionStore(child.records_descriptor).read()
    result, error = _judged(capsule, child, task, signal, recorded)
    status = "ok" if error is None else "error"
    if error is not None and recorded is not None and recorded.status != "ok":
        status = recorded.status
    assert child.delegation_id is not None
    return Delegated(
        child.delegation_id,
        child.session_id,
        capsule,
        str(child.records_dir),
        seconds,
        status,
        result,
        error,
    )


def _judged(
    capsule: str,
    child: LaunchedChild,
    task: TaskSeen | NoAnswer | None,
    signal: Signals | None,
    recorded: DelegationOutcome | None,
) -> tuple[str | None, MurmurError | None]:
    where = f"its records are in {child.records_dir}"
    if child.has_expired:
        detail = None if recorded is None else recorded.detail
        return None, DelegationDeadline(f"{capsule}: {detail or 'it was ended at the deadline'}", hint=where)
    if isinstance(task, TaskSeen) and task.state == "completed":
        return task.result, None
    if task is None and recorded is not None and recorded.status == "ok":
        return read_result(child.records_descriptor), None
    if signal is not None:
        return None, DelegationFailed(f"{capsule} was ended by {signal.name}", hint=where)
    if isinstance(task, TaskSeen):
        why = task.message or "it gave no reason"
        return task.result, DelegationFailed(f"{capsule}: the task {task.state}: {why}", hint=where)
    if isinstance(task, NoAnswer) and (recorded is None or recorded.status == "terminated"):
        return None, DelegationFailed(f"{capsule} did not take the task: {task.reason}", hint=where)
    detail = None if recorded is None else recorded.detail
    return None, DelegationFailed(f"{capsule}: {detail or child.status or 'it ended'}", hint=where)
