"""How do the results, the warnings and the live lines of one command share its output?

One thread writes all of it: an output that nobody reads, or a terminal that is held, keeps waiting whoever writes
there, and the main thread has signals to act on and children to launch.
"""

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Self, assert_never

from murmur.adapters.last_words import LastWords
from murmur.adapters.relay import Sink
from murmur.adapters.threads import start_thread
from murmur.cli.live_lines import Line, drawn, last_words
from murmur.cli.onlookers import Observed
from murmur.cli.output import (
    BENEATH,
    can_draw,
    columns_and_lines,
    draw,
    drawable,
    draws_in_colour,
    note,
    say,
    warn,
)  # fmt: skip
from murmur.domain.errors import ChildNotLaunched, OutputNotWritten
from murmur.domain.side_by_side import Phase
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_BETWEEN = 0.2
"""Seconds between two drawings, at least."""
_MOMENT = 2.0
"""Seconds that the last of the output gets to be read once a signal has come."""
_EVERY = 1.0
"""Seconds between two drawings while nothing happens, for the time to go on."""
COLOURS = {
    "ok": "\x1b[32m", "working": "\x1b[36m", "failed": "\x1b[31m", "crashed": "\x1b[31m",
    "terminated": "\x1b[33m", "not launched": "\x1b[31m", "ending": "\x1b[33m",
}  # fmt: skip


class _Said(Value):
    """Goes to stdout."""

    text: str


class _Noted(Value):
    """Goes to stderr."""

    text: str


class _Warned(Value):
    """Goes to stderr, as a warning."""

    text: str


class _Changed(Value):
    """A live line did."""


class _Settled(Value):
    """There are no live lines any more."""


class _Ended(Value):
    """Nothing follows."""


_Item = _Said | _Noted | _Warned | _Changed | _Settled | _Ended


class LiveLine:
    """One child's live line. Everything may be called from any thread and takes no lock."""

    def __init__(self, title: str, changed: Callable[[], None], warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._title = title
        self._changed = changed
        self._phase = Phase.WAITING
        self._since = 0.0
        self._words = ""
        self._status = ""
        self._child: Observed | None = None
        self._log: LastWords | None = None

    @property
    def output(self) -> Sink:
        """This takes the child's output."""
        return self

    def write(self, data: bytes) -> None:
        """Show a line of output until the next one."""
        if self._phase is not Phase.OVER:  # What it left behind may still say something.
            self._words = last_words(data.decode("utf-8", "replace")) or self._words
            self._changed()

    def when_free(self, _call: Callable[[], None]) -> bool:
        """Whether it is too full, which it never is: it holds one line."""
        return False

    def entered(self, phase: Phase, child: Observed | None = None) -> None:
        """Show how far the child has come. It goes on, and not back, whichever thread is told of last."""
        if phase is Phase.WORKING and self._phase is not Phase.WORKING:
            self._since = time.monotonic()
        if child is not None:
            self._child = child
            self._log = None if child.records_dir is None else LastWords(child.records_dir)
        if self._phase is not Phase.OVER and (self._phase, phase) != (Phase.ENDING, Phase.WORKING):
            self._phase = phase
        self._changed()

    def over(self, status: str, words: str) -> None:
        """Show how the child ended."""
        self._phase, self._status, self._words = Phase.OVER, status, visible(words)
        self._changed()

    def line(self, now: float) -> Line:
        """Say what there is to be drawn."""
        phase, log = self._phase, self._log
        if log is not None and phase is not Phase.OVER and (news := log.news()) is not None:
            self._words = last_words(news) or self._words
        if phase is Phase.WORKING and self._child is not None and self._child.is_being_ended:
            phase = Phase.ENDING  # At its deadline.
        return Line(drawable(self._title), phase, now - self._since, self._status, drawable(self._words))


class Screen:
    """The output of one command, written by a thread of its own. A context manager: leaving it waits for the rest."""

    def __init__(self) -> None:
        """Begin, without live lines. Raises `ChildNotLaunched` when no thread can be started."""
        self.failed: OutputNotWritten | None = None
        """Why a result could not be written, once that has happened. The rest is not tried any more."""
        self._items: SimpleQueue[_Item] = SimpleQueue()
        self._lines: Sequence[LiveLine] = ()
        self._patience: float | None = None
        self._is_due = False
        self._was_continued = False
        self._widths: Sequence[int] = ()
        self._drawn_at = 0.0
        self._draw_at: float | None = None
        try:
            self._thread = start_thread("screen", self._run)
        except RuntimeError:
            raise ChildNotLaunched("no thread can be started") from None

    def say(self, text: str) -> None:
        """Print a result on stdout."""
        self._items.put(_Said(text))

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        self._items.put(_Noted(text))

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        self._items.put(_Warned(text))

    def show(self, titles: Sequence[str]) -> Sequence[LiveLine]:
        """Draw a live line for each from now on."""
        self._lines = [LiveLine(title, self._changed, self.warn) for title in titles]
        self._changed()
        return self._lines

    def hurry(self) -> None:
        """Wait at the end no longer than a moment for whoever does not read. It takes no lock."""
        self._patience = _MOMENT

    def settle(self) -> None:
        """Take the live lines away."""
        self._items.put(_Settled())

    def __enter__(self) -> Self:
        """See to it, in the main thread, that drawings begin afresh when this process was stopped and goes on."""
        self._before = signal.signal(signal.SIGCONT, self._take_continuation)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all to be written, in the main thread: no longer than whoever sends a signal wants to."""
        # Python's own ^C would have it wait for that thread once more, at its end. By now there is nothing to put away.
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._items.put(_Ended())
        self._thread.join(self._patience)
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGCONT, self._before)

    def _take_continuation(self, _number: int, _frame: FrameType | None) -> None:
        """Somebody has written beneath the lines meanwhile, such as a shell. It takes no lock."""
        self._was_continued = True
        self._changed()

    def _changed(self) -> None:
        if not self._is_due:  # Once is enough until the next drawing, however much is said meanwhile.
            self._is_due = True
            self._items.put(_Changed())

    # ---- in the thread ----

    def _run(self) -> None:
        while not isinstance(item := self._next(), _Ended):
            match item:
                case None:
                    self._draw()
                case _Said(text):
                    self._between(partial(self._say, text))
                case _Noted(text):
                    self._between(partial(note, text))
                case _Warned(text):
                    self._between(partial(warn, text))
                case _Changed():
                    self._draw_at = self._drawn_at + _BETWEEN
                case _Settled():
                    self._erase()
                    self._lines, self._draw_at = (), None
                case _:
                    assert_never(item)

    def _next(self) -> _Item | None:
        """Wait for what is next; `None` is that the lines are to be drawn."""
        try:
            if self._draw_at is None:
                return self._items.get()
            return self._items.get(timeout=max(0.0, self._draw_at - time.monotonic()))
        except Empty:
            return None

    def _say(self, text: str) -> None:
        if self.failed is None:
            try:
                say(text)
            except OutputNotWritten as error:
                self.failed = error

    def _between(self, print_it: Callable[[], None]) -> None:
        """Print something, with the live lines beneath it."""
        had = self._has_lines()
        self._erase()
        print_it()
        if had:
            self._draw()

    def _has_lines(self) -> bool:
        """Whether there are live lines right above the cursor. Where somebody else has written, they are left."""
        if self._was_continued or (self._widths and not can_draw()):
            self._was_continued, self._widths = False, ()
        return bool(self._widths)

    def _erase(self) -> None:
        if self._has_lines():
            # Line by line: what clears a whole screen is kept by some terminals as if it had been scrolled away.
            draw("\r" + "\x1b[A\x1b[K" * self._rows())
            self._widths = ()

    def _draw(self) -> None:
        now, self._draw_at, self._is_due = time.monotonic(), None, False
        if not self._lines:
            return
        before = self._rows() if self._has_lines() else 0
        self._drawn_at, self._draw_at = now, now + _EVERY
        if not can_draw():
            return
        columns, height = columns_and_lines()
        lines = [line.line(now) for line in self._lines]
        # One column less: a full line leaves some terminals' cursor behind it, and others' in the next one.
        fresh = drawn(lines, columns - 1, height - BENEATH, COLOURS if draws_in_colour() else {})
        left = max(0, before - len(fresh))
        draw(
            (f"\r\x1b[{before}A" if before else "")
            + "".join(f"{line}\x1b[K\n" for line, _ in fresh)
            + ("\x1b[K\n" * left + f"\x1b[{left}A" if left else "")
        )
        self._widths = [wide for _, wide in fresh]

    def _rows(self) -> int:
        """Return how many rows the lines drawn last take. A terminal that has become narrower broke them."""
        columns, _ = columns_and_lines()
        return sum(max(1, -(-wide // columns)) for wide in self._widths)
