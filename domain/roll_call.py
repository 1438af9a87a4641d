"""Which sessions does a referee see running, and which of its own are gone?

Nobody tells a referee of a session that was killed, and what another one approved it never heard of. So it looks: at
the registry, and at the processes of sessions that it knew before. Only a process that is gone ends a session here.
A record that is gone proves nothing, since one that starts has none yet, and a script never has one.
"""

from collections.abc import Mapping, Sequence

from murmur.domain.listing import Listing
from murmur.domain.liveness import states_of
from murmur.domain.origin import LockReading, Origin
from murmur.domain.ports import ProcessTable
from murmur.domain.process import Alive, Claim, Gone, ProcessIdentity
from murmur.domain.referee import Referee
from murmur.domain.spawn_terms import Outcome
from murmur.domain.value import Value


class Known(Value):
    """A session that was seen running, or said which process it is."""

    claim: Claim
    records: str | None = None
    """Its records directory, where how it ended can be read."""


class Present(Value):
    """A recorded session whose process is there."""

    session_id: str
    spawned_by: str | None
    known: Known


class Seen(Value):
    """What one look found."""

    present: Sequence[Present]
    recorded: frozenset[str]
    """All sessions with a record, those aside whose process is gone."""
    gone: Mapping[str, str]
    """Why each session is gone, by its id."""


def seen(listing: Listing, known: Mapping[str, Known], processes: ProcessTable) -> Seen:
    """Say what a listing of the registry shows, and what became of sessions that were known before.

    Raises `OutOfDescriptors`.
    """
    present = [
        Present(each.record.session_id, each.record.spawned_by, Known(each.claim, each.record.workdir))
        for each in listing.sessions
        if isinstance(each.state, Alive)
    ]
    standing = {each.record.session_id for each in listing.sessions}
    gone = {session_id: why for session_id, why in listing.gone.items() if session_id not in standing}
    for session_id, state in zip(known, states_of([each.claim for each in known.values()], processes), strict=True):
        match state:
            case Gone(why):
                gone[session_id] = why
            case Alive():  # Whatever a record of that name says.
                gone.pop(session_id, None)
            case _:
                pass
    # A record that could not be read is one.
    return Seen(present, frozenset(standing | listing.stems - gone.keys()), gone)


class RollCall:
    """Keeps a referee's ledger in step with what is seen."""

    def __init__(self, referee: Referee) -> None:
        self._referee = referee
        self._known: dict[str, Known] = {}

    @property
    def known(self) -> Mapping[str, Known]:
        """The sessions to look at beside the recorded ones, as of now."""
        return dict(self._known)

    def registered(self, session_id: str, process: Origin) -> None:
        """Remember which process a child says it is."""
        if process.pid is not None and process.process_start is not None:
            identity = ProcessIdentity(process.pid, process.process_start)
            self._known[session_id] = Known(Claim(identity, process, LockReading.UNREADABLE))

    def take(self, found: Seen, outcomes: Mapping[str, Outcome]) -> None:
        """Take in a look: count who runs, end who is gone. `outcomes` says how, where it is not `failed`."""
        referee = self._referee
        # Ids are made in the order of time, so that most spawners come before what they spawned.
        spawned = sorted((each.session_id, each.spawned_by) for each in found.present if each.spawned_by is not None)
        for session_id, spawner in spawned:
            referee.adopt(session_id, spawner)
        for present in found.present:
            if referee.runs(present.session_id):
                self._known[present.session_id] = present.known
        for session_id, why in found.gone.items():
            referee.ended(session_id, outcomes.get(session_id, "failed"), why)
        for _, spawner in spawned:
            if spawner not in found.recorded and spawner not in self._known:
                referee.lost(spawner)
        self._known = {session_id: each for session_id, each in self._known.items() if referee.runs(session_id)}
