"""Records and sessions that tests vary."""

from murmur.domain.listing import Session
from murmur.domain.origin import Origin
from murmur.domain.process import Alive, Claim, ProcessIdentity, ProcessState
from murmur.domain.record import RunningRecord
from murmur.domain.secret import DoorToken
from tests.fakes.processes import HERE


def session_id(number: int) -> str:
    """Make the id of the nth session; a higher number is a younger one."""
    return f"ses_{number:032x}"


def a_record(
    number: int = 1,
    *,
    named: str | None = None,
    url: str | None = None,
    pid: int | None = None,
    process_start: str | None = None,
    door_token: str | None = None,
    spawned_by: int | None = None,
    launched_by: int | None = None,
) -> RunningRecord:
    """Make the record of the nth session. Its pid is 100 + n, its start token 1000 + n, its port 5000 + n."""
    return RunningRecord(
        session_id=named or session_id(number),
        url=url or f"localhost:{5000 + number}",
        pid=100 + number if pid is None else pid,
        process_start=str(1000 + number) if process_start is None else process_start,
        capsule_name="demo",
        capsule_version="0.1.0",
        workdir=f"/records/{session_id(number)}",
        outlives_launcher=False,
        started_at="2026-01-01T00:00:00Z",
        door_token=None if door_token is None else DoorToken(door_token),
        spawned_by=None if spawned_by is None else session_id(spawned_by),
        formation_launcher=None if launched_by is None else a_record(launched_by).identity,
    )


def a_session(
    number: int = 1,
    *,
    state: ProcessState | None = None,
    stopped: bool = False,
    url: str | None = None,
    door_token: str | None = None,
    spawned_by: int | None = None,
    launched_by: int | None = None,
) -> Session:
    """Make the nth session, read as alive unless said otherwise."""
    record = a_record(number, url=url, door_token=door_token, spawned_by=spawned_by, launched_by=launched_by)
    return Session(record, record.session_id, state or Alive(), Claim(record.identity), stopped)


def an_origin(identity: ProcessIdentity, pidfd_inode: int | None = None) -> Origin:
    """Make the origin of a process started in the reader's own place."""
    return Origin(identity.pid, identity.process_start, *HERE, pidfd_inode=pidfd_inode)
