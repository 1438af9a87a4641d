"""Where does a command write, for whoever follows that?"""

from collections.abc import Callable, Sequence

from murmur.domain.value import Value


class Output(Value):
    """An open file that a command's stdout or stderr is appended to."""

    channel: str
    """`stdout` or `stderr`."""
    descriptor: int
    name: str
    """Its path in the records directory."""
    since: int = 0
    """Where the command's own output begins."""


class CommandOutput(Value):
    """Where a session's only command writes, and where that can be read."""

    descriptors: tuple[int, int]
    """Its stdout and stderr."""
    logs: Sequence[Output] = ()
    shown_as: tuple[str, str] = ("", "")
    """The ids of the task and the context that it is shown as."""
    handed: Callable[[], None] | None = None
    """Called once the command has them."""
    settle: Callable[[], None] | None = None
    """Called when the command has ended, to have in the logs what it wrote."""
