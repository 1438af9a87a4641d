"""Which of the rows that `mur ps` shows does an address mean? (section 15)."""

from collections.abc import Sequence

from murmur.domain.value import Value

SUFFIX_MIN = 4


class Found(Value):
    """The address means the row at this position, counted from 0."""

    position: int


class NotFound(Value):
    """The address means no row."""

    reason: str


class Ambiguous(Value):
    """The address means several rows, at these positions."""

    positions: tuple[int, ...]


Resolution = Found | NotFound | Ambiguous


def resolve(address: str, session_ids: Sequence[str]) -> Resolution:
    """Resolve `@N`, a full session id or a suffix of one, over the ids of the rows, newest first.

    `@N` counts from 1. A suffix has at least 4 characters; case does not matter.
    """
    if address.startswith("@"):
        return _by_number(address.removeprefix("@"), len(session_ids))
    if address in session_ids:
        return Found(session_ids.index(address))
    wanted = address.lower()
    ids = [session_id.lower() for session_id in session_ids]
    if ids.count(wanted) == 1:
        return Found(ids.index(wanted))
    if len(wanted) < SUFFIX_MIN:
        return NotFound(f"an address is @N, a session id, or at least its last {SUFFIX_MIN} characters")
    matches = tuple(position for position, session_id in enumerate(ids) if session_id.endswith(wanted))
    match matches:
        case ():
            return NotFound("no running capsule has that address")
        case (only,):
            return Found(only)
        case _:
            return Ambiguous(matches)


def _by_number(digits: str, rows: int) -> Resolution:
    if not (digits.isascii() and digits.isdecimal()):
        return NotFound("after @ comes the number of a row of `mur ps`, from 1")
    # Compared as text first: a number of a million digits is not worth converting.
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(rows)) or not 1 <= int(digits) <= rows:
        return NotFound(f"`mur ps` shows {rows} row{'' if rows == 1 else 's'}" if rows else "no session is running")
    return Found(int(digits) - 1)
