"""How is one session's door asked to do something?"""

from collections.abc import Callable

from murmur.adapters.doors import HttpDoors
from murmur.cli.resolving import read_rows, session_of
from murmur.domain.door import DoorAsk, NoAnswer, NoSuchAddress, TaskSeen, read_task
from murmur.domain.errors import DoorRefused, NotVerified
from murmur.domain.listing import Session
from murmur.domain.process import Alive, Gone
from murmur.domain.record import RunningRecord
from murmur.domain.visible_text import visible


def ask_session(address: str, ask: Callable[[RunningRecord], DoorAsk], doors: HttpDoors) -> TaskSeen:
    """Ask the door of the session that an address means about a task; raise `MurmurError`."""
    record = verified(session_of(address, read_rows())).record
    try:
        (reading,) = doors.probe([ask(record)])
    except NoSuchAddress as error:
        raise DoorRefused(str(error)) from None
    task = read_task(reading, record.door_token)
    if isinstance(task, NoAnswer):
        raise DoorRefused(f"session {visible(record.session_id)}: {visible(task.reason)}")
    return task


def verified(session: Session) -> Session:
    """Return a session whose process is verified: only then is its token sent anywhere (P4). Raises `NotVerified`."""
    if isinstance(session.state, Alive):
        return session
    assert not isinstance(session.state, Gone)
    raise NotVerified(f"session {visible(session.record.session_id)} was not asked: {visible(session.state.reason)}")


def task_json(task: TaskSeen) -> dict[str, str | None]:
    """Say what is known of a task for a program."""
    return {"task_id": task.id, "state": task.state, "result": task.result, "message": task.message}
