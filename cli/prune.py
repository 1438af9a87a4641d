"""`mur prune`: remove what evidence allows to remove, or one unverified record because a person says so (H5, L8)."""

from typing import Annotated

import typer

from murmur.adapters.running_directory import OpenRunningDirectory
from murmur.cli import wiring
from murmur.cli.output import note, reporting, say, say_document
from murmur.cli.registry_notes import removal_summary
from murmur.cli.resolving import session_of
from murmur.domain.errors import NotRemoved, NotVerified
from murmur.domain.files import Kept, Removed
from murmur.domain.listing import FileNote, Listing, remove_unverified
from murmur.domain.process import Unverified
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    unverified: Annotated[
        str | None,
        typer.Option(
            "--unverified",
            metavar="ADDRESS",
            help="Also remove this session's record, although its process cannot be verified.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
) -> None:
    """Remove records of sessions that are gone.

    And what crashed writers left; nothing without evidence.
    """
    with reporting(as_json=as_json), wiring.running_directory(create=not dry_run) as directory:
        listing = wiring.read_registry(directory, prune=not dry_run)
        kept: str | None = None
        if unverified is not None:
            kept = _remove_unverified(unverified, listing, directory, dry_run=dry_run)
        _tell(listing, dry_run=dry_run, as_json=as_json)
        if kept is not None:
            if as_json:
                raise typer.Exit(NotRemoved.exit_status)
            raise NotRemoved(kept)


def _remove_unverified(address: str, listing: Listing, directory: OpenRunningDirectory, *, dry_run: bool) -> str | None:
    """Remove one unverified record; say why not if it is still there."""
    session = session_of(address, listing)
    if not isinstance(session.state, Unverified):
        raise NotVerified(
            f"{visible(session.record.session_id)} is verified and running, so its record stays",
            hint="`mur stop` ends a session",
        )
    removal = Removed() if dry_run else remove_unverified(directory, session)
    name = f"{session.stem}.json"
    listing.note_removal(listing.pruned, name, f"unverified: {session.state.reason}", removal)
    return f"{visible(name)}: {visible(removal.reason)}" if isinstance(removal, Kept) else None


def _tell(listing: Listing, *, dry_run: bool, as_json: bool) -> None:
    removed = [*listing.pruned, *listing.removed]
    if as_json:
        say_document({"dry_run": dry_run, "removed": _as_json(removed), "kept": _as_json(listing.kept)})
        return
    for file in removed:
        say(f"{'would remove' if dry_run else 'removed'}: {visible(file.name)}: {visible(file.reason)}")
    for file in listing.kept:
        note(f"kept: {visible(file.name)}: {visible(file.reason)}")
    if not removal_summary(listing):
        say("nothing to prune")


def _as_json(files: list[FileNote]) -> list[dict[str, str]]:
    return [{"name": file.name, "reason": file.reason} for file in files]
