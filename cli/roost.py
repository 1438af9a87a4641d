"""`mur roost`: one referee for many who delegate, for as long as it runs."""

import gc
from typing import Annotated

import typer

from murmur.cli.output import reporting

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def roost(
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Where it listens; 0 picks one.")
    ] = 7700,
    spawn_allow: Annotated[
        list[str] | None,
        typer.Option(
            "--spawn-allow",
            metavar="NAME",
            help="A capsule that may be launched from a shell, and by sessions that nobody launched. Repeatable.",
        ),
    ] = None,
    max_depth: Annotated[
        int, typer.Option("--max-depth", metavar="N", min=1, help="How many launches may follow from one another.")
    ] = 3,
    max_concurrent: Annotated[
        int, typer.Option("--max-concurrent", metavar="N", min=1, help="How many children one may have at once.")
    ] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Say where it is as one line of JSON.")] = False,
) -> None:
    """Approve launches for every `mur delegate` that finds this roost in MURMUR_ROOST_URL.

    On 127.0.0.1 alone, until SIGTERM, SIGINT or SIGHUP. What it decides is told on stderr.
    """
    with reporting(as_json=as_json):
        from murmur.cli.roosting import Roost, run_roost  # noqa: PLC0415 - `--help` needs none of it

        gc.enable()  # It stays, and has imported by now what there is to import.
        run_roost(Roost(port, _names(spawn_allow or []), max_depth, max_concurrent, as_json))


def _names(given: list[str]) -> frozenset[str]:
    from murmur.domain.capsule_store import CAPSULE_NAME  # noqa: PLC0415 - as above
    from murmur.domain.visible_text import visible_start  # noqa: PLC0415

    for name in given:
        if CAPSULE_NAME.fullmatch(name) is None:
            shown = visible_start(name, 100)
            raise typer.BadParameter(
                f"--spawn-allow {shown}: give a capsule's name, without a version, such as worker or scope/worker"
            )
    return frozenset(given)
