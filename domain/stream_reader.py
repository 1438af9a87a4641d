"""What does one reader of a stream get next, and when has it got everything?"""

from typing import TYPE_CHECKING

from murmur.domain.stream_frames import error_bytes, gap_bytes

if TYPE_CHECKING:
    from murmur.domain.event_log import EventLog


class StreamReader:
    """One reader of one log, of one task's events or of all."""

    def __init__(  # noqa: PLR0913 - what is read, and for whom
        self,
        log: "EventLog",
        caller: bytes,
        opening: bytes,
        after: int,
        task_id: str | None = None,
        *,
        with_errors: bool = True,
    ) -> None:
        """Begin with `opening`, then go on behind the event `after`, 0 for none."""
        self._with_errors = with_errors
        self._log = log
        self._caller = caller
        self.task_id = task_id
        self._due = opening
        if after + 1 < log.first:
            # One task may be there whole although others before it are not.
            if after or task_id is None or log.dropped_of == task_id:
                self._due += gap_bytes(log.first)
            after = log.first - 1
        self.position = min(after, log.last)
        """The number of the last event that it has taken, or that was of another task."""
        self._ends_at: int | None = None
        self._last_words = b""
        self.is_ended = False
        """Whether it takes nothing more from the log."""
        self.has_kept_up = False
        """Whether it has ever come near to what there is, as who brings a long past with it has not."""

    def take(self, room: int) -> bytes:
        """Return whole events, about so many bytes of them; none when there are none now."""
        taken, size, self._due = [self._due], len(self._due), b""
        while not self.is_ended and size < room and (event := self._next()) is not None:
            taken.append(event)
            size += len(event)
        return b"".join(taken)

    @property
    def is_over(self) -> bool:
        """Whether it has taken everything, and nothing comes any more."""
        return self.is_ended and not self._due

    @property
    def has_all(self) -> bool:
        """Whether it has taken everything that there is so far."""
        return self.position >= self._log.last

    @property
    def is_lost(self) -> bool:
        """Whether what it would take next is not kept any more."""
        return self.position + 1 < self._log.first

    @property
    def backlog(self) -> int:
        """How many bytes of events it has not taken yet."""
        return self._log.behind(self.position)

    def cut(self, reason: str) -> None:
        """Let it have the reason, and nothing more."""
        self.is_ended = True
        self._due += error_bytes(reason)

    def end(self, last_words: bytes) -> None:
        """Let it have what there is now, and then these words, its last: nothing comes any more. Idempotent."""
        if self._ends_at is None:
            self._ends_at, self._last_words = self._log.last, last_words

    def _next(self) -> bytes | None:
        """Take one step; return the event, which is empty for one of another task, or `None` where there is none."""
        if self.position >= (self._log.last if self._ends_at is None else self._ends_at):
            self.is_ended = self._ends_at is not None
            return self._last_words if self.is_ended else None
        if self.is_lost:
            self.is_ended = True
            return error_bytes(LEFT_BEHIND)
        self.position += 1
        frame = self._log.get(self.position)
        if self.task_id is not None:
            if frame.task_id != self.task_id or (frame.is_error and not self._with_errors):
                return b""
            self.is_ended = frame.is_final
        return self._log.written(self.position, self._caller)


LEFT_BEHIND = "this reader fell too far behind, and is not waited for any longer"
