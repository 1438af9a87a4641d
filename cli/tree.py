"""How is a table of sessions drawn as who spawned whom? Imported by `mur ps --tree` alone."""

import locale
import sys
from collections.abc import Sequence

from murmur.domain.family_tree import BOX, PLAIN, Rails, drawn, forest
from murmur.domain.visible_text import visible_start

_SPAWNER_SHOWN = 40
"""How many characters of a spawner's id are shown: an id has 36, a record may say anything."""
_GIVEN_UP = ("DETACHED", "FORMATION", "URL", "UPTIME")
"""Which columns a narrow terminal goes without, the first one first."""

Table = list[list[str]]
"""The heading, and the cells of each row."""


def as_tree(lines: Table, lineage: Sequence[tuple[str, str | None]], most: int | None) -> Table:
    """Return a table in the order of the tree, with a column more: the number of each row in the order of `mur ps`.

    That is the order of `lines`, and of `lineage`: their ids, and who spawned them. Of an id the last `most` are shown.
    """
    heading, *cells = lines
    rails, capsule = _rails(), heading.index("CAPSULE")
    tree = [["@", *heading]]
    for branch in forest(lineage):
        row, spawner = list(cells[branch.position]), lineage[branch.position][1] or ""
        shown = visible_start(spawner if most is None else spawner[-most:], _SPAWNER_SHOWN)
        row[capsule] = drawn(branch, row[capsule], shown, rails)
        tree.append([f"@{branch.position + 1}", *row])
    return tree


def narrower(lines: Table) -> Table | None:
    """Return a table without the next column that can be done without; `None` when there is none left."""
    for name in _GIVEN_UP:
        if name in lines[0]:
            column = lines[0].index(name)
            return [[*cells[:column], *cells[column + 1 :]] for cells in lines]
    return None


def _rails() -> Rails:
    """Return box characters where stdout and the locale have them: a Python in UTF-8 mode writes what no locale has."""
    for encoding in (locale.getencoding(), sys.stdout.encoding if sys.stdout is not None else "ascii"):
        try:
            "".join(BOX).encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return PLAIN
    return BOX
