"""Who spawned whom? Rows of sessions as a forest, and the lines that draw it.

What a record says of its spawner is a claim by whoever wrote it: spawners that nobody lists, sessions that say they
spawned themselves, and circles are all drawn, once each, in time and space that grow with the number of rows alone.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, assert_never

DEEPEST: Final = 8
"""How many levels are drawn apart. A row further down is drawn at the last of them, with its level as a number."""


class Parted(Enum):
    """Why a row that names a spawner is not drawn beneath it."""

    NOT_LISTED = "not listed"
    ITSELF = "itself"
    IN_A_CIRCLE = "in a circle"


class Branch(NamedTuple):
    """One row's place in the forest."""

    position: int
    """Which of the rows it is, counted from 0."""
    level: int
    """How many rows it hangs from, one beneath the other; 0 is a root."""
    rails: tuple[bool, ...]
    """For each level above its own from the second on, as far as those are drawn: do more rows follow there?"""
    is_last: bool
    """Whether no further row hangs from the same one."""
    parted: Parted | None = None


def forest(rows: Sequence[tuple[str, str | None]]) -> list[Branch]:
    """Order rows of session ids and their spawners', each id once and the newest first, as they are drawn.

    Roots come newest first; beneath each row come those that it spawned, oldest first, as their ids sort. A circle is
    opened at its newest row, which is a root then.
    """
    positions = {session_id: position for position, (session_id, _) in enumerate(rows)}
    parents: list[int | None] = []
    parted: dict[int, Parted] = {}
    for position, (_, spawner) in enumerate(rows):
        parent = None if spawner is None else positions.get(spawner)
        if spawner is not None and (parent is None or parent == position):
            parted[position] = Parted.NOT_LISTED if parent is None else Parted.ITSELF
            parent = None
        parents.append(parent)
    for position in _newest_of_circles(parents):
        parents[position] = None
        parted[position] = Parted.IN_A_CIRCLE
    children: list[list[int]] = [[] for _ in rows]
    for position in reversed(range(len(rows))):
        parent = parents[position]
        if parent is not None:
            children[parent].append(position)
    roots = [position for position, parent in enumerate(parents) if parent is None]
    waiting = [Branch(root, 0, (), is_last=True, parted=parted.get(root)) for root in reversed(roots)]
    drawn: list[Branch] = []
    while waiting:
        branch = waiting.pop()
        drawn.append(branch)
        beneath = children[branch.position]
        rails = (*branch.rails, not branch.is_last)[: DEEPEST - 1] if branch.level else ()
        waiting += [Branch(child, branch.level + 1, rails, is_last=child == beneath[-1]) for child in reversed(beneath)]
    return drawn


def _newest_of_circles(parents: Sequence[int | None]) -> list[int]:
    """Return the first row of each circle among the rows."""
    seen_from: dict[int, int] = {}
    found = []
    for start in range(len(parents)):
        at: int | None = start
        while at is not None and at not in seen_from:
            seen_from[at] = start
            at = parents[at]
        if at is not None and seen_from[at] == start:  # This walk came back to where it had been itself.
            newest, each = at, parents[at]
            while each is not None and each != at:
                newest, each = min(newest, each), parents[each]
            found.append(newest)
    return found


class Rails(NamedTuple):
    """What a forest is drawn with; all four are equally wide."""

    child: str
    last_child: str
    passing: str
    nothing: str


BOX = Rails("├─ ", "└─ ", "│  ", "   ")
PLAIN = Rails("|- ", "`- ", "|  ", "   ")
_UNLIKE_A_DRAWING = (".", "_", "-")
"""With what a name may begin, beside letters and digits, and be taken for nothing but a name."""


def drawn(branch: Branch, name: str, spawner: str, rails: Rails) -> str:
    """Write a row's name with what is drawn before it, and after it why it hangs from nothing although it was spawned.

    `spawner` is the spawner's id as it is to be shown. A name that could pass for a drawing is put in quotes.
    """
    shown = name if name[:1].isalnum() or name.startswith(_UNLIKE_A_DRAWING) else f'"{name}"'
    match branch.parted:
        case None:
            mark = ""
        case Parted.ITSELF:
            mark = " (of itself)"
        case Parted.NOT_LISTED | Parted.IN_A_CIRCLE:
            mark = f" (of {spawner}, {branch.parted.value})"
        case _:
            assert_never(branch.parted)
    if branch.level == 0:
        return shown + mark
    before = "".join(rails.passing if follows else rails.nothing for follows in branch.rails)
    level = f"[{branch.level}] " if branch.level > DEEPEST else ""
    return f"{before}{rails.last_child if branch.is_last else rails.child}{level}{shown}{mark}"
