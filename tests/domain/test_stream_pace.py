"""Reading goes at the pace of who reads; who keeps others waiting is let go, and nobody else is (M1)."""

from collections.abc import Sequence

import pytest

from murmur.domain.event_log import KEPT
from murmur.domain.stream_pace import HOLD, PATIENCE, REGAINED, LetGo, ReadMore, Step, StreamPace, Wait

NEAR, FAR = HOLD, HOLD + 1


class Reader:
    """A reader with so many bytes before it."""

    def __init__(self, backlog: int = 0, *, has_kept_up: bool = True, is_lost: bool = False) -> None:
        self.backlog = backlog
        self.has_kept_up = has_kept_up
        self.is_lost = is_lost

    @property
    def has_all(self) -> bool:
        return self.backlog == 0


def let_go(step: Step) -> Sequence[object]:
    assert isinstance(step, LetGo)
    return step.readers


def waits_until(step: Step) -> float:
    assert isinstance(step, Wait)
    assert step.until is not None
    return step.until


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("backlogs", "step"),
    [
        ([], Wait(None)),
        ([0], ReadMore()),
        ([1], Wait(None)),
        ([NEAR], Wait(None)),
        ([FAR], Wait(None)),
        ([FAR, FAR], Wait(None)),
        ([0, 1], ReadMore()),
        ([1, 0, NEAR], ReadMore()),
        ([0, FAR], Wait(100.0 + PATIENCE)),
        ([FAR, 0, 0, 1], Wait(100.0 + PATIENCE)),
    ],
)
def test_more_is_read_when_somebody_wants_it_and_nobody_is_far_behind(backlogs: list[int], step: Step) -> None:
    assert StreamPace().step([Reader(backlog) for backlog in backlogs], 100.0) == step


@pytest.mark.spec("M1")
def test_what_is_read_until_others_are_held_up_pushes_nothing_out() -> None:
    assert 2 * HOLD == KEPT


@pytest.mark.spec("M1")
def test_one_that_takes_nothing_holds_others_up_for_a_second_and_is_let_go() -> None:
    pace, fast, silent = StreamPace(), Reader(), Reader(FAR)
    until = waits_until(pace.step([fast, silent], 10.0))
    assert until == 10.0 + PATIENCE == 11.0
    assert waits_until(pace.step([fast, silent], 10.5)) == until
    assert waits_until(pace.step([fast, silent], 10.99)) == pytest.approx(until)
    assert let_go(pace.step([fast, silent], until)) == [silent]
    assert pace.step([fast], until) == ReadMore()


@pytest.mark.spec("M1")
def test_whoever_trickles_holds_others_up_for_a_second_in_all() -> None:
    pace, fast, trickler = StreamPace(), Reader(), Reader(FAR)
    now, held, round_ = 0.0, 0.0, 0
    while not isinstance(step := pace.step([fast, trickler], now), LetGo):
        assert now < 10.0
        round_ += 1
        # Every other time it has taken so much that the others go on; it never has all of it.
        trickler.backlog = FAR if round_ % 2 else 1
        now += 0.0625
        held += 0.0625 if isinstance(step, Wait) else 0.0
    assert held == pytest.approx(PATIENCE + REGAINED * (now - held), abs=0.1)
    assert let_go(step) == [trickler]


@pytest.mark.spec("M1")
def test_whoever_comes_again_and_again_costs_a_tenth_of_the_time() -> None:
    pace, fast = StreamPace(), Reader()
    now, held = 0.0, 0.0
    while now < 100.0:
        step = pace.step([fast, Reader(FAR)], now)  # Another one each time, let go or not.
        now += 0.05
        held += 0.05 if isinstance(step, Wait) else 0.0
        pace.step([fast], now)
        now += 0.05
    assert held < PATIENCE + 0.11 * now


@pytest.mark.spec("M1")
def test_time_comes_back_to_those_who_read_but_no_more_than_there_was() -> None:
    pace, fast, slow = StreamPace(), Reader(), Reader(FAR)
    pace.step([fast, slow], 0.0)
    slow.backlog = 0
    assert pace.step([fast, slow], 0.5) == ReadMore()
    slow.backlog = FAR
    assert waits_until(pace.step([fast, slow], 2.5)) == pytest.approx(2.5 + 0.5 + REGAINED * 2.0)
    slow.backlog = 0
    assert pace.step([fast, slow], 2.5) == ReadMore()
    slow.backlog = FAR
    assert waits_until(pace.step([fast, slow], 100.0)) == 100.0 + PATIENCE


@pytest.mark.spec("M1")
def test_who_brings_a_long_past_is_not_waited_for_until_it_has_come_near() -> None:
    pace, fast, late = StreamPace(), Reader(), Reader(FAR, has_kept_up=False)
    assert pace.step([fast, late], 0.0) == ReadMore()
    late.backlog = NEAR
    assert pace.step([fast, late], 1.0) == ReadMore()
    late.backlog = FAR
    assert waits_until(pace.step([fast, late], 2.0)) == 2.0 + PATIENCE


@pytest.mark.spec("M1")
def test_one_whose_events_are_gone_is_let_go_at_once() -> None:
    pace, lost = StreamPace(), Reader(FAR, has_kept_up=False, is_lost=True)
    assert let_go(pace.step([Reader(), lost], 0.0)) == [lost]
    assert let_go(pace.step([lost], 0.0)) == [lost]


@pytest.mark.spec("M1")
def test_one_that_is_alone_is_never_let_go_however_slow() -> None:
    pace, slow = StreamPace(), Reader(FAR)
    for now in range(1000):
        slow.backlog = FAR + now % 7
        assert pace.step([slow], float(now)) == Wait(None)
    slow.backlog = 0
    assert pace.step([slow], 1000.0) == ReadMore()


@pytest.mark.spec("M1")
def test_time_during_which_nobody_wants_more_is_counted_against_nobody() -> None:
    pace, other, slow = StreamPace(), Reader(1), Reader(FAR)
    assert pace.step([other, slow], 0.0) == Wait(None)
    assert pace.step([other, slow], 100.0) == Wait(None)
    other.backlog = 0
    assert waits_until(pace.step([other, slow], 200.0)) == 200.0 + PATIENCE
    other.backlog = 1
    assert pace.step([other, slow], 200.5) == Wait(None)
    other.backlog = 0
    assert waits_until(pace.step([other, slow], 300.0)) == 300.0 + PATIENCE


@pytest.mark.spec("M1")
def test_a_hundred_silent_ones_are_let_go_at_once_and_hold_the_others_up_once() -> None:
    pace, silent, fast = StreamPace(), [Reader(FAR) for _ in range(100)], [Reader() for _ in range(3)]
    readers = [*silent, *fast]
    assert waits_until(pace.step(readers, 0.0)) == PATIENCE
    assert let_go(pace.step(readers, PATIENCE)) == silent
    assert pace.step(fast, PATIENCE) == ReadMore()


@pytest.mark.spec("M1")
def test_one_that_comes_while_others_are_waited_for_waits_no_longer_than_they() -> None:
    pace, slow = StreamPace(), Reader(FAR)
    readers = [Reader(), slow]
    pace.step(readers, 0.0)
    assert waits_until(pace.step([*readers, Reader()], 0.9)) == pytest.approx(PATIENCE)


@pytest.mark.spec("M1")
def test_patience_may_be_less_at_the_end() -> None:
    pace, fast, slow = StreamPace(), Reader(), Reader(FAR)
    pace.step([fast, slow], 0.0)
    pace.hurry(0.5)
    assert let_go(pace.step([fast, slow], 0.75)) == [slow]
