"""Where does a child work? In a fresh private folder of its parent's records directory (C2, C3)."""

import os
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.beneath import NotReached, make_private
from murmur.adapters.identifiers import random_hex
from murmur.domain.errors import ChildNotLaunched
from murmur.domain.launch.argv import WorkdirIdentity, child_directory_name
from murmur.domain.value import Value

CHILDREN = "children"


class ChildWorkdir(Value):
    """A work folder just made, open by descriptor: what it is cannot change any more, whatever its path names."""

    path: Path
    descriptor: int
    identity: WorkdirIdentity


def make_child_workdir(opened: ExitStack, records: int, records_path: Path, capsule_name: str) -> ChildWorkdir:
    """Make the work folder of one child, open until `opened` is left; raise `ChildNotLaunched` naming a link."""
    place = records_path / CHILDREN
    path = place / child_directory_name(capsule_name, random_hex(8))
    try:
        children = make_private(records, CHILDREN, place, fresh=False)
        try:
            descriptor = make_private(children, path.name, path, fresh=True)
        finally:
            os.close(children)
    except NotReached as error:
        raise ChildNotLaunched(f"the child capsule's work folder cannot be made: {error}") from error
    opened.callback(os.close, descriptor)
    found = os.fstat(descriptor)
    return ChildWorkdir(path, descriptor, WorkdirIdentity(found.st_dev, found.st_ino))
