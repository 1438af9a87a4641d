"""How a child is ended, over every sequence of events of some length (E1-E4)."""

from itertools import product

import pytest

from murmur.domain.launch.ending import GRACE, ChildEnding, ChildSignal
from murmur.domain.launch.watcher import Deliberate, Exited

EVENTS = ("ask", "tick", "force", "exit")
STEPS = (0.0, GRACE)
"""Seconds that pass before an event: none, or a whole grace."""


class Seen:
    """What a machine was told and what it sent, in the plainest words."""

    def __init__(self) -> None:
        self.machine = ChildEnding()
        self.now = 100.0
        self.sent: list[tuple[ChildSignal, float]] = []
        self.exited = False
        self.sent_after_exit = False

    def take(self, event: str, passed: float) -> ChildSignal | None:
        self.now += passed
        action = None
        match event:
            case "ask":
                action = self.machine.ask_to_end(self.now)
            case "tick":
                action = self.machine.tick(self.now)
            case "force":
                action = self.machine.force()
            case _:
                self.machine.exited("exit status: 0")
                self.exited = True
        if action is not None:
            self.sent.append((action, self.now))
            self.sent_after_exit = self.sent_after_exit or self.exited
        return action

    def when(self, action: ChildSignal) -> list[float]:
        return [at for sent, at in self.sent if sent is action]


def after(events: tuple[tuple[str, float], ...]) -> Seen:
    seen = Seen()
    for event, passed in events:
        seen.take(event, passed)
    return seen


SEQUENCES = tuple(product(product(EVENTS, STEPS), repeat=4))


@pytest.mark.spec("E1", "E3", "E4", "E5")
def test_no_sequence_sends_a_signal_twice_or_after_the_reap_or_too_early() -> None:
    for events in SEQUENCES:
        seen = after(events)
        terms, kills = seen.when(ChildSignal.TERM), seen.when(ChildSignal.KILL)
        assert len(terms) <= 1, events
        assert len(kills) <= 1, events
        assert not seen.sent_after_exit, events
        if kills and "force" not in {event for event, _ in events}:
            assert terms, events
            assert kills[0] >= terms[0] + GRACE, events
        assert seen.machine.ending == (Deliberate() if terms else Exited(seen.machine.status)), events
        assert seen.machine.is_being_ended == (bool(terms) and not seen.exited), events
        assert seen.machine.kill_at == (terms[0] + GRACE if terms else None), events


@pytest.mark.spec("E1", "E2")
def test_every_sequence_that_asks_for_the_end_of_a_living_child_gets_it_after_one_grace() -> None:
    for events in SEQUENCES:
        seen = after(events)
        if seen.exited:
            continue
        asked = any(event == "ask" for event, _ in events)
        assert bool(seen.when(ChildSignal.TERM)) == asked, events
        seen.take("ask", 0.0)
        seen.take("tick", GRACE)
        assert len(seen.when(ChildSignal.KILL)) == 1, events


@pytest.mark.spec("E1")
def test_the_grace_is_five_seconds_to_the_tick() -> None:
    machine = ChildEnding()
    assert machine.ask_to_end(10.0) is ChildSignal.TERM
    assert machine.tick(14.999) is None
    assert machine.tick(15.0) is ChildSignal.KILL


@pytest.mark.spec("E3")
def test_a_child_that_exits_before_it_is_asked_ended_on_its_own_whatever_comes_after() -> None:
    machine = ChildEnding()
    machine.exited("exit status: 3")
    assert machine.ask_to_end(1.0) is None
    assert machine.ending == Exited("exit status: 3")
    assert machine.status == "exit status: 3"


@pytest.mark.spec("X6")
def test_a_status_that_nobody_read_stays_unknown() -> None:
    machine = ChildEnding()
    machine.exited(None)
    assert machine.ending == Exited(None)
