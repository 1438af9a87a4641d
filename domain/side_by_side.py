"""Of several children that one command delegates to: which is launched next, whose result is due, how does it end?

A machine without I/O. Children are named by their position on the command line.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.errors import FAILED
from murmur.domain.value import Value


class Phase(Enum):
    """How far one child has come, in the words that a person is shown."""

    WAITING = "waiting"
    """For its turn."""
    STARTING = "starting"
    WORKING = "working"
    ENDING = "ending"
    OVER = "over"


class Called(Value):
    """What one child is called, so that no two are called the same."""

    title: str
    """`NAME@VERSION`, with a number behind it from the second time on that a reference is named."""
    prefix: str
    """What stands before each line of its output: as little of the title as tells it from the others."""


def called(references: Sequence[CapsuleReference]) -> list[Called]:
    """Give each a name of its own."""
    versions = Counter(name for name, _ in {(each.name, str(each)) for each in references})
    times: Counter[str] = Counter()
    names = []
    for reference in references:
        title = str(reference)
        times[title] += 1
        number = f" ({times[title]})" if times[title] > 1 else ""
        short = reference.name if versions[reference.name] == 1 else title
        names.append(Called(f"{title}{number}", f"{short}{number}: "))
    return names


class SideBySide:
    """Several children from the first launch to the last result."""

    def __init__(self, count: int, at_once: int) -> None:
        """There are `count` of them, of which at most `at_once` run at the same time."""
        self._count = count
        self._at_once = at_once
        self._begun = 0
        self._over: set[int] = set()
        self._told = 0
        self._ends = False

    def begin(self) -> Sequence[int]:
        """Return those that are to be launched now. From here on they count as running."""
        if self._ends:
            return ()
        first, running = self._begun, self._begun - len(self._over)
        self._begun = min(self._count, first + self._at_once - running)
        return range(first, self._begun)

    def end(self) -> Sequence[int]:
        """Launch no further one; return those that never were. They are over by that."""
        if self._ends:
            return ()
        self._ends = True
        never = range(self._begun, self._count)
        self._over.update(never)
        return never

    def over(self, position: int) -> None:
        """Take in that one has ended, or was not launched after all."""
        self._over.add(position)

    def due(self) -> Sequence[int]:
        """Return those whose results can be told, each once: they, and all before them, are over."""
        first = self._told
        while self._told in self._over:
            self._told += 1
        return range(first, self._told)

    @property
    def is_over(self) -> bool:
        """Whether all are."""
        return len(self._over) == self._count


def exit_status(statuses: Iterable[int]) -> int:
    """Return the status of a command from those of its children: 0 if all are, else that of all who failed, else 1."""
    failed = {status for status in statuses if status != 0}
    return 0 if not failed else failed.pop() if len(failed) == 1 else FAILED
