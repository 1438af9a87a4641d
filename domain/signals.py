"""What a signal to a recorded process came to, and when none may be sent (K1)."""

from enum import Enum
from typing import assert_never

from murmur.domain.process import Alive, Gone, ProcessState, Unverified
from murmur.domain.value import Value


class StopSignal(Enum):
    """The two signals that end a session. SIGTERM is followed by SIGCONT, so that a stopped process acts on it (K4)."""

    TERM = "SIGTERM"
    KILL = "SIGKILL"


class Sent(Value):
    """The signal went to the process that the identity names."""


class AlreadyGone(Value):
    """Nothing was signalled: the process is not there any more."""


class Refused(Value):
    """Something holds the pid and no signal reached it, for this reason."""

    reason: str


SignalOutcome = Sent | AlreadyGone | Refused


def refusal_before_signal(state: ProcessState) -> AlreadyGone | Refused | None:
    """Say what a signal comes to without being sent; `None` when the process may be signalled."""
    match state:
        case Alive():
            return None
        case Unverified(reason):
            return Refused(reason)
        case Gone():
            return AlreadyGone()
        case _:
            assert_never(state)
