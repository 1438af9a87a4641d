"""Whom does ending these sessions begin with, and who is left to follow its spawner? (O2).

What `mur stop --dry-run` prints, and `domain.stop` carries out.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from murmur.domain.listing import Session
from murmur.domain.process import Alive, Gone, Unverified
from murmur.domain.value import Value


class SignalNow(Value):
    """SIGTERM goes to the target as soon as the doors have been asked."""


class AfterSpawner(Value):
    """The target follows its spawner, itself a target, and is signalled only if it outlives it."""

    session_id: str


class LeaveAlone(Value):
    """The target's process could not be verified, so nothing is signalled."""

    reason: str


class NothingThere(Value):
    """The target's process is gone already."""


Step = SignalNow | AfterSpawner | LeaveAlone | NothingThere


def plan(targets: Sequence[Session]) -> list[Step]:
    """Decide each target's step from what was read of them (O2)."""
    launchers = _launchers(targets)
    in_circle = _circles(launchers)
    return [_step(target, launchers.get(at), at in in_circle, targets) for at, target in enumerate(targets)]


def _step(target: Session, launcher: int | None, in_circle: bool, targets: Sequence[Session]) -> Step:  # noqa: FBT001
    match target.state:
        case Gone():
            return NothingThere()
        case Unverified(reason):
            return LeaveAlone(reason)
        case Alive():
            if launcher is None or in_circle:
                return SignalNow()
            return AfterSpawner(targets[launcher].record.session_id)
        case _:
            assert_never(target.state)


def _launchers(targets: Sequence[Session]) -> dict[int, int]:
    """Say which target launched which, by position: its spawner, else the launcher of its formation."""
    alive = [(at, target.record) for at, target in enumerate(targets) if isinstance(target.state, Alive)]
    by_id = {record.session_id: at for at, record in reversed(alive)}
    by_identity = {record.identity: at for at, record in reversed(alive)}
    launchers: dict[int, int] = {}
    for at, record in enumerate(target.record for target in targets):
        spawner = by_id.get(record.spawned_by) if record.spawned_by is not None else None
        if spawner in (None, at) and record.formation_launcher is not None:
            spawner = by_identity.get(record.formation_launcher)
        if spawner is not None and spawner != at:
            launchers[at] = spawner
    return launchers


def _circles(launchers: Mapping[int, int]) -> set[int]:
    """Return the positions that launched each other in a circle; each is visited once."""
    in_circle: set[int] = set()
    done: set[int] = set()
    for start in launchers:
        way: dict[int, int] = {}
        at: int | None = start
        while at is not None and at not in done and at not in way:
            way[at] = len(way)
            at = launchers.get(at)
        if at is not None and at in way:
            in_circle.update(each for each, step in way.items() if step >= way[at])
        done.update(way)
    return in_circle
