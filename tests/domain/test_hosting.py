"""When a hosted command's group is ended, by what, and with which exit status (M1, M3, M5, E1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.hosting import GRACE, GroupAction, Happening, HostMachine

TERM, KILL = GroupAction.TERM, GroupAction.KILL
ASKED, ENDED = Happening.ASKED_TO_END, Happening.COMMAND_ENDED
EMPTY, LOST = Happening.GROUP_EMPTY, Happening.WATCHER_LOST
T0 = 1000.0
TERMED = -15
KILLED = -9


def after(*happenings: Happening, now: float = T0) -> HostMachine:
    machine = HostMachine()
    for what in happenings:
        machine.happened(what, now)
    return machine


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize(("returncode", "status"), [(0, 0), (1, 1), (7, 1), (255, 1), (TERMED, 1), (KILLED, 1)])
def test_a_command_that_ends_by_itself_decides_the_status(returncode: int, status: int) -> None:
    machine = HostMachine()
    assert machine.happened(ENDED, T0) is KILL
    assert machine.done
    assert machine.exit_status(returncode) == status


@pytest.mark.spec("M1")
def test_what_a_command_leaves_in_its_group_is_killed_at_once() -> None:
    machine = HostMachine()
    assert machine.happened(EMPTY, T0) is None
    assert machine.happened(ENDED, T0) is KILL
    assert machine.killed


@pytest.mark.spec("M5", "E1")
def test_a_first_signal_terms_the_group_and_starts_its_grace() -> None:
    machine = HostMachine()
    assert machine.happened(ASKED, T0) is TERM
    assert machine.ends_at == T0 + GRACE == T0 + 5
    assert not machine.done
    assert machine.tick(T0 + GRACE - 0.001) is None
    assert machine.tick(T0 + GRACE) is KILL
    assert not machine.done


@pytest.mark.spec("M5")
@pytest.mark.parametrize("returncode", [0, 1, TERMED, KILLED])
def test_a_session_that_was_asked_to_end_ends_with_0(returncode: int) -> None:
    machine = after(ASKED, ENDED, EMPTY)
    assert machine.done
    assert machine.exit_status(returncode) == 0


@pytest.mark.spec("M5", "E1")
def test_a_session_killed_at_the_end_of_its_grace_ends_with_0() -> None:
    machine = after(ASKED)
    assert machine.tick(T0 + GRACE) is KILL
    assert machine.happened(ENDED, T0 + GRACE) is None
    assert machine.done
    assert machine.exit_status(KILLED) == 0


@pytest.mark.spec("M3", "M5")
@pytest.mark.parametrize("returncode", [0, 1, TERMED, KILLED])
def test_a_second_signal_kills_at_once_and_ends_with_143(returncode: int) -> None:
    machine = after(ASKED)
    assert machine.happened(ASKED, T0 + 0.1) is KILL
    assert machine.happened(ENDED, T0 + 0.1) is None
    assert machine.done
    assert machine.exit_status(returncode) == 143


@pytest.mark.spec("M3", "M5")
def test_a_second_signal_while_the_group_winds_down_kills_it() -> None:
    machine = after(ASKED, ENDED)
    assert machine.happened(ASKED, T0 + 1) is KILL
    assert machine.done
    assert machine.exit_status(0) == 143


@pytest.mark.spec("M3", "M5")
def test_a_second_signal_after_the_grace_forces_nothing_any_more() -> None:
    machine = after(ASKED)
    machine.tick(T0 + GRACE)
    assert machine.happened(ASKED, T0 + GRACE) is None
    machine.happened(ENDED, T0 + GRACE)
    assert machine.exit_status(KILLED) == 0


@pytest.mark.spec("E1")
def test_the_group_of_a_command_that_was_asked_to_end_keeps_its_grace() -> None:
    machine = after(ASKED)
    assert machine.happened(ENDED, T0 + 1) is None
    assert not machine.done
    assert machine.ends_at == T0 + GRACE
    assert machine.tick(T0 + GRACE) is KILL
    assert machine.done


@pytest.mark.spec("E1")
def test_a_group_that_is_empty_before_its_grace_is_over_ends_the_session() -> None:
    machine = after(ASKED, ENDED)
    assert machine.happened(EMPTY, T0 + 1) is KILL
    assert machine.done


@pytest.mark.spec("E1")
def test_an_empty_group_ends_nothing_while_its_command_runs() -> None:
    machine = after(ASKED)
    assert machine.happened(EMPTY, T0) is None
    assert not machine.done
    assert not machine.killed


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize("returncode", [0, 1, TERMED])
def test_a_lost_watcher_ends_the_command_and_the_session_fails(returncode: int) -> None:
    machine = HostMachine()
    assert machine.happened(LOST, T0) is TERM
    assert machine.ends_at == T0 + GRACE
    assert machine.happened(ENDED, T0 + 1) is None
    assert machine.happened(EMPTY, T0 + 1) is KILL
    assert machine.done
    assert machine.exit_status(returncode) == 1


@pytest.mark.spec("M5")
def test_a_watcher_lost_while_the_session_ends_anyway_changes_nothing() -> None:
    machine = after(ASKED)
    assert machine.happened(LOST, T0 + 1) is None
    assert machine.ends_at == T0 + GRACE
    machine.happened(ENDED, T0 + 1)
    assert machine.exit_status(TERMED) == 0


@pytest.mark.spec("M1", "M5")
def test_a_watcher_that_ends_with_the_killed_group_is_not_lost() -> None:
    machine = after(ENDED, LOST)
    assert machine.exit_status(0) == 0


@pytest.mark.spec("M1")
@pytest.mark.parametrize("late", [ASKED, LOST, EMPTY, ENDED])
def test_nothing_is_done_to_a_group_that_was_killed(late: Happening) -> None:
    machine = after(ENDED)
    assert machine.happened(late, T0 + 1) is None
    assert machine.done
    assert machine.exit_status(0) == 0


@pytest.mark.spec("M5")
def test_a_command_that_failed_before_it_was_asked_to_end_has_failed() -> None:
    assert after(ENDED, ASKED).exit_status(1) == 1


@pytest.mark.spec("E1")
def test_time_alone_ends_nothing() -> None:
    machine = HostMachine()
    assert machine.tick(T0 + 10**6) is None
    assert not machine.killed
    assert machine.ends_at is None


@pytest.mark.spec("E1")
def test_the_grace_is_the_one_asked_for() -> None:
    machine = HostMachine(grace=0.0)
    assert machine.happened(ASKED, T0) is TERM
    assert machine.tick(T0) is KILL


@pytest.mark.spec("M1", "M3", "M5", "E1")
@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([*Happening, None]), st.floats(0, 4))), st.sampled_from([0, 1, KILLED]))
def test_in_whatever_order_things_happen_a_session_ends_and_kills_once(
    steps: list[tuple[Happening | None, float]], returncode: int
) -> None:
    machine, now, signals = HostMachine(), T0, 0
    done: list[GroupAction] = []
    ended = False

    def take(action: GroupAction | None) -> None:
        if action is not None:
            assert KILL not in done, "a group that was killed was signalled again"
            assert action not in done
            done.append(action)
        if action is KILL and not ended and signals < 2:
            assert machine.ends_at is not None
            assert now >= machine.ends_at or signals, "the grace was cut short"

    for what, seconds in steps:
        now += seconds
        signals += what is ASKED
        if what is ENDED:
            if ended:
                continue
            ended = True
        take(machine.tick(now) if what is None else machine.happened(what, now))
    if not ended:
        if machine.ends_at is None:
            take(machine.happened(ASKED, now))
        assert machine.ends_at is not None
        now = max(now, machine.ends_at)
        take(machine.tick(now))
        ended = True
        take(machine.happened(ENDED, now))
    elif not machine.done:
        assert machine.ends_at is not None
        now = max(now, machine.ends_at)
        take(machine.tick(now))
    assert machine.done
    assert done.count(KILL) == 1
    assert machine.exit_status(returncode) in (0, 1, 143)
