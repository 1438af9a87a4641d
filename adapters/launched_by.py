"""What did whoever launched this session hand it? (M2, C6, X2)."""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from murmur.adapters.lifelines import LIFELINE_VARIABLE, accept_lifeline
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import CommandNotStarted, LaunchRefused, WorkdirReplaced
from murmur.domain.ids import FormationId, InvalidFormationId
from murmur.domain.launch.argv import WorkdirIdentity
from murmur.domain.launch.handle import SPAWNER_ENV, HandleRefused, SpawnerHandle, parse_handle
from murmur.domain.secret import SpawnApproval
from murmur.domain.value import Value

FORMATION_VARIABLE = "MURMUR_FORMATION_ID"
_GRANT_LIMIT = 64 * 1024


class LaunchedBy(Value):
    """A session's launcher, as far as it said who it is."""

    handle: SpawnerHandle | None = None
    lifeline: int | None = None
    """The descriptor whose end is the launcher's."""
    formation_id: FormationId | None = None


def launched_by(environment: Mapping[str, str]) -> LaunchedBy:
    """Read what the launcher put into the environment; raise `LaunchRefused` for anything that means nothing."""
    try:
        handle = parse_handle(environment.get(SPAWNER_ENV))
        formation = environment.get(FORMATION_VARIABLE)
        formation_id = FormationId(formation) if formation else None
    except HandleRefused as error:
        raise LaunchRefused(str(error), hint=f"unset {SPAWNER_ENV}: only a launcher sets it") from None
    except InvalidFormationId as error:
        raise LaunchRefused(f"{FORMATION_VARIABLE} names no formation: {error}") from None
    return LaunchedBy(handle, accept_lifeline(environment.get(LIFELINE_VARIABLE)), formation_id)


def read_grant() -> SpawnApproval:
    """Read the approval, one line of standard input; raise `LaunchRefused` when there is none."""
    line = b"" if sys.stdin is None else sys.stdin.buffer.readline(_GRANT_LIMIT)
    grant = line.strip().decode("ascii", "replace")
    if not grant:
        raise LaunchRefused("no approval came on standard input", hint="leave --spawn-grant-stdin to a launcher")
    return SpawnApproval(grant)


def open_task() -> int | None:
    """Open the `task.md` that the launcher put into our current directory, for the caller to close; `None` without."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open("task.md", flags)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def enter_workdir(path: Path, identity: WorkdirIdentity) -> None:
    """Make that folder our current directory, if it is the very one that the launcher made.

    Whatever its path leads to later, we stay in it. Raises `WorkdirReplaced` and `CommandNotStarted`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandNotStarted(f"the work folder {path} cannot be used: {reason_of(error)}") from error
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != identity:
            raise WorkdirReplaced(f"{path} is not the folder that the launcher made")
        os.fchdir(descriptor)
    finally:
        os.close(descriptor)
