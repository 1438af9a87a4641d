"""Doors that answer as a test says, and remember what they were asked."""

import json
from collections.abc import Callable, Sequence

from murmur.domain.door import Answered, DoorAsk, DoorReading, NoAnswer
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.ports import Doors
from tests.fakes.clock import FakeClock

REFUSED = NoAnswer("connection refused")
CAPSULE_EXTENSION = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"

DoorScript = Callable[[DoorAsk], DoorReading]


def card_of(session_id: str) -> dict[str, object]:
    """Make the part of an agent card that names a session."""
    return {"capabilities": {"extensions": [{"uri": CAPSULE_EXTENSION, "params": {"sessionId": session_id}}]}}


def answer(document: object, status: int = 200) -> Answered:
    """Make an answer with a JSON body."""
    return Answered(status, json.dumps(document).encode())


def result(value: object) -> Answered:
    """Make a JSON-RPC answer."""
    return answer({"jsonrpc": "2.0", "id": 1, "result": value})


def called(ask: DoorAsk) -> str:
    """Name the JSON-RPC method that an ask calls; for a GET, its path."""
    return json.loads(ask.body)["method"] if ask.body else ask.target


class FakeDoors:
    """Doors by their authority (`host:port`). One that nobody serves refuses the connection."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.asked: list[list[DoorAsk]] = []
        """The asks of every round."""
        self.seconds = 0.0
        """How long a round takes."""
        self.descriptors_left = True
        self._served: dict[str, DoorReading | DoorScript] = {}

    def serve(self, authority: str, says: DoorReading | DoorScript) -> None:
        """Have a door answer every ask with this, or with what this makes of it."""
        self._served[authority] = says

    def probe(self, asks: Sequence[DoorAsk]) -> Sequence[DoorReading]:
        if not asks:
            return []
        if not self.descriptors_left:
            raise OutOfDescriptors("no descriptor is left to ask a door with")
        self.asked.append(list(asks))
        self.clock.advance(self.seconds)
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: DoorAsk) -> DoorReading:
        says = self._served.get(ask.address.authority, REFUSED)
        return says(ask) if callable(says) else says


_PORT: type[Doors] = FakeDoors
