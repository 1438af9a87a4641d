"""What came of ending each address, as text, as JSON and as an exit status? (O2)."""

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from murmur.domain.errors import FAILED, MurmurError, NotVerified, OutlivedKill
from murmur.domain.listing import Session
from murmur.domain.process import Unverified
from murmur.domain.stop import Ending, Outcome
from murmur.domain.stop_plan import AfterSpawner, LeaveAlone, NothingThere, SignalNow
from murmur.domain.visible_text import visible


class Target(NamedTuple):
    """One address of the command line and what it led to: an ending, or an error instead of one."""

    address: str
    ending: Ending | None
    error: MurmurError | None = None
    ambiguous: bool = False


def failure_of(target: Target) -> MurmurError | None:
    """Return what is wrong with a target's ending; `None` when it is done."""
    if target.ending is None:
        return target.error
    session_id = visible(target.ending.session.record.session_id)
    match target.ending.outcome:
        case Outcome.STOPPED | Outcome.KILLED | Outcome.ALREADY_GONE | None:
            return None
        case Outcome.REFUSED:
            return NotVerified(
                f"session {session_id} was not ended: {visible(target.ending.reason or 'it was refused')}",
                hint="its record stays; `mur prune --unverified ADDRESS` removes the record alone"
                if isinstance(target.ending.session.state, Unverified)
                else None,
            )
        case Outcome.STILL_RUNNING:
            return OutlivedKill(
                f"session {session_id} is still there after SIGKILL: pid {target.ending.session.record.pid}",
                hint="a process that cannot be killed waits for a device or a file system",
            )
        case _:
            assert_never(target.ending.outcome)


def exit_status(targets: Sequence[Target]) -> int:
    """Return 0 when all are done, the failures' own status when all failed alike, and 1 otherwise."""
    failures = [failure_of(target) for target in targets]
    statuses = {0 if failure is None else failure.exit_status for failure in failures}
    return statuses.pop() if len(statuses) == 1 else FAILED if statuses else 0


def ending_lines(ending: Ending) -> list[str]:
    """Say how one session ended, and what was left."""
    record = ending.session.record
    lines = [
        f"{'gone already' if ending.outcome is Outcome.ALREADY_GONE else 'stopped'}: {visible(record.session_id)}",
        f"capsule: {visible(record.capsule_name)}@{visible(record.capsule_version)}",
    ]
    if ending.signal is not None:
        lines.append(f"signal: {ending.signal.value}")
    lines += [f"canceled: {visible(task)}" for task in ending.canceled]
    lines += [f"left: {visible(item)}" for item in ending.residue]
    if ending.door is not None and ending.outcome is not Outcome.ALREADY_GONE:
        lines.append(f"door: {visible(ending.door)}")
    return lines


def plan_line(ending: Ending) -> str:
    """Say what ending one target would begin with."""
    record = ending.session.record
    named = f"{visible(record.session_id)} ({visible(record.capsule_name)}, pid {record.pid})"
    match ending.step:
        case SignalNow():
            return f"would signal SIGTERM: {named}"
        case AfterSpawner(session_id):
            return f"would wait for its spawner {visible(session_id)}: {named}"
        case LeaveAlone(reason):
            return f"would not signal: {named}: {visible(reason)}"
        case NothingThere():
            return f"gone already: {named}"
        case _:
            assert_never(ending.step)


def target_json(target: Target, *, planned: bool) -> dict[str, object]:
    """Say the same for a program."""
    failure, ending = failure_of(target), target.ending
    document: dict[str, object] = {
        "address": target.address,
        "session_id": None,
        "outcome": "ambiguous" if target.ambiguous else "not_found",
        "signal": None,
        "reason": None if failure is None else failure.message,
    }
    if ending is None:
        return document
    document |= _session_json(ending.session)
    if planned:
        document |= {"outcome": "planned", "plan": plan_line(ending)}
        if isinstance(ending.step, SignalNow):
            document["signal"] = "SIGTERM"
        return document
    assert ending.outcome is not None
    return document | {
        "outcome": ending.outcome.value,
        "signal": None if ending.signal is None else ending.signal.value,
        "canceled": list(ending.canceled),
        "residue": list(ending.residue),
        "door": ending.door,
    }


def _session_json(session: Session) -> dict[str, object]:
    record = session.record
    return {
        "session_id": record.session_id,
        "capsule_name": record.capsule_name,
        "capsule_version": record.capsule_version,
        "pid": record.pid,
    }
