"""Layers 1 and 2 and the origin rule as tables over every reading there can be (L1, L3, L8)."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.origin import Here, LockReading, Origin, OriginReading, UnreadOrigin
from murmur.domain.process import (
    Alive,
    Claim,
    Gone,
    ProcessIdentity,
    ProcessReading,
    ProcessState,
    Unverified,
    classify,
    group_of_stat_line,
    judge,
    parse_stat_line,
    with_origin,
)
from tests.fakes.processes import HERE

PID = 4242
NOBODY = Gone("no process holds pid 4242")
ANOTHER_START = Gone("pid 4242 is held by a process that started at another time")
UNREAD_START = Unverified("pid 4242's start time could not be read")

# alive, recorded, fresh -> state: every combination.
CLASSIFIED: dict[tuple[bool, str, str | None], ProcessState] = {
    (False, "", None): NOBODY,
    (False, "", ""): NOBODY,
    (False, "", "123"): NOBODY,
    (False, "", "456"): NOBODY,
    (False, "123", None): NOBODY,
    (False, "123", ""): NOBODY,
    (False, "123", "123"): NOBODY,
    (False, "123", "456"): NOBODY,
    (True, "", None): UNREAD_START,
    (True, "", ""): ANOTHER_START,
    (True, "", "123"): ANOTHER_START,
    (True, "", "456"): ANOTHER_START,
    (True, "123", None): UNREAD_START,
    (True, "123", ""): ANOTHER_START,
    (True, "123", "123"): Alive(),
    (True, "123", "456"): ANOTHER_START,
}


@pytest.mark.spec("L1")
@pytest.mark.parametrize(("alive", "recorded", "fresh"), CLASSIFIED)
def test_a_pid_and_two_start_tokens_make_exactly_this_state(alive: bool, recorded: str, fresh: str | None) -> None:
    assert classify(PID, recorded, alive, fresh) == CLASSIFIED[alive, recorded, fresh]


@pytest.mark.spec("L1")
@pytest.mark.parametrize("pid", [0, 1, 2**31, 2**32 - 1])
def test_a_reason_names_the_recorded_pid(pid: int) -> None:
    assert classify(pid, "1", False, None) == Gone(f"no process holds pid {pid}")
    assert classify(pid, "1", True, None) == Unverified(f"pid {pid}'s start time could not be read")
    assert classify(pid, "1", True, "2") == Gone(f"pid {pid} is held by a process that started at another time")


@pytest.mark.spec("L1")
@given(st.text(), st.one_of(st.none(), st.text()))
def test_a_recorded_empty_token_matches_nothing(recorded: str, fresh: str | None) -> None:
    assert not isinstance(classify(PID, "", True, fresh), Alive)
    assert isinstance(classify(PID, recorded, True, fresh), Alive) == (recorded == fresh != "")


@pytest.mark.spec("L3")
@given(st.binary(max_size=40), st.sampled_from("RSDZTtXI"), st.integers(0, 2**64))
def test_a_process_name_of_any_bytes_moves_no_field(name: bytes, state: str, start: int) -> None:
    fields = [state, "1", "77", *["0"] * 16, str(start), "0", "0"]
    content = b"4242 (" + name + b") " + " ".join(fields).encode() + b"\n"
    line = parse_stat_line(content)
    assert (line.state, line.start_token, group_of_stat_line(content)) == (state, str(start), "77")


@pytest.mark.spec("L3")
@given(st.binary(max_size=60).filter(lambda line: b")" not in line))
def test_a_line_without_a_closing_parenthesis_has_no_field(line: bytes) -> None:
    assert parse_stat_line(line) == (None, None)


@pytest.mark.spec("L3")
@pytest.mark.parametrize("present", range(1, 20))
def test_a_line_with_too_few_fields_has_no_start_token(present: int) -> None:
    line = parse_stat_line(b"1 (x) S" + b" 5" * (present - 1))
    assert line.state == "S"
    assert line.start_token is None


# ---- the origin rule ----

SAME, OTHER, UNKNOWN, NOWHERE = "same", "other", "unknown to the origin", "unknown on both sides"
ANY = (SAME, OTHER, UNKNOWN, NOWHERE)
DIFFERENT = (OTHER, UNKNOWN, NOWHERE)

# boot, machine, pid namespace, time namespace -> where the session is. The first row that fits counts. A namespace
# that neither side could read is one that the platform has not.
PLACES: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = [
    ((SAME,), ANY, (SAME, NOWHERE), (SAME, NOWHERE), "here"),
    ((SAME,), ANY, (OTHER, UNKNOWN), ANY, "in another pid namespace"),
    ((SAME,), ANY, (SAME, NOWHERE), (OTHER, UNKNOWN), "in another time namespace"),
    (DIFFERENT, (SAME,), ANY, ANY, "in another boot"),
    (DIFFERENT, DIFFERENT, ANY, ANY, "on another machine"),
]
STATES: list[ProcessState] = [Alive(), Alive(7), UNREAD_START, NOBODY, ANOTHER_START]


def place_of(boot: str, machine: str, pid_namespace: str, time_namespace: str) -> str:
    axes = boot, machine, pid_namespace, time_namespace
    return next(row[4] for row in PLACES if all(axis in row[at] for at, axis in enumerate(axes)))


def origin_and_reader(boot: str, machine: str, pid_namespace: str, time_namespace: str) -> tuple[Origin, Here]:
    def side(axis: str, mine: str | None) -> tuple[str | None, str | None]:
        return {SAME: (mine, mine), OTHER: ("else", mine), UNKNOWN: (None, mine), NOWHERE: (None, None)}[axis]

    machines, boots = side(machine, HERE.machine_id), side(boot, HERE.boot_id)
    pids, times = side(pid_namespace, HERE.pid_namespace), side(time_namespace, HERE.time_namespace)
    origin = Origin(PID, "123", machines[0], boots[0], pids[0], times[0])
    return origin, Here(machines[1], boots[1], pids[1], times[1])


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("boot", ANY)
@pytest.mark.parametrize("machine", ANY)
def test_elsewhere_only_the_lock_speaks_and_here_the_state_stands(boot: str, machine: str) -> None:
    for pid_namespace, time_namespace, lock, state in product(ANY, ANY, LockReading, STATES):
        place = place_of(boot, machine, pid_namespace, time_namespace)
        origin, here = origin_and_reader(boot, machine, pid_namespace, time_namespace)
        found = with_origin(state, origin, here, lock)
        if place == "here":
            assert found == state
        elif place != "on another machine" and lock is LockReading.FREE:
            assert found == Gone("nothing holds the session's lock")
        else:
            assert isinstance(found, Unverified)
            assert place in found.reason


@pytest.mark.spec("L8")
def test_a_boot_known_to_the_origin_alone_is_another_boot() -> None:
    origin = Origin(PID, "123", *HERE)
    found = with_origin(Alive(), origin, HERE._replace(boot_id=None), LockReading.HELD)
    assert found == Unverified("the session runs in another boot")


@pytest.mark.spec("L8")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("lock", LockReading)
def test_without_an_origin_layers_1_and_2_stand_alone(state: ProcessState, lock: LockReading) -> None:
    assert with_origin(state, None, HERE, lock) == state


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("state", STATES)
def test_an_origin_that_could_not_be_read_is_no_evidence_for_anything(state: ProcessState) -> None:
    found = with_origin(state, UnreadOrigin("permission denied"), HERE, LockReading.FREE)
    assert found == Unverified("the session's origin file could not be read: permission denied")


RECORDED_INODE = 7

# fresh token, recorded inode, fresh inode -> state, for a held pid in the reader's own place.
JUDGED: dict[tuple[str | None, int | None, int | None], ProcessState] = {
    ("123", 7, 7): Alive(),
    ("123", 7, 8): ANOTHER_START,
    ("123", 7, None): Alive(),
    ("123", None, 8): Alive(),
    ("123", None, None): Alive(),
    ("456", 7, 7): ANOTHER_START,
    ("456", 7, 8): ANOTHER_START,
    ("456", 7, None): ANOTHER_START,
    ("456", None, 8): ANOTHER_START,
    ("456", None, None): ANOTHER_START,
    (None, 7, 7): UNREAD_START,
    (None, 7, 8): ANOTHER_START,  # The inode settles it where the token could not be read.
    (None, 7, None): UNREAD_START,
    (None, None, 8): UNREAD_START,
    (None, None, None): UNREAD_START,
}


def claim(origin: OriginReading, lock: LockReading = LockReading.HELD) -> Claim:
    return Claim(ProcessIdentity(PID, "123"), origin, lock)


@pytest.mark.spec("L8")
@pytest.mark.parametrize(("fresh", "recorded_inode", "fresh_inode"), JUDGED)
def test_a_recorded_pidfd_inode_must_be_the_fresh_one(
    fresh: str | None, recorded_inode: int | None, fresh_inode: int | None
) -> None:
    origin = Origin(PID, "123", *HERE, recorded_inode)
    reading = ProcessReading(True, fresh, pidfd_inode=fresh_inode)
    assert judge(claim(origin), reading, HERE) == JUDGED[fresh, recorded_inode, fresh_inode]


@pytest.mark.spec("L8")
def test_a_pid_that_nobody_holds_is_gone_whatever_its_lock_says_here() -> None:
    for lock in LockReading:
        assert judge(claim(Origin(PID, "123", *HERE), lock), ProcessReading(pid_alive=False), HERE) == NOBODY


@pytest.mark.spec("L8")
def test_an_inode_means_nothing_in_another_boot() -> None:
    origin = Origin(PID, "123", HERE.machine_id, "earlier", *HERE[2:], pidfd_inode=8)
    reading = ProcessReading(True, "123", pidfd_inode=7)
    assert judge(claim(origin), reading, HERE) == Unverified("the session runs in another boot")


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("origin", [Origin(PID + 1, "123", *HERE), Origin(PID, "456", *HERE)])
@pytest.mark.parametrize(
    "reading", [ProcessReading(False), ProcessReading(True, "123"), ProcessReading(True, "456"), ProcessReading(True)]
)
def test_an_origin_of_another_process_than_the_record_proves_nothing(origin: Origin, reading: ProcessReading) -> None:
    assert isinstance(judge(claim(origin, LockReading.FREE), reading, HERE), Unverified)


texts = st.one_of(st.none(), st.sampled_from(["a", "b"]))
places = st.builds(Here, texts, texts, texts, texts)
inodes = st.one_of(st.none(), st.integers(1, 2))
origins = st.builds(Origin, st.just(PID), st.just("123"), texts, texts, texts, texts, inodes)
readings_of_origins = st.one_of(st.none(), st.builds(UnreadOrigin, st.text()), origins)
states = st.one_of(st.builds(Alive, inodes), st.builds(Unverified, st.text()), st.builds(Gone, st.text()))


@pytest.mark.spec("L8", "L9")
@given(states, readings_of_origins, places, st.sampled_from(LockReading))
def test_an_origin_never_makes_a_session_alive_and_rarely_gone(
    state: ProcessState, origin: OriginReading, here: Here, lock: LockReading
) -> None:
    found = with_origin(state, origin, here, lock)
    if isinstance(found, Alive):
        assert isinstance(state, Alive)
    if isinstance(found, Gone) and found != state:
        assert isinstance(origin, Origin)
        other_inode = (
            isinstance(state, Alive)
            and None not in (state.pidfd_inode, origin.pidfd_inode)
            and state.pidfd_inode != origin.pidfd_inode
        )
        assert lock is LockReading.FREE or other_inode
