"""Which store holds a capsule?

The project's store is searched before one's own. Beneath a store no link is followed.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

from murmur.adapters.capsule_folder import DIRECTORY, read_folder, unread, unreadable
from murmur.adapters.murmur_home import murmur_home
from murmur.domain.capsule_store import MANIFEST, CapsuleReference
from murmur.domain.errors import CapsuleNotFound, CapsuleUnreadable, RegistryUnusable, StoreUnusable
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_MURMUR = Path(".murmur")
_STORE = _MURMUR / "artifacts"
_TRIES = 100
_ABSENT = (errno.ENOENT, errno.ENAMETOOLONG)


class Store(Value):
    """A directory that holds capsules, or is to."""

    path: Path
    kind: Literal["project", "home"]


class StoredCapsule(Value):
    """A capsule that a store holds, as it was when it was read."""

    hidden = ("manifest",)
    name: str
    version: str
    folder: Path
    digest: str
    """What stands for everything in the folder: see `FolderDigest`."""
    manifest: bytes
    """What its `murmur.yaml` holds: the very bytes that are in the digest."""


def find_capsule(reference: CapsuleReference, start: Path, environment: Mapping[str, str]) -> StoredCapsule:
    """Find a capsule in the stores above `start`, the nearest first, then in `~/.murmur/artifacts`, and read it.

    Raises `CapsuleNotFound`, which says where it looked, and `CapsuleUnreadable`.
    """
    search = StoreSearch(start, environment)
    for store in search:
        found = capsule_in(store.path, reference)
        if found is not None:
            return found
    raise CapsuleNotFound(
        f"there is no capsule {reference}: looked in {'; '.join(search.looked)}",
        hint=f"a store holds it as .murmur/artifacts/{reference.name}/{visible(reference.version)}/{MANIFEST}",
    )


def capsule_at(folder: Path, reference: CapsuleReference) -> StoredCapsule:
    """Read a capsule in the very folder that was found for it; raise `CapsuleNotFound`, `CapsuleUnreadable`."""
    levels = reference.levels
    if not folder.is_absolute() or ".." in folder.parts or folder.parts[-len(levels) :] != levels:
        raise CapsuleNotFound(f"no store holds {reference} in {visible(str(folder))}")
    found = capsule_in(folder.parents[len(levels) - 1], reference)
    if found is None:
        raise CapsuleNotFound(f"there is no capsule {reference} in {visible(str(folder))}")
    return found


class StoreSearch:
    """The stores to look into from a directory, the nearest first and one's own last."""

    def __init__(self, start: Path, environment: Mapping[str, str]) -> None:
        self._start = start
        self._environment = environment
        self.looked: list[str] = []
        """What to say of each that was given, and of those passed over."""
        self.passed_over: list[str] = []
        """Of those alone."""

    def __iter__(self) -> Iterator[Store]:
        """Give them one by one, each as soon as it is found."""
        try:
            home = murmur_home(self._environment) / "artifacts"
        except RegistryUnusable as error:
            home, no_home = None, error.message
        else:
            no_home = ""
        own = None if home is None else identity(home)
        before = len(self.looked)
        directory = Path(os.path.realpath(self._start))
        for above in (directory, *directory.parents):
            store = above / _STORE
            found = identity(store)
            if found is None or found == own:
                continue
            if not is_trusted(store.parent, store):
                # In a directory that others may write to, such as /tmp, anybody can put a store above ours.
                self._pass_over(f"not in {visible(str(store))}, which belongs to another user")
                continue
            self.looked.append(visible(str(store)))
            yield Store(store, "project")
        if len(self.looked) == before:
            self.looked.append(f"no {_STORE} in {visible(str(directory))} or above it")
        if home is None:
            self._pass_over(f"no store of yours ({no_home})")
        else:
            self.looked.append(visible(str(home)))
            yield Store(home, "home")

    def _pass_over(self, what: str) -> None:
        self.looked.append(what)
        self.passed_over.append(what)


def home_store(environment: Mapping[str, str]) -> Store:
    """Return one's own store, which need not be there; raise `RegistryUnusable` when HOME does not say where."""
    return Store(murmur_home(environment) / "artifacts", "home")


def project_store(start: Path, environment: Mapping[str, str], passed_over: Callable[[str], object]) -> Store | None:
    """Return the store of the nearest project, which need not be there yet; `None` where there is no project.

    A project is the first directory from `start` upwards that has a `.murmur` which is nobody's home. `passed_over`
    hears of those that belong to another user.
    """
    own = _own_murmur(environment)
    directory = Path(os.path.realpath(start))
    for above in (directory, *directory.parents):
        found = identity(above / _MURMUR)
        if found is None or found == own or _is_a_home(above / _MURMUR):
            continue
        store = above / _STORE
        if is_trusted(above / _MURMUR, *([store] if os.path.lexists(store) else [])):
            return Store(store, "project")
        passed_over(f"not in {visible(str(store))}, which belongs to another user")
    return None


def new_project_store(start: Path, environment: Mapping[str, str]) -> Store:
    """Return the store that will make `start` a project; raise `StoreUnusable` for home, which is none."""
    directory = Path(os.path.realpath(start))
    with suppress(RegistryUnusable):
        if identity(directory) == identity(murmur_home(environment).parent):
            raise StoreUnusable(
                f"{visible(str(directory))} is your home directory and no project",
                hint="go to a project, or install into your own store with -g",
            )
    return Store(directory / _STORE, "project")


def _is_a_home(murmur: Path) -> bool:
    """Whether sessions left a trace there, when HOME was another: a `/.murmur` makes no project of the machine."""
    return any(os.path.lexists(murmur / name) for name in ("running", "records"))


def _own_murmur(environment: Mapping[str, str]) -> tuple[int, int] | None:
    try:
        return identity(murmur_home(environment))
    except RegistryUnusable:
        return None


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a directory from all others; `None` where there is none, or none that we may look at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def is_trusted(*places: Path) -> bool:
    """Whether these directories, and each link in their place, belong to this user or to root."""
    try:
        owners = {found.st_uid for place in places for found in (place.lstat(), place.stat())}
    except OSError:
        return False
    return owners <= {0, os.geteuid()}


def capsule_in(store: Path, reference: CapsuleReference) -> StoredCapsule | None:
    """Read a capsule in one store; `None` where it has none of that name and version. Raises `CapsuleUnreadable`."""
    path = store.joinpath(*reference.levels)
    for _ in range(_TRIES):
        with ExitStack() as opened:
            levels = open_levels(opened, store, reference.levels)
            if levels is None or manifest_kind(path, levels[-1]) is None:
                return None
            try:
                contents = read_folder(path, levels[-1])
            except CapsuleUnreadable:
                if _is_in_place(reference.version, levels):
                    raise
                continue
            # One that is uninstalled is taken away first, and then apart: what is still in its place was read whole.
            if _is_in_place(reference.version, levels):
                if contents.manifest is None:
                    raise unreadable(path / MANIFEST, "it is no regular file, or was removed meanwhile")
                return StoredCapsule(reference.name, reference.version, path, contents.digest, contents.manifest)
    raise unreadable(path, "it was replaced each time that it was read")


def open_levels(opened: ExitStack, store: Path, levels: Sequence[str]) -> list[int] | None:
    """Open a store and the directories at those steps beneath it, until `opened` is left; `None` if one is missing.

    Raises `CapsuleUnreadable` for a link or a file in the place of one.
    """
    try:
        descriptor = os.open(store, DIRECTORY)
    except OSError as error:
        if error.errno in (*_ABSENT, errno.ENOTDIR):
            return None
        raise unread(store, error) from error
    opened.callback(os.close, descriptor)
    descriptors = [descriptor]
    path = store
    for level in levels:
        path /= level
        inner = open_level(path, descriptors[-1])
        if inner is None:
            return None
        opened.callback(os.close, inner)
        descriptors.append(inner)
    return descriptors


def _is_in_place(version: str, levels: Sequence[int]) -> bool:
    """Whether the innermost of these open directories has that name in the one before it."""
    try:
        found = os.stat(version, dir_fd=levels[-2], follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(levels[-1]))


def open_level(path: Path, parent: int) -> int | None:
    """Open the directory of that path in its open parent; the caller closes it. `None` where there is none."""
    try:
        return os.open(path.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise unreadable(path, "it is a link or no directory, and a store holds directories") from None
        raise unread(path, error) from error


def manifest_kind(path: Path, folder: int) -> int | None:
    """Return the mode of the `murmur.yaml` in an open directory; `None` where there is none, so no capsule."""
    try:
        return os.stat(MANIFEST, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unread(path / MANIFEST, error) from error
