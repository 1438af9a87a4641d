"""How are sessions ended: who is asked, who is signalled when, and what came of it? (O2, K1-K5, E1).

A machine without I/O. It is told what happened and what time it is, and answers what to do next; `deadline`
says when it wants to be called although nothing happened. One adapter loop runs it; `plan` alone is what
`mur stop --dry-run` prints.

    asking ──> canceling ──> grace ──> killing ──> done
    doors      their tasks   SIGTERM   SIGKILL

Every target goes through the phases together, so that several share one grace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, assert_never

from murmur.domain.door import NoAnswer, StopAnswer
from murmur.domain.listing import Session
from murmur.domain.signals import AlreadyGone, Refused, Sent, SignalOutcome, StopSignal
from murmur.domain.stop_plan import AfterSpawner, LeaveAlone, NothingThere, SignalNow, Step, plan

CANCEL_WAIT = 5.0
"""Seconds granted to the tasks that doors are cancelling."""
CANCEL_LOOK = 0.2
"""Seconds between two looks at those tasks: the door announces nothing."""
KILL_WAIT = 5.0
"""Seconds a process is waited for after SIGKILL."""
SPAWNER_SETTLE = 2.0
"""Seconds a target gets to follow its spawner by itself before it is signalled."""


class Outcome(Enum):
    """How ending one target came out; the values are the words of `--json`."""

    STOPPED = "stopped"
    KILLED = "killed"
    ALREADY_GONE = "already_gone"
    REFUSED = "refused"
    STILL_RUNNING = "still_running"


class AskDoor(NamedTuple):
    """Ask this target's door to cancel its tasks."""

    target: int


class LookAtTasks(NamedTuple):
    """Ask this target's door which of these tasks still run."""

    target: int
    tasks: tuple[str, ...]


class Signal(NamedTuple):
    """Verify this target's process and signal it."""

    target: int
    signal: StopSignal


Action = AskDoor | LookAtTasks | Signal


class DoorAnswered(NamedTuple):
    """A door answered `session/stop`, or did not."""

    target: int
    answer: StopAnswer | NoAnswer


class TasksLookedAt(NamedTuple):
    """These tasks of a target still run."""

    target: int
    unfinished: tuple[str, ...]


class Signalled(NamedTuple):
    """A signal was tried."""

    target: int
    signal: StopSignal
    outcome: SignalOutcome


class Exited(NamedTuple):
    """A target's process is gone."""

    target: int


Event = DoorAnswered | TasksLookedAt | Signalled | Exited


@dataclass(slots=True)
class Ending:
    """One target on its way, and at the end what came of it."""

    session: Session
    step: Step
    outcome: Outcome | None = None
    signal: StopSignal | None = None
    """The last signal that reached it."""
    requested: StopSignal | None = None
    """The last signal asked for, so that none is asked for twice."""
    reason: str | None = None
    """Why it was left alone."""
    door: str | None = None
    """Why its door said nothing."""
    canceled: tuple[str, ...] = ()
    residue: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    free_at: float | None = None
    """When a target that follows its spawner is signalled after all."""


class _Phase(Enum):
    ASKING = 1
    CANCELING = 2
    GRACE = 3
    KILLING = 4
    DONE = 5


@dataclass(slots=True)
class StopMachine:
    """Ends targets. Call `start`, then `happened` for every event and `tick` at every `deadline`."""

    targets: Sequence[Session]
    timeout: float
    """Seconds of grace between SIGTERM and SIGKILL, shared by all targets."""
    endings: list[Ending] = field(init=False)
    _phase: _Phase = field(init=False, default=_Phase.ASKING)
    _phase_ends: float = field(init=False, default=0.0)
    _next_look: float = field(init=False, default=0.0)
    _unasked: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.endings = [Ending(target, step) for target, step in zip(self.targets, plan(self.targets), strict=True)]

    @property
    def done(self) -> bool:
        """Whether every target has its outcome."""
        return self._phase is _Phase.DONE

    @property
    def waited_for(self) -> list[int]:
        """The targets whose exit matters still."""
        return [index for index, ending in enumerate(self.endings) if ending.outcome is None]

    @property
    def deadline(self) -> float:
        """The monotonic time of the next `tick`."""
        if self._phase is _Phase.CANCELING:
            return min(self._phase_ends, self._next_look)
        free = [ending.free_at for ending in self._open() if ending.free_at is not None]
        return min([self._phase_ends, *free])

    def start(self, now: float) -> list[Action]:
        """Begin: targets that need no ending get their outcome, the doors of the others are asked."""
        for ending in self.endings:
            match ending.step:
                case NothingThere():
                    ending.outcome = Outcome.ALREADY_GONE
                case LeaveAlone(reason):
                    ending.outcome, ending.reason = Outcome.REFUSED, reason
                case SignalNow() | AfterSpawner():
                    pass
                case _:
                    assert_never(ending.step)
        # A stopped process accepts the connection and answers nothing: asking would only cost the wait.
        self._unasked = {index for index in self.waited_for if not self.endings[index].session.stopped}
        return [AskDoor(index) for index in sorted(self._unasked)] or self._advance(now)

    def happened(self, event: Event, now: float) -> list[Action]:
        """Take in one event."""
        ending = self.endings[event.target]
        match event:
            case DoorAnswered(target, answer):
                self._unasked.discard(target)
                if isinstance(answer, NoAnswer):
                    ending.door = answer.reason
                else:
                    ending.canceled, ending.residue = answer.canceled, answer.residue
                    ending.unfinished = answer.canceled
            case TasksLookedAt(_, unfinished):
                ending.unfinished = unfinished
            case Signalled(_, signal, outcome):
                self._signalled(ending, signal, outcome)
            case Exited():
                self._exited(ending)
            case _:
                assert_never(event)
        return self._advance(now)

    def tick(self, now: float) -> list[Action]:
        """Take in that time has passed."""
        return self._advance(now)

    def _open(self) -> list[Ending]:
        return [ending for ending in self.endings if ending.outcome is None]

    @staticmethod
    def _signalled(ending: Ending, signal: StopSignal, outcome: SignalOutcome) -> None:
        if ending.outcome is not None:
            return
        match outcome:
            case Sent():
                ending.signal = signal
            case AlreadyGone():
                StopMachine._exited(ending)
            case Refused(reason):
                ending.outcome, ending.reason = Outcome.REFUSED, reason
            case _:
                assert_never(outcome)

    @staticmethod
    def _exited(ending: Ending) -> None:
        if ending.outcome is not None:
            return
        followed = isinstance(ending.step, AfterSpawner)
        match ending.signal:
            case StopSignal.KILL:
                ending.outcome = Outcome.KILLED
            case StopSignal.TERM:
                ending.outcome = Outcome.STOPPED
            case None:
                ending.outcome = Outcome.STOPPED if followed else Outcome.ALREADY_GONE
            case _:
                assert_never(ending.signal)

    def _advance(self, now: float) -> list[Action]:
        if self._phase is _Phase.ASKING:
            if self._unasked:
                return []
            self._phase, self._phase_ends, self._next_look = _Phase.CANCELING, now + CANCEL_WAIT, now
        if not self._open():
            self._phase = _Phase.DONE
            return []
        if self._phase is _Phase.CANCELING:
            looks = [LookAtTasks(index, self.endings[index].unfinished) for index in self._canceling()]
            if looks and now < self._phase_ends:
                if now < self._next_look:
                    return []
                self._next_look = now + CANCEL_LOOK
                return list[Action](looks)
            self._phase, self._phase_ends = _Phase.GRACE, now + self.timeout
            return self._free(now)
        if now < self._phase_ends:
            return self._free(now)
        return self._kill(now)

    def _canceling(self) -> list[int]:
        return [index for index in self.waited_for if self.endings[index].unfinished]

    def _free(self, now: float) -> list[Action]:
        """SIGTERM every target that is not waiting for its spawner, or no longer."""
        outcomes = {ending.session.record.session_id: ending.outcome for ending in self.endings}
        actions: list[Action] = []
        for index in self.waited_for:
            ending = self.endings[index]
            if ending.requested is not None:
                continue
            if isinstance(ending.step, AfterSpawner):
                if outcomes[ending.step.session_id] is None:
                    continue
                if ending.free_at is None:
                    ending.free_at = now + min(SPAWNER_SETTLE, (self._phase_ends - now) / 2)
                if now < ending.free_at:
                    continue
            ending.free_at, ending.requested = None, StopSignal.TERM
            actions.append(Signal(index, StopSignal.TERM))
        return actions

    def _kill(self, now: float) -> list[Action]:
        """SIGKILL what had its grace; what waited for its spawner until now gets SIGTERM before its own SIGKILL."""
        settled = {ending.session.record.session_id: ending.outcome is not None for ending in self.endings}
        first = self._phase is _Phase.GRACE
        due: list[int] = []
        for index in self.waited_for:
            ending = self.endings[index]
            if ending.requested is None:
                assert isinstance(ending.step, AfterSpawner)
                # The grace of a spawner that is still there was this target's own as well, once it was killed.
                if first or settled[ending.step.session_id]:
                    continue
            if ending.requested is not StopSignal.KILL:
                due.append(index)
        waiting = any(self.endings[index].requested is None and index not in due for index in self.waited_for)
        if first or due or waiting:
            self._phase, self._phase_ends = _Phase.KILLING, now + KILL_WAIT
            for index in due:
                self.endings[index].requested, self.endings[index].free_at = StopSignal.KILL, None
            return [*(Signal(index, StopSignal.KILL) for index in due), *self._free(now)]
        for ending in self._open():
            ending.outcome = Outcome.STILL_RUNNING
        self._phase = _Phase.DONE
        return []
