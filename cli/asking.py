"""How is one session's door asked to do something?"""

from collections.abc import Callable

from murmur.adapters.doors import HttpDoors
from murmur.cli.resolving import read_rows, session_of
from murmur.domain.door import TOO_LARGE, Answered, DoorAsk, NoAnswer, NoSuchAddress
from murmur.domain.errors import DoorRefused, NotVerified
from murmur.domain.listing import Session
from murmur.domain.process import Alive, Gone
from murmur.domain.record import RunningRecord
from murmur.domain.task_asks import TaskSeen, read_task
from murmur.domain.visible_text import visible


def ask_session(record: RunningRecord, ask: Callable[[], DoorAsk], doors: HttpDoors) -> TaskSeen:
    """Ask the door of a session about a task; raise `DoorRefused`."""
    try:
        (reading,) = doors.probe([ask()])
    except NoSuchAddress as error:
        raise DoorRefused(str(error)) from None
    session = f"session {visible(record.session_id)}"
    if isinstance(reading, Answered) and reading.status == TOO_LARGE:
        raise DoorRefused(
            f"{session}: the task is larger than the 1 MiB that a door takes",
            hint="put it into a file of the work folder, and send its name",
        )
    task = read_task(reading, record.door_token)
    if isinstance(task, NoAnswer):
        raise DoorRefused(f"{session}: {visible(task.reason)}")
    return task


def session_to_ask(address: str) -> Session:
    """Return the session of an address when its process is verified: only then is its token sent anywhere (P4).

    Raises `NoSuchSession`, `NotVerified`, and `DoorRefused` for one that is stopped: it would keep us waiting.
    """
    session = session_of(address, read_rows())
    name = f"session {visible(session.record.session_id)}"
    if not isinstance(session.state, Alive):
        assert not isinstance(session.state, Gone)
        raise NotVerified(f"{name} was not asked: {visible(session.state.reason)}")
    if session.stopped:
        pid = session.record.pid
        raise DoorRefused(
            f"{name} was not asked: its process {pid} is stopped", hint=f"`kill -CONT {pid}` lets it go on"
        )
    return session


def task_json(task: TaskSeen) -> dict[str, str | None]:
    """Say what is known of a task for a program."""
    return {"task_id": task.id, "state": task.state, "result": task.result, "message": task.message}
