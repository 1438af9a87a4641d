"""May these capsules be delegated to, with this task and these variables? What could only fail later is refused."""

import os
from collections.abc import Sequence
from contextlib import suppress

from murmur.adapters.capsule_store import StoredCapsule
from murmur.adapters.completions import Warn
from murmur.adapters.descriptors import exhausted, spare_descriptors
from murmur.adapters.manifest_file import parse_manifest
from murmur.adapters.spawning import raise_limit
from murmur.cli.stores import stored_capsule
from murmur.domain.capsule_store import MANIFEST, CapsuleReference, parse_reference
from murmur.domain.errors import CapsuleUnreadable, MurmurError, SpawnRefused
from murmur.domain.manifest import Manifest
from murmur.domain.side_by_side import called
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_DESCRIPTORS = 26
"""How many one delegation needs at most, its doors and what it imports included."""
_EACH_MORE = 16
"""How many each further one needs that runs at the same time, at the moment at which it needs most: 15 were seen."""
_GIVEN = ("PATH", "HOME", "LOGNAME", "USER")
"""What every child gets."""


class Wanted(Value):
    """What is to be delegated."""

    capsules: Sequence[str]
    """Each `NAME@VERSION`."""
    task: str | None
    deadline: float | None
    """Seconds, for each from when it is ready, for a script from its start."""
    env: Sequence[str] = ()
    """The variables that each capsule must get."""
    at_once: int = 1
    """How many run at the same time, at most."""


class Planned(Value):
    """One child to be launched."""

    capsule: str
    """`NAME@VERSION`."""
    reference: CapsuleReference
    title: str
    """What it is called where there are several."""
    prefix: str
    """What stands before each line of its output."""
    manifest: Manifest
    task: str | None
    deadline: float | None

    @property
    def is_script(self) -> bool:
        """Whether it has no door, and reports itself when it is done."""
        return _is_script(self.manifest)

    def changed_since(self, digest: str | None) -> bool:
        """Whether the store holds something else by now than what had that digest."""
        with suppress(MurmurError):
            return digest is not None and stored_capsule(self.reference).digest != digest
        return False


def plan(wanted: Wanted, warn: Warn) -> list[Planned]:
    """Find and check all that is wanted, in order. Raises `MurmurError`, which names the capsule, for the first fault.

    `warn` is told what is odd about a manifest.
    """
    references = [parse_reference(capsule) for capsule in wanted.capsules]
    manifests: dict[str, Manifest] = {}
    for capsule, reference in zip(wanted.capsules, references, strict=True):
        if capsule not in manifests:
            manifests[capsule] = _manifest(reference, stored_capsule(reference), warn)
            _check(capsule, manifests[capsule], wanted)
    return [
        Planned(capsule, reference, name.title, name.prefix, manifests[capsule], wanted.task, wanted.deadline)
        for capsule, reference, name in zip(wanted.capsules, references, called(references), strict=True)
    ]


def insist_on_descriptors(at_once: int) -> None:
    """Raise `OutOfDescriptors` where there are too few for so many at once: one would fail somewhere on the way."""
    needed = _DESCRIPTORS + (at_once - 1) * _EACH_MORE
    if at_once > 1:
        raise_limit()
    if spare_descriptors(needed) < needed:
        raise exhausted("delegate with" if at_once == 1 else f"delegate to {at_once} at once with")


def _manifest(reference: CapsuleReference, capsule: StoredCapsule, warn: Warn) -> Manifest:
    file = visible(str(capsule.folder / MANIFEST))
    manifest, unknown = parse_manifest(capsule.manifest, file)
    for warning in unknown:
        warn(warning)
    named = f"{manifest.name}@{manifest.version}"
    if named != str(reference):
        raise CapsuleUnreadable(f"{file} says that it is {visible(named)}, not {reference}")
    return manifest


def _check(capsule: str, manifest: Manifest, wanted: Wanted) -> None:
    declared = manifest.capabilities.env.allow
    for name in wanted.env:
        if name in _GIVEN:
            continue
        if name not in declared:
            raise SpawnRefused(f"{capsule} does not declare {visible(name)} in capabilities.env.allow")
        if name not in os.environ:
            raise SpawnRefused(f"{visible(name)} is not set, so {capsule} cannot get it")
    is_script = _is_script(manifest)
    takes_tasks = is_script or manifest.lifecycle.task_acceptance != "none"
    if wanted.task is not None and not takes_tasks:
        raise SpawnRefused(f"{capsule} takes no task: its manifest says `task_acceptance: none`")
    if wanted.task is None and takes_tasks and not is_script:
        raise SpawnRefused(f"{capsule} waits for a task", hint="give it with --task TEXT|FILE")


def _is_script(manifest: Manifest) -> bool:
    return manifest.process.kind == "script"
