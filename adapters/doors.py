"""How are many doors asked at once, each within its limits? (P4, P6).

One selectors loop over plain sockets. No redirect is followed and no proxy of the environment is used, because
nothing here would know how. What one exchange says and reads is `adapters.door_exchange`.
"""

import time
from collections import deque
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, DefaultSelector
from typing import TYPE_CHECKING

from murmur.adapters.descriptors import exhausted
from murmur.domain.door import AskLimits, DoorAsk, DoorReading

if TYPE_CHECKING:
    from murmur.adapters.door_exchange import Exchange, Sink


_ASK_WITH = "ask a door with, so no session was judged by its door"


class HttpDoors:
    """Doors over plain HTTP, asked concurrently within the descriptor limit."""

    def __init__(self, limits: AskLimits | None = None) -> None:
        self._limits = limits or AskLimits()

    def probe(self, asks: Sequence[DoorAsk]) -> Sequence[DoorReading]:
        """Ask every door at once and wait for the slowest; the answers come in the order of the asks.

        Where descriptors run out, the rest wait for those under way. Raises `OutOfDescriptors` when not even one
        door can be asked: that says nothing about the doors.
        """
        if not asks:
            return []
        try:
            # Imported here: h11 is a good part of what the program costs to start, and an empty machine has no door.
            from murmur.adapters.door_exchange import Exchange  # noqa: PLC0415
        except OSError as error:  # Importing opens files.
            raise exhausted(_ASK_WITH) from error
        return self._run([Exchange(ask, self._limits) for ask in asks])

    def listen(self, ask: DoorAsk, sink: "Sink") -> DoorReading:
        """Ask one door for a stream, and pass on what comes to the sink until either has enough.

        An answer that is no stream is returned as `probe` does; a stream's has no body. Raises `OutOfDescriptors`.
        """
        from murmur.adapters.door_exchange import Exchange  # noqa: PLC0415 - as above

        (reading,) = self._run([Exchange(ask, self._limits, sink)])
        return reading

    @staticmethod
    def _run(exchanges: "Sequence[Exchange]") -> Sequence[DoorReading]:
        try:
            with DefaultSelector() as selector:
                _Round(selector, exchanges).run()
        except OSError as error:  # The selector's own descriptor: an exchange answers for its socket's errors.
            raise exhausted(_ASK_WITH) from error
        finally:
            for exchange in exchanges:
                exchange.close()
        return [exchange.reading for exchange in exchanges if exchange.reading is not None]


class _Round:
    """The exchanges of one probe: those waiting for a descriptor and those under way."""

    def __init__(self, selector: BaseSelector, exchanges: "Sequence[Exchange]") -> None:
        self._selector = selector
        self._waiting = deque(exchange for exchange in exchanges if exchange.reading is None)
        self._under_way: set[Exchange] = set()

    def run(self) -> None:
        while self._waiting or self._under_way:
            self._start()
            if not self._under_way:
                continue
            until = min(exchange.deadline for exchange in self._under_way)
            for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
                self._go_on(key.data)
            now = time.monotonic()
            for exchange in [late for late in self._under_way if late.deadline <= now]:
                self._leave(exchange)
                exchange.expire()

    def _start(self) -> None:
        """Open as many of the waiting exchanges as there are descriptors for."""
        from murmur.adapters.door_exchange import NoDescriptorLeft  # noqa: PLC0415

        while self._waiting:
            exchange = self._waiting.popleft()
            try:
                exchange.open()
            except NoDescriptorLeft:
                self._waiting.appendleft(exchange)
                if not self._under_way:
                    raise exhausted(_ASK_WITH) from None
                return
            if exchange.reading is None:
                self._enter(exchange)

    def _go_on(self, exchange: "Exchange") -> None:
        from murmur.adapters.door_exchange import NoDescriptorLeft  # noqa: PLC0415

        self._leave(exchange)  # Its socket may be closed and replaced by the next host's.
        try:
            exchange.ready()
        except NoDescriptorLeft:
            self._waiting.appendleft(exchange)
            return
        if exchange.reading is None:
            self._enter(exchange)

    def _enter(self, exchange: "Exchange") -> None:
        assert exchange.socket is not None
        self._under_way.add(exchange)
        self._selector.register(exchange.socket, EVENT_WRITE if exchange.wants_to_write else EVENT_READ, exchange)

    def _leave(self, exchange: "Exchange") -> None:
        assert exchange.socket is not None
        self._under_way.discard(exchange)
        self._selector.unregister(exchange.socket)
