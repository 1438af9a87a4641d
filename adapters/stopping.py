"""Carries out what `domain.stop` decides: the one loop that asks, signals and waits (O2)."""

from collections.abc import Sequence

from murmur.domain.door import (
    DoorAsk,
    DoorReading,
    NoAnswer,
    NoSuchAddress,
    read_stop_answer,
    stop_ask,
    task_ask,
    task_is_unfinished,
)
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.ports import Clock, Doors, Exits, ProcessTable
from murmur.domain.signals import Refused
from murmur.domain.stop import (
    Action,
    AskDoor,
    DoorAnswered,
    Event,
    Exited,
    LookAtTasks,
    Signal,
    Signalled,
    StopMachine,
    TasksLookedAt,
)


class Stopping:
    """Runs one `StopMachine` to its end over the ports."""

    def __init__(self, machine: StopMachine, processes: ProcessTable, exits: Exits, doors: Doors, clock: Clock) -> None:
        self._machine = machine
        self._processes = processes
        self._exits = exits
        self._doors = doors
        self._clock = clock

    def run(self) -> None:
        """Ask, signal and wait until every target has its outcome."""
        machine = self._machine
        actions = machine.start(self._clock.monotonic())
        while not machine.done:
            # An event since may have ended a target that was to be signalled.
            actions = [each for each in actions if machine.endings[each.target].outcome is None]
            if actions:
                events = self._perform(actions)
            else:
                waited = machine.waited_for
                claims = [machine.targets[index].claim for index in waited]
                events = [Exited(waited[at]) for at in self._exits.wait_any(claims, machine.deadline)]
            actions = []
            for event in events:
                actions += machine.happened(event, self._clock.monotonic())
            if not events:
                actions = machine.tick(self._clock.monotonic())

    def _perform(self, actions: Sequence[Action]) -> list[Event]:
        """Do what was decided, all doors at once, and say what happened."""
        asked = [(action.target, None) for action in actions if isinstance(action, AskDoor)]
        looks = [
            (action.target, task) for action in actions if isinstance(action, LookAtTasks) for task in action.tasks
        ]
        events: list[Event] = [
            DoorAnswered(target, read_stop_answer(reading, self._machine.targets[target].record.door_token))
            for (target, _), reading in zip(asked, self._ask(asked), strict=True)
        ]
        unfinished: dict[int, list[str]] = {target: [] for target, _ in looks}
        for (target, task), reading in zip(looks, self._ask(looks), strict=True):
            if task_is_unfinished(reading):
                unfinished[target].append(task)
        events += [TasksLookedAt(target, tuple(tasks)) for target, tasks in unfinished.items()]
        events += [self._signal(action) for action in actions if isinstance(action, Signal)]
        return events

    def _signal(self, action: Signal) -> Signalled:
        """Try one signal. A process that could not be looked at is not signalled: that reading is no evidence."""
        target, signal = action
        try:
            outcome = self._processes.signal(self._machine.targets[target].claim, signal)
        except OutOfDescriptors as error:
            outcome = Refused(error.message)
        return Signalled(target, signal, outcome)

    def _ask(self, questions: Sequence[tuple[int, str | None]]) -> Sequence[DoorReading]:
        """Ask for these tasks, or for `session/stop` where there is no task. A door that says nothing is not fatal."""
        readings: dict[int, DoorReading] = {}
        asks: dict[int, DoorAsk] = {}
        for at, (target, task) in enumerate(questions):
            record = self._machine.targets[target].record
            try:
                asks[at] = (
                    stop_ask(record.url, record.door_token)
                    if task is None
                    else task_ask(record.url, record.door_token, task)
                )
            except NoSuchAddress as error:
                readings[at] = NoAnswer(str(error))
        try:
            readings.update(zip(asks, self._doors.probe(list(asks.values())), strict=True))
        except OutOfDescriptors as error:
            readings.update((at, NoAnswer(error.message)) for at in asks)
        return [readings[at] for at in range(len(questions))]
