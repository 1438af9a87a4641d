"""Is a recorded session live? All three layers over ports: the pid, its start time, its door (P5-P7)."""

from collections.abc import Sequence
from typing import assert_never

from murmur.domain.door import DoorAsk, NoSuchAddress, card_ask, refusal_of_card
from murmur.domain.ports import Doors, ProcessTable
from murmur.domain.process import Alive, Claim, Gone, ProcessState, Unverified, judge
from murmur.domain.record import RunningRecord
from murmur.domain.value import Value


class Live(Value):
    """The process is the recorded one and its door answers for the session."""


class Unreachable(Value):
    """The record is kept: its door did not answer as the session, or its process could not be verified."""

    reason: str


Liveness = Live | Unreachable | Gone


def states_of(claims: Sequence[Claim], processes: ProcessTable) -> list[ProcessState]:
    """Take layers 1 and 2 for many claims, in their order."""
    here = processes.here()
    readings = processes.readings([claim.identity for claim in claims])
    return [judge(claim, reading, here) for claim, reading in zip(claims, readings, strict=True)]


def with_doors(records: Sequence[RunningRecord], states: Sequence[ProcessState], doors: Doors) -> list[Liveness]:
    """Add layer 3 to states already taken. Only the doors of verified processes are asked, all at once (P5, P6)."""
    verdicts: dict[int, Liveness] = {}
    asks: dict[int, DoorAsk] = {}
    for index, (record, state) in enumerate(zip(records, states, strict=True)):
        match state:
            case Gone():
                verdicts[index] = state
            case Unverified(reason):
                verdicts[index] = Unreachable(reason)
            case Alive():
                try:
                    asks[index] = card_ask(record.url, record.door_token)
                except NoSuchAddress as error:
                    verdicts[index] = Unreachable(str(error))
            case _:
                assert_never(state)
    if asks:
        for (index, ask), reading in zip(asks.items(), doors.probe(list(asks.values())), strict=True):
            record = records[index]
            refusal = refusal_of_card(record.url, record.session_id, ask, reading)
            verdicts[index] = Live() if refusal is None else Unreachable(refusal)
    return [verdicts[index] for index in range(len(records))]


def verify_all(
    records: Sequence[RunningRecord],
    processes: ProcessTable,
    doors: Doors,
    claims: Sequence[Claim] | None = None,
) -> list[Liveness]:
    """Take all three layers for many records, in their order; one slow door delays no other row.

    `claims` carries what origin files say about the same records; without it the records stand alone.
    """
    if claims is None:
        claims = [Claim(record.identity) for record in records]
    return with_doors(records, states_of(claims, processes), doors)


def verify(record: RunningRecord, processes: ProcessTable, doors: Doors) -> Liveness:
    """Take all three layers for one record."""
    return verify_all([record], processes, doors)[0]
