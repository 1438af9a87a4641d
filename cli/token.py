"""`mur token`: the token of a session's door, and nothing else (O3)."""

from typing import Annotated

import typer

from murmur.cli.output import reporting, say
from murmur.cli.resolving import read_rows, session_of
from murmur.domain.errors import NoSuchSession, PublicDoor, UnknownCredential
from murmur.domain.listing import Listing, Session
from murmur.domain.secret import DoorToken
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def token(
    address: Annotated[
        str | None,
        typer.Argument(metavar="[ADDRESS]", help="@N, a session id or its end. Needed where several sessions run."),
    ] = None,
    credential: Annotated[
        str | None,
        typer.Option("--credential", metavar="NAME", help="A declared credential's token instead."),
    ] = None,
) -> None:
    """Print the token of a session's door.

    The token and a newline, nothing else.
    """
    with reporting(as_json=False):
        listing = read_rows()
        session = _only(listing) if address is None else session_of(address, listing)
        say(_token(session, credential).expose())


def _only(listing: Listing) -> Session:
    match listing.sessions:
        case [only]:
            return only
        case []:
            raise NoSuchSession("no session is running", hint="`mur ps` lists what is running")
        case several:
            raise NoSuchSession(
                f"{len(several)} sessions are running, so an address is needed",
                hint="`mur ps` lists what is running",
            )


def _token(session: Session, credential: str | None) -> DoorToken:
    record = session.record
    if record.door_token is None:
        raise PublicDoor(f"the door of {visible(record.session_id)} is public: it needs no token")
    if credential is None or credential == "operator":
        return record.door_token
    if credential in record.credentials:
        return record.credentials[credential]
    names = ", ".join(("operator", *(visible(name) for name in record.credentials)))
    raise UnknownCredential(
        f"session {visible(record.session_id)} has no credential {credential}", hint=f"it has: {names}"
    )
