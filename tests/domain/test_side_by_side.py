"""Which of several children is launched next, whose result is due, and what becomes of the whole (E2)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.capsule_store import parse_reference
from murmur.domain.side_by_side import SideBySide, called, exit_status


def named(*references: str) -> list[tuple[str, str]]:
    return [(each.title, each.prefix) for each in called([parse_reference(text) for text in references])]


def test_so_many_begin_as_may_run_at_once_and_the_next_when_one_is_over() -> None:
    several = SideBySide(4, 2)
    assert list(several.begin()) == [0, 1]
    assert list(several.begin()) == []
    several.over(1)
    assert list(several.begin()) == [2]
    several.over(0)
    several.over(2)
    assert list(several.begin()) == [3]
    several.over(3)
    assert list(several.begin()) == []
    assert several.is_over


def test_a_result_is_due_once_it_and_all_before_it_are_over_and_no_second_time() -> None:
    several = SideBySide(3, 3)
    several.begin()
    several.over(2)
    assert list(several.due()) == []
    several.over(0)
    assert list(several.due()) == [0]
    assert list(several.due()) == []
    several.over(1)
    assert list(several.due()) == [1, 2]


def test_at_the_end_no_further_one_begins_and_what_never_began_is_over() -> None:
    several = SideBySide(4, 2)
    several.begin()
    assert list(several.end()) == [2, 3]
    assert list(several.end()) == []
    several.over(0)
    assert list(several.begin()) == []
    assert list(several.due()) == [0]
    several.over(1)
    assert several.is_over
    assert list(several.due()) == [1, 2, 3]


@given(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False), st.booleans())
def test_each_begins_once_in_order_within_the_bound_and_is_told_once_in_order(
    count: int, at_once: int, choose: Random, cut_short: bool
) -> None:
    several, begun, told, running = SideBySide(count, at_once), list[int](), list[int](), set[int]()
    while not several.is_over:
        new = list(several.begin())
        begun += new
        running |= set(new)
        assert 0 < len(running) <= at_once
        if cut_short and choose.random() < 0.2:
            several.end()
        ended = choose.choice(sorted(running))
        running.remove(ended)
        several.over(ended)
        told += several.due()
    assert not running
    assert begun == list(range(len(begun)))
    assert told == list(range(count))
    assert cut_short or len(begun) == count


@pytest.mark.parametrize(
    ("statuses", "status"),
    [([], 0), ([0, 0], 0), ([0, 4, 0], 4), ([4, 4], 4), ([1, 0], 1), ([4, 5], 1), ([5, 0, 5], 5)],
)
def test_the_exit_status_is_that_of_all_who_failed_if_they_have_one(statuses: list[int], status: int) -> None:
    assert exit_status(statuses) == status


def test_what_is_named_once_is_called_by_its_reference_and_its_lines_by_its_name() -> None:
    assert named("a@1", "b@1") == [("a@1", "a: "), ("b@1", "b: ")]


def test_a_reference_that_is_named_again_gets_a_number() -> None:
    assert named("a@1", "b@1", "a@1", "a@1") == [
        ("a@1", "a: "), ("b@1", "b: "), ("a@1 (2)", "a (2): "), ("a@1 (3)", "a (3): "),
    ]  # fmt: skip


def test_two_versions_of_one_name_are_told_apart_by_them() -> None:
    assert named("a@1", "a@2", "a@2") == [("a@1", "a@1: "), ("a@2", "a@2: "), ("a@2 (2)", "a@2 (2): ")]
