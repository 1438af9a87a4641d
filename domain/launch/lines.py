"""Where do a child's lines end, when it may write anything at all? (X4, X5)."""

from collections import deque

LINE_LIMIT = 64 * 1024
"""Bytes of a line of stderr that are kept (X4)."""
TAIL_LINES = 20
"""How many lines a child's tail remembers (X4)."""
_CUT = b" [...]"


class Lines:
    """Splits what arrives in pieces into lines, holding no more than the limit of one that has no end."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; return the lines that are whole now, each without its line ending."""
        *whole, rest = data.split(b"\n")
        lines = []
        for piece in whole:
            self._add(piece)
            lines.append(self._taken())
        self._add(rest)
        return lines

    def end(self) -> list[bytes]:
        """Take in the end; return the last line if it had no ending."""
        return [self._taken()] if self._begun else []

    def _add(self, piece: bytes) -> None:
        room = self._limit - len(self._begun)
        self._begun += piece[:room]
        self._cut = self._cut or len(piece) > room

    def _taken(self) -> bytes:
        line = bytes(self._begun)
        line = line + _CUT if self._cut else line.removesuffix(b"\r")
        self._begun.clear()
        self._cut = False
        return line


class FirstLine:
    """The first line of a stream, and what comes after it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self.line: bytes | None = None
        """The line without its ending and trailing blanks, once there is one."""
        self.too_long = False

    @property
    def is_known(self) -> bool:
        """Whether the line is there, or will never be."""
        return self.line is not None or self.too_long

    def feed(self, data: bytes) -> bytes:
        """Take in bytes; return those that come after the line."""
        if self.is_known:
            return data
        head, newline, rest = data.partition(b"\n")
        if len(self._begun) + len(head) > self._limit:
            self.too_long = True
            self._begun.clear()
            return data
        self._begun += head
        if newline:
            self._finish()
        return rest

    def end(self) -> bool:
        """Take in the end: a line without an ending counts. Say whether there was one."""
        if self.is_known or not self._begun:
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        self.line = bytes(self._begun).rstrip()
        self._begun.clear()


class Tail:
    """The last lines of a stream, as text."""

    def __init__(self, most: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=most)

    def add(self, line: bytes) -> None:
        """Remember a line; bytes that are not UTF-8 are replaced."""
        self._lines.append(line.decode("utf-8", "replace"))

    def lines(self) -> list[str]:
        """Return them, oldest first."""
        return list(self._lines)
