"""A session's newest events are kept up to a size, under numbers that never change (M1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.event_log import KEPT, EventLog
from murmur.domain.stream_frames import Frame


def frame(size: int, task_id: str = "tsk_1") -> Frame:
    return Frame("status", task_id, is_final=False, head=b"", tail=b"x" * size)


@pytest.mark.spec("M1")
def test_numbers_begin_at_one_and_grow_by_one() -> None:
    log = EventLog()
    assert (log.first, log.last, log.behind(0)) == (1, 0, 0)
    assert [log.add(frame(10)) for _ in range(3)] == [1, 2, 3]
    assert (log.first, log.last) == (1, 3)
    assert [log.behind(number) for number in range(4)] == [30, 20, 10, 0]


@pytest.mark.spec("M1")
def test_two_mebibytes_are_kept() -> None:
    log = EventLog()
    assert log.most == KEPT == 2 * 1024 * 1024
    for _ in range(64):
        log.add(frame(KEPT // 64))
    assert log.first == 1
    log.add(frame(1))
    assert (log.first, log.last) == (2, 65)


@pytest.mark.spec("M1")
def test_what_is_pushed_out_is_what_is_oldest_and_no_more_than_must_be() -> None:
    log = EventLog(100)
    for size in (40, 10, 50, 35):
        log.add(frame(size))
    assert (log.first, log.behind(1)) == (2, 95)
    log.add(frame(5))
    assert (log.first, log.behind(1)) == (2, 100)
    log.add(frame(70))
    assert (log.first, log.last) == (5, 6)
    with pytest.raises(KeyError):
        log.get(4)


@pytest.mark.spec("M1")
def test_an_event_larger_than_all_that_is_kept_is_kept_alone() -> None:
    log = EventLog(100)
    for size in (30, 1000, 20):
        log.add(frame(size))
        assert log.get(log.last).size == size
    assert (log.first, log.last, log.behind(2)) == (3, 3, 20)


@pytest.mark.spec("M1")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 200))
def test_every_number_leads_to_its_event_for_as_long_as_that_is_kept(sizes: list[int], most: int) -> None:
    log, added = EventLog(most), []
    for size in sizes:
        added.append(frame(size))
        assert log.add(added[-1]) == len(added) == log.last
        assert [log.get(number) for number in range(log.first, log.last + 1)] == added[log.first - 1 :]
        kept = sum(each.size for each in added[log.first - 1 :])
        assert kept <= most or log.first == log.last
        # Nothing was pushed out that had a place.
        assert log.first == 1 or kept + added[log.first - 2].size > most
        # Whoever has read less than was pushed out has all before it that is left.
        for number in range(log.last + 1):
            assert log.behind(number) == sum(each.size for each in added[max(number, log.first - 1) :])
