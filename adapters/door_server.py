"""How does a session's door speak HTTP? h11 on asyncio, which wakes only when something arrives.

What is answered is `domain.served_door`. Every connection is bounded: in size, in time and in number.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from ipaddress import ip_address

import h11

from murmur.domain.errors import DoorNotOpened
from murmur.domain.served_door import DoorRequest, DoorResponse

BODY_LIMIT = 1024 * 1024
CONNECTIONS_LIMIT = 64
REQUEST_TIMEOUT = 30.0
"""Seconds a connection may take to bring a whole request, idle time before it included."""

Respond = Callable[[DoorRequest], DoorResponse]


def bind_door(address: str, port: int) -> tuple[socket.socket, str]:
    """Listen on that address and port (0 picks one); return the socket and the `host:port` to record (R1, M1).

    Raises `DoorNotOpened`.
    """
    try:
        ip = ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        raise DoorNotOpened(
            f"cannot bind the door to {address}: it is no IP address",
            hint="give an address such as 127.0.0.1 or ::1",
        ) from None
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    both = family is socket.AF_INET6 and ip.is_unspecified and socket.has_dualstack_ipv6()
    try:
        door = socket.create_server((str(ip), port), family=family, dualstack_ipv6=both, backlog=CONNECTIONS_LIMIT)
    except OSError as error:
        raise DoorNotOpened(
            f"cannot bind the door to {address} port {port}: {os.strerror(error.errno or errno.EIO).lower()}",
            hint="choose another --port, or leave it out to get a free one",
        ) from error
    door.setblocking(False)
    # `localhost` only where it surely leads here: on another address it could be somebody else's port.
    name = "localhost" if ip.is_unspecified or str(ip) == "127.0.0.1" else f"[{ip}]" if ip.version == 6 else str(ip)
    return door, f"{name}:{door.getsockname()[1]}"


class DoorServer:
    """Serves one bound socket until it is closed."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def serve(self, door: socket.socket) -> None:
        """Answer on that socket from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._respond, self._connections), sock=door)

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drop()
        if self._server is not None:
            await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, respond: Respond, connections: "set[_Connection]") -> None:
        self._respond = respond
        self._connections = connections
        self._http = h11.Connection(our_role=h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._unread = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._connections) >= CONNECTIONS_LIMIT:
            transport.abort()
            return
        self._connections.add(self)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it was lost changes nothing
        self._connections.discard(self)
        if self._late is not None:
            self._late.cancel()

    def drop(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Take no further request from a client that does not read its answers."""
        self._unread = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what has arrived, and with reading."""
        self._unread = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._go_on()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._go_on()

    def eof_received(self) -> bool:
        self._http.receive_data(b"")
        self._go_on()
        return False

    def _await_request(self) -> None:
        self._request, self._body = None, bytearray()
        if self._late is not None:
            self._late.cancel()
        self._late = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT, self.drop)

    def _go_on(self) -> None:
        try:
            while not self._unread and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(DoorResponse(error.error_status_hint, b'{"error": "bad_request"}'))
            self._hang_up()

    def _take(self, event: object) -> bool:
        """Take in one event; say whether there may be another."""
        match event:
            case h11.Request():
                self._request = event
                if self._http.they_are_waiting_for_100_continue:
                    self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            case h11.Data(data=more):
                self._body += more
                if len(self._body) > BODY_LIMIT:
                    self._send(DoorResponse(413, b'{"error": "body_too_large"}'))
                    self._hang_up()
                    return False
            case h11.EndOfMessage():
                return self._answer()
            case h11.ConnectionClosed():
                self._hang_up()
                return False
            case _:
                return False
        return True

    def _answer(self) -> bool:
        assert self._request is not None
        method, target = self._request.method.decode(), self._request.target.decode("latin-1")
        self._send(self._respond(DoorRequest(method, target, bytes(self._body))))
        if self._http.our_state is h11.MUST_CLOSE:
            self._hang_up()
            return False
        self._http.start_next_cycle()
        self._await_request()
        return True

    def _send(self, response: DoorResponse) -> None:
        headers = [("content-type", "application/json"), ("content-length", str(len(response.body)))]
        self._write(self._http.send(h11.Response(status_code=response.status, headers=[*headers, *response.headers])))
        if self._request is None or self._request.method != b"HEAD":
            self._write(self._http.send(h11.Data(data=response.body)))
        self._write(self._http.send(h11.EndOfMessage()))

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()
