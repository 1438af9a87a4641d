"""How does a door's connection carry a stream of events, to a client that may read slowly or not at all?"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

import h11

from murmur.domain.sse import HEARTBEAT, HEARTBEAT_INTERVAL

_BUFFER = 64 * 1024
"""Bytes that wait in this process for one client before nothing more is taken for it."""
_IN_THE_KERNEL = 128 * 1024
"""The same in the kernel, which would let that grow to megabytes."""
LINGER = 5.0
"""Seconds that a client which was let go gets to read why."""


class EventSource(ABC):
    """Where a stream's events come from."""

    wake: Callable[[], None]
    """To be called when there may be more to take; set by whoever takes."""
    is_cut = False
    """Whether it was ended before its time: what is left to take is the reason, and little."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether everything was taken and nothing comes any more."""

    @abstractmethod
    def take(self) -> bytes:
        """Return the next whole events, none when there are none now."""

    @abstractmethod
    def close(self) -> None:
        """Forget the client: its connection is gone. Idempotent."""


class EventAnswer:
    """One answer that is a stream. The connection hands on what happens to it."""

    def __init__(self, source: EventSource, http: h11.Connection, transport: asyncio.Transport) -> None:
        self._source = source
        self._http = http
        self._transport = transport
        self._is_chunked = True
        self._paused = False
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Send the head, and what there is."""
        self._transport.set_write_buffer_limits(_BUFFER)
        connected: socket.socket = self._transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _IN_THE_KERNEL)
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("connection", "close")]
        self._write(self._http.send(h11.Response(status_code=200, headers=headers)))
        self._is_chunked = self._http.their_http_version != b"1.0"
        self._source.wake = self._pour
        self._beat_later()
        self._pour()

    def pause(self) -> None:
        """Take nothing more: the client does not read."""
        self._paused = True

    def resume(self) -> None:
        """Go on: it does again."""
        self._paused = False
        self._pour()

    def lost(self) -> None:
        """Let go of everything: the connection is gone."""
        self._ended = True
        self._cancel()
        self._source.close()

    def _pour(self) -> None:
        while not self._ended and (not self._paused or self._source.is_cut) and (events := self._source.take()):
            self._send(events)
        if not self._ended and self._source.is_over:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._cancel()
        self._write(b"0\r\n\r\n" if self._is_chunked else None)
        self._transport.close()  # Once what was written has been read; but not for ever:
        self._timer = asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def _beat(self) -> None:
        if not self._paused:
            self._send(HEARTBEAT)
        self._beat_later()

    def _beat_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_INTERVAL, self._beat)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send(self, events: bytes) -> None:
        """Send whole events as one chunk, so that a client which reads lines and knows no chunks is not led astray.

        By hand: the connection carries nothing after this, and a hundred clients are sent the same many times a second.
        """
        self._write(b"%x\r\n%b\r\n" % (len(events), events) if self._is_chunked else events)

    def _write(self, data: bytes | None) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)
