"""Which capsules do the stores hold? By their names alone: nothing in them is read."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from murmur.adapters.capsule_folder import kind_of, unread, unreadable
from murmur.adapters.capsule_store import Store, manifest_kind, open_level, open_levels
from murmur.domain.capsule_store import MANIFEST, is_name_part, is_version, version_order
from murmur.domain.errors import CapsuleUnreadable
from murmur.domain.value import Value


class ListedCapsule(Value):
    """A folder of a store with a `murmur.yaml`."""

    name: str
    version: str
    folder: Path
    store: Store
    shadowed: bool
    """Whether a nearer store has one of that name and version, which goes first."""


def list_capsules(stores: Iterable[Store], warn: Callable[[str], object]) -> list[ListedCapsule]:
    """List what the stores hold, the nearest first, by name and version.

    `warn` hears of each entry that could not be looked at. Raises `OutOfDescriptors`.
    """
    found: list[ListedCapsule] = []
    seen: set[tuple[str, str]] = set()
    for store in stores:
        here = list(_StoreReading(store, warn).capsules())
        found += [ListedCapsule(name, version, path, store, (name, version) in seen) for name, version, path in here]
        seen |= {(name, version) for name, version, _ in here}
    return sorted(found, key=lambda each: (each.name, version_order(each.version)))


class _StoreReading:
    """One store while it is looked through."""

    def __init__(self, store: Store, warn: Callable[[str], object]) -> None:
        self._store = store
        self._warn = warn

    def capsules(self) -> Iterator[tuple[str, str, Path]]:
        """Give the name, version and folder of each."""
        with self._told(), ExitStack() as opened:
            levels = open_levels(opened, self._store.path, ())
            if levels is not None:
                for name in self._directories(self._store.path, levels[0], is_name_part):
                    yield from self._of_name(name, self._store.path / name, levels[0])

    def _of_name(self, name: str, path: Path, parent: int) -> Iterator[tuple[str, str, Path]]:
        """Look at what is beneath a name: its versions, or names whose scope it is."""
        with self._told(), ExitStack() as opened:
            descriptor = open_level(path, parent)
            if descriptor is None:
                return
            opened.callback(os.close, descriptor)
            for inner in self._directories(path, descriptor, is_version):
                place = path / inner
                is_capsule = self._is_capsule(place, descriptor)
                if is_capsule:
                    yield name, inner, place
                elif is_capsule is False and "/" not in name and is_name_part(inner):
                    yield from self._of_name(f"{name}/{inner}", place, descriptor)

    def _directories(self, path: Path, descriptor: int, is_wanted: Callable[[str], bool]) -> Iterator[str]:
        """Give the directories that have a name a store has a use for. A link in the place of one is told of."""
        names = []
        with self._told():
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        if is_wanted(entry.name):
                            if entry.is_symlink():
                                self._warn(
                                    str(unreadable(path / entry.name, "it is a link; a store holds directories"))
                                )
                            elif entry.is_dir(follow_symlinks=False):
                                names.append(entry.name)
            except OSError as error:
                raise unread(path, error) from error
        yield from names

    def _is_capsule(self, path: Path, parent: int) -> bool | None:
        """Whether that directory holds a manifest; `None`, and told, where it could not be looked at."""
        found: list[bool] = []
        with self._told(), ExitStack() as opened:
            descriptor = open_level(path, parent)
            if descriptor is None:
                return False
            opened.callback(os.close, descriptor)
            mode = manifest_kind(path, descriptor)
            if mode is not None and not stat.S_ISREG(mode):
                kind = "a directory" if stat.S_ISDIR(mode) else kind_of(mode)
                raise unreadable(path / MANIFEST, f"it is {kind}; a manifest is a regular file")
            found.append(mode is not None)
        return found[0] if found else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what could not be looked at into a warning, and go on without it."""
        try:
            yield
        except CapsuleUnreadable as error:
            self._warn(error.message)
