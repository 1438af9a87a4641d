"""What does a person see of several children at work? A line for each, cut to the terminal. No I/O here."""

from collections import Counter
from collections.abc import Mapping, Sequence

from murmur.cli.table import cut, width
from murmur.domain.side_by_side import Phase
from murmur.domain.uptime import seconds_text
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_GAP = "  "
_PLAIN = "\x1b[0m"
_BEFORE = {Phase.STARTING: 0, Phase.WORKING: 0, Phase.ENDING: 0, Phase.WAITING: 1, Phase.OVER: 2}
"""Which lines are shown where there is not room for all: those at which something goes on, then those to come."""


class Line(Value):
    """What is to be said of one child."""

    title: str
    phase: Phase
    seconds: float
    """For how long it has been at work."""
    status: str
    """How it ended, once it is over."""
    words: str
    """What it said last, as it said it; once it is over, what there is to say of that."""

    @property
    def state(self) -> str:
        """Its state in one word, and for how long it has been at work."""
        if self.phase is Phase.OVER:
            return self.status
        return f"working {seconds_text(int(self.seconds))}" if self.phase is Phase.WORKING else self.phase.value


def drawn(lines: Sequence[Line], columns: int, height: int, paint: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return what is drawn, each line with its width: no more lines than `height`, none wider than `columns`.

    `paint` maps states to the terminal sequence that colours them.
    """
    shown = list(lines)
    rest = ""
    if len(lines) > height:
        order = sorted(range(len(lines)), key=lambda position: _BEFORE[lines[position].phase])
        kept = sorted(order[: max(0, height - 1)])
        shown = [lines[position] for position in kept]
        rest = _rest([line for position, line in enumerate(lines) if position not in kept])
    titles = max((width(line.title) for line in shown), default=0)
    states = max((len(line.state) for line in shown), default=0)
    whole = [_one(line, titles, states, columns, paint) for line in shown]
    if rest:
        rest = cut(rest, columns)
        whole.append((rest, width(rest)))
    return whole


def last_words(text: str) -> str:
    """Return what a line of output shows: after a carriage return, which overwrites, what came behind it."""
    return visible(text.rstrip("\r\n").rpartition("\r")[2].expandtabs(4)).strip()


def _one(line: Line, titles: int, states: int, columns: int, paint: Mapping[str, str]) -> tuple[str, int]:
    title, state = line.title + " " * (titles - width(line.title)), line.state.ljust(states)
    text = cut(_GAP.join((title, state, line.words)).rstrip(), columns)
    wide, start = width(text), len(title) + len(_GAP)
    colour = paint.get(line.status if line.phase is Phase.OVER else line.phase.value)
    if colour is None or len(text) < start + len(line.state):
        return text, wide
    end = start + len(line.state)
    return f"{text[:start]}{colour}{text[start:end]}{_PLAIN}{text[end:]}", wide


def _rest(lines: Sequence[Line]) -> str:
    counted = Counter(line.status if line.phase is Phase.OVER else line.phase.value for line in lines)
    return f"and {len(lines)} more: " + ", ".join(f"{count} {state}" for state, count in counted.items())
