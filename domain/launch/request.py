"""What does a parent say of the child it launches? (C1)"""

from typing import TYPE_CHECKING

from murmur.domain.secret import SpawnApproval
from murmur.domain.value import Value

if TYPE_CHECKING:
    from pathlib import PurePath


class Spawner(Value):
    """The session that a child belongs to."""

    session_id: str
    context_id: str
    url: str | None = None
    """Where the parent's door takes a completion; `None` when it waits on a connection of its own and wants none."""


class ChildLaunchRequest(Value):
    """One launch. It holds no manifest and no capability: the referee decides what a child may do (C1)."""

    hidden = ("grant",)
    parent_records_dir: "PurePath"
    """The child's work folder is made in `children/` beneath it (C2)."""
    capsule_name: str
    capsule_version: str
    grant: SpawnApproval
    """Spent by the child's own registration; it travels on the child's stdin alone."""
    env_allow: tuple[str, ...]
    """The child's `capabilities.env.allow`, in its order."""
    roost_url: str
    spawner: Spawner | None = None
    """`None` for a launch that is no delegation."""
    completion_deadline: float | None = None
    """Seconds from readiness; `None` lets the child run for as long as it does."""
    formation_id: str | None = None
    """The parent's own: a child joins a formation and never starts one (C7)."""
    deadline_unix_ms: int | None = None
    """The parent session's own deadline, which the child inherits."""
