"""How is a person, or a program reading `--json`, told? The one place that prints results, warnings and errors."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

import typer

from murmur.domain.errors import MurmurError, OutputNotWritten
from murmur.domain.visible_text import visible

BENEATH = 2
"""How many lines of a terminal no drawing takes: that of the cursor, and one of what was printed before."""
_LEFT = (errno.EPIPE, errno.EBADF)
"""How a stdout reads whose reader has left, or that was closed from the start."""


class ReaderLeft(typer.Exit):
    """Nobody reads stdout any more, for which there was more to come: the exit status is a shell's for SIGPIPE."""

    def __init__(self) -> None:
        super().__init__(141)


def tolerate_any_text() -> None:
    """Let every text be printed under any locale: what it cannot encode is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def say(text: str) -> None:
    """Print one line, or several, of a command's result. Raises `OutputNotWritten`, but not for a reader that left."""
    error = _write(sys.stdout, text)
    if error is not None and error.errno not in _LEFT:
        from murmur.adapters.reasons import reason_of  # noqa: PLC0415 - `--version` needs no adapter

        raise OutputNotWritten(f"the result could not be written to stdout: {reason_of(error)}")


def say_document(document: object) -> None:
    """Print the one JSON document of a `--json` command, as `say` does: on one line, in ASCII for any locale."""
    say(json.dumps(document))


def announce(text: str) -> None:
    """Print what a session says of itself. Whatever happens to its stdout never ends it (M4)."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Print one line about the result on stderr."""
    _write(sys.stderr, text)


def pass_on(text: str, stream: TextIO | None) -> bool:
    """Print a piece of a session's output as it is, to stdout or stderr; say whether anybody is there to read it.

    Raises `OutputNotWritten`, as for a full disk.
    """
    if stream is None:
        return False
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        _silence(stream)
        if error.errno not in _LEFT:
            from murmur.adapters.reasons import reason_of  # noqa: PLC0415 - `--version` needs no adapter

            raise OutputNotWritten(f"what the session says could not be written: {reason_of(error)}") from error
        return False
    return True


def warn(text: str) -> None:
    """Print one warning on stderr, on one line whatever it quotes."""
    _write(sys.stderr, f"warning: {visible(text)}")


def draw(text: str) -> None:
    """Write on stderr, a terminal, as it is, at once: lines that are drawn over and over."""
    _write(sys.stderr, text, end="")


def can_draw() -> bool:
    """Whether a person is looking at stderr, on a terminal on which lines can be drawn over, and which is ours now."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    return columns_and_lines()[1] > BENEATH and _is_in_foreground()


def _is_in_foreground() -> bool:
    """Whether the terminal behind stderr is not somebody else's: a shell's, say, that has us in the background."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # It does not control us, so that nobody can put us into the background of it.
        return True


def drawable(text: str) -> str:
    """Return text as stderr will write it: what its encoding has not is an escape, which is longer."""
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)


def columns_and_lines() -> tuple[int, int]:
    """Return the size of the terminal behind stderr; 80 by 24 where it does not say."""
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def fall_silent() -> None:
    """Print nothing from here on: whoever read this process's output has heard what there was to hear."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            _silence(stream)


def _write(stream: TextIO | None, text: str, end: str = "\n") -> OSError | None:
    """Write and flush; return what went wrong, after which the stream is silent."""
    if stream is None:
        return None
    try:
        print(text, file=stream, end=end, flush=True)
    except UnicodeEncodeError:
        print(text.encode("utf-8", "backslashreplace").decode(), file=stream, end=end, flush=True)
    except ValueError:  # It is closed.
        _silence(stream)
    except OSError as error:
        _silence(stream)
        return error
    return None


def _silence(stream: TextIO) -> None:
    """Send the rest of a broken stream nowhere, also what is still in its buffer when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def echo_bytes(stream: TextIO | None) -> Callable[[bytes], None]:
    """Return what passes a command's output on to a stream, as it is, for as long as somebody reads it."""

    def echo(data: bytes) -> None:
        if stream is not None:
            try:
                stream.buffer.write(data)
                stream.buffer.flush()
            except (OSError, ValueError):
                _silence(stream)

    return echo


@contextlib.contextmanager
def reporting(*, as_json: bool) -> Iterator[None]:
    """Turn a `MurmurError` into what a person or a program is told, and the exit status it carries."""
    try:
        yield
    except MurmurError as error:
        report(error, as_json=as_json)
        raise typer.Exit(error.exit_status) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def report(error: MurmurError, *, as_json: bool) -> None:
    """Print one error: on stderr for a person, as the document on stdout for a program."""
    if as_json and not isinstance(error, OutputNotWritten):
        say_document({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
        return
    for line in error_lines(error):
        note(line)


def error_lines(error: MurmurError) -> list[str]:
    """Say one error for a person."""
    hint = [] if error.hint is None else [f"  hint: {shown(error.hint)}"]
    return [f"error[{error.code}]: {shown(error.message)}", *hint]


def shown(text: str) -> str:
    """Make text visible line by line, keeping the line breaks that a message has on purpose."""
    return "\n".join(visible(line) for line in text.split("\n"))


def is_terminal() -> bool:
    """Whether a person is looking at stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def in_colour() -> bool:
    """Whether stdout is a terminal whose user has not asked for plain text."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def draws_in_colour() -> bool:
    """Whether stderr is a terminal that can draw, and its user has not asked for plain text."""
    return can_draw() and not os.environ.get("NO_COLOR")
