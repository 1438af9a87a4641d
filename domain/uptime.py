"""How long has a session been running, in a person's words?"""

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
UNKNOWN = "-"


def uptime_text(started_at: str, now: float) -> str:
    """Return the two largest units of the time from `started_at` (RFC 3339) to `now` (Unix seconds).

    `-` for a start that is no time or lies in the future by more than a clock's jitter.
    """
    seconds = uptime_seconds(started_at, now)
    return UNKNOWN if seconds is None else seconds_text(seconds)


def seconds_text(seconds: int) -> str:
    """Return the two largest units of that many seconds."""
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m {seconds % _MINUTE}s"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE}m"
    return f"{seconds // _DAY}d {seconds % _DAY // _HOUR}h"


def uptime_seconds(started_at: str, now: float) -> int | None:
    """Return whole seconds from `started_at` to `now`; `None` for a start that is no time, or in the future."""
    try:
        started = datetime.fromisoformat(started_at)
    except ValueError:
        return None
    if started.tzinfo is None:
        started = started.replace(tzinfo=UTC)
    try:
        seconds = now - started.timestamp()
    except OverflowError:
        return None
    return max(0, int(seconds)) if seconds > -_MINUTE else None


def started_at_text(now: float) -> str:
    """Write a moment (Unix seconds) as a record's `started_at`: RFC 3339, UTC, whole seconds, `Z` (R1)."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
