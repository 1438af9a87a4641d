"""What does a capsule's manifest say is to be hosted?"""

import os
from collections.abc import Sequence
from pathlib import Path

from murmur.adapters.env_file import read_env_file as read_env_file_of
from murmur.adapters.manifest_file import read_manifest
from murmur.cli.launch import Launch
from murmur.cli.output import warn
from murmur.domain.command_environment import environment_for
from murmur.domain.manifest import Manifest


def launch_from_manifest(path: Path, workdir: Path, *, read_env_file: bool) -> Launch:
    """Read a manifest and the `.env` beside it. Raises `MurmurError` with nothing started."""
    manifest, unknown = read_manifest(path)
    return launch_of(manifest, unknown, path.parent, workdir, read_env_file=read_env_file)


def launch_of(
    manifest: Manifest, unknown: Sequence[str], folder: Path, workdir: Path, *, read_env_file: bool
) -> Launch:
    """Say what a manifest in that folder wants hosted, and warn of what is unknown in it. Raises `MurmurError`."""
    beside, unset = read_env_file_of(folder / ".env") if read_env_file else ({}, [])
    for warning in [*unknown, *unset]:
        warn(warning)
    network, lifecycle = manifest.network, manifest.lifecycle
    authentication = network.authentication
    script = manifest.process.kind == "script"
    return Launch(
        name=manifest.name,
        version=manifest.version,
        argv=manifest.process.command,
        workdir=workdir,
        environment=environment_for(manifest.capabilities.env.allow, os.environ, beside),
        port=network.internal_port,
        acceptance="none" if script else lifecycle.task_acceptance,
        after_task=lifecycle.after_task,
        queue_depth=lifecycle.queue_depth,
        threaded=lifecycle.conversation == "threaded",
        credentials=None
        if authentication is None
        else {name: credential.scopes for name, credential in authentication.credentials.items()},
        controlled=manifest.control is not None,
        script=script,
        spawn_allow=tuple(manifest.capabilities.spawn.allow),
    )
