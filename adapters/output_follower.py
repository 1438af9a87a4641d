"""How is what a command writes into a file followed, without the command ever waiting for who reads it?"""

import os
from contextlib import ExitStack
from typing import Self

from murmur.adapters.command_output import Output
from murmur.domain.output_text import PIECE, OutputText

_TAIL = 64 * 1024
"""Bytes of an output that are read back where nobody has followed it from its beginning."""


class FollowedOutput:
    """One output being followed, by a descriptor of its own."""

    def __init__(self, output: Output, descriptor: int) -> None:
        self.channel = output.channel
        self.descriptor = descriptor
        self.has_begun = False
        """Whether anything of it was passed on."""
        self._name = output.name
        self._position = output.since
        self._text = OutputText()
        self._before = ""
        self._until: int | None = None

    @classmethod
    def open(cls, output: Output, *, from_tail: bool) -> Self:
        """Follow it from its beginning, or only its last part. Raises `OSError`."""
        with ExitStack() as opened:
            followed = cls(output, os.dup(output.descriptor))
            opened.callback(followed.close)
            if from_tail:
                followed._begin_at_tail()
            opened.pop_all()
        return followed

    def read(self) -> tuple[bool, str]:
        """Read on; say whether there was anything, and return the text that is whole by now. Raises `OSError`."""
        room = PIECE if self._until is None else min(PIECE, max(0, self._until - self._position))
        data = os.pread(self.descriptor, room, self._position)
        if not data:
            if self._until is None and os.fstat(self.descriptor).st_size < self._position:
                self._position = 0  # The command has cut its own output short, and begins anew.
            return False, ""
        self._position += len(data)
        before, self._before = self._before, ""
        return True, before + self._text.feed(data)

    def end(self) -> None:
        """Note that its writer is done: what comes behind this, in a log that others write on, is not its own.

        Raises `OSError`.
        """
        self._until = os.fstat(self.descriptor).st_size

    def rest(self) -> str:
        """Return what was held back, a line without an end; and in the place of what was not read, how much that is."""
        left = max(0, min(self._until or 0, os.fstat(self.descriptor).st_size) - self._position)
        return self._held(left)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)

    def skip_to_tail(self) -> None:
        """Leave out all but the last part of what was not read yet, and say so. Raises `OSError`."""
        self._begin_at_tail()

    def _begin_at_tail(self) -> None:
        begin = (os.fstat(self.descriptor).st_size if self._until is None else self._until) - _TAIL
        if begin > self._position:
            # At the beginning of a line, if there is one.
            begin += max(0, os.pread(self.descriptor, _TAIL, begin - 1).find(b"\n"))
            self._before = self._held(begin - self._position)
            self._position = begin

    def _held(self, left_out: int) -> str:
        """Return what was held back, and behind it, on a line of its own, that so many bytes are left out."""
        held = self._before + self._text.end()
        if not left_out:
            return held
        end = "\n" if held and not held.endswith("\n") else ""
        return f"{held}{end}[{left_out} bytes are left out here; {self._name} has them]\n"
