"""What was said before in a conversation? The earlier turns of each `contextId`, as a command gets to read them.

Kept in memory, and bounded in every direction: callers choose what they say, how often, and in how many conversations.
"""

import json
from collections import OrderedDict, deque
from hashlib import sha256
from typing import Final, Literal

TURNS_KEPT: Final = 100
"""How many turns of one conversation are handed on: the last ones. A task makes two."""
CONVERSATION_LIMIT: Final = 1024 * 1024
"""Bytes of one conversation that are handed on."""
TEXT_LIMIT: Final = 256 * 1024
"""Bytes, as they are written in JSON, of what is handed on of one turn's text. So the last two turns always fit."""
CONVERSATIONS_KEPT: Final = 1000
"""How many conversations a session remembers: those in which something was said last."""
MEMORY: Final = 16 * 1024 * 1024
"""Bytes that a session remembers over all conversations."""

_CUT = " […]"
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
"""What some readers of lines take for the end of one, and JSON does not escape."""
_LONGEST_ESCAPE = 6


class Conversations:
    """The completed tasks of one session, by their conversations."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, deque[bytes]] = OrderedDict()
        """Two lines a task, so that none is ever without its other half. The conversation that spoke last is last."""
        self._size = 0

    def add(self, context_id: str, task_id: str, *, asked: str, answered: str) -> None:
        """Remember a completed task: what its command was to do, and what it said."""
        name = conversation_name(context_id)
        turns = self._turns.setdefault(name, deque())
        self._turns.move_to_end(name)
        turns.append(_line("user", asked, task_id) + _line("agent", answered, task_id))
        self._size += len(turns[-1])
        size = sum(map(len, turns))
        while size > CONVERSATION_LIMIT or 2 * len(turns) > TURNS_KEPT:
            dropped = len(turns.popleft())
            size -= dropped
            self._size -= dropped
        while self._size > MEMORY or len(self._turns) > CONVERSATIONS_KEPT:
            _, forgotten = self._turns.popitem(last=False)
            self._size -= sum(map(len, forgotten))

    def earlier(self, context_id: str) -> bytes:
        """Return what was said in a conversation as JSON lines, the oldest turn first; nothing where nothing was."""
        return b"".join(self._turns.get(conversation_name(context_id), ()))


def conversation_name(context_id: str) -> str:
    """Return what names a conversation's file: of any `contextId`, 64 of `[0-9a-f]`."""
    return sha256(context_id.encode("utf-8", "surrogatepass")).hexdigest()


def _line(role: Literal["user", "agent"], text: str, task_id: str) -> bytes:
    return _written({"role": role, "text": _bounded(text), "task_id": task_id}) + b"\n"


def _bounded(text: str) -> str:
    """Return a text, of a long one its beginning and a mark that there was more."""
    # A character is at least a byte, so most of what is much too long need not be looked at.
    written = _written(text[: TEXT_LIMIT + 1])[1:-1]
    if len(written) <= TEXT_LIMIT:
        return text
    most = written[: TEXT_LIMIT - len(_CUT.encode())]
    for short in range(_LONGEST_ESCAPE):  # It may have been cut inside an escape.
        try:
            kept: str = json.loads(b'"%b"' % most[: len(most) - short].decode("utf-8", "ignore").encode())
        except ValueError:
            continue
        return kept + _CUT
    raise AssertionError(most[-_LONGEST_ESCAPE:])


def _written(value: object) -> bytes:
    """Write JSON on one line, in UTF-8: half of a surrogate pair, which UTF-8 has not, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS).encode("utf-8", "replace")
