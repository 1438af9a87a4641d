"""One light process that answers many doors, or leaves them unanswered: `python -m bench.door_process`.

Its stdin carries one JSON line, a list of `[session id, manner]`; its stdout gives back the ports, in the same
order. One selectors loop listens on a loopback socket for each. It ends when its stdin does, and so never outlives
whoever started it.
"""

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from murmur.domain.agent_card import CAPSULE_EXTENSION

ANSWERS, SILENT, DRIPS = "answers", "silent", "drips"
_DRIP = 1.0
"""Seconds between two bytes of an answer that drips."""
_BACKLOG = 64
_CHUNK = 4096


def answer_for(session_id: str) -> bytes:
    """Return the whole HTTP answer of a public door: the agent card that names its session."""
    card = {
        "name": "worker",
        "description": "Murmur capsule worker 1.0.0",
        "version": "1.0.0",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [
                {
                    "uri": CAPSULE_EXTENSION,
                    "required": False,
                    "params": {"sessionId": session_id, "tools": [], "shell": False, "network": False, "planes": []},
                }
            ],
        },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }
    body = json.dumps(card).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class LightDoors:
    """The listeners and the connections of one selectors loop. `run` serves until stdin ends."""

    def __init__(self, doors: Sequence[tuple[str, str]]) -> None:
        self._selector = selectors.DefaultSelector()
        self._dripping: dict[socket.socket, bytes] = {}
        self._next_drip = 0.0
        self.ports = [self._listen(answer_for(session_id), manner) for session_id, manner in doors]

    def _listen(self, answer: bytes, manner: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        self._watch(listener, lambda: self._accept(listener, answer, manner))
        port: int = listener.getsockname()[1]
        return port

    def run(self) -> None:
        """Serve until the other end of stdin is closed."""
        ended = False

        def hear_the_end() -> None:
            nonlocal ended
            ended = not os.read(sys.stdin.fileno(), _CHUNK)

        self._watch(sys.stdin, hear_the_end)
        while not ended:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            self._drip()

    def _watch(self, file: socket.socket | object, ready: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, ready)  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket, answer: bytes, manner: str) -> None:
        try:
            caller, _ = listener.accept()
        except BlockingIOError:
            return
        caller.setblocking(False)
        heard = bytearray()
        self._watch(caller, lambda: self._hear(caller, heard, answer, manner))

    def _hear(self, caller: socket.socket, heard: bytearray, answer: bytes, manner: str) -> None:
        try:
            more = caller.recv(_CHUNK)
        except OSError:
            more = b""
        heard += more
        if not more:
            self._leave(caller)
        elif b"\r\n\r\n" in heard:
            if manner == ANSWERS:
                # A card fits into the socket's buffer.
                with suppress(OSError):
                    caller.send(answer)
                self._leave(caller)
            elif manner == DRIPS:
                self._dripping[caller] = answer

    def _leave(self, caller: socket.socket) -> None:
        self._dripping.pop(caller, None)
        self._selector.unregister(caller)
        caller.close()

    def _patience(self) -> float | None:
        return max(0.0, self._next_drip - time.monotonic()) if self._dripping else None

    def _drip(self) -> None:
        if not self._dripping or time.monotonic() < self._next_drip:
            return
        self._next_drip = time.monotonic() + _DRIP
        for caller, rest in list(self._dripping.items()):
            try:
                caller.send(rest[:1])
            except OSError:
                self._leave(caller)
            else:
                self._dripping[caller] = rest[1:]


def main() -> None:
    """Serve the doors that stdin names."""
    doors = LightDoors([(session_id, manner) for session_id, manner in json.loads(sys.stdin.readline())])
    print(json.dumps(doors.ports), flush=True)
    doors.run()


if __name__ == "__main__":
    main()
