"""What is something called while it is written? (H4)."""

import re

# A whole name. Nothing else that ends in `.tmp` is ours to remove.
_STAGED = re.compile(r"\..+\.([0-9]{1,10})\.[0-9a-f]{32}\.tmp", re.DOTALL)


def staged_name(name: str, pid: int, unique: str) -> str:
    """Return what is called so while that process writes it. `unique` is 32 hex digits that nobody else has."""
    return f".{name}.{pid}.{unique}.tmp"


def staged_by(name: str) -> int | None:
    """Return the pid of the writer that is in a name; `None` for a name of anything else."""
    match = _STAGED.fullmatch(name)
    return None if match is None else int(match[1])
