"""`mur list`: which capsules are there to be launched from here?"""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from murmur.adapters.capsule_store import home_store
from murmur.adapters.store_listing import ListedCapsule, list_capsules
from murmur.cli.output import reporting, say, say_document, warn
from murmur.cli.stores import stores_in_reach
from murmur.cli.table import table

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def list_(
    own: Annotated[bool, typer.Option("--global", "-g", help="Only those of your own store.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
) -> None:
    """List the capsules that can be launched from here.

    Those of the project's store and of yours, by name and version.
    """
    with reporting(as_json=as_json):
        stores = [home_store(os.environ)] if own else stores_in_reach(warn)
        capsules = list_capsules(stores, warn)
        if as_json:
            say_document([_as_json(each) for each in capsules])
        elif capsules:
            say("\n".join(_lines(capsules)))
        else:
            say("no capsules")


def _lines(capsules: Sequence[ListedCapsule]) -> list[str]:
    cells = [
        [each.name, each.version, f"{each.store.kind}, shadowed" if each.shadowed else each.store.kind]
        for each in capsules
    ]
    return table(["NAME", "VERSION", "STORE"], cells)


def _as_json(capsule: ListedCapsule) -> dict[str, object]:
    return {
        "name": capsule.name,
        "version": capsule.version,
        "folder": str(capsule.folder),
        "store": capsule.store.kind,
        "shadowed": capsule.shadowed,
    }
