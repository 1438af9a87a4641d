"""How do rows line up on a terminal?"""

from collections.abc import Mapping, Sequence

from murmur.domain.visible_text import visible

_GAP = "  "
_PLAIN = "\x1b[0m"
_NARROW = str.maketrans("│├└─", "||`-")
"""What is drawn in a table and takes one column, which needs no tables of widths to know."""


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], paint: Mapping[str, str] | None = None) -> list[str]:
    """Return aligned lines, by display width. Every cell is made visible first; the last one is not padded.

    `paint` maps whole cells to the terminal sequence that colours them.
    """
    cells = [list(heading), *([visible(cell) for cell in row] for row in rows)]
    widths = [max(width(row[column]) for row in cells) for column in range(len(heading))]
    return [_line(row, widths, paint or {}) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], paint: Mapping[str, str]) -> str:
    *padded, last = (
        (f"{paint[cell]}{cell}{_PLAIN}" if cell in paint else cell) + " " * (wide - width(cell))
        for cell, wide in zip(row, widths, strict=True)
    )
    return _GAP.join((*padded, last.rstrip(" ")))


def cut(text: str, columns: int) -> str:
    """Return as much of the start of visible text as fits into so many terminal columns."""
    kept = text[: max(0, columns)]
    while width(kept) > columns:
        kept = kept[:-1]
    return kept


def width(text: str) -> int:
    """Return how many terminal columns visible text takes."""
    if text.isascii() or text.translate(_NARROW).isascii():
        return len(text)
    # A library with the tables, imported for text that needs them.
    from wcwidth import wcswidth  # noqa: PLC0415

    columns = wcswidth(text)
    return columns if columns >= 0 else len(text)
