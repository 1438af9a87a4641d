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
        events: list[Event] = []
        asked = [action for action in actions if isinstance(action, AskDoor)]
        for door, reading in zip(asked, self._ask([(each.target, None) for each in asked]), strict=True):
            events.append(DoorAnswered(door.target, read_stop_answer(reading)))
        for action in actions:
            match action:
                case AskDoor():
                    pass
                case LookAtTasks(target, tasks):
                    readings = self._ask([(target, task) for task in tasks])
                    unfinished = [task for task, seen in zip(tasks, readings, strict=True) if task_is_unfinished(seen)]
                    events.append(TasksLookedAt(target, tuple(unfinished)))
                case Signal(target, signal):
                    outcome = self._processes.signal(self._machine.targets[target].claim, signal)
                    events.append(Signalled(target, signal, outcome))
        return events

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
