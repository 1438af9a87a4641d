"""What is shown of a session's stream, and how has it ended?"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress

from murmur.adapters.doors import HttpDoors
from murmur.cli import wiring
from murmur.cli.output import ReaderLeft, note, pass_on, warn
from murmur.cli.resolving import read_rows
from murmur.domain.door import (
    TOO_LARGE,
    Answered,
    DoorAsk,
    DoorReading,
    NoAnswer,
    NoSuchAddress,
    decoded_answer,
    without,
)
from murmur.domain.errors import DoorRefused, MurmurError, WatchLost
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.record import RunningRecord
from murmur.domain.sse import Event, EventReader, EventTooLong
from murmur.domain.visible_text import visible
from murmur.domain.watching import (
    WATCH_LIMITS,
    BegunSeen,
    ClosedSeen,
    ErrorSeen,
    GapSeen,
    MissedSeen,
    NothingSeen,
    OutputSeen,
    Seen,
    StatusSeen,
    read_event,
)

_REFUSED = 400
"""The least HTTP status of a refusal."""
_LAST_MOMENT = 0.5
"""Seconds that a process gets to be gone whose connection is."""


class Watching:
    """One stream being shown, until it ends, its reader leaves, or it was enough."""

    def __init__(self, record: RunningRecord, *, as_json: bool, to_final: bool = False) -> None:
        """With `to_final` the first final status is enough: the stream is about one task."""
        self._record = record
        self._as_json = as_json
        self._to_final = to_final
        self._events = EventReader()
        self._last: int | None = None
        self._ended_by: ClosedSeen | ErrorSeen | None = None
        self._last_of: dict[bool, str] = {}
        """The last character of what was said, on stdout and elsewhere."""
        self._has_begun = False
        self._has_left = False
        self.final: StatusSeen | None = None
        """The last final status."""

    def run(self, ask: Callable[[], DoorAsk]) -> None:
        """Show what comes until the end, or until it was enough.

        Raises `DoorRefused` where no stream came to be, `WatchLost` where it has broken off.
        """
        try:
            reading = HttpDoors(WATCH_LIMITS).listen(ask(), self._take)
        except NoSuchAddress as error:
            raise DoorRefused(str(error)) from None
        if self._has_left:
            raise ReaderLeft
        if isinstance(self._ended_by, ClosedSeen) or (self._to_final and self.final is not None):
            return
        raise self._broken_off(reading)

    def _take(self, data: bytes) -> bool:
        """Show what arrived; say whether more is wanted."""
        self._has_begun = True
        try:
            events = self._events.feed(data)
        except EventTooLong:
            self._ended_by = ErrorSeen("it sent an event larger than any may be")
            return False
        return all(self._show(event) for event in events)

    def _show(self, event: Event) -> bool:
        self._last = self._last if event.number is None else event.number
        seen = read_event(event, self._record.door_token)
        if isinstance(seen, ErrorSeen | ClosedSeen):
            self._ended_by = seen
        if isinstance(seen, StatusSeen) and seen.is_final:
            self.final = seen
        self._has_left = not (self._say_as_json(event, seen) if self._as_json else self._say(seen))
        is_enough = self._to_final and self.final is not None
        return not self._has_left and not is_enough and self._ended_by is None

    def _say(self, seen: Seen) -> bool:
        """Show it to a person: the command's own output where it would have gone, the rest on stderr."""
        match seen:
            case OutputSeen(_, channel, text):
                return self._pass_on(channel, text)
            case StatusSeen(task_id, state, message, is_final):
                if not self._end_lines():
                    return False
                if not (is_final and self._to_final):  # That one is the command's own end.
                    why = f": {visible(reason_alone(message))}" if message else ""
                    note(f"task {visible(task_id)}: {visible(state)}{why}")
            case GapSeen(first):
                warn(f"what came before event {first} is not kept any more")
            case MissedSeen(count):
                warn(f"the door has left out {count} events")
            case BegunSeen():
                capsule = f"{self._record.capsule_name}@{self._record.capsule_version}"
                note(f"watching {visible(self._record.session_id)} ({visible(capsule)})")
            case ClosedSeen():
                note("session ended")
            case ErrorSeen() | NothingSeen():  # An error is told as the command's own.
                pass
        return True

    def _pass_on(self, channel: str, text: str) -> bool:
        self._last_of[channel == "stdout"] = text[-1:]
        if channel == "stdout":
            return pass_on(text, sys.stdout)
        named = "" if channel == "stderr" else f"[{visible(channel)}] "
        pass_on(named + text, sys.stderr)
        return True

    def _end_lines(self) -> bool:
        """End a line that a task has left without its end, as `mur send` does: what follows is something else."""
        is_read = True
        for to_stdout, last in self._last_of.items():
            if last not in ("", "\n"):
                there = pass_on("\n", sys.stdout if to_stdout else sys.stderr)
                is_read = is_read and (there or not to_stdout)
        self._last_of.clear()
        return is_read

    def _say_as_json(self, event: Event, seen: Seen) -> bool:
        """Show it to a program: a line of JSON each."""
        if isinstance(seen, NothingSeen | BegunSeen):
            return True
        said = {name: getattr(seen, name) for name in seen.__match_args__}
        kind = type(seen).__name__.removesuffix("Seen").lower()
        return pass_on(json.dumps({"event": kind, "number": event.number, **said}) + "\n", sys.stdout)

    def _broken_off(self, reading: DoorReading) -> MurmurError:
        record = self._record
        session = f"session {visible(record.session_id)}"
        if not self._has_begun:
            return DoorRefused(f"{session}: {visible(_refusal(reading, record))}")
        where = "before any event" if self._last is None else f"after event {self._last}"
        match self._ended_by, reading:
            case ErrorSeen(reason), _:
                what = f"its door has ended the stream {where}: {visible(reason)}"
            case _, NoAnswer(reason):
                what = f"the connection was lost {where}: {visible(reason)}"
            case _:
                what = f"the stream ended {where}, and did not say that the session had"
        if not _is_there(record, 0.0 if isinstance(self._ended_by, ErrorSeen) else _LAST_MOMENT):
            return WatchLost(
                f"{session}: {what}; the session is gone", hint=f"its records are in {visible(record.workdir)}"
            )
        again = f"`mur watch {record.session_id}{'' if self._last is None else f' --after {self._last}'}` goes on"
        return WatchLost(f"{session}: {what}; the session is still there", hint=again)


def reason_alone(message: str) -> str:
    """Return why a task ended, without the lines of its stderr that are quoted behind: they have been shown."""
    return message.partition("\n")[0].partition("; its last stderr lines were:")[0]


def _refusal(reading: DoorReading, record: RunningRecord) -> str:
    """Say why there is no stream."""
    if isinstance(reading, Answered) and reading.status == TOO_LARGE:
        return "the task is larger than the 1 MiB that a door takes; put it into a file of the work folder"
    answer = decoded_answer(reading)
    if isinstance(reading, Answered) and isinstance(answer, NoAnswer):
        with suppress(NotJson):
            answer = read_json(reading.body) if reading.status >= _REFUSED else answer
    match answer:
        case NoAnswer(reason):
            return reason
        case {"error": {"message": str(message)}} | {"error": str(), "message": str(message)}:
            return f"the door refused: {without(record.door_token, message)}"
        case _:
            return "the door answered with something that is no stream"


def _is_there(record: RunningRecord, patience: float) -> bool:
    """Whether the session's process is still there, that long from now."""
    claims = [row.claim for row in read_rows().sessions if row.record.session_id == record.session_id]
    return bool(claims) and not wiring.exits.wait_any(claims, wiring.clock.monotonic() + patience)
