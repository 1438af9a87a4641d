"""What an id looks like (I1, I2). Minting one needs a clock and randomness: `adapters.identifiers` does it."""

import re
from typing import Literal, Self

IdPrefix = Literal["ses_", "frm_", "dlg_", "tsk_", "ctx_", "msg_", "req_"]

_SESSION = re.compile(r"ses_[0-9a-f]{32}", re.ASCII)
_FORMATION = re.compile(r"frm_[0-9a-f]{32}", re.ASCII)


class InvalidFormationId(ValueError):
    """A text that is no formation id. The message does not repeat it: it came from outside."""

    def __init__(self) -> None:
        super().__init__("a formation id is `frm_` followed by exactly 32 digits of 0-9a-f")


class FormationId(str):
    """The id shared by sessions launched together: `frm_` and exactly 32 of `[0-9a-f]`, nothing trimmed.

    Raises `InvalidFormationId` for anything else (I2).
    """

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check and keep the text."""
        if _FORMATION.fullmatch(value) is None:
            raise InvalidFormationId
        return super().__new__(cls, value)


_DELEGATION = re.compile(r"dlg_[0-9a-f]{32}", re.ASCII)


def is_delegation_id(text: str) -> bool:
    """Whether that is `dlg_` and 32 of `[0-9a-f]`, as every id is that this program mints."""
    return _DELEGATION.fullmatch(text) is not None


def is_session_id(text: str) -> bool:
    """Whether a text is a session's id: `ses_` and exactly 32 of `[0-9a-f]` (I1)."""
    return _SESSION.fullmatch(text) is not None
