"""Where does a `mur delegate` look for a capsule, and so `mur list`?"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from murmur.adapters.capsule_store import Store, StoredCapsule, StoreSearch, find_capsule, identity
from murmur.adapters.reasons import reason_of
from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.errors import CapsuleNotFound, StoreUnusable

CAPSULE_VARIABLE = "MURMUR_CAPSULE_DIR"
"""Tells the command of a stored capsule where that is."""


def here() -> Path:
    """Return the directory from which stores are looked for; raise `StoreUnusable` when it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise StoreUnusable(f"the current directory: {reason_of(error)}", hint="go to one that is there") from None


def stored_capsule(reference: CapsuleReference) -> StoredCapsule:
    """Find a capsule in the project we are in, else in that of the capsule whose command we are, else in one's own.

    A child works in a folder of its own, outside its project, and what it delegates to is mostly in there.
    Raises `CapsuleNotFound` and `CapsuleUnreadable`.
    """
    try:
        return find_capsule(reference, here(), os.environ)
    except CapsuleNotFound:
        ours = os.environ.get(CAPSULE_VARIABLE)
        if not ours:
            raise
    return find_capsule(reference, Path(ours), os.environ)


def stores_in_reach(warn: Callable[[str], object]) -> Iterator[Store]:
    """Give the stores that `stored_capsule` looks into, in that order. `warn` hears of those passed over."""
    starts = [here()]
    if ours := os.environ.get(CAPSULE_VARIABLE):
        starts.append(Path(ours))
    given, told = set(), set()
    for start in starts:
        search = StoreSearch(start, os.environ)
        for store in search:
            if (found := identity(store.path)) not in given:
                given.add(found)
                yield store
        for each in search.passed_over:
            if each not in told:
                told.add(each)
                warn(each)
