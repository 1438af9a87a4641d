"""What can go wrong that a caller cannot decide on, and how a person is told.

Every error carries a stable code that `docs/errors.md` explains, one sentence saying what and where,
usually a hint saying what to do, and the exit status the command ends with.
"""

from typing import ClassVar

# Exit statuses of the operator commands (section 15 of the behaviour contract).
FAILED = 1
NOTHING_NAMED = 3
NOT_VERIFIED = 4
STILL_RUNNING = 5
REGISTRY_UNUSABLE = 6
FORCED = 143


class MurmurError(Exception):
    """The base of all errors meant for a person: `code`, `message`, `hint`, `exit_status`."""

    code: ClassVar[str] = "E-RUN-900"
    exit_status: ClassVar[int] = FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RegistryUnusable(MurmurError):
    """`~/.murmur/running` cannot be found, made, held private or listed; the message names the path."""

    code = "E-RUN-028"
    exit_status = REGISTRY_UNUSABLE


class OutOfDescriptors(MurmurError):
    """This process may open no further file, so nothing can be said about the sessions."""

    code = "E-RUN-901"
    exit_status = REGISTRY_UNUSABLE


class NoSuchSession(MurmurError):
    """An address names no running session."""

    code = "E-RUN-022"
    exit_status = NOTHING_NAMED


class AmbiguousAddress(NoSuchSession):
    """An address names several running sessions; the message lists them."""


class NotVerified(MurmurError):
    """A session was left alone because its process could not be verified, or refused the signal."""

    code = "E-RUN-024"
    exit_status = NOT_VERIFIED


class OutlivedKill(MurmurError):
    """A session's process was still there after SIGKILL."""

    code = "E-RUN-024"
    exit_status = STILL_RUNNING


class PublicDoor(MurmurError):
    """A token was asked of a session whose door needs none."""

    code = "E-RUN-048"


class UnknownCredential(MurmurError):
    """A session has no credential of the name asked for."""

    code = "E-RUN-049"


class CommandFailed(MurmurError):
    """The command hosted by `mur run` ended with another status than 0."""

    code = "E-RUN-040"


class CommandNotStarted(MurmurError):
    """The command given to `mur run` could not be started at all."""

    code = "E-RUN-902"


class DoorNotOpened(MurmurError):
    """The session's door could not be bound."""

    code = "E-RUN-903"


class NotRemoved(MurmurError):
    """A record that was to be removed is still there; the message says why."""

    code = "E-RUN-912"


class OutputNotWritten(MurmurError):
    """A result could not be written to stdout, which nobody closed: a full disk, for one."""

    code = "E-RUN-913"


class DoorRefused(MurmurError):
    """A session's door did not do what it was asked; the message says why."""

    code = "E-RUN-909"


class TaskNotCompleted(MurmurError):
    """A task ended in another way than completed; the message says how and why."""

    code = "E-RUN-910"


class NotControlled(MurmurError):
    """A session has no control token: its manifest declares no `control:`."""

    code = "E-RUN-911"


class RecordsUnusable(MurmurError):
    """The session's records directory could not be made private and opened."""

    code = "E-RUN-904"


class UnwritableRecord(MurmurError):
    """A session's record holds text that is not UTF-8, so it cannot be written (R2)."""

    code = "E-RUN-905"


class ManifestRefused(MurmurError):
    """A manifest cannot be read or says something that means nothing; the message names file, line and key."""

    code = "E-RUN-907"


class EnvFileRefused(MurmurError):
    """The `.env` file beside a manifest cannot be read; the message names its path and nothing it holds."""

    code = "E-RUN-908"


class CapsuleNotFound(MurmurError):
    """No store holds a capsule of that name and version, or the name is none."""

    code = "E-RUN-008"
    exit_status = NOT_VERIFIED


class LaunchRefused(MurmurError):
    """What a launcher handed to `mur run` is malformed: the spawner handle or the lifeline (M2)."""

    code = "E-RUN-020"


class SpawnRefused(MurmurError):
    """A referee did not approve a launch, or did not take its approval; the message says why."""

    code = "E-RUN-047"
    exit_status = NOT_VERIFIED


class WorkdirReplaced(MurmurError):
    """The work folder is not the one that the launcher made (M2)."""

    code = "E-RUN-051"


class ChildNotLaunched(MurmurError):
    """A child capsule did not start, or did not report itself as it must (X6); it has been ended and reaped."""

    code = "E-RUN-914"


class ChildLate(ChildNotLaunched):
    """A child was ended at its deadline before it had reported itself, as a script does only when it is done."""


class DelegationFailed(MurmurError):
    """A delegated piece of work ended in another way than ok."""

    code = "E-RUN-915"


class DelegationDeadline(MurmurError):
    """A delegated piece of work was ended at its deadline."""

    code = "E-RUN-916"
    exit_status = STILL_RUNNING


class CapsuleUnreadable(MurmurError):
    """A capsule's folder in the store cannot be read whole, or holds what no capsule may."""

    code = "E-RUN-917"


class VersionTaken(MurmurError):
    """A store holds something else under the name and version that is to be installed."""

    code = "E-RUN-918"
    exit_status = NOT_VERIFIED


class StoreUnusable(MurmurError):
    """A store cannot be made or changed, for a full disk for one; the message names it. It is as it was."""

    code = "E-RUN-919"


class WatchLost(MurmurError):
    """A stream has broken off before its end; the message says after which event, and what became of the session."""

    code = "E-RUN-921"
