"""Who is told how it goes while a `mur delegate` is at work?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from murmur.adapters.completions import Warn
from murmur.adapters.relay import Sink
from murmur.cli.delegable import Planned
from murmur.cli.delegated import Delegated
from murmur.domain.side_by_side import Phase


class Observed(Protocol):
    """A child as it can be looked at while it works, from any thread."""

    @property
    def records_dir(self) -> Path | None:
        """Where its records are, once that is known."""
        ...

    @property
    def is_being_ended(self) -> bool:
        """Whether it was asked to end."""
        ...


class Witness(Protocol):
    """Who sees how it goes with one child. Called from any thread, and by a signal's handler: it takes no lock."""

    @property
    def output(self) -> Sink | None:
        """What takes the child's output instead of our stderr."""
        ...

    def warn(self, text: str) -> None:
        """Hear what went wrong without being an error."""
        ...

    def entered(self, phase: Phase, child: Observed | None = None) -> None:
        """See how far it has come, and itself once it is there to be looked at."""
        ...


class Onlooker(Protocol):
    """Who is told of all. Nothing of it may wait: a signal, and the next child, would wait as well."""

    def warn(self, text: str) -> None:
        """Hear what went wrong without being an error. From any thread."""
        ...

    def begins(self, planned: Sequence[Planned]) -> Sequence[Witness]:
        """Learn what is delegated, once that is settled; say who sees how it goes with each."""
        ...

    def ended(self, position: int, outcome: Delegated) -> None:
        """See that one is over. Others before it may not be."""
        ...

    def told(self, outcome: Delegated) -> None:
        """Hear what became of one, in the order of the command line."""
        ...

    def signalled(self) -> None:
        """Hear that a signal came: somebody wants this to end. Called by its handler, so it takes no lock."""
        ...


class Silent:
    """Passes on the warnings, and leaves children's output to our stderr. It is told, and sees, nothing."""

    def __init__(self, warn: Warn, hurry: Callable[[], None]) -> None:
        """`warn` is called from any thread, and so must not wait; `hurry` when a signal comes."""
        self._warn = warn
        self._hurry = hurry

    @property
    def output(self) -> Sink | None:
        """Nothing takes the child's output."""
        return None

    def warn(self, text: str) -> None:
        """Pass on a warning."""
        self._warn(text)

    def entered(self, phase: Phase, child: Observed | None = None) -> None:
        """Look away."""

    def begins(self, planned: Sequence[Planned]) -> Sequence[Witness]:
        """Look away from each."""
        return [self for _ in planned]

    def ended(self, position: int, outcome: Delegated) -> None:
        """Look away."""

    def told(self, outcome: Delegated) -> None:
        """Look away."""

    def signalled(self) -> None:
        """Pass it on."""
        self._hurry()
