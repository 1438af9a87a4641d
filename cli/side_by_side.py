"""How is a person, or a program, told what became of several capsules that were delegated to side by side?"""

from collections.abc import Sequence

from murmur.cli.delegable import Planned, Wanted
from murmur.cli.delegated import Delegated
from murmur.cli.delegating import run_delegations
from murmur.cli.onlookers import Silent, Witness
from murmur.cli.output import can_draw, columns_and_lines, draws_in_colour, error_lines, say_document
from murmur.cli.screen import COLOURS, LiveLine, Screen
from murmur.cli.table import table, width
from murmur.domain.side_by_side import exit_status
from murmur.domain.visible_text import visible

_HEADING = ("CAPSULE", "STATUS", "TIME", "SESSION")
_SHORT = 12
"""How many characters of an id are shown where a whole one does not fit: the end, which is an address as well."""


def delegate_side_by_side(wanted: Wanted, *, as_json: bool) -> int:
    """Delegate to several, and tell what became of each; return the exit status. Raises `MurmurError`."""
    with Screen() as screen:
        if as_json:
            outcomes = run_delegations(wanted, Silent(screen.warn, screen.hurry))
            # Not behind the warnings: whoever reads this may read nothing else.
            say_document([each.replaced(error=each.named_error).document() for each in outcomes])
        else:
            outcomes = run_delegations(wanted, _Watching(screen) if can_draw() else _Listening(screen))
            screen.settle()
            _sum_up(outcomes, screen)
    if screen.failed is not None:
        raise screen.failed
    return exit_status(0 if each.error is None else each.error.exit_status for each in outcomes)


class _Listening(Silent):
    """Prints each result as soon as its turn has come."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen.warn, screen.hurry)
        self._screen = screen

    def told(self, outcome: Delegated) -> None:
        """Print it, behind a line that says whose it is."""
        result = "" if outcome.result is None else outcome.result.removesuffix("\n")
        self._screen.say(f"== {outcome.title} ==" + (f"\n{result}" if result else ""))


class _Watching(_Listening):
    """Shows how it goes with each, beneath what is printed."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._lines: Sequence[LiveLine] = ()

    def begins(self, planned: Sequence[Planned]) -> Sequence[Witness]:
        """Show a line for each."""
        self._lines = self._screen.show([each.title for each in planned])
        return self._lines

    def ended(self, position: int, outcome: Delegated) -> None:
        """Show how it ended."""
        words = "" if outcome.error is None else outcome.error.message.partition("\n")[0]
        self._lines[position].over(outcome.said, words.removeprefix(outcome.title).lstrip(": "))


def _sum_up(outcomes: Sequence[Delegated], screen: Screen) -> None:
    rows = _rows(outcomes)
    if can_draw() and max(map(width, table(_HEADING, rows))) > columns_and_lines()[0]:
        rows = _rows(outcomes, _SHORT)
    for line in table(_HEADING, rows, COLOURS if draws_in_colour() else {}):
        screen.note(line)
    for outcome in outcomes:
        if (error := outcome.named_error) is not None:
            for line in error_lines(error):
                screen.note(line)


def _rows(outcomes: Sequence[Delegated], most: int | None = None) -> list[list[str]]:
    end = slice(None if most is None else -most, None)
    return [
        [
            each.title,
            each.said,
            "-" if each.status == "not_launched" else f"{each.seconds:.1f} s",
            "-" if each.session_id is None else visible(each.session_id)[end],
        ]
        for each in outcomes
    ]
