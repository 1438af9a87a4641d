"""What is to be hosted, by whose wish, and how is it told?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from murmur.domain.task_board import Acceptance, AfterTask
from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.adapters.launched_by import LaunchedBy
    from murmur.domain.secret import SpawnCredential


class Membership(Value):
    """A session's being registered with a referee."""

    roost: str
    credential: "SpawnCredential"
    depth_remaining: int | None = None
    """How many launches may follow from one another beneath it; `None` where its referee did not say."""
    depth_limit: int | None = None
    """How many may beneath a session that nobody launched; `None` likewise."""


class Launch(Value):
    """What is to be hosted, and how it is told."""

    name: str
    version: str
    argv: Sequence[str]
    workdir: Path
    environment: Mapping[str, str]
    bind: str = "127.0.0.1"
    port: int = 0
    acceptance: Acceptance = "none"
    after_task: AfterTask = "exit"
    queue_depth: int = 1
    threaded: bool = False
    """A task's command learns what was said before in its conversation."""
    credentials: Mapping[str, Sequence[str]] | None = None
    """Declared credentials and their scopes; `None` is a public door."""
    controlled: bool = False
    script: bool = False
    """Runs once, without a door and a record."""
    task: str | None = None
    deadline: float | None = None
    as_json: bool = False
    verbose: bool = False
    readiness_tokens: bool = False
    detached: bool = False
    """Whoever started it waits for the readiness line, and for nothing after it."""
    spawn_allow: Sequence[str] | None = None
    """The capsules that it may launch itself; `None` is any."""
    session_id: str | None = None
    """The session's id, where it was minted already."""
    membership: Membership | None = None
    in_workdir: bool = False
    """The work folder is our current directory, and is used as that: its path may lead elsewhere by now."""
    launched_by: "LaunchedBy | None" = None
