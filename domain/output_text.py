"""Which part of a growing output is whole lines of text by now?"""

PIECE = 16 * 1024
"""Bytes of a line that are passed on at once, also when it has no end yet."""
_CONTINUATION = range(0x80, 0xC0)
_LEAD = 0xC0
_LONGEST = 3
"""Bytes of a character of UTF-8 behind its first."""


class OutputText:
    """Takes bytes as they come and gives text: whole lines, but for those that are too long."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> str:
        """Take in bytes; return the text up to the last line's end, or the characters of too long a line so far.

        What is no UTF-8 is replaced.
        """
        held = self._rest + data
        end = held.rfind(b"\n") + 1
        if not end and len(held) >= PIECE:
            end = _before_a_begun_character(held)
        self._rest = held[end:]
        return held[:end].decode("utf-8", "replace")

    def end(self) -> str:
        """Take in the end; return what was still held back."""
        rest, self._rest = self._rest, b""
        return rest.decode("utf-8", "replace")


def _before_a_begun_character(data: bytes) -> int:
    """Return where the last character begins if it is not whole; else the end."""
    for back in range(1, _LONGEST + 1):
        byte = data[-back]
        if byte >= _LEAD:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needed > back else len(data)
        if byte not in _CONTINUATION:
            break
    return len(data)
