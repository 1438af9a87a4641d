"""What is said and heard in one HTTP exchange with one door? (P1, P4).

h11 reads and writes the bytes. The exchange owns its socket; when it is told that the socket is ready it goes as
far as it can without waiting, and `reading` holds the answer once there is one.
"""

import errno
import os
import socket
import time
from collections.abc import Callable

import h11

from murmur.adapters.descriptors import is_exhaustion
from murmur.domain.door import Answered, AskLimits, DoorAsk, DoorReading, NoAnswer

_UNDER_WAY = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)
_CHUNK = 65536
_SUCCESS = range(200, 300)


class NoDescriptorLeft(Exception):
    """No socket could be opened for want of descriptors. The exchange can be started again later."""


Sink = Callable[[bytes], bool]
"""Takes a piece of a stream; says whether it wants more."""


class Exchange:
    """One request to one door and its answer."""

    def __init__(self, ask: DoorAsk, limits: AskLimits, sink: Sink | None = None) -> None:
        """With a sink, an answer that is a stream of events is passed on there as it comes, and not kept."""
        self._sink = sink
        self._streams = False
        self.reading: DoorReading | None = None
        self.socket: socket.socket | None = None
        self.deadline = 0.0
        """The monotonic time at which `expire` is due."""
        self._limits = limits
        self._hosts = list(ask.address.hosts)
        self._port = ask.address.port
        self._wants_refusal = ask.wants_refusal
        self._refused: NoAnswer | None = None
        self._started: float | None = None
        self._connected = False
        self._late = NoAnswer("timed out")
        self._http = h11.Connection(our_role=h11.CLIENT)
        self._status: int | None = None
        self._body = bytearray()
        self._unsent = self._request(ask)

    @property
    def wants_to_write(self) -> bool:
        """Whether the socket is waited for until it can be written to; else until it can be read."""
        return not self._connected or bool(self._unsent)

    def open(self) -> None:
        """Connect to the next host without waiting. Raises `NoDescriptorLeft`."""
        while self._hosts:
            host = self._hosts[0]
            try:
                door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            except OSError as error:
                if is_exhaustion(error):
                    raise NoDescriptorLeft from error
                self._refuse(error.errno or errno.EIO)
                continue
            if self._started is None:
                # Only now: waiting for a descriptor is no fault of the door's.
                self._started = time.monotonic()
            self.socket = door
            door.setblocking(False)
            try:
                failed = door.connect_ex((host, self._port))
            except socket.gaierror:  # An address that means nothing on this machine, such as an unknown zone.
                failed = errno.EADDRNOTAVAIL
            except OSError as error:
                failed = error.errno or errno.EIO
            if failed in _UNDER_WAY:
                self._wait_until(self._started + self._limits.connect, self._limits.connect, "without a connection")
                self._late = self._late.replaced(was_connected=False)
                return
            self._refuse(failed)
            if self.reading is not None:
                return

    def ready(self) -> None:
        """Go on, now that the socket is ready. Raises `NoDescriptorLeft` when the next host cannot be tried yet."""
        assert self.socket is not None
        if not self._connected:
            failed = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                self._refuse(failed)
                if self.reading is None:
                    self.open()
                return
            self._connected = True
            self._heard()
        try:
            if self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            else:
                self._hear(self.socket.recv(_CHUNK))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(NoAnswer(_text(error.errno)))

    def expire(self) -> None:
        """End the exchange because its time is up."""
        self._end(self._late)

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _request(self, ask: DoorAsk) -> memoryview:
        headers = [("Host", ask.address.authority), ("Connection", "close"), *ask.headers]
        if ask.body:
            headers.append(("Content-Length", str(len(ask.body))))
        if ask.token is not None:
            # An empty token leaves the scheme alone: HTTP has no trailing blanks in a value.
            headers.append(("Authorization", f"Bearer {ask.token.expose()}" if ask.token.expose() else "Bearer"))
        headers += [(name, secret.expose()) for name, secret in ask.secrets]
        try:
            request = h11.Request(method=ask.method, target=ask.target, headers=headers)
            parts = [self._http.send(request)]
            if ask.body:
                parts.append(self._http.send(h11.Data(data=ask.body)))
            parts.append(self._http.send(h11.EndOfMessage()))
        except (h11.LocalProtocolError, UnicodeEncodeError):
            # The cause would quote the header, and with it the token.
            self.reading = NoAnswer("the recorded token cannot be sent in a header")
            return memoryview(b"")
        return memoryview(b"".join(part for part in parts if part))

    def _hear(self, data: bytes) -> None:
        self._heard()
        try:
            self._http.receive_data(data)
            while self.reading is None and self._take(self._http.next_event()):
                pass
            if self._streams and self.reading is None:
                self._heard()  # How long whoever listens took for it is no silence of the door's.
        except h11.RemoteProtocolError:
            if data:
                self._end(NoAnswer("the door answered with something that is not HTTP"))
            elif self._status is None:
                self._end(NoAnswer("the door closed the connection without an answer"))
            else:
                self._end(NoAnswer("the door closed the connection before the end of its answer"))

    def _take(self, event: object) -> bool:
        """Take in one event; say whether there may be another."""
        match event:
            case h11.Response(status_code=status, headers=headers):
                self._status = status
                kind = dict(headers).get(b"content-type", b"")
                is_stream = status in _SUCCESS and kind.lower().startswith(b"text/event-stream")
                self._streams = self._sink is not None and is_stream
                if status not in _SUCCESS and not self._wants_refusal:
                    self._end(Answered(status, b""))
            case h11.Data(data=more) if self._streams and self._sink is not None:
                if not self._sink(bytes(more)):
                    assert self._status is not None
                    self._end(Answered(self._status, b""))
            case h11.Data(data=more):
                self._body += more
                if len(self._body) > self._limits.body:
                    self._end(NoAnswer(f"the door's answer is larger than {self._limits.body} bytes"))
            case h11.EndOfMessage():
                assert self._status is not None
                self._end(Answered(self._status, bytes(self._body)))
            case h11.ConnectionClosed():
                self._end(NoAnswer("the door closed the connection without an answer"))
            case h11.InformationalResponse():
                pass
            case _:  # It needs more bytes.
                return False
        return True

    def _heard(self) -> None:
        """Move the deadline: so long without a byte, but never beyond the whole exchange's."""
        assert self._started is not None
        now = time.monotonic()
        quiet, last = now + self._limits.read, self._started + self._limits.total
        if quiet < last:
            self._wait_until(quiet, self._limits.read, "without an answer")
        else:
            self._wait_until(last, self._limits.total, "before the answer was whole")

    def _wait_until(self, deadline: float, limit: float, what: str) -> None:
        self.deadline, self._late = deadline, NoAnswer(f"timed out after {limit:g}s {what}")

    def _refuse(self, error: int) -> None:
        """Note that this host cannot be connected to; only a refusal leads on to the next one."""
        self.close()
        self._hosts.pop(0)
        self._refused = self._refused or NoAnswer(_text(error), was_connected=False)
        if error != errno.ECONNREFUSED:
            self._hosts.clear()
        if not self._hosts:
            self.reading = self._refused

    def _end(self, reading: DoorReading) -> None:
        self.reading = reading
        self.close()


def _text(error: int | None) -> str:
    return os.strerror(error or errno.EIO).lower()
