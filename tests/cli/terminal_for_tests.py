"""A terminal as a program sees it, and what a person sees on it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.cli.capsules_for_tests import LIMIT

_STEP = re.compile(r"\x1b\[(\d*)([A-Zm])|(\r)|(\n)|([^\x1b\r\n]+)")


class Picture:
    """What a terminal shows of what was written to it. It knows what the live lines use, and nothing else."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._lines = [""]
        self._row = 0
        self._column = 0

    def feed(self, text: str) -> None:
        assert "".join(match.group() for match in _STEP.finditer(text)) == text, f"not known: {text!r}"
        for count, letter, back, down, plain in _STEP.findall(text):
            if letter:
                self._escape(int(count or 1), letter)
            elif back:
                self._column = 0
            elif down:
                self._row += 1
                self._lines += [""] * (self._row + 1 - len(self._lines))
            else:
                self._put(plain)

    def _escape(self, count: int, letter: str) -> None:
        match letter:
            case "A":
                assert count <= self._row, "it goes up beyond what it has drawn"
                self._row -= count
            case "K":
                self._lines[self._row] = self._lines[self._row][: self._column]
            case "J":
                self._lines[self._row] = self._lines[self._row][: self._column]
                del self._lines[self._row + 1 :]
            case _:
                assert letter == "m"

    def _put(self, plain: str) -> None:
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[: self._column] + plain + line[self._column + len(plain) :]
        self._column += len(plain)

    @property
    def lines(self) -> list[str]:
        return [line for line in self._lines if line]

    @property
    def is_broken(self) -> bool:
        """Whether a line does not fit."""
        return any(len(line) > self.columns for line in self._lines)


class Terminal:
    """A process that has a terminal, and the picture on it."""

    def __init__(self, argv: Sequence[str], cwd: Path, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self.picture = Picture(columns)
        self.raw = ""
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=os.environ | {"TERM": "xterm"} | environment, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Read until the picture is as it should be; return it."""
        deadline = time.monotonic() + LIMIT
        while not condition(self.picture.lines):
            assert time.monotonic() < deadline, f"it has not come about: {self.picture.lines}"
            assert self._read(), f"it ended before that: {self.picture.lines}"
        return self.picture.lines

    def wait(self) -> int:
        """Read to the end; return the exit status."""
        while self._read():
            pass
        return self.process.wait(LIMIT)

    def _read(self) -> bool:
        if select.select([self._master], [], [], LIMIT)[0]:
            with suppress(OSError):
                data = os.read(self._master, 65536).decode()
                self.raw += data
                self.picture.feed(data)
                return True
        return False

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
