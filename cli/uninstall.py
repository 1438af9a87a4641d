"""`mur uninstall`: have one version of a capsule out of a store, and nothing else."""

import os
from typing import Annotated

import typer

from murmur.adapters.capsule_install import uninstall_capsule
from murmur.adapters.capsule_store import Store, home_store, project_store
from murmur.cli.output import note, reporting, say, say_document, warn
from murmur.cli.stores import here
from murmur.domain.capsule_store import parse_reference
from murmur.domain.errors import CapsuleNotFound
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def uninstall(
    capsule: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Exactly this version.")],
    own: Annotated[bool, typer.Option("--global", "-g", help="From your own store, not the project's.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
) -> None:
    """Remove one version of a capsule from the project's store, or from yours.

    Sessions of it that run are not ended.
    """
    with reporting(as_json=as_json):
        reference = parse_reference(capsule)
        store = _store(own=own)
        removed = uninstall_capsule(reference, store)
        if as_json:
            say_document(
                {
                    "name": reference.name,
                    "version": reference.version,
                    "folder": str(removed.folder),
                    "store": store.kind,
                }
            )
        else:
            say(f"uninstalled: {reference} from {visible(str(removed.folder))}")
            note("sessions of it that run were not ended (`mur ps` lists them)")
        if removed.left is not None:
            warn(f"not all of its files could be removed: {removed.left}")


def _store(*, own: bool) -> Store:
    if own:
        return home_store(os.environ)
    store = project_store(here(), os.environ, warn)
    if store is None:
        raise CapsuleNotFound(
            f"there is no project in {visible(str(here()))} or above it", hint="for your own store give -g"
        )
    return store
