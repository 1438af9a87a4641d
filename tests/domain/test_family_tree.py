"""Who spawned whom, whatever records say of it (O1)."""

import time
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.family_tree import BOX, DEEPEST, PLAIN, Branch, Parted, drawn, forest

Rows = Sequence[tuple[str, str | None]]
NOBODY = "ses_z"


def ids(number: int) -> list[str]:
    """So many ids, the newest first."""
    return [f"ses_{each:06}" for each in reversed(range(number))]


def shown(rows: Rows, plain: bool = False) -> list[str]:
    """What is drawn of rows that are named after their ids."""
    return [
        drawn(branch, rows[branch.position][0], rows[branch.position][1] or "", PLAIN if plain else BOX)
        for branch in forest(rows)
    ]


def every_claim(number: int) -> Iterator[Rows]:
    """All there is that so many records can say of each other."""
    names = ids(number)
    for spawners in product((None, NOBODY, *names), repeat=number):
        yield list(zip(names, spawners, strict=True))


def parents_drawn(branches: Sequence[Branch]) -> dict[int, int | None]:
    """Read from the levels alone which row is drawn beneath which."""
    path: list[int] = []
    parents: dict[int, int | None] = {}
    for branch in branches:
        assert branch.level <= len(path)
        del path[branch.level :]
        parents[branch.position] = path[-1] if path else None
        path.append(branch.position)
    return parents


def ancestors(rows: Rows, position: int) -> list[int]:
    """Who spawned a row, who spawned that one, and so on, up to the first that comes twice or is not listed."""
    at = {session_id: each for each, (session_id, _) in enumerate(rows)}
    found: list[int] = []
    spawner = rows[position][1]
    while spawner in at and at[spawner] not in found:
        found.append(at[spawner])
        spawner = rows[at[spawner]][1]
    return found


def check(rows: Rows) -> None:
    branches = forest(rows)
    parents = parents_drawn(branches)
    assert sorted(parents) == list(range(len(rows)))
    assert len(branches) == len(rows)
    at = {session_id: position for position, (session_id, _) in enumerate(rows)}
    for branch in branches:
        spawner = rows[branch.position][1]
        in_circle = branch.position in ancestors(rows, branch.position)
        if branch.parted is None:
            assert parents[branch.position] == (None if spawner is None else at[spawner])
            continue
        assert parents[branch.position] is None
        match branch.parted:
            case Parted.NOT_LISTED:
                assert spawner not in at
            case Parted.ITSELF:
                assert spawner == rows[branch.position][0]
            case Parted.IN_A_CIRCLE:
                assert in_circle
                assert branch.position == min(ancestors(rows, branch.position))
    order = [branch.position for branch in branches]
    roots = [position for position in order if parents[position] is None]
    assert roots == sorted(roots), "roots come newest first"
    for parent in parents:
        children = [position for position in order if parents[position] == parent]
        assert [rows[child][0] for child in children] == sorted(rows[child][0] for child in children)
        last = [branch.is_last for branch in branches if parents[branch.position] == parent]
        assert last == [False] * (len(last) - 1) + [True] * bool(last)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_every_row_is_drawn_once_beneath_its_spawner_whatever_few_records_say(number: int) -> None:
    for rows in every_claim(number):
        check(rows)


@st.composite
def claims(draw: st.DrawFn) -> Rows:
    names = ids(draw(st.integers(1, 40)))
    return [(name, draw(st.sampled_from([None, NOBODY, *names]))) for name in names]


@pytest.mark.spec("O1")
@given(claims())
@settings(deadline=None, max_examples=100)
def test_every_row_is_drawn_once_beneath_its_spawner_whatever_many_records_say(rows: Rows) -> None:
    check(rows)
    # Each rail that passes by comes to a row that hangs from it: a line is drawn only to where it leads.
    lines = shown(rows)
    for number, line in enumerate(lines):
        for column, character in enumerate(line):
            if character in "│├":
                assert lines[number + 1][column] in "│├└", lines


@pytest.mark.spec("O1")
def test_children_hang_from_their_spawner_oldest_first_and_roots_come_newest_first() -> None:
    rows = [("f", None), ("e", "a"), ("d", "b"), ("c", "a"), ("b", "a"), ("a", None)]
    assert shown(rows) == ["f", "a", "├─ b", "│  └─ d", "├─ c", "└─ e"]
    assert shown(rows, plain=True) == ["f", "a", "|- b", "|  `- d", "|- c", "`- e"]


@pytest.mark.spec("O1")
def test_a_row_whose_spawner_is_not_listed_is_a_root_that_names_it_and_keeps_its_children() -> None:
    assert shown([("c", "b"), ("b", "gone"), ("a", None)]) == ["b (of gone, not listed)", "└─ c", "a"]


@pytest.mark.spec("O1")
def test_circles_are_opened_at_their_newest_row_and_say_so() -> None:
    assert shown([("a", "a")]) == ["a (of itself)"]
    assert shown([("b", "a"), ("a", "a")]) == ["a (of itself)", "└─ b"]
    assert shown([("d", "b"), ("c", "a"), ("b", "c"), ("a", "b")]) == [
        "c (of a, in a circle)",
        "└─ b",
        "   ├─ a",
        "   └─ d",
    ]


@pytest.mark.spec("O1")
def test_a_chain_is_drawn_to_its_eighth_level_and_numbered_from_there() -> None:
    names = ids(11)
    chain = list(zip(names, [*names[1:], None], strict=True))
    assert DEEPEST == 8
    lines = shown(chain)
    assert lines[0] == names[-1]
    assert lines[8] == f"{'   ' * 7}└─ {names[2]}"
    assert lines[9:] == [f"{'   ' * 7}└─ [9] {names[1]}", f"{'   ' * 7}└─ [10] {names[0]}"]


@pytest.mark.spec("O1")
@pytest.mark.parametrize("shape", ["chain", "circle", "star", "comb"])
def test_many_rows_of_any_shape_take_time_for_each_and_no_more(shape: str) -> None:
    names = ids(20_000)
    spawners: dict[str, list[str | None]] = {
        "chain": [*names[1:], None],
        "circle": [*names[1:], names[0]],
        "star": [names[-1]] * (len(names) - 1) + [None],
        "comb": [names[number + 2 - number % 2] for number in range(len(names) - 2)] + [None, None],
    }
    rows = list(zip(names, spawners[shape], strict=True))
    started = time.process_time()
    lines = shown(rows)
    assert time.process_time() - started < 5  # Half a second; hundreds if each took as long as there are rows.
    assert len(lines) == len(rows)
    assert max(map(len, lines)) < 80


@pytest.mark.spec("O1")
@pytest.mark.parametrize("name", ["└─ a", "│", " a", "|- a", "`- a", "", "@1", "\u00a0a", "[9] a", "╰╴a"])
def test_a_name_that_could_pass_for_a_drawing_is_in_quotes(name: str) -> None:
    assert drawn(Branch(0, 0, (), is_last=True), name, "", BOX) == f'"{name}"'
    assert drawn(Branch(0, 1, (), is_last=False), name, "", BOX) == f'├─ "{name}"'


@pytest.mark.spec("O1")
@pytest.mark.parametrize("name", ["a", "0", "_a", ".a", "-a", "漢字"])
def test_any_other_name_is_shown_as_it_is(name: str) -> None:
    assert drawn(Branch(0, 0, (), is_last=True), name, "", BOX) == name
