"""Is the process that an identity names still there? Layers 1 and 2, over readings already taken (L1-L9).

Everything here is pure. What a reading could not tell is `None`, and `None` is never evidence: it leads to
`Unverified`, which keeps the record and licenses no signal.
"""

from typing import NamedTuple, assert_never

from murmur.domain.origin import Here, LockReading, Origin, OriginReading, UnreadOrigin, elsewhere
from murmur.domain.value import Value

PID_MAX = 2**31 - 1
"""The largest number that can be a pid; 0 and everything above it address no single process (L2)."""


class ProcessIdentity(Value):
    """A process named so that a recycled pid is never mistaken for it: its pid and its start token."""

    pid: int
    process_start: str


class Alive(Value):
    """The pid is held by the process that the identity names."""

    uncompared = ("pidfd_inode",)
    pidfd_inode: int | None = None
    """The pidfd's inode where it is unique per process: what `with_origin` compares."""


class Unverified(Value):
    """Whether the process is there could not be settled. Kept, and never signalled."""

    uncompared = ("pidfd_inode",)
    reason: str
    pidfd_inode: int | None = None
    """As of `Alive`: it can tell another process also where no start time could be read."""


class Gone(Value):
    """The process is not there any more. The only state that licenses a removal (L9)."""

    reason: str


ProcessState = Alive | Unverified | Gone

_ALIVE = Alive()


class ProcessReading(NamedTuple):
    """What one look at one pid found. `start_token` was read after the pid was found held (L5)."""

    pid_alive: bool
    start_token: str | None = None
    stopped: bool = False
    """Held by a stop signal: it accepts connections and answers nothing."""
    pidfd_inode: int | None = None
    thread: bool = False
    """The number is a thread's: there is no process to signal, whatever its start time (L7)."""


class StatLine(NamedTuple):
    """Fields of one `/proc/<pid>/stat` line, `None` where the line has none."""

    state: str | None
    start_token: str | None


class Claim(NamedTuple):
    """What a record, and the origin file beside it, claim about a process."""

    identity: ProcessIdentity
    origin: OriginReading = None
    lock: LockReading = LockReading.UNREADABLE


# Counted from the first field after the name, which is field 3.
_STATE, _GROUP, _START = 3 - 3, 5 - 3, 22 - 3


def parse_stat_line(line: bytes) -> StatLine:
    """Read state and start token from a stat line, counting from the last `)`: the name may hold anything (L3)."""
    _, found, after = line.rpartition(b")")
    fields = after.split(None, _START + 1) if found else []
    return StatLine(
        _ascii(fields[_STATE]) if fields else None,
        _ascii(fields[_START]) if len(fields) > _START else None,
    )


def group_of_stat_line(line: bytes) -> str | None:
    """Read the process group from a stat line, as text; `None` where it has none."""
    _, found, after = line.rpartition(b")")
    fields = after.split(None, _GROUP + 1) if found else []
    return _ascii(fields[_GROUP]) if len(fields) > _GROUP else None


def _ascii(field_bytes: bytes) -> str | None:
    return field_bytes.decode() if field_bytes.isascii() else None


def classify(pid: int, recorded_start: str, pid_alive: bool, fresh_token: str | None) -> ProcessState:  # noqa: FBT001
    """Combine layer 1 (is the pid held) and layer 2 (the token read from its holder) into a state (L1)."""
    if not pid_alive:
        return Gone(f"no process holds pid {pid}")
    if fresh_token is None:
        return Unverified(f"pid {pid}'s start time could not be read")
    if fresh_token == recorded_start and recorded_start:
        return _ALIVE
    return _another_start(pid)


def _another_start(pid: int | None) -> Gone:
    return Gone(f"{'its pid' if pid is None else f'pid {pid}'} is held by a process that started at another time")


def with_origin(state: ProcessState, origin: OriginReading, here: Here, lock: LockReading) -> ProcessState:
    """Weigh a state against the session's origin file (L8).

    `state` is what layers 1 and 2 said in this reader's own place. In the same boot and namespaces it stands,
    unless the recorded pidfd inode tells another process. Elsewhere pids and tokens mean nothing, and only the
    session's lock can speak.
    """
    match origin:
        case None:
            return state
        case UnreadOrigin(reason):
            return Unverified(f"the session's origin file could not be read: {reason}")
        case Origin():
            pass
        case _:
            assert_never(origin)
    place = elsewhere(origin, here)
    if place is None:
        return _checked_inode(state, origin)
    if not place.lock_speaks:
        return Unverified(f"the session was started {place.where}")
    match lock:
        case LockReading.FREE:
            return Gone("nothing holds the session's lock")
        case LockReading.HELD:
            return Unverified(f"the session runs {place.where}")
        case LockReading.UNREADABLE:
            return Unverified(f"the session was started {place.where}, and its lock could not be read")
        case _:
            assert_never(lock)


def _checked_inode(state: ProcessState, origin: Origin) -> ProcessState:
    match state:
        case Alive(fresh) | Unverified(pidfd_inode=fresh) if None not in (fresh, origin.pidfd_inode):
            return state if fresh == origin.pidfd_inode else _another_start(origin.pid)
        case _:
            return state


def judge(claim: Claim, reading: ProcessReading, here: Here) -> ProcessState:
    """Say what one reading makes of one claim: layers 1 and 2, then the origin rule."""
    identity, origin, lock = claim
    state = classify(identity.pid, identity.process_start, reading.pid_alive, reading.start_token)
    if reading.thread and isinstance(state, Alive):
        state = Unverified(f"pid {identity.pid} is the number of a thread, not of a process")
    if origin is None:
        return state
    if isinstance(origin, Origin) and origin.names_another(identity.pid, identity.process_start):
        # Two files about one session that disagree prove nothing about either process.
        return Unverified("the session's origin file names another process than its record")
    if not isinstance(state, Gone):
        inode = reading.pidfd_inode
        state = Alive(inode) if isinstance(state, Alive) else Unverified(state.reason, inode)
    return with_origin(state, origin, here, lock)
