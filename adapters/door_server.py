"""How does a session's door speak HTTP? h11 on asyncio, which wakes only when something arrives.

What is answered is `domain.served_door`. Every connection is bounded: in size, in time and in number.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import h11

from murmur.adapters.descriptors import spare_descriptors
from murmur.adapters.door_events import EventAnswer, EventSource
from murmur.adapters.door_places import CONNECTIONS_LIMIT, Places
from murmur.adapters.door_socket import BACKLOG
from murmur.domain.door_http import DoorRequest, DoorResponse

BODY_LIMIT = 1024 * 1024
AHEAD_LIMIT = BODY_LIMIT + 64 * 1024
"""Bytes that a caller may send ahead of an answer: about one request."""
REQUEST_TIMEOUT = 10.0
"""Seconds a connection may take to bring a whole request, idle time before it included."""

_OWN_HEADERS = b"x-murmur-"

FLUSH_TIMEOUT = 2.0
"""Seconds that a session's last answers get to reach their callers."""
STREAM_FLUSH_TIMEOUT = 0.25
"""Seconds that the last bytes of a stream get, which its client was given time for before."""

Response = DoorResponse | Awaitable[DoorResponse] | EventSource
Respond = Callable[[DoorRequest], Response]


class DoorServer:
    """Serves one bound socket until it is closed."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        # Descriptors for those served, for those that asyncio accepts in one go before any is refused, and for those
        # refused and not closed yet.
        wanted = CONNECTIONS_LIMIT + 2 * BACKLOG
        spare = spare_descriptors(wanted)
        self._backlog = max(1, spare * BACKLOG // wanted)
        self._connections: Places[_Connection] = Places(max(1, spare * CONNECTIONS_LIMIT // wanted))
        self._server: asyncio.Server | None = None

    async def serve(self, door: socket.socket) -> None:
        """Answer on that socket from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._respond, self._connections), sock=door, backlog=self._backlog
        )

    async def flush(self) -> None:
        """Let the answers that are due reach their callers, and hang up; bounded, since a caller may not read."""
        due = [connection.answering for connection in self._connections if connection.answering is not None]
        if due:
            await asyncio.wait(due, timeout=FLUSH_TIMEOUT)
        streams = list(self._connections.streams)
        others = self._connections.difference(streams)
        for connection in (*streams, *others):
            connection.hang_up()
        # Streams have had their time already; what the kernel holds for those who do not read stays there for them.
        for connections, timeout in ((streams, STREAM_FLUSH_TIMEOUT), (others, FLUSH_TIMEOUT)):
            if left := [connection.lost for connection in connections if not connection.lost.done()]:
                await asyncio.wait(left, timeout=timeout)

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        # One that was accepted but not made yet is dropped as soon as it is.
        self._connections.most = 0
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drop()


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, respond: Respond, connections: "Places[_Connection]") -> None:
        self._respond = respond
        self._connections = connections
        self._http = h11.Connection(our_role=h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._unread = False
        self._refused = False
        self._ahead = 0
        self._stream: EventAnswer | None = None
        self._is_own: bool | None = None
        self.answering: asyncio.Task[None] | None = None
        """What waits for a task before it answers."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._connections) >= self._connections.most:
            transport.abort()
            return
        self._connections.add(self)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it was lost changes nothing
        self._connections.discard(self)
        self._connections.waiting.discard(self)
        self._connections.streams.discard(self)
        self.lost.set_result(None)
        if self._stream is not None:
            self._stream.lost()
        if self._late is not None:
            self._late.cancel()
        if self.answering is not None:
            # Nobody waits for the answer any more; what was asked for goes on.
            self.answering.cancel()

    def drop(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Take no further request from a client that does not read its answers."""
        self._unread = True
        if self._stream is not None:
            self._stream.pause()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what has arrived, and with reading."""
        self._unread = False
        # Not at once: asyncio takes a transport apart twice that is closed from in here.
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._unread or self._transport is None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._stream is not None:
            self._stream.resume()
        else:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # Read and dropped: a reset would take the refusal away before the client has seen it.
        if self.answering is not None or self._stream is not None:
            # Kept until the answer is sent. Not reading instead would hide that the client has left.
            self._ahead += len(data)
            if self._ahead > AHEAD_LIMIT:
                self.drop()
                return
        self._http.receive_data(data)
        self._go_on()

    def eof_received(self) -> bool:
        if self._refused:
            self.hang_up()
            return False
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
            while self._is_listening and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, b'{"error": "bad_request", "message": "this is not HTTP"}')

    @property
    def _is_listening(self) -> bool:
        return not self._unread and self.answering is None and self._stream is None

    def _refuse(self, status: int, body: bytes) -> None:
        """Answer what will not be read to its end; the client hangs up then, or its time does."""
        self._refused = True
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(DoorResponse(status, body, (("connection", "close"),)))
        if self._transport is not None and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

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
                    self._refuse(413, b'{"error": "body_too_large", "message": "a body has at most 1 MiB"}')
                    return False
            case h11.EndOfMessage():
                return self._answer()
            case h11.ConnectionClosed():
                self.hang_up()
                return False
            case _:
                return False
        return True

    def _answer(self) -> bool:
        assert self._request is not None
        headers = dict(self._request.headers)
        response = self._respond(
            DoorRequest(
                self._request.method.decode(),
                self._request.target.decode("latin-1"),
                bytes(self._body),
                _text(headers.get(b"host")),
                _text(headers.get(b"authorization")),
                _text(headers.get(b"origin")),
                self._connections.crowd,
                {name.decode(): str(_text(headers[name])) for name in headers if name.startswith(_OWN_HEADERS)},
                _text(headers.get(b"last-event-id")),
                self._connections.watched,
                self._is_from_own_user,
            )
        )
        if isinstance(response, DoorResponse):
            return self._finish(response)
        if self._late is not None:
            self._late.cancel()
        self._ahead = len(self._http.trailing_data[0])
        if isinstance(response, EventSource):
            assert self._transport is not None
            self._connections.streams.add(self)
            self._stream = EventAnswer(response, self._http, self._transport)
            self._stream.begin()
            return False
        self._connections.waiting.add(self)
        self.answering = asyncio.create_task(self._answer_later(response))
        self.answering.add_done_callback(self._answered)
        return False

    def _is_from_own_user(self) -> bool:
        # Imported by the first who watches: the others need no such look.
        from murmur.adapters.peer import is_from_own_user  # noqa: PLC0415

        assert self._transport is not None
        if self._is_own is None:
            self._is_own = is_from_own_user(self._transport.get_extra_info("socket"))
        return self._is_own

    def _answered(self, answering: "asyncio.Task[None]") -> None:
        """Hang up on a caller whose answer could not be made: it would wait for ever."""
        if not answering.cancelled() and (failure := answering.exception()) is not None:
            self._connections.waiting.discard(self)
            self.drop()
            told = {"message": "an answer could not be made", "exception": failure, "protocol": self}
            asyncio.get_running_loop().call_exception_handler(told)

    async def _answer_later(self, awaited: Awaitable[DoorResponse]) -> None:
        response = await awaited
        self._connections.waiting.discard(self)
        self.answering = None
        if self._finish(response):
            self._go_on()

    def _finish(self, response: DoorResponse) -> bool:
        """Send an answer; say whether the connection may bring another request."""
        self._send(response)
        if self._http.our_state is h11.MUST_CLOSE:
            self.hang_up()
            return False
        self._http.start_next_cycle()
        self._await_request()
        return True

    def _send(self, response: DoorResponse) -> None:
        headers = [("content-type", "application/json"), ("content-length", str(len(response.body)))]
        parts = [self._http.send(h11.Response(status_code=response.status, headers=[*headers, *response.headers]))]
        if self._request is None or self._request.method != b"HEAD":
            parts.append(self._http.send(h11.Data(data=response.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        # In one write: the second of two would wait for the client's acknowledgement of the first.
        self._write(b"".join(part for part in parts if part))

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def hang_up(self) -> None:
        """End the connection once what was written has been read."""
        if self._transport is not None:
            self._transport.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
