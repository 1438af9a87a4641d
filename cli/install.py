"""`mur install`: have a capsule in a store, whole."""

import os
from pathlib import Path
from typing import Annotated

import typer

from murmur.adapters.capsule_install import CapsuleSource, Installed, install_capsule, read_source
from murmur.adapters.capsule_store import Store, home_store, new_project_store, project_store
from murmur.adapters.manifest_file import parse_manifest
from murmur.cli.output import reporting, say, say_document, warn
from murmur.cli.stores import here
from murmur.domain.capsule_store import MANIFEST, CapsuleReference, capsule_reference
from murmur.domain.errors import CapsuleNotFound, ManifestRefused
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a murmur.yaml.")],
    own: Annotated[bool, typer.Option("--global", "-g", help="Into your own store, not the project's.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
) -> None:
    """Copy a capsule into the project's store, or into yours.

    Its murmur.yaml says under which name and version. Whole or not at all.
    """
    with reporting(as_json=as_json):
        store = _store(own=own)
        source = read_source(folder, store)
        reference = _reference_of(source)
        installed = install_capsule(source, reference, store, os.environ)
        if as_json:
            say_document(_as_json(reference, installed, store))
        elif installed.was_there:
            say(f"already installed: {reference} in {visible(str(installed.folder))}, with the same content")
        else:
            say(f"installed: {reference} in {visible(str(installed.folder))}")


def _store(*, own: bool) -> Store:
    if own:
        return home_store(os.environ)
    return project_store(here(), os.environ, warn) or new_project_store(here(), os.environ)


def _reference_of(source: CapsuleSource) -> CapsuleReference:
    """Read the manifest for what the capsule is called; raise `ManifestRefused`."""
    file = visible(str(source.folder / MANIFEST))
    manifest, unknown = parse_manifest(source.manifest, file)
    for each in unknown:
        warn(each)
    try:
        return capsule_reference(manifest.name, manifest.version)
    except CapsuleNotFound as error:
        raise ManifestRefused(f"{file}: {error.message}", hint=error.hint) from None


def _as_json(reference: CapsuleReference, installed: Installed, store: Store) -> dict[str, object]:
    return {
        "name": reference.name,
        "version": reference.version,
        "folder": str(installed.folder),
        "store": store.kind,
        "sha256": installed.digest,
        "outcome": "unchanged" if installed.was_there else "installed",
    }
