"""Which sessions are recorded, and which records are of sessions that are gone? (S1-S5, G1).

Read, decide, act, a batch of files at a time: the descriptor that a file was read through stays open until the
file has been kept or removed. What crashed writers left is `domain.sweep`'s question.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, assert_never

from murmur.domain.files import Kept, OriginFile, ReadFile, RecordFile, Removal, Removed, UnreadFile, Vanished
from murmur.domain.liveness import states_of
from murmur.domain.ports import ProcessTable, RunningDirectory
from murmur.domain.process import Claim, Gone, ProcessReading, ProcessState, Unverified, judge
from murmur.domain.record import RunningRecord, UnreadableRecord, parse_record


class Session(NamedTuple):
    """One record and what is known of it short of its door. `stem` names its files, whatever its id says (S5)."""

    record: RunningRecord
    stem: str
    state: ProcessState
    claim: Claim
    stopped: bool = False


class FileNote(NamedTuple):
    """One file and why it was removed or kept."""

    name: str
    reason: str


class Listing:
    """What one pass over the running directory found and did."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        """Those not gone, newest first: the rows that addresses mean."""
        self.removed: list[FileNote] = []
        """Unparseable content and what crashed writers left."""
        self.pruned: list[FileNote] = []
        """Records of sessions that are gone."""
        self.kept: list[FileNote] = []
        """Files that say nothing, and stay."""
        self.vanished: list[str] = []
        """Files that were gone before they were read or removed: sessions that just ended."""
        self.gone: dict[str, str] = {}
        """Why each session judged gone in this pass is, by its id."""
        self.stems: set[str] = set()
        """The stems of all record files there were."""

    def note_removal(self, done: list[FileNote], name: str, reason: str, removal: Removal) -> None:
        """Note what became of a removal: in `done` for `reason`, or among the files kept or vanished."""
        match removal:
            case Removed():
                done.append(FileNote(name, reason))
            case Kept(why):
                self.kept.append(FileNote(name, why))
            case Vanished():
                self.vanished.append(name)
            case _:
                assert_never(removal)


class _Judged(NamedTuple):
    """One parsed file and what was made of it."""

    file: ReadFile
    record: RunningRecord
    claim: Claim
    reading: ProcessReading
    state: ProcessState


def list_sessions(directory: RunningDirectory, processes: ProcessTable, *, prune: bool) -> Listing:
    """Read every record, take layers 1 and 2, and report; with `prune`, also remove what evidence allows.

    Without, what would be removed is reported the same. Raises `RegistryUnusable` and `OutOfDescriptors`.
    """
    listing = Listing()
    found: list[Session] = []

    def remove(file: ReadFile) -> Removal:
        return directory.remove(file) if prune else Removed()

    for batch in directory.batches():
        with batch as files:
            listing.stems.update(file.name.removesuffix(".json") for file in files)
            for judged in _judged(_parsed(files, listing, remove), processes):
                if isinstance(judged.state, Gone):
                    listing.gone[judged.record.session_id] = judged.state.reason
                    removal = remove(judged.file)
                    listing.note_removal(listing.pruned, judged.file.name, judged.state.reason, removal)
                    if prune and isinstance(removal, Removed):
                        _remove_companions(directory, judged.file)
                else:
                    found.append(_session(judged))
    listing.sessions = _one_row_an_id(found, listing)
    return listing


def _parsed(
    files: Sequence[RecordFile], listing: Listing, remove: Callable[[ReadFile], Removal]
) -> list[tuple[ReadFile, RunningRecord]]:
    """Parse what was read; only content that was read and does not parse is removed (S3)."""
    parsed: list[tuple[ReadFile, RunningRecord]] = []
    for file in files:
        if isinstance(file, UnreadFile):
            if file.vanished:
                listing.vanished.append(file.name)
            else:
                listing.kept.append(FileNote(file.name, file.reason))
            continue
        try:
            parsed.append((file, parse_record(file.content)))
        except UnreadableRecord as error:
            if error.removable:
                listing.note_removal(listing.removed, file.name, error.reason, remove(file))
            else:
                listing.kept.append(FileNote(file.name, error.reason))
    return parsed


def _judged(parsed: Sequence[tuple[ReadFile, RunningRecord]], processes: ProcessTable) -> Iterator[_Judged]:
    here = processes.here()
    claims = [_claim(record, file.origin) for file, record in parsed]
    readings = processes.readings([claim.identity for claim in claims])
    for (file, record), claim, reading in zip(parsed, claims, readings, strict=True):
        yield _Judged(file, record, claim, reading, judge(claim, reading, here))


def _claim(record: RunningRecord, origin: OriginFile) -> Claim:
    return Claim(record.identity, origin.origin, origin.lock)


def _session(judged: _Judged) -> Session:
    return Session(judged.record, judged.file.stem, judged.state, judged.claim, judged.reading.stopped)


def _one_row_an_id(found: list[Session], listing: Listing) -> list[Session]:
    """Order rows newest first; of several files with one id, the one named after it counts (S5)."""
    rows: dict[str, Session] = {}
    for session in sorted(found, key=lambda each: (each.stem != each.record.session_id, each.stem)):
        session_id, name = session.record.session_id, f"{session.stem}.json"
        counted = rows.setdefault(session_id, session)
        if counted is not session:
            listing.kept.append(FileNote(name, f"it names the session of {counted.stem}.json"))
        elif session.stem != session_id:
            listing.kept.append(FileNote(name, f"it is not named after its session {session_id}"))
    return sorted(rows.values(), key=lambda session: session.record.session_id, reverse=True)


def _remove_companions(directory: RunningDirectory, record: ReadFile) -> None:
    """Remove the control token and the origin of a session whose record was just removed, the origin last."""
    directory.remove_companion(f"{record.stem}.control")
    if record.origin.present:
        directory.remove_companion(f"{record.stem}.origin")


def prune_session(directory: RunningDirectory, session: Session, processes: ProcessTable) -> Removal:
    """Remove the files of a session that was seen to end, after a last look that it is gone (G1, L9)."""

    def refusal(file: ReadFile) -> str | None:
        (state,) = states_of([_claim(session.record, file.origin)], processes)
        return None if isinstance(state, Gone) else "its session is not gone"

    return _remove_reread(directory, session, refusal)


def remove_unverified(directory: RunningDirectory, session: Session) -> Removal:
    """Remove the files of a session whose process cannot be verified, because a person says so (L8)."""
    assert isinstance(session.state, Unverified)
    return _remove_reread(directory, session, lambda _: None)


def _remove_reread(directory: RunningDirectory, session: Session, refusal: Callable[[ReadFile], str | None]) -> Removal:
    """Unlink a session's files if its record still says what was judged, and nothing speaks against it (S4)."""
    for batch in directory.batches(only=f"{session.stem}.json"):
        with batch as files:
            for file in files:
                if isinstance(file, UnreadFile):
                    return Vanished() if file.vanished else Kept(file.reason)
                if not _says_the_same(file, session):
                    return Kept("it changed while it was looked at")
                reason = refusal(file)
                if reason is not None:
                    return Kept(reason)
                removal = directory.remove(file)
                if isinstance(removal, Removed):
                    _remove_companions(directory, file)
                return removal
    return Vanished()


def _says_the_same(file: ReadFile, session: Session) -> bool:
    try:
        return parse_record(file.content) == session.record
    except UnreadableRecord:
        return False
