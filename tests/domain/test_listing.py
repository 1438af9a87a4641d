"""What one pass over the running directory reports, removes and leaves alone (S1-S5, G1, L8, L9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.files import Kept, Vanished
from murmur.domain.listing import FileNote, Listing, Session, list_sessions, prune_session, remove_unverified
from murmur.domain.origin import LockReading, Origin, render_origin
from murmur.domain.process import Alive, Gone, Unverified
from murmur.domain.record import RunningRecord, render_record
from tests.fakes.processes import HERE, FakeProcesses
from tests.fakes.recorded import a_record, an_origin, session_id
from tests.fakes.running_directory import FakeRunningDirectory


class Machine:
    """A running directory and the processes that its records name."""

    def __init__(self, *, batch_size: int = 64) -> None:
        self.directory = FakeRunningDirectory(batch_size=batch_size)
        self.processes = FakeProcesses()

    def record(self, record: RunningRecord, *, alive: bool = True, stem: str | None = None) -> str:
        name = f"{stem or record.session_id}.json"
        self.directory.put(name, render_record(record))
        if alive:
            self.processes.hold(record.pid, record.process_start)
        return name

    def list(self, *, prune: bool = True) -> Listing:
        return list_sessions(self.directory, self.processes, prune=prune)


def ids(listing: Listing) -> list[str]:
    return [session.record.session_id for session in listing.sessions]


def names(notes: list[FileNote]) -> list[str]:
    return [note.name for note in notes]


@pytest.mark.spec("H3", "S1")
def test_an_empty_directory_lists_nothing() -> None:
    listing = Machine().list()
    assert (listing.sessions, listing.removed, listing.pruned, listing.kept) == ([], [], [], [])


@pytest.mark.spec("S1")
@given(st.permutations(range(1, 6)), st.integers(1, 6))
def test_sessions_are_listed_newest_first_however_they_are_read(order: list[int], batch_size: int) -> None:
    machine = Machine(batch_size=batch_size)
    for number in order:
        machine.record(a_record(number))
    assert ids(machine.list()) == [session_id(number) for number in (5, 4, 3, 2, 1)]


@pytest.mark.spec("S1", "L2")
def test_a_row_holds_what_was_read_of_its_process() -> None:
    machine = Machine()
    record = a_record()
    machine.record(record)
    machine.processes.hold(record.pid, record.process_start, stopped=True)
    (session,) = machine.list().sessions
    assert (session.record, session.stem, session.state, session.stopped) == (record, session_id(1), Alive(), True)


@pytest.mark.spec("S1")
def test_names_that_are_no_record_are_not_read() -> None:
    machine = Machine()
    for name in (".json", "x.JSON", "x.json.tmp", "x", "json"):
        machine.directory.put(name, b"nonsense")
    machine.record(a_record(), stem=".x")
    listing = machine.list()
    assert ids(listing) == [session_id(1)]
    assert machine.directory.removed == []


# ---- what does not parse, and what could not be read ----


@pytest.mark.spec("S2")
def test_what_was_read_and_does_not_parse_is_removed_and_named_with_its_reason() -> None:
    machine = Machine()
    machine.record(a_record())
    machine.directory.put("bad.json", b"{")
    machine.directory.put("none.json", b"{}")
    listing = machine.list()
    assert machine.directory.removed == ["bad.json", "none.json"]
    assert names(listing.removed) == ["bad.json", "none.json"]
    assert listing.removed[1].reason == "it has no `session_id`"
    assert ids(listing) == [session_id(1)]


@pytest.mark.spec("S3", "L9")
@pytest.mark.parametrize("reason", ["permission denied", "it is a FIFO", "this process has no file descriptor left"])
def test_what_could_not_be_read_is_kept_with_its_reason(reason: str) -> None:
    machine = Machine()
    machine.directory.unreadable["x.json"] = reason
    listing = machine.list()
    assert listing.kept == [FileNote("x.json", reason)]
    assert machine.directory.removed == []
    assert "x" in listing.stems


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    "content",
    [b"[]", b'["a", 1]', b'{"x": ' + b"[" * 100_000, b'{"x": ' + b"9" * 5000 + b"}", b" " * (1024 * 1024 + 1)],
    ids=["positional", "positional with items", "nesting", "digits", "size"],
)
def test_what_this_reader_cannot_hold_is_kept_with_its_reason(content: bytes) -> None:
    machine = Machine()
    machine.directory.put("x.json", content)
    listing = machine.list()
    assert names(listing.kept) == ["x.json"]
    assert listing.kept[0].reason
    assert machine.directory.removed == []


@pytest.mark.spec("S3")
def test_a_session_that_ended_while_it_was_listed_is_no_news() -> None:
    machine = Machine()
    machine.directory.vanishing.add("x.json")
    listing = machine.list()
    assert listing.vanished == ["x.json"]
    assert (listing.kept, listing.removed, listing.pruned) == ([], [], [])


@pytest.mark.spec("S2", "S4")
def test_a_file_whose_removal_failed_is_not_reported_as_removed() -> None:
    machine = Machine()
    machine.directory.put("bad.json", b"{")
    gone = machine.record(a_record(), alive=False)
    for name in ("bad.json", gone):
        machine.directory.removals[name] = Kept("it changed while it was looked at")
    listing = machine.list()
    assert (listing.removed, listing.pruned) == ([], [])
    assert listing.kept == [FileNote(name, "it changed while it was looked at") for name in ("bad.json", gone)]


@pytest.mark.spec("S2")
def test_a_file_that_somebody_else_removed_is_not_reported_as_removed() -> None:
    machine = Machine()
    gone = machine.record(a_record(), alive=False)
    machine.directory.removals[gone] = Vanished()
    listing = machine.list()
    assert (listing.removed, listing.pruned, listing.kept) == ([], [], [])
    assert listing.vanished == [gone]


# ---- records of sessions that are gone ----


@pytest.mark.spec("G1", "S2")
@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_gone_session_is_pruned_with_its_control_token_and_then_its_origin(batch_size: int) -> None:
    machine = Machine(batch_size=batch_size)
    gone, stays = a_record(1), a_record(2)
    name = machine.record(gone, alive=False)
    machine.record(stays)
    for record in (gone, stays):
        machine.directory.put(f"{record.session_id}.origin", render_origin(an_origin(record.identity)))
        machine.directory.put(f"{record.session_id}.control", b"token")
    listing = machine.list()
    assert machine.directory.removed == [name, f"{gone.session_id}.control", f"{gone.session_id}.origin"]
    assert listing.pruned == [FileNote(name, "no process holds pid 101")]
    assert listing.gone == {gone.session_id: "no process holds pid 101"}
    assert ids(listing) == [stays.session_id]


@pytest.mark.spec("G1")
@pytest.mark.parametrize("removal", [Kept("it changed while it was looked at"), Vanished()])
def test_the_companions_of_a_record_that_was_not_removed_stay(removal: Kept | Vanished) -> None:
    machine = Machine()
    name = machine.record(a_record(), alive=False)
    machine.directory.put(f"{session_id(1)}.control")
    machine.directory.removals[name] = removal
    machine.list()
    assert machine.directory.removed == []


@pytest.mark.spec("L1", "L9")
def test_only_gone_sessions_are_pruned() -> None:
    machine = Machine()
    machine.record(a_record(1))
    machine.record(a_record(2))
    machine.processes.hold(102, None)
    machine.record(a_record(3))
    machine.processes.hold(103, "another start")
    listing = machine.list()
    assert machine.directory.removed == [f"{session_id(3)}.json"]
    assert [session.state for session in listing.sessions] == [
        Unverified("pid 102's start time could not be read"),
        Alive(),
    ]
    assert listing.gone == {session_id(3): "pid 103 is held by a process that started at another time"}


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("lock", LockReading)
def test_of_an_earlier_boot_only_a_free_lock_prunes(lock: LockReading) -> None:
    machine = Machine()
    record = a_record()
    name = machine.record(record)
    origin = Origin(record.pid, record.process_start, HERE.machine_id, "earlier")
    machine.directory.put(f"{record.session_id}.origin", render_origin(origin))
    machine.directory.locks[record.session_id] = lock
    listing = machine.list()
    if lock is LockReading.FREE:
        assert listing.pruned == [FileNote(name, "nothing holds the session's lock")]
    else:
        assert machine.directory.removed == []
        assert isinstance(listing.sessions[0].state, Unverified)


@pytest.mark.spec("L8")
def test_an_origin_that_does_not_parse_leaves_the_record_to_its_own() -> None:
    machine = Machine()
    machine.record(a_record(1))
    machine.record(a_record(2), alive=False)
    for number in (1, 2):
        machine.directory.put(f"{session_id(number)}.origin", b"{")
    listing = machine.list()
    assert ids(listing) == [session_id(1)]
    assert names(listing.pruned) == [f"{session_id(2)}.json"]


@pytest.mark.spec("L8", "L9")
def test_an_origin_that_could_not_be_read_keeps_its_record() -> None:
    machine = Machine()
    machine.record(a_record(), alive=False)
    machine.directory.unreadable[f"{session_id(1)}.origin"] = "permission denied"
    assert isinstance(machine.list().sessions[0].state, Unverified)
    assert machine.directory.removed == []


@pytest.mark.spec("L8")
def test_an_origin_is_looked_for_beside_the_file_and_not_by_the_recorded_id() -> None:
    machine = Machine()
    record = a_record()
    machine.record(record, stem="other")
    machine.directory.put("other.origin", render_origin(Origin(record.pid, record.process_start, "m", "b")))
    assert isinstance(machine.list().sessions[0].state, Unverified)


@pytest.mark.spec("H3", "S2")
@pytest.mark.parametrize("batch_size", [1, 64])
def test_without_pruning_the_same_is_reported_and_nothing_removed(batch_size: int) -> None:
    def machine() -> Machine:
        made = Machine(batch_size=batch_size)
        made.record(a_record(1), alive=False)
        made.record(a_record(2))
        made.record(a_record(3), stem="other", alive=False)
        made.record(a_record(4), stem="twin")
        made.record(a_record(4))
        made.directory.put("bad.json", b"{")
        made.directory.put("held.json", b"[]")
        made.directory.put(f"{session_id(1)}.control")
        made.directory.put(f"{session_id(1)}.origin", render_origin(an_origin(a_record(1).identity)))
        return made

    looked, pruned = machine(), machine()
    before = looked.directory.names
    assert vars(looked.list(prune=False)) == vars(pruned.list(prune=True))
    assert looked.directory.removed == []
    assert looked.directory.names == before
    assert len(pruned.directory.removed) == 5


# ---- ids and names ----


@pytest.mark.spec("S5")
def test_a_record_not_named_after_its_session_is_listed_with_a_warning() -> None:
    machine = Machine()
    machine.record(a_record(), stem="other")
    listing = machine.list()
    assert [(session.record.session_id, session.stem) for session in listing.sessions] == [(session_id(1), "other")]
    assert listing.kept == [FileNote("other.json", f"it is not named after its session {session_id(1)}")]


@pytest.mark.spec("S5")
@given(st.permutations(["a", "z", session_id(1)]), st.integers(1, 3))
def test_of_several_files_with_one_id_the_one_named_after_it_counts(stems: list[str], batch_size: int) -> None:
    machine = Machine(batch_size=batch_size)
    for stem in stems:
        machine.record(a_record(), stem=stem)
    listing = machine.list()
    assert [session.stem for session in listing.sessions] == [session_id(1)]
    assert sorted(names(listing.kept)) == ["a.json", "z.json"]
    assert {note.reason for note in listing.kept} == {f"it names the session of {session_id(1)}.json"}
    assert machine.directory.removed == []


@pytest.mark.spec("S5")
@given(st.permutations(["a", "m", "z"]))
def test_of_several_files_none_named_after_their_id_always_the_same_one_counts(stems: list[str]) -> None:
    machine = Machine()
    for stem in stems:
        machine.record(a_record(), stem=stem)
    listing = machine.list()
    assert [session.stem for session in listing.sessions] == ["a"]
    assert sorted(names(listing.kept)) == ["a.json", "m.json", "z.json"]


@pytest.mark.spec("S5")
def test_of_two_files_with_one_id_a_gone_one_takes_no_row_from_the_other() -> None:
    machine = Machine()
    machine.record(a_record(), alive=False)
    machine.record(a_record(pid=7, process_start="7"), stem="other")
    listing = machine.list()
    assert [session.stem for session in listing.sessions] == ["other"]
    assert machine.directory.removed == [f"{session_id(1)}.json"]


@pytest.mark.spec("S5", "G1")
@pytest.mark.parametrize("named", ["../../x", "/etc/passwd", "", ".", "a/b", session_id(2)])
def test_an_id_never_names_a_path(named: str) -> None:
    machine = Machine()
    record = a_record(1, named=named)
    machine.directory.put("mine.json", render_record(record).replace(session_id(1).encode(), named.encode()))
    machine.directory.put("mine.control")
    machine.directory.put("mine.origin", render_origin(an_origin(record.identity)))
    machine.record(a_record(2))
    machine.directory.put(f"{session_id(2)}.control")
    machine.list()
    assert machine.directory.removed == ["mine.json", "mine.control", "mine.origin"]


# ---- removing one session's files after it was judged ----


def one_session(machine: Machine) -> Session:
    (session,) = machine.list(prune=False).sessions
    return session


@pytest.mark.spec("G1", "L9")
def test_a_session_seen_to_end_is_pruned_with_its_companions() -> None:
    machine = Machine()
    name = machine.record(a_record(), stem="other")
    machine.directory.put("other.origin", render_origin(an_origin(a_record().identity)))
    machine.directory.put("other.control")
    session = one_session(machine)
    machine.processes.end(session.record.pid)
    prune_session(machine.directory, session, machine.processes)
    assert machine.directory.removed == [name, "other.control", "other.origin"]


@pytest.mark.spec("G1", "L9")
@pytest.mark.parametrize("token", ["1001", None])
def test_a_session_that_is_not_gone_is_not_pruned(token: str | None) -> None:
    machine = Machine()
    machine.record(a_record())
    session = one_session(machine)
    machine.processes.hold(session.record.pid, token)
    assert prune_session(machine.directory, session, machine.processes) == Kept("its session is not gone")
    assert machine.directory.removed == []


@pytest.mark.spec("L8", "L9")
def test_a_last_look_reads_the_origin_afresh() -> None:
    machine = Machine()
    machine.record(a_record())
    session = one_session(machine)
    machine.processes.end(session.record.pid)
    origin = Origin(session.record.pid, session.record.process_start, HERE.machine_id, "earlier")
    machine.directory.put(f"{session.stem}.origin", render_origin(origin))
    machine.directory.locks[session.stem] = LockReading.HELD
    assert prune_session(machine.directory, session, machine.processes) == Kept("its session is not gone")


@pytest.mark.spec("S4")
@pytest.mark.parametrize("content", [render_record(a_record(1, url="localhost:1")), b"{"])
def test_a_record_written_anew_is_not_pruned(content: bytes) -> None:
    machine = Machine()
    name = machine.record(a_record())
    session = one_session(machine)
    machine.processes.end(session.record.pid)
    machine.directory.put(name, content)
    assert prune_session(machine.directory, session, machine.processes) == Kept("it changed while it was looked at")
    assert machine.directory.removed == []


@pytest.mark.spec("S3", "G1")
def test_a_session_that_removed_its_own_files_leaves_nothing_to_prune() -> None:
    machine = Machine()
    name = machine.record(a_record())
    session = one_session(machine)
    emptied = FakeRunningDirectory()
    assert prune_session(emptied, session, machine.processes) == Vanished()
    emptied.vanishing.add(name)
    assert prune_session(emptied, session, machine.processes) == Vanished()


@pytest.mark.spec("S3")
def test_a_record_that_cannot_be_read_any_more_is_not_pruned() -> None:
    machine = Machine()
    name = machine.record(a_record())
    session = one_session(machine)
    unreadable = FakeRunningDirectory()
    unreadable.unreadable[name] = "permission denied"
    assert prune_session(unreadable, session, FakeProcesses()) == Kept("permission denied")


@pytest.mark.spec("G1", "S4")
def test_the_companions_stay_when_the_record_could_not_be_pruned() -> None:
    machine = Machine()
    name = machine.record(a_record())
    machine.directory.put(f"{session_id(1)}.control")
    session = one_session(machine)
    machine.processes.end(session.record.pid)
    machine.directory.removals[name] = Kept("it could not be removed: i/o error")
    found = prune_session(machine.directory, session, machine.processes)
    assert found == Kept("it could not be removed: i/o error")
    assert machine.directory.removed == []


@pytest.mark.spec("L8")
def test_a_person_may_remove_an_unverified_record_with_its_companions() -> None:
    machine = Machine()
    name = machine.record(a_record())
    machine.record(a_record(2))
    machine.processes.hold(101, None)
    machine.directory.put(f"{session_id(1)}.origin", render_origin(an_origin(a_record().identity)))
    machine.directory.put(f"{session_id(1)}.control")
    (session,) = (each for each in machine.list().sessions if isinstance(each.state, Unverified))
    remove_unverified(machine.directory, session)
    assert machine.directory.removed == [name, f"{session_id(1)}.control", f"{session_id(1)}.origin"]


@pytest.mark.spec("L8", "L9")
@pytest.mark.parametrize("state", [Alive(), Gone("went")])
def test_nothing_but_an_unverified_record_is_removed_because_a_person_says_so(state: Alive | Gone) -> None:
    machine = Machine()
    machine.record(a_record())
    session = one_session(machine)._replace(state=state)
    with pytest.raises(AssertionError):
        remove_unverified(machine.directory, session)
    assert machine.directory.removed == []


@pytest.mark.spec("S4", "L8")
def test_an_unverified_record_written_anew_is_not_removed() -> None:
    machine = Machine()
    name = machine.record(a_record())
    machine.processes.hold(101, None)
    session = one_session(machine)
    machine.directory.put(name, render_record(a_record(1, url="localhost:1")))
    assert remove_unverified(machine.directory, session) == Kept("it changed while it was looked at")
