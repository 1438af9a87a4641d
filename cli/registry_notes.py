"""What is a person told about the files of the running directory? (O1, S2, S3)."""

from collections.abc import Sequence

from murmur.cli.output import note
from murmur.domain.listing import FileNote, Listing
from murmur.domain.visible_text import visible

_NAMED = 10
"""How many kept files are named without `--verbose`."""


def tell_of_files(listing: Listing, *, verbose: bool) -> None:
    """Say on stderr what was removed, in one line, and which files were kept for which reason."""
    if summary := removal_summary(listing):
        note(summary if verbose else f"{summary} (--verbose names them)")
    if verbose:
        _name_each("removed", [*listing.pruned, *listing.removed])
        _name_each("vanished", [FileNote(name, "its session ended meanwhile") for name in listing.vanished])
    _name_each("kept", listing.kept if verbose else listing.kept[:_NAMED])
    if not verbose and len(listing.kept) > _NAMED:
        note(f"kept: {len(listing.kept) - _NAMED} more files (--verbose names them)")


def removal_summary(listing: Listing, verb: str = "pruned") -> str:
    """Count what was removed, or would be; empty when there is nothing."""
    counts = [
        _count(len(listing.pruned), "stale record"),
        _count(len(listing.removed), "unreadable or leftover file"),
    ]
    told = " and ".join(count for count in counts if count)
    return f"{verb} {told}" if told else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""


def _name_each(verb: str, files: Sequence[FileNote]) -> None:
    for file in files:
        note(f"{verb}: {visible(file.name)}: {visible(file.reason)}")
