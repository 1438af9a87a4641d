"""`mur stop`: end exactly these sessions (O2)."""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated

import typer

from murmur.adapters.stopping import Stopping
from murmur.cli import wiring
from murmur.cli.output import report, reporting, say, say_document
from murmur.cli.resolving import read_rows, session_of
from murmur.cli.stop_report import Target, ending_lines, exit_status, failure_of, plan_line, target_json
from murmur.domain.errors import AmbiguousAddress, NoSuchSession
from murmur.domain.listing import Listing, Session, prune_session
from murmur.domain.stop import Ending, Outcome, StopMachine

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def stop(
    addresses: Annotated[
        list[str] | None, typer.Argument(metavar="ADDRESS...", help="@N, a session id or its end.")
    ] = None,
    all_sessions: Annotated[bool, typer.Option("--all", help="Every session that `mur ps` shows.")] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0, max=86400, help="Seconds between SIGTERM and SIGKILL."),
    ] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be signalled.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of text.")] = False,
) -> None:
    """End sessions, and nothing else.

    Their doors are asked to cancel tasks; then SIGTERM, one grace for all, and SIGKILL.
    """
    if bool(addresses) == all_sessions:
        raise typer.BadParameter("give the addresses of sessions, or --all, not both")
    if not isfinite(timeout):
        raise typer.BadParameter("--timeout is a number of seconds")
    with reporting(as_json=as_json):
        listing = read_rows()
        if all_sessions:
            addresses = [session.record.session_id for session in listing.sessions]
        targets = _end(addresses or [], listing, timeout, dry_run=dry_run)
        if as_json:
            say_document([target_json(target, planned=dry_run) for target in targets])
        else:
            _tell(targets, planned=dry_run)
        raise typer.Exit(0 if dry_run and all(target.ending for target in targets) else exit_status(targets))


def _end(addresses: Sequence[str], listing: Listing, timeout: float, *, dry_run: bool) -> list[Target]:
    """End what the addresses mean; each session once, however often it is named."""
    found: dict[str, Session | NoSuchSession] = {}
    for address in addresses:
        try:
            found[address] = session_of(address, listing)
        except NoSuchSession as error:
            found[address] = error
    sessions = {each.record.session_id: each for each in found.values() if isinstance(each, Session)}
    machine = StopMachine(list(sessions.values()), timeout)
    if not dry_run:
        Stopping(machine, wiring.processes, wiring.exits, wiring.stop_doors, wiring.clock).run()
        _prune(machine.endings)
    endings = dict(zip(sessions, machine.endings, strict=True))
    return [_target(address, each, endings) for address, each in found.items()]


def _target(address: str, found: Session | NoSuchSession, endings: dict[str, Ending]) -> Target:
    if isinstance(found, NoSuchSession):
        return Target(address, None, found, ambiguous=isinstance(found, AmbiguousAddress))
    return Target(address, endings[found.record.session_id])


def _prune(endings: Sequence[Ending]) -> None:
    """Remove the records of the sessions that are gone now, if they have not removed them themselves."""
    ended = (Outcome.STOPPED, Outcome.KILLED, Outcome.ALREADY_GONE)
    with wiring.running_directory(create=False) as directory:
        for ending in endings:
            if ending.outcome in ended:
                prune_session(directory, ending.session, wiring.processes)


def _tell(targets: Sequence[Target], *, planned: bool) -> None:
    if not targets:
        say("no running capsules")
    for position, target in enumerate(targets):
        failure = failure_of(target)
        if failure is not None:
            report(failure, as_json=False)
        elif target.ending is not None and planned:
            say(plan_line(target.ending))
        elif target.ending is not None:
            say("\n".join([*([""] if position else []), *ending_lines(target.ending)]))
