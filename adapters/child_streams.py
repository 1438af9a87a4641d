"""What does a child say, on its two pipes? (X4, X5). The reactor reads; whoever launches or ends the child asks."""

import os
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from murmur.adapters.reactor import Reactor
from murmur.adapters.relay import Sink
from murmur.domain.launch.lines import FirstLine, Lines, Tail
from murmur.domain.value import Value

if TYPE_CHECKING:
    from queue import SimpleQueue

READINESS_LIMIT = 1024 * 1024
"""Bytes of a readiness line (X5)."""
DRAIN_TIMEOUT = 5.0
"""Seconds that the last of a stream gets to arrive once its writer has ended (X4)."""
_CHUNK = 65536
_LAST = 1024 * 1024
"""Bytes that are read at most of what is there when a pipe is given up: more than any pipe holds by default."""


class LineSeen(Value):
    """The first line of stdout."""

    line: bytes


class LineTooLong(Value):
    """The first line of stdout has no end within the limit."""


class OutputEnded(Value):
    """Stdout ended without a line."""


class ChildExited(Value):
    """The child has exited."""


class GivenUp(Value):
    """Whoever launches it does not want it any more."""


class Overdue(Value):
    """Its deadline has come."""


Seen = LineSeen | LineTooLong | OutputEnded | ChildExited | GivenUp | Overdue


class _Source:
    """One pipe being read by the reactor, to its end or until it is given up."""

    def __init__(
        self, reactor: Reactor, pipe: IO[bytes], outlet: Sink, take: Callable[[bytes], bool], end: Callable[[], None]
    ) -> None:
        """`take` says whether it passes on what it is given: then it gets no more than the outlet takes."""
        self._reactor = reactor
        self._pipe = pipe
        self._outlet = outlet
        self._take = take
        self._end = end
        os.set_blocking(pipe.fileno(), False)

    def watch(self) -> None:
        if not self._pipe.closed:
            self._reactor.on_readable(self._pipe.fileno(), self._read)

    def give_up(self) -> None:
        """Take what is there, and no more: what the child left behind may hold the other end for ever. Idempotent."""
        left = _LAST
        while left > 0 and (data := self._next()):
            left -= len(data)
            self._take(data)
        self._close()

    def _read(self) -> None:
        data = self._next()
        if data is None:
            return
        if not data:
            self._close()
        elif self._take(data) and self._outlet.when_free(self.watch):
            # Its writer waits then, as it would if it had our own output.
            self._reactor.leave(self._pipe.fileno())

    def _next(self) -> bytes | None:
        """Return what is there; nothing at the end, and `None` where nothing has come yet."""
        if self._pipe.closed:
            return b""
        try:
            return os.read(self._pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _close(self) -> None:
        if not self._pipe.closed:
            self._reactor.leave(self._pipe.fileno())
            self._pipe.close()
            self._end()


class ChildErrors:
    """The child's stderr: every line goes on to ours, the last ones are remembered."""

    def __init__(self, prefix: bytes = b"") -> None:
        self._prefix = prefix
        self._split = Lines()
        self._tail = Tail()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._source: _Source | None = None

    def read_from(self, reactor: Reactor, pipe: IO[bytes] | None, outlet: Sink) -> None:
        """Read that pipe to its end; none is an end already reached. Called in the reactor's thread."""
        if pipe is None:
            self._ended.set()
            return
        self._source = _Source(
            reactor,
            pipe,
            outlet,
            take=lambda data: self._add(self._split.feed(data), outlet),
            end=lambda: self._finish(outlet),
        )
        self._source.watch()

    def give_up(self) -> None:
        """Read what is there and stop. Called in the reactor's thread, once the child is gone. Idempotent."""
        if self._source is not None:
            self._source.give_up()

    def lines(self) -> list[str]:
        """Return the last lines said so far, oldest first. From any thread, without waiting."""
        with self._lock:
            return self._tail.lines()

    def lines_at_end(self, timeout: float = DRAIN_TIMEOUT) -> list[str]:
        """Return the last lines at the end of the pipe, or after so many seconds. Never in the reactor's thread."""
        self._ended.wait(timeout)
        return self.lines()

    def _add(self, lines: list[bytes], outlet: Sink) -> bool:
        with self._lock:
            for line in lines:
                self._tail.add(line)
        for line in lines:
            outlet.write(self._prefix + line + b"\n")
        return True

    def _finish(self, outlet: Sink) -> None:
        self._add(self._split.end(), outlet)
        self._ended.set()


class ChildAnswer:
    """The child's stdout: its first line is told, the rest goes on to our own output."""

    def __init__(self, seen: "SimpleQueue[Seen]", prefix: bytes | None = None) -> None:
        """With a prefix the rest goes on line by line behind it, else as it is."""
        self._seen = seen
        self._prefix = prefix
        self._first = FirstLine(READINESS_LIMIT)
        self._split = Lines()
        self._source: _Source | None = None

    def read_from(self, reactor: Reactor, pipe: IO[bytes], outlet: Sink) -> None:
        """Read that pipe to its end. Called in the reactor's thread."""
        self._source = _Source(
            reactor,
            pipe,
            outlet,
            take=lambda data: self._take(data, outlet),
            end=lambda: self._end(outlet),
        )
        self._source.watch()

    def give_up(self) -> None:
        """Read what is there and stop. Called in the reactor's thread, once the child is gone. Idempotent."""
        if self._source is not None:
            self._source.give_up()

    def _take(self, data: bytes, outlet: Sink) -> bool:
        was_known = self._first.is_known
        rest = self._first.feed(data)
        if self._first.is_known and not was_known:
            self._tell()
        if self._first.line is None:
            return False  # Nothing of it goes on: a launch does not wait for who reads our own output.
        self._relay(rest, outlet)
        return True

    def _tell(self) -> None:
        line = self._first.line
        self._seen.put(LineTooLong() if line is None else LineSeen(line))

    def _relay(self, data: bytes, outlet: Sink) -> None:
        if self._prefix is None:
            outlet.write(data)
        else:
            self._write(self._split.feed(data), outlet)

    def _write(self, lines: list[bytes], outlet: Sink) -> None:
        for line in lines:
            outlet.write((self._prefix or b"") + line + b"\n")

    def _end(self, outlet: Sink) -> None:
        if self._first.end():
            self._tell()
        self._write(self._split.end(), outlet)
        self._seen.put(OutputEnded())
