"""The three layers together, and what is never asked of a door (P1-P7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.door import Answered, DoorReading, NoAnswer
from murmur.domain.liveness import Live, Unreachable, states_of, verify, verify_all, with_doors
from murmur.domain.origin import LockReading, Origin
from murmur.domain.process import Alive, Claim, Gone, ProcessState, Unverified
from murmur.domain.record import RunningRecord
from tests.fakes.doors import FakeDoors, answer, called, card_of, result
from tests.fakes.processes import HERE, FakeProcesses
from tests.fakes.recorded import a_record, an_origin, session_id


def holding(*records: RunningRecord) -> FakeProcesses:
    processes = FakeProcesses()
    for record in records:
        processes.hold(record.pid, record.process_start)
    return processes


def serving(says: DoorReading, authority: str = "localhost:5001") -> FakeDoors:
    doors = FakeDoors()
    doors.serve(authority, says)
    return doors


@pytest.mark.spec("P5")
def test_a_session_whose_process_and_door_answer_is_live() -> None:
    record = a_record()
    assert verify(record, holding(record), serving(answer(card_of(session_id(1))))) == Live()


@pytest.mark.spec("P5")
def test_a_gone_process_is_answered_without_asking_its_door() -> None:
    doors = serving(answer(card_of(session_id(1))))
    assert verify(a_record(), FakeProcesses(), doors) == Gone("no process holds pid 101")
    assert doors.asked == []


@pytest.mark.spec("P5", "L9")
def test_an_unverified_process_is_unreachable_without_asking_its_door() -> None:
    processes, doors = FakeProcesses(), serving(answer(card_of(session_id(1))))
    processes.hold(101, None)
    assert verify(a_record(), processes, doors) == Unreachable("pid 101's start time could not be read")
    assert doors.asked == []


@pytest.mark.spec("P5", "L8")
def test_a_session_of_another_boot_is_unreachable_without_asking_its_door() -> None:
    record, doors = a_record(), serving(answer(card_of(session_id(1))))
    origin = Origin(record.pid, record.process_start, HERE.machine_id, "earlier")
    claim = Claim(record.identity, origin, LockReading.HELD)
    (found,) = verify_all([record], holding(record), doors, [claim])
    assert found == Unreachable("the session runs in another boot")
    assert doors.asked == []


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    ("token", "says", "reason"),
    [
        (None, NoAnswer("connection refused"), "connection refused"),
        (None, NoAnswer("timed out after 5s"), "timed out after 5s"),
        (None, answer(card_of("ses_else")), "the capsule at http://localhost:5001 answers for session ses_else"),
        (None, answer({}), "the agent card from localhost:5001 names no session"),
        ("t", answer({}), "the capsule at localhost:5001 did not return its extended agent card"),
        ("t", result(None), "the agent card from localhost:5001 names no session"),
        ("t", result(card_of("ses_else")), "the capsule at http://localhost:5001 answers for session ses_else"),
    ],
)
def test_a_door_that_does_not_answer_as_the_session_says_why(
    token: str | None, says: Answered | NoAnswer, reason: str
) -> None:
    record = a_record(url="http://localhost:5001", door_token=token)
    assert verify(record, holding(record), serving(says)) == Unreachable(reason)


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    ("token", "asked"),
    [
        (None, "/.well-known/agent-card.json"),
        ("", "agent/getAuthenticatedExtendedCard"),
        ("secret", "agent/getAuthenticatedExtendedCard"),
    ],
)
def test_a_door_with_a_token_is_asked_for_its_extended_card(token: str | None, asked: str) -> None:
    record = a_record(door_token=token)
    doors = serving(result(card_of(session_id(1))))
    verify(record, holding(record), doors)
    ((ask,),) = doors.asked
    assert called(ask) == asked
    assert ask.token == record.door_token


@pytest.mark.spec("P4")
@pytest.mark.parametrize("url", ["192.0.2.7:80", "http://[2001:db8::1]:80", "[::ffff:192.0.2.7]:80"])
def test_a_token_is_never_sent_off_loopback(url: str) -> None:
    record, doors = a_record(url=url, door_token="secret"), FakeDoors()
    address = url.removeprefix("http://")
    found = verify(record, holding(record), doors)
    assert found == Unreachable(f"the door at {address} is not on loopback, so its token was not sent")
    assert doors.asked == []


@pytest.mark.spec("P4")
@settings(max_examples=60)
@given(st.ip_addresses(), st.integers(1, 65535))
def test_a_token_goes_only_to_addresses_of_this_machine(address: object, port: int) -> None:
    url = f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"
    record, doors = a_record(url=url, door_token="secret"), FakeDoors()
    verify(record, holding(record), doors)
    for ask in (ask for asked in doors.asked for ask in asked):
        assert ask.address.loopback
        assert all(host == "::1" or host.startswith(("127.", "::ffff:")) for host in ask.address.hosts)


@pytest.mark.spec("P5")
@pytest.mark.parametrize("url", ["", "nowhere", "example.org:80", "localhost:0", "localhost:70000"])
def test_an_url_that_cannot_be_asked_degrades_its_own_row_only(url: str) -> None:
    records = [a_record(1), a_record(2, url=url or "://"), a_record(3)]
    doors = serving(answer(card_of(session_id(1))))
    doors.serve("localhost:5003", answer(card_of(session_id(3))))
    found = verify_all(records, holding(*records), doors)
    assert [found[0], found[2]] == [Live(), Live()]
    assert isinstance(found[1], Unreachable)
    assert len(doors.asked) == 1


def a_mixed_machine() -> tuple[list[RunningRecord], FakeProcesses, FakeDoors]:
    """Make seven sessions: live, gone, unverified, silent, live with a token, off loopback with one, impostor."""
    records = [
        a_record(1),
        a_record(2),
        a_record(3),
        a_record(4),
        a_record(5, door_token="secret"),
        a_record(6, url="192.0.2.7:80", door_token="secret"),
        a_record(7),
    ]
    processes = holding(*records)
    processes.end(records[1].pid)
    processes.hold(records[2].pid, None)
    doors = serving(answer(card_of(session_id(1))))
    doors.serve("localhost:5005", result(card_of(session_id(5))))
    doors.serve("localhost:5007", answer(card_of(session_id(1))))
    return records, processes, doors


@pytest.mark.spec("P6")
def test_many_verdicts_come_in_the_order_of_their_records() -> None:
    records, processes, doors = a_mixed_machine()
    assert verify_all(records, processes, doors) == [
        Live(),
        Gone("no process holds pid 102"),
        Unreachable("pid 103's start time could not be read"),
        Unreachable("connection refused"),
        Live(),
        Unreachable("the door at 192.0.2.7:80 is not on loopback, so its token was not sent"),
        Unreachable(f"the capsule at localhost:5007 answers for session {session_id(1)}"),
    ]


@pytest.mark.spec("P5", "P6")
@given(st.permutations(range(7)))
def test_a_verdict_does_not_depend_on_the_records_around_it(order: list[int]) -> None:
    records, processes, doors = a_mixed_machine()
    alone = [verify(record, processes, doors) for record in records]
    assert verify_all([records[at] for at in order], processes, doors) == [alone[at] for at in order]


@pytest.mark.spec("P6")
def test_many_records_cost_one_look_and_one_round_of_doors() -> None:
    records, processes, doors = a_mixed_machine()
    verify_all(records, processes, doors)
    assert processes.looks == [[101, 102, 103, 104, 105, 106, 107]]
    assert [[ask.address.port for ask in asked] for asked in doors.asked] == [[5001, 5004, 5005, 5007]]


@pytest.mark.spec("P6")
def test_no_record_asks_for_nothing() -> None:
    doors = FakeDoors()
    assert verify_all([], FakeProcesses(), doors) == []
    assert doors.asked == []


@pytest.mark.spec("L8")
def test_states_weigh_what_origin_files_say() -> None:
    record = a_record()
    processes = FakeProcesses()
    processes.hold(record.pid, record.process_start, pidfd_inode=8)
    claims = [Claim(record.identity, an_origin(record.identity, inode)) for inode in (8, 9, None)]
    another = Gone(f"pid {record.pid} is held by a process that started at another time")
    assert states_of(claims, processes) == [Alive(), another, Alive()]


@pytest.mark.spec("P5")
@pytest.mark.parametrize(
    ("state", "verdict"), [(Gone("went"), Gone("went")), (Unverified("unsure"), Unreachable("unsure"))]
)
def test_doors_change_no_verdict_that_the_process_settled(state: ProcessState, verdict: Gone | Unreachable) -> None:
    doors = serving(answer(card_of(session_id(1))))
    assert with_doors([a_record()], [state], doors) == [verdict]
    assert doors.asked == []


@pytest.mark.spec("P3", "I3")
@given(st.text(alphabet="0123456789abcdef", min_size=12), st.binary(max_size=30))
def test_no_reason_holds_a_token(token: str, body: bytes) -> None:
    record = a_record(door_token=token)
    found = verify(record, holding(record), serving(Answered(200, body)))
    assert isinstance(found, Unreachable)
    assert token not in found.reason
