"""Doors that behave as a script says, on raw sockets of this machine's loopback.

A script is a function of one connection, run in a thread of its own; its connection is closed when it returns.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from murmur.domain.agent_card import CAPSULE_EXTENSION

SESSION = "ses_0198c0de0000700080000000000000a1"
OTHER_SESSION = "ses_0198c0de0000700080000000000000b2"


def card(session_id: object = SESSION, **more: object) -> dict[str, Any]:
    """Make an agent card that names that session."""
    extensions = [{"uri": CAPSULE_EXTENSION, "params": {"sessionId": session_id}}]
    return {"name": "worker", "capabilities": {"extensions": extensions}, **more}


def http(body: bytes | object, status: str = "200 OK", *headers: str, version: str = "HTTP/1.1") -> bytes:
    """Make a whole HTTP answer; a body that is not bytes is written as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{version} {status}", "Content-Type: application/json", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class Caller:
    """One connection to a scripted door, from the door's side."""

    def __init__(self, connection: socket.socket, closing: threading.Event) -> None:
        self.socket = connection
        self.closing = closing

    def request(self) -> bytes:
        """Read one whole request: its head, and as much body as it announces."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = received.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line.partition(b":")[2]):
                    body += self._more()
        return head + b"\r\n\r\n" + body

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def send(self, data: bytes) -> None:
        """Send everything."""
        self.socket.sendall(data)

    def drip(self, data: bytes, every: float) -> None:
        """Send a byte at a time, until the caller has hung up or the door is closed."""
        for byte in data:
            self.send(bytes([byte]))
            if self.closing.wait(every):
                return

    def endlessly(self, data: bytes) -> None:
        """Send the same again and again, until the caller has hung up or the door is closed."""
        while not self.closing.is_set():
            self.send(data)

    def silence(self) -> None:
        """Say nothing until the caller has hung up or the door is closed."""
        while self.socket.recv(65536):
            pass

    def reset(self) -> None:
        """Close the connection so that the caller gets a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Script = Callable[[Caller], None]


def answering(*answers: bytes) -> Script:
    """Make a script that reads the request and sends those bytes."""

    def script(caller: Caller) -> None:
        for answer in answers:
            caller.send(answer)

    return script


def silent(caller: Caller) -> None:
    """Read the request and say nothing."""
    caller.silence()


class ScriptedDoor:
    """A listening socket whose every connection runs the script. A context manager; leaving it ends all threads."""

    def __init__(self, script: Script, host: str = "127.0.0.1", port: int = 0, *, reads_first: bool = True) -> None:
        self._script = script
        self._reads_first = reads_first
        self._listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.connections = 0
        self._closing = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="door")]

    @property
    def url(self) -> str:
        """What a session would record of this door."""
        return f"localhost:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), name="caller")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            caller = Caller(connection, self._closing)
            if self._reads_first:
                self.requests.append(caller.request())
            self._script(caller)
            with suppress(OSError):
                # What is still unread would turn the close into a reset and take the answer along.
                connection.shutdown(socket.SHUT_WR)
                caller.silence()


@contextmanager
def blackhole() -> Iterator[int]:
    """Listen on a port whose backlog is full, so that nothing can connect to it; yield the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for filler in fillers:
                filler.close()


@contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port on which nobody listens, neither in IPv4 nor in IPv6; yield it."""
    with socket.socket() as four, socket.socket(socket.AF_INET6) as six:
        four.bind(("127.0.0.1", 0))
        port = four.getsockname()[1]
        six.bind(("::1", port))
        yield port


@contextmanager
def elapsed_below(seconds: float) -> Iterator[None]:
    """See that the block takes less than so long."""
    started = time.monotonic()
    yield
    taken = time.monotonic() - started
    assert taken < seconds, f"it took {taken:.2f}s"
