"""Which session does an address on the command line mean? (section 15)."""

from collections.abc import Sequence

from murmur.cli import wiring
from murmur.domain.addresses import Ambiguous, Found, NotFound, resolve
from murmur.domain.errors import AmbiguousAddress, NoSuchSession
from murmur.domain.listing import Listing, Session, list_sessions
from murmur.domain.visible_text import visible


def read_rows() -> Listing:
    """Read the rows that `mur ps` shows, leaving every file as it is."""
    with wiring.running_directory(create=False) as directory:
        return list_sessions(directory, wiring.processes, prune=False)


def session_of(address: str, listing: Listing) -> Session:
    """Return the one session an address means; raise `NoSuchSession`, which lists the matches if it means several."""
    ids = [session.record.session_id for session in listing.sessions]
    match resolve(address, ids):
        case Found(position):
            return listing.sessions[position]
        case NotFound(reason):
            raise NoSuchSession(
                f"no session {address}: {_why(address, listing) or reason}",
                hint="`mur ps` lists what is running",
            )
        case Ambiguous(positions):
            raise AmbiguousAddress(
                f"{address} means {len(positions)} sessions:\n{_matches([listing.sessions[at] for at in positions])}",
                hint="give more of the session's id",
            )


def _why(address: str, listing: Listing) -> str | None:
    """Say why the session of a full id is not there any more, if that was just read."""
    return listing.gone.get(address.lower())


def _matches(sessions: Sequence[Session]) -> str:
    # Without line breaks of their own: the printer keeps those between the lines.
    return "\n".join(
        f"  {visible(session.record.session_id)}  {visible(session.record.capsule_name)}" for session in sessions
    )
