"""How is one child of a `mur delegate` launched, given its task, and seen to its end? (sections 9 to 13)."""

import time
from pathlib import PurePath
from queue import SimpleQueue
from typing import TYPE_CHECKING

from murmur.adapters.doors import HttpDoors
from murmur.adapters.identifiers import mint
from murmur.adapters.launching import BegunLaunch, LaunchedChild, LaunchGivenUp, begin_launch
from murmur.adapters.referee_client import spawn
from murmur.adapters.threads import start_thread
from murmur.cli.delegable import Planned
from murmur.cli.delegated import Delegated, not_launched, what_became
from murmur.cli.delegating_session import DelegatingSession
from murmur.cli.embedded_referee import AskedReferee
from murmur.cli.onlookers import Witness
from murmur.domain.door import TASK_LIMITS, DoorReading, NoAnswer, NoSuchAddress
from murmur.domain.errors import (
    ChildLate,
    ChildNotLaunched,
    DelegationDeadline,
    DelegationFailed,
    MurmurError,
    OutOfDescriptors,
    SpawnRefused,
)
from murmur.domain.launch.completion import POST_LIMITS
from murmur.domain.launch.ending import GRACE
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.side_by_side import Phase
from murmur.domain.task_asks import TaskSeen, read_task, send_ask

if TYPE_CHECKING:
    from murmur.domain.roost_asks import SpawnApproved

_ENDS_BY_ITSELF = POST_LIMITS.total + 2 * GRACE
"""Seconds that a child which ends with its task gets to do so, and to tell of it."""
_LAST_WORDS = 2.0
"""Seconds that the answer of a child which has ended gets to arrive."""


class NotSent(NoAnswer):
    """The task cannot have arrived, so the child waits for one that will never come."""

    reason: str
    was_connected: bool = False
    patience: float = 0.0
    """Seconds that the child gets to end by itself. That its door is closed may mean that it is about to."""


class DelegatedChild:
    """One child. `approve`, `begin` and `finish` it in that order; `end` it at any time."""

    def __init__(self, planned: Planned, session: DelegatingSession, referee: AskedReferee, witness: Witness) -> None:
        self.planned = planned
        self._session = session
        self._referee = referee
        self._witness = witness
        self._approved: SpawnApproved | None = None
        self._given_up = LaunchGivenUp()
        self._begun: BegunLaunch | None = None
        self._started = time.monotonic()
        self._ended_by: str | None = None
        self._at_once = False

    def approve(self) -> None:
        """Have the launch approved, which may take long. Raises `SpawnRefused` and `OutOfDescriptors`."""
        self._witness.entered(Phase.STARTING)
        name, version = self.planned.reference.name, self.planned.reference.version
        self._approved = spawn(self._referee.url, self._referee.credential, name, version)

    def begin(self) -> None:
        """Start the approved child, with the signal mask of the calling thread. Raises `MurmurError`."""
        planned = self.planned
        # Our stdout is for the result alone, and who says what has to be told apart, where it is not known by whom.
        output = self._witness.output
        prefix = planned.prefix if output is None else ""
        self._started = time.monotonic()
        self._begun = begin_launch(
            self._request(),
            warn=self._witness.warn,
            script_task=planned.task if planned.is_script else None,
            stdout_prefix=prefix,
            stderr_prefix=prefix,
            output=output,
            given_up=self._given_up,
        )
        if planned.is_script:
            self._witness.entered(Phase.WORKING, self._begun)
        if self._ended_by is not None:
            self._end_begun(self._begun)

    def finish(self) -> Delegated:
        """Wait until the begun child is ready, deliver its task, wait for its end, and say what became of it."""
        assert self._begun is not None
        planned = self.planned
        try:
            # A script reports itself only when it is done.
            child = self._begun.ready(deadline=planned.deadline if planned.is_script else None)
        except ChildLate as error:
            return self.failed(DelegationDeadline(f"{planned.title}: {error.message}"), was_ended=True)
        except ChildNotLaunched as error:
            return self.failed(self._why_not(error), was_ended=self._ended_by is not None)
        with child:
            if self._ended_by is None:
                self._witness.entered(Phase.WORKING, child)
            task = None if planned.is_script or planned.task is None else self._deliver(child, planned.task)
            self._wait_for_end(child, task)
            seconds = time.monotonic() - self._started
            return what_became(planned, child, task, self._ended_by, seconds)

    def failed(self, error: MurmurError, *, was_ended: bool = False) -> Delegated:
        """Say that no child reported itself."""
        seconds = 0.0 if self._begun is None else time.monotonic() - self._started
        return not_launched(self.planned, error, seconds, was_ended=was_ended)

    def cut_short(self, by: str) -> Delegated:
        """Say that it was not launched, since that came first."""
        return self.failed(DelegationFailed(f"{self.planned.title} was not launched: {by} came first"))

    def end(self, by: str, *, at_once: bool = False) -> None:
        """End it, in order or at once, also before it is started. It takes no lock, so a signal's handler may."""
        self._ended_by, self._at_once = by, self._at_once or at_once
        self._given_up.give_up()
        if self._begun is not None:
            self._end_begun(self._begun)

    def close(self) -> None:
        """End a begun child that nobody is going to finish."""
        if self._begun is not None:
            self._begun.close()

    def gone(self) -> None:
        """Let the referee know that it counts no longer."""
        if self._approved is not None:
            self._referee.gone(self._approved.approval)

    def _end_begun(self, begun: BegunLaunch) -> None:
        self._witness.entered(Phase.ENDING)
        begun.call_soon(begun.force if self._at_once else begun.begin_ending)

    def _request(self) -> ChildLaunchRequest:
        assert self._approved is not None
        planned, delegating = self.planned, self._session.delegating
        return ChildLaunchRequest(
            parent_records_dir=PurePath(self._session.records),
            capsule_name=planned.reference.name,
            capsule_version=planned.reference.version,
            grant=self._approved.approval,
            env_allow=tuple(planned.manifest.capabilities.env.allow),
            roost_url=self._referee.url,
            spawner=Spawner(delegating.session_id, delegating.context_id, delegating.url),
            completion_deadline=None if planned.is_script else planned.deadline,
            formation_id=delegating.formation_id,
            deadline_unix_ms=delegating.deadline_unix_ms,
        )

    def _why_not(self, error: ChildNotLaunched) -> MurmurError:
        assert self._approved is not None
        if self._ended_by is not None:
            return DelegationFailed(f"{self.planned.title} was ended by {self._ended_by}")
        if self.planned.changed_since(self._approved.sha256):
            return SpawnRefused(f"the files of {self.planned.capsule} changed after its launch was approved")
        return error

    def _deliver(self, child: LaunchedChild, text: str) -> TaskSeen | NoAnswer:
        """Send the task to the child's door and wait for what becomes of it."""
        try:
            ask = send_ask(child.capsule_url, child.door_token, text, mint("msg_"), blocking=True)
        except NoSuchAddress as error:
            return NotSent(str(error))
        readings: SimpleQueue[DoorReading] = SimpleQueue()

        def send() -> None:
            reading: DoorReading = NotSent("it was not sent")  # Whatever happens here, it is waited for.
            try:
                (reading,) = HttpDoors(TASK_LIMITS).probe([ask])
            except OutOfDescriptors as error:
                reading = NotSent(error.message)
            finally:
                readings.put(reading)

        def ended() -> None:
            # Who answers for a child that is gone? Nobody, or what it left behind.
            child.call_at(time.monotonic() + _LAST_WORDS, lambda: readings.put(NoAnswer("it ended without an answer")))

        try:
            start_thread("task", send)
        except RuntimeError:
            return NotSent("no thread can be started")
        child.when_exited(ended)
        match reading := readings.get():
            case NotSent():
                return reading
            case NoAnswer(reason, was_connected=False):
                return NotSent(reason, patience=_LAST_WORDS)
            case _:
                return read_task(reading, child.door_token)

    def _wait_for_end(self, child: LaunchedChild, task: TaskSeen | NoAnswer | None) -> None:
        """Wait for a child that ends by itself; end one that would stay although its task is over, or never came."""
        if task is None:
            child.wait()
        elif isinstance(task, NotSent):
            child.wait(task.patience)
        elif self.planned.manifest.lifecycle.after_task == "exit":
            child.wait(_ENDS_BY_ITSELF)
        child.shutdown()
        child.wait_until_told()
