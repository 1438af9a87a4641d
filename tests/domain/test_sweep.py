"""What crashed writers leave goes by evidence only, and no other file is touched (H5, L8, L9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.files import Kept, Vanished
from murmur.domain.listing import FileNote, Listing, list_sessions
from murmur.domain.origin import LockReading, Origin, render_origin
from murmur.domain.process import ProcessIdentity
from murmur.domain.record import render_record
from murmur.domain.sweep import STAGED_AGE, STAGED_AGE_ANY, Sweep, is_abandoned
from tests.fakes.processes import HERE, FakeProcesses
from tests.fakes.recorded import a_record, an_origin, session_id
from tests.fakes.running_directory import FakeRunningDirectory

HEX = "0199c4e2f1b7712a9d3e4f5061728394"
STEM = session_id(1)
DAY = 86400.0
WRITER = 77
WRITER_IDENTITY = ProcessIdentity(WRITER, "123")


class Machine:
    """A running directory in which time has passed."""

    def __init__(self) -> None:
        self.directory = FakeRunningDirectory()
        self.processes = FakeProcesses()

    def staged(self, age: float, pid: int = WRITER, target: str = f"{STEM}.json", digits: str = HEX) -> str:
        return self.put(f".{target}.{pid}.{digits}.tmp", age=age)

    def put(self, name: str, content: bytes = b"", *, age: float = 10 * DAY) -> str:
        self.directory.put(name, content, modified=self.processes.clock.now() - age)
        return name

    def sweep(self, *, prune: bool = True) -> Listing:
        listing = list_sessions(self.directory, self.processes, prune=prune)
        Sweep(self.directory, self.processes, self.processes.clock, listing, prune).run()
        return listing


def untouched(listing: Listing) -> bool:
    return (listing.removed, listing.pruned, listing.kept, listing.vanished) == ([], [], [], [])


# ---- staged writes ----

# age, writer still there -> swept?
STAGED: dict[tuple[float, bool], bool] = {
    (0.0, False): False,
    (59.0, False): False,
    (61.0, False): True,
    (DAY - 1, False): True,
    (DAY + 1, False): True,
    (0.0, True): False,
    (61.0, True): False,
    (DAY - 1, True): False,
    (DAY + 1, True): True,
    (-3600.0, False): False,
}


@pytest.mark.spec("H5")
@pytest.mark.parametrize(("age", "held"), STAGED)
def test_a_staged_write_goes_by_its_age_and_its_writer(age: float, held: bool) -> None:
    machine = Machine()
    name = machine.staged(age)
    if held:
        machine.processes.hold(WRITER, "123")
    listing = machine.sweep()
    assert machine.directory.removed == ([name] if STAGED[age, held] else [])
    assert [note.name for note in listing.removed] == machine.directory.removed
    assert listing.kept == []


@pytest.mark.spec("H5")
def test_a_swept_write_is_reported_with_its_reason() -> None:
    machine = Machine()
    recent, old = machine.staged(61), machine.staged(2 * DAY, target="y.json")
    assert machine.sweep().removed == [
        FileNote(recent, "a staged write of pid 77, which is gone"),
        FileNote(old, "a staged write over a day old"),
    ]


@pytest.mark.spec("H5", "H4")
@pytest.mark.parametrize("target", [f"{STEM}.json", f"{STEM}.control", f"{STEM}.origin", "a.b.c", "with space.json"])
def test_a_staged_write_of_any_target_is_swept(target: str) -> None:
    machine = Machine()
    name = machine.staged(61, target=target)
    machine.sweep()
    assert machine.directory.removed == [name]


@pytest.mark.spec("H5")
@pytest.mark.parametrize(
    "name",
    [
        "x.tmp",
        ".x.tmp",
        f".{WRITER}.{HEX}.tmp",
        f"..{WRITER}.{HEX}.tmp",
        f"x.json.{WRITER}.{HEX}.tmp",
        f".x.json.{WRITER}.{HEX[:-1]}.tmp",
        f".x.json.{WRITER}.{HEX}0.tmp",
        f".x.json.{WRITER}.{HEX.upper()}.tmp",
        f".x.json.-1.{HEX}.tmp",
        f".x.json.+1.{HEX}.tmp",
        f".x.json.1_0.{HEX}.tmp",
        f".x.json.{HEX}.tmp",
        f".x.json.\u0661.{HEX}.tmp",
        f".x.json.{WRITER}.{HEX}.tmp.bak",
        f".x.json.{WRITER}.{HEX}.tmp\n",
        f".x.json.{WRITER}.{HEX}.tmp.tmp",
        f".x.json.{WRITER}.{HEX}.TMP",
        f".x.json.12345678901.{HEX}.tmp",
        "notes.txt",
    ],
)
def test_no_other_name_is_touched_however_old(name: str) -> None:
    machine = Machine()
    machine.put(name, age=1000 * DAY)
    listing = machine.sweep()
    assert machine.directory.removed == []
    assert untouched(listing)


@pytest.mark.spec("H5", "H4")
@given(
    st.sampled_from([".", "", ".."]),
    st.text(alphabet="xj0 .\n", max_size=4).filter(lambda target: not target.startswith(".")),
    st.text(alphabet="07", max_size=11),
    st.integers(31, 33),
    st.sampled_from("0afAg"),
)
def test_of_random_temporary_names_only_staged_ones_go(
    dot: str, target: str, pid: str, length: int, digit: str
) -> None:
    machine = Machine()
    machine.put(f"{dot}{target}.{pid}.{digit * length}.tmp", age=1000 * DAY)
    machine.sweep()
    named = (dot == "." and target != "") or dot == ".."
    staged = named and 1 <= len(pid) <= 10 and length == 32 and digit in "0af"
    assert bool(machine.directory.removed) == staged


@pytest.mark.spec("H5", "S3")
def test_a_staged_name_that_is_no_regular_file_stays() -> None:
    machine = Machine()
    machine.directory.unreadable[f".x.json.{WRITER}.{HEX}.tmp"] = "it is a directory"
    assert untouched(machine.sweep())


@pytest.mark.spec("H5", "L2")
@pytest.mark.parametrize("pid", [0, 2**31, 2**32, 9_999_999_999])
def test_a_number_that_can_be_no_pid_is_held_by_nobody(pid: int) -> None:
    machine = Machine()
    name = machine.staged(61, pid=pid)
    machine.sweep()
    assert machine.directory.removed == [name]


# ---- control tokens and origins without a record ----


def orphan(machine: Machine, origin: Origin, lock: LockReading = LockReading.FREE) -> list[str]:
    machine.directory.locks[STEM] = lock
    return [machine.put(f"{STEM}.control", b"token"), machine.put(f"{STEM}.origin", render_origin(origin))]


@pytest.mark.spec("H5", "G1")
def test_what_a_gone_session_left_without_a_record_is_removed_the_origin_last() -> None:
    machine = Machine()
    control, origin = orphan(machine, an_origin(WRITER_IDENTITY))
    listing = machine.sweep()
    assert machine.directory.removed == [control, origin]
    reason = "it has no record, and no process holds pid 77"
    assert listing.removed == [FileNote(control, reason), FileNote(origin, reason)]


@pytest.mark.spec("H5", "L8")
def test_an_orphan_of_an_earlier_boot_goes_when_nothing_holds_its_lock() -> None:
    machine = Machine()
    machine.processes.hold(WRITER, "123")
    names = orphan(machine, Origin(WRITER, "123", HERE.machine_id, "earlier"))
    machine.sweep()
    assert machine.directory.removed == names


@pytest.mark.spec("H5")
def test_an_orphan_whose_pid_is_another_process_by_now_is_removed() -> None:
    machine = Machine()
    machine.processes.hold(WRITER, "456")
    names = orphan(machine, an_origin(WRITER_IDENTITY))
    machine.sweep()
    assert machine.directory.removed == names


@pytest.mark.spec("H5", "L1", "L8")
def test_an_orphan_of_a_process_that_could_not_read_its_own_start_goes_once_nobody_holds_the_pid() -> None:
    machine = Machine()
    names = orphan(machine, Origin(WRITER, None, *HERE))
    machine.sweep()
    assert machine.directory.removed == names


@pytest.mark.spec("H5", "L9")
def test_an_orphan_of_a_process_that_runs_is_left_alone_in_silence() -> None:
    machine = Machine()
    machine.processes.hold(WRITER, "123")
    orphan(machine, an_origin(WRITER_IDENTITY), LockReading.HELD)
    assert untouched(machine.sweep())
    assert machine.directory.removed == []


@pytest.mark.spec("H5", "L9")
@pytest.mark.parametrize(
    ("origin", "lock"),
    [
        (an_origin(WRITER_IDENTITY), LockReading.FREE),
        (Origin(WRITER, "123", HERE.machine_id, "earlier"), LockReading.HELD),
        (Origin(WRITER, "123", HERE.machine_id, "earlier"), LockReading.UNREADABLE),
        (Origin(WRITER, "123", "else", "else"), LockReading.FREE),
        (Origin(), LockReading.FREE),
    ],
    ids=["start unread", "lock held", "lock unreadable", "another machine", "says nothing"],
)
def test_an_orphan_that_could_not_be_verified_is_reported_and_kept(origin: Origin, lock: LockReading) -> None:
    machine = Machine()
    machine.processes.hold(WRITER, None)
    names = orphan(machine, origin, lock)
    listing = machine.sweep()
    assert machine.directory.removed == []
    assert [note.name for note in listing.kept] == names
    assert all(note.reason.startswith("it has no record, and ") for note in listing.kept)


@pytest.mark.spec("H5")
def test_a_control_token_without_an_origin_names_nobody_and_is_kept() -> None:
    machine = Machine()
    name = machine.put(f"{STEM}.control", b"token", age=1000 * DAY)
    listing = machine.sweep()
    assert machine.directory.removed == []
    assert listing.kept == [FileNote(name, "it has no record, and no origin file says whose it is")]


@pytest.mark.spec("H5", "S3")
@pytest.mark.parametrize("unreadable", [True, False])
def test_an_orphan_whose_origin_says_nothing_is_reported_and_kept(unreadable: bool) -> None:
    machine = Machine()
    machine.put(f"{STEM}.control", b"token")
    if unreadable:
        machine.directory.unreadable[f"{STEM}.origin"] = "permission denied"
    else:
        machine.put(f"{STEM}.origin", b"{")
    listing = machine.sweep()
    assert machine.directory.removed == []
    assert [note.name for note in listing.kept] == [f"{STEM}.control", f"{STEM}.origin"]


@pytest.mark.spec("H5")
def test_an_origin_alone_is_swept_like_one_beside_a_control_token() -> None:
    machine = Machine()
    name = machine.put(f"{STEM}.origin", render_origin(an_origin(WRITER_IDENTITY)))
    machine.sweep()
    assert machine.directory.removed == [name]


@pytest.mark.spec("H5", "S3")
@pytest.mark.parametrize("content", [b"[]", render_record(a_record(1))])
def test_companions_beside_a_record_are_no_orphans(content: bytes) -> None:
    machine = Machine()
    machine.put(f"{STEM}.json", content)
    machine.processes.hold(101, "1001")
    orphan(machine, an_origin(ProcessIdentity(101, "1001")))
    machine.sweep()
    assert machine.directory.removed == []


@pytest.mark.spec("H5", "S3")
def test_companions_of_a_record_that_could_not_be_read_are_no_orphans() -> None:
    machine = Machine()
    machine.directory.unreadable[f"{STEM}.json"] = "permission denied"
    orphan(machine, an_origin(WRITER_IDENTITY))
    listing = machine.sweep()
    assert machine.directory.removed == []
    assert [note.name for note in listing.kept] == [f"{STEM}.json"]


@pytest.mark.spec("H5")
def test_one_orphan_decides_nothing_about_another() -> None:
    machine = Machine()
    orphan(machine, an_origin(WRITER_IDENTITY))
    machine.processes.hold(88, "1")
    machine.put(f"{session_id(2)}.control")
    machine.put(f"{session_id(2)}.origin", render_origin(an_origin(ProcessIdentity(88, "1"))))
    machine.put(f"{session_id(3)}.control")
    listing = machine.sweep()
    assert machine.directory.removed == [f"{STEM}.control", f"{STEM}.origin"]
    assert [note.name for note in listing.kept] == [f"{session_id(3)}.control"]


# ---- reporting ----


@pytest.mark.spec("H3", "H5")
def test_without_pruning_the_same_is_reported_and_nothing_swept() -> None:
    def machine() -> Machine:
        made = Machine()
        made.staged(61)
        made.staged(2 * DAY, target="y.json")
        made.staged(5, target="z.json")
        orphan(made, an_origin(WRITER_IDENTITY))
        made.put(f"{session_id(3)}.control")
        return made

    looked, swept = machine(), machine()
    assert vars(looked.sweep(prune=False)) == vars(swept.sweep(prune=True))
    assert looked.directory.removed == []
    assert len(swept.directory.removed) == 4


@pytest.mark.spec("H5", "S2")
def test_a_leftover_that_was_not_removed_is_not_reported_as_removed() -> None:
    machine = Machine()
    kept, vanished = machine.staged(61), machine.staged(61, target="y.json")
    machine.directory.removals = {kept: Kept("it changed while it was looked at"), vanished: Vanished()}
    listing = machine.sweep()
    assert listing.removed == []
    assert listing.kept == [FileNote(kept, "it changed while it was looked at")]
    assert listing.vanished == [vanished]


# ---- staged folders of a store ----


@pytest.mark.spec("H5")
@pytest.mark.parametrize("pid_alive", [True, False])
@pytest.mark.parametrize("age", [0.0, STAGED_AGE + 1, STAGED_AGE_ANY + 1])
@pytest.mark.parametrize("lock", LockReading)
def test_a_staged_folder_goes_only_when_nobody_can_be_at_work_on_it(
    lock: LockReading, age: float, pid_alive: bool
) -> None:
    goes = {
        LockReading.HELD: False,
        LockReading.FREE: not pid_alive or age > STAGED_AGE,
        LockReading.UNREADABLE: not pid_alive and age > STAGED_AGE_ANY,
    }
    assert is_abandoned(lock, age=age, pid_alive=pid_alive) == goes[lock]
