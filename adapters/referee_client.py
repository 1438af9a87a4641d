"""What does a referee say to a launch, to a child, and to an end? Asked over HTTP, waiting for the answer.

Every function raises `SpawnRefused`, in the referee's own words or for the transport's reason, and `OutOfDescriptors`.
"""

from murmur.adapters.doors import HttpDoors
from murmur.adapters.processes import SystemProcesses
from murmur.domain.door import DoorAsk, DoorReading
from murmur.domain.roost_asks import (
    DEREGISTER_LIMITS,
    REFEREE_LIMITS,
    RegisteredChild,
    SpawnApproved,
    deregister_ask,
    naming_process,
    read_approval,
    read_deregistration,
    read_registration,
    register_ask,
    spawn_ask,
)
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Outcome

_DOORS = HttpDoors(REFEREE_LIMITS)
_AT_ONCE = HttpDoors(DEREGISTER_LIMITS)


def spawn(url: str, credential: SpawnCredential | None, name: str, version: str) -> SpawnApproved:
    """Have the launch of a capsule approved. Without a credential, the referee decides by itself."""
    ask = spawn_ask(url, credential, name, version)
    return read_approval(ask, _reading(ask))


def register(url: str, approval: SpawnApproval, session_id: str, name: str, version: str) -> RegisteredChild:
    """Register this process as the child that an approval was given for."""
    ask = naming_process(register_ask(url, approval, session_id, name, version), SystemProcesses().own_origin())
    return read_registration(ask, _reading(ask))


def deregister(url: str, credential: SpawnCredential, outcome: Outcome) -> None:
    """Tell of a session's end."""
    ask = deregister_ask(url, credential, outcome)
    read_deregistration(ask, _reading(ask, _AT_ONCE))


def _reading(ask: DoorAsk, doors: HttpDoors = _DOORS) -> DoorReading:
    (reading,) = doors.probe([ask])
    return reading
