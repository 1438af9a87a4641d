"""What does a capsule of the store say is to be hosted, and may it be? (M2)."""

import os
from pathlib import Path

from murmur.adapters.capsule_store import StoredCapsule, capsule_at, find_capsule
from murmur.adapters.identifiers import mint
from murmur.adapters.manifest_file import parse_manifest
from murmur.adapters.referee_client import register
from murmur.cli.from_manifest import launch_of
from murmur.cli.launch import Launch, Membership
from murmur.cli.stores import CAPSULE_VARIABLE
from murmur.domain.capsule_store import MANIFEST, CapsuleReference, capsule_reference
from murmur.domain.errors import CapsuleUnreadable, LaunchRefused, SpawnRefused
from murmur.domain.secret import SpawnApproval
from murmur.domain.visible_text import visible

ROOST_VARIABLE = "MURMUR_ROOST_URL"


def launch_from_store(
    name: str, version: str, workdir: Path, grant: SpawnApproval | None, *, read_env_file: bool
) -> Launch:
    """Find a capsule and read its manifest; with an approval, register as its child first, which spends it.

    Raises `MurmurError` with nothing started.
    """
    reference = capsule_reference(name, version)
    session_id = mint("ses_")
    membership = None
    if grant is None:
        capsule = find_capsule(reference, Path.cwd(), os.environ)
    else:
        membership, capsule = _registered(grant, session_id, reference)
    file = capsule.folder / MANIFEST
    manifest, unknown = parse_manifest(capsule.manifest, visible(str(file)))
    if (manifest.name, manifest.version) != (name, version):
        said = visible(f"{manifest.name}@{manifest.version}")
        raise CapsuleUnreadable(f"{visible(str(file))} says that it is {said}, and the store that it is {reference}")
    launch = launch_of(manifest, unknown, capsule.folder, workdir, read_env_file=read_env_file)
    environment = {**launch.environment, CAPSULE_VARIABLE: str(capsule.folder)}
    if membership is not None:
        # Its command asks as this session, within the depth that is left to it, and not as anybody.
        environment.pop(ROOST_VARIABLE, None)
    return launch.replaced(
        argv=[_beside(capsule.folder, launch.argv[0]), *launch.argv[1:]],
        environment=environment,
        session_id=session_id,
        membership=membership,
    )


def _registered(grant: SpawnApproval, session_id: str, reference: CapsuleReference) -> tuple[Membership, StoredCapsule]:
    """Register with the referee, which says where the capsule is; what it approved must be there."""
    roost = os.environ.get(ROOST_VARIABLE)
    if not roost:
        raise LaunchRefused(f"{ROOST_VARIABLE} does not say which referee takes the approval")
    registered = register(roost, grant, session_id, reference.name, reference.version)
    if registered.folder is None:
        capsule = find_capsule(reference, Path.cwd(), os.environ)
    else:
        capsule = capsule_at(Path(registered.folder), reference)
    if registered.sha256 is not None and registered.sha256 != capsule.digest:
        raise SpawnRefused(f"the files of {reference} changed after its launch was approved")
    depth = registered.depth_remaining, registered.depth_limit
    return Membership(roost, registered.credential, *depth), capsule


def _beside(folder: Path, program: str) -> str:
    """Return a program that is named by a relative path as the file of the capsule; any other is found by PATH."""
    return str(folder / program) if "/" in program and not program.startswith("/") else program
