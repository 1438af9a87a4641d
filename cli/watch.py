"""`mur watch`: follow what a session does, until it ends."""

from typing import Annotated

import typer

from murmur.cli.asking import session_to_ask
from murmur.cli.output import reporting
from murmur.cli.resolving import read_rows
from murmur.domain.errors import NoSuchSession

_NUMBERS = 2**64

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def watch(
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="@N, a session id or its end; needless for the only one.")
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            "--after",
            metavar="NUMBER",
            help="Go on behind the event of that number; if there is none yet, now.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Follow what a session says and does.

    Its output goes to stdout, the rest to stderr. ^C ends the watching, not the session. Exit status 0 when the session
    has ended and everything was shown, 1 when the connection was lost before.
    """
    if after is not None and not 0 <= after < _NUMBERS:
        raise typer.BadParameter("--after takes the number of an event")
    with reporting(as_json=as_json):
        from murmur.cli.watching import Watching  # noqa: PLC0415 - `--help` needs none of it
        from murmur.domain.watching import watch_ask  # noqa: PLC0415 - as above

        record = session_to_ask(_only_one() if address is None else address).record
        Watching(record, as_json=as_json).run(lambda: watch_ask(record.url, record.door_token, after))


def _only_one() -> str:
    """Return the address of the only session; raise `NoSuchSession` where there is none, or more than one."""
    count = len(read_rows().sessions)
    if count == 1:
        return "@1"
    if count == 0:
        raise NoSuchSession("no session is running", hint="`mur run` starts one")
    raise NoSuchSession(f"{count} sessions are running, so one must be named", hint="`mur ps` lists them")
