"""How long is `30m`?"""

import re

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", re.ASCII)


def seconds_of(text: str) -> float:
    """Read a duration such as `90`, `90s`, `1.5m`, `2h` or `1d` as seconds; raise `ValueError` for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("a time is a number, and s, m, h or d, if it is not seconds: 90, 90s, 30m, 2h")
    if float(match[1]) == 0:
        raise ValueError("a time is longer than that")
    return float(match[1]) * _UNITS[match[2]]
