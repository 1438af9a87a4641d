"""Where does a `mur delegate` look for a capsule?"""

import os
from pathlib import Path

from murmur.adapters.capsule_store import StoredCapsule, find_capsule
from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.errors import CapsuleNotFound

CAPSULE_VARIABLE = "MURMUR_CAPSULE_DIR"
"""Tells the command of a stored capsule where that is."""


def stored_capsule(reference: CapsuleReference) -> StoredCapsule:
    """Find a capsule in the project we are in, else in that of the capsule whose command we are, else in one's own.

    A child works in a folder of its own, outside its project, and what it delegates to is mostly in there.
    Raises `CapsuleNotFound` and `CapsuleUnreadable`.
    """
    try:
        return find_capsule(reference, Path.cwd(), os.environ)
    except CapsuleNotFound:
        ours = os.environ.get(CAPSULE_VARIABLE)
        if not ours:
            raise
    return find_capsule(reference, Path(ours), os.environ)
