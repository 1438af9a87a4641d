"""`mur ps`: which sessions are really there? (O1)."""

from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Annotated

import typer

from murmur.cli import wiring
from murmur.cli.output import in_colour, is_terminal, note, reporting, say, say_document
from murmur.cli.registry_notes import tell_of_files
from murmur.cli.table import table, width
from murmur.domain.listing import Session
from murmur.domain.liveness import Live, Liveness, Unreachable, with_doors
from murmur.domain.process import Gone
from murmur.domain.uptime import uptime_text
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLOURS = {"running": "\x1b[32m", "unreachable": "\x1b[33m"}
_SHORT = 12
"""How many characters of an id are shown where a whole one does not fit: the end, which is an address as well."""

_Row = tuple[Session, Liveness]


@app.command()
def ps(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also name every file removed or kept.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="Draw who spawned whom, each row with its @N; --json stays flat.")
    ] = False,
) -> None:
    """List the sessions that are really running.

    Newest first. Records of sessions that are gone are removed.
    """
    with reporting(as_json=as_json):
        with wiring.running_directory(create=True) as directory:
            listing = wiring.read_registry(directory, prune=True)
        sessions = listing.sessions
        verdicts = with_doors(
            [session.record for session in sessions], [session.state for session in sessions], wiring.doors
        )
        rows = [
            (session, verdict)
            for session, verdict in zip(sessions, verdicts, strict=True)
            if not isinstance(verdict, Gone)
        ]
        if as_json:
            say_document([_as_json(session, verdict) for session, verdict in rows])
        elif rows:
            say("\n".join(_tree_lines(rows) if tree else _lines(rows)))
        else:
            say("no running capsules")
        tell_of_files(listing, verbose=verbose)
        if not as_json:
            for session, verdict in rows:
                if isinstance(verdict, Unreachable):
                    note(f"unreachable: {visible(session.record.session_id)}: {visible(verdict.reason)}")


def _as_json(session: Session, verdict: Liveness) -> dict[str, object]:
    """Say all that a program may know of one session: everything but its tokens."""
    record = session.record
    return {
        "session_id": record.session_id,
        "capsule_name": record.capsule_name,
        "capsule_version": record.capsule_version,
        "status": _status(verdict),
        "reason": verdict.reason if isinstance(verdict, Unreachable) else None,
        "pid": record.pid,
        "url": record.url,
        "workdir": record.workdir,
        "started_at": record.started_at,
        "outlives_launcher": record.outlives_launcher,
        "formation_id": record.formation_id,
        "spawned_by": record.spawned_by,
    }


def _status(verdict: Liveness) -> str:
    return "running" if isinstance(verdict, Live) else "unreachable"


def _lines(rows: Sequence[_Row]) -> list[str]:
    whole = _table(rows)
    if _is_too_wide(whole):
        whole = _table(rows, most=_SHORT)
    return _drawn(whole)


def _tree_lines(rows: Sequence[_Row]) -> list[str]:
    # Imported by who wants it: a plain listing pays nothing for it.
    from murmur.cli.tree import as_tree, narrower  # noqa: PLC0415

    lineage = [(session.record.session_id, session.record.spawned_by or None) for session, _ in rows]
    whole = as_tree(_table(rows), lineage, None)
    if _is_too_wide(whole):
        whole = as_tree(_table(rows, most=_SHORT), lineage, _SHORT)
    while _is_too_wide(whole) and (less := narrower(whole)) is not None:
        whole = less
    return _drawn(whole)


def _table(rows: Sequence[_Row], *, most: int | None = None) -> list[list[str]]:
    """Say all that a person is shown: the heading and a line of cells a row, of an id only the last `most`."""
    formations = any(session.record.formation_id for session, _ in rows)
    heading = [
        "SESSION",
        "CAPSULE",
        "STATUS",
        "DETACHED",
        "UPTIME",
        *(["FORMATION"] if formations else []),
        "URL",
    ]
    now, end = wiring.clock.now(), slice(None if most is None else -most, None)
    cells = [
        [
            session.record.session_id[end],
            f"{session.record.capsule_name}@{session.record.capsule_version}",
            _status(verdict),
            "yes" if session.record.outlives_launcher else "no",
            uptime_text(session.record.started_at, now),
            *([(session.record.formation_id or "-")[end]] if formations else []),
            session.record.url,
        ]
        for session, verdict in rows
    ]
    return [heading, *cells]


def _is_too_wide(lines: Sequence[Sequence[str]]) -> bool:
    """Whether a table does not fit the terminal that it goes to."""
    return is_terminal() and max(width(line) for line in table(lines[0], lines[1:])) > get_terminal_size().columns


def _drawn(lines: Sequence[Sequence[str]]) -> list[str]:
    return table(lines[0], lines[1:], _COLOURS if in_colour() else {})
