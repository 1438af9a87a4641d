"""How does a capsule get into a store, and out of it, whole or not at all?"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from murmur.adapters.capsule_folder import DIRECTORY, read_folder, unread, unreadable
from murmur.adapters.capsule_store import (
    Store,
    capsule_in,
    identity,
    is_trusted,
    manifest_kind,
    open_level,
    open_levels,
)
from murmur.adapters.folder_copy import FolderCopy, directory_mode, writing_to
from murmur.adapters.murmur_home import open_home
from murmur.adapters.reasons import reason_of
from murmur.adapters.staged_folders import remove_staged, staged_folder, sweep_staged, take_away
from murmur.domain.capsule_store import MANIFEST, CapsuleReference
from murmur.domain.errors import CapsuleNotFound, ManifestRefused, StoreUnusable, VersionTaken
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_TRIES = 100
"""How often a name's directory may be removed by others right after it was made, before we give up."""
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class CapsuleSource(Value):
    """A folder that is to be installed, as it was when it was first read."""

    hidden = ("manifest",)
    folder: Path
    digest: str
    manifest: bytes


class Installed(Value):
    """Where a capsule is now."""

    folder: Path
    digest: str
    was_there: bool
    """Whether the store held the very same before, so that nothing was done."""


class Uninstalled(Value):
    """What became of a capsule that no store holds any more."""

    folder: Path
    left: str | None
    """Why some of its files could not be removed; `None` if all are."""


def read_source(folder: Path, store: Store) -> CapsuleSource:
    """Read a folder that a person named, to be installed into that store.

    Raises `CapsuleUnreadable`, `ManifestRefused` where it has no manifest, and `StoreUnusable` where the store is
    inside it.
    """
    _insist_on_outside(folder, store.path)
    descriptor = _open_source(folder)
    try:
        contents = read_folder(folder, descriptor)
    finally:
        os.close(descriptor)
    if contents.manifest is None:
        raise ManifestRefused(
            f"{visible(str(folder / MANIFEST))}: there is no such file", hint=f"a capsule is a folder with a {MANIFEST}"
        )
    return CapsuleSource(folder, contents.digest, contents.manifest)


def install_capsule(
    source: CapsuleSource, reference: CapsuleReference, store: Store, environment: Mapping[str, str]
) -> Installed:
    """Put a copy of a folder into a store, which is made where missing; nothing is left of it on failure.

    Raises `VersionTaken` where the store holds something else under that name and version, `CapsuleUnreadable` where
    the folder changed meanwhile or what is in its place cannot be read, and `StoreUnusable`.
    """
    with _store_to_write(store, environment) as opened_store:
        with writing_to(store.path):
            sweep_staged(opened_store)
        return _was_there(source, reference, store) or _copied(source, reference, store, opened_store)


def uninstall_capsule(reference: CapsuleReference, store: Store) -> Uninstalled:
    """Remove one capsule from a store; raise `CapsuleNotFound` or `StoreUnusable` with all of it in place.

    The directories of its name go too if nothing else is in them.
    """
    path = store.path.joinpath(*reference.levels)
    with ExitStack() as opened:
        levels = open_levels(opened, store.path, reference.levels)
        if levels is None or manifest_kind(path, levels[-1]) is None:
            raise CapsuleNotFound(
                f"there is no capsule {reference} in {visible(str(store.path))}",
                hint="`mur list` shows what is in the project's store, and in your own, which -g means",
            )
        opened_store, parent, folder = levels[0], levels[-2], levels[-1]
        with writing_to(store.path):
            sweep_staged(opened_store)
            try:
                staged = take_away(opened_store, parent, reference.version, folder)
            except FileNotFoundError:
                raise CapsuleNotFound(f"{reference} was uninstalled by another") from None
        left = None
        _flush(parent)
        _flush(opened_store)
        try:
            remove_staged(opened_store, staged)
        except OSError as error:
            left = f"{visible(str(store.path / staged))}: {reason_of(error)}"
        _remove_empty(levels, reference)
        return Uninstalled(path, left)


def _open_source(folder: Path) -> int:
    """Open a folder; a link to one is followed, since a person named it."""
    try:
        return os.open(folder, DIRECTORY)
    except OSError as error:
        raise unread(folder, error) from error
    except ValueError:
        raise unreadable(folder, "a path holds no null character") from None


def _insist_on_outside(source: Path, store: Path) -> None:
    own, place = identity(source), Path(os.path.realpath(store))
    if own is not None and any(identity(above) == own for above in (place, *place.parents)):
        raise StoreUnusable(
            f"{visible(str(store))} is inside the folder that is to be installed, which would hold itself",
            hint="go to the directory above it, or install into your own store with -g",
        )


@contextmanager
def _store_to_write(store: Store, environment: Mapping[str, str]) -> Iterator[int]:
    """Open a store, made where missing; remove what was made of it if nothing comes into it."""
    made: list[Path] = []
    with ExitStack() as opened:
        if store.kind == "home":
            os.close(open_home(environment))
        try:
            with writing_to(store.path):
                for place in (store.path.parent, store.path):
                    with suppress(FileExistsError):
                        place.mkdir()
                        made.append(place)
                descriptor = os.open(store.path, DIRECTORY)
            opened.callback(os.close, descriptor)
            _insist_on_ours(store.path)
            yield descriptor
        except BaseException:
            for place in reversed(made):
                with suppress(OSError):
                    place.rmdir()
            raise
        for place in made:
            with suppress(OSError):
                _flush_path(place.parent)


def _insist_on_ours(store: Path) -> None:
    if not is_trusted(store.parent, store):
        raise StoreUnusable(f"{visible(str(store))}: it belongs to another user")


def _was_there(source: CapsuleSource, reference: CapsuleReference, store: Store) -> Installed | None:
    """Look at what the store holds in its place: the same, nothing (`None`), or else raise `VersionTaken`."""
    found = capsule_in(store.path, reference)
    if found is None:
        return None
    if found.digest == source.digest:
        return Installed(found.folder, found.digest, was_there=True)
    raise VersionTaken(
        f"{visible(str(store.path))} holds {reference} with other content",
        hint="give the manifest another version, or `mur uninstall` that one first",
    )


def _copied(source: CapsuleSource, reference: CapsuleReference, store: Store, opened_store: int) -> Installed:
    with ExitStack() as opened:
        descriptor = _open_source(source.folder)
        opened.callback(os.close, descriptor)
        mode = directory_mode(os.fstat(descriptor).st_mode)
        with writing_to(store.path):
            staged, folder = opened.enter_context(staged_folder(opened_store, mode))
        contents = read_folder(source.folder, descriptor, FolderCopy(folder, store.path))
        if contents.digest != source.digest:
            raise unreadable(source.folder, "it changed while it was installed")
        with writing_to(store.path):
            os.fsync(folder)
        for _ in range(_TRIES):
            if _place(staged, reference, store, opened_store):
                return Installed(store.path.joinpath(*reference.levels), source.digest, was_there=False)
            if (found := _was_there(source, reference, store)) is not None:
                return found  # Another was first with the same.
        raise StoreUnusable(f"{visible(str(store.path))}: what is in it changed all the time")


def _place(staged: str, reference: CapsuleReference, store: Store, opened_store: int) -> bool:
    """Rename a staged folder to where its capsule belongs; return whether it is there.

    It is not when a capsule is in its place, or when another removed a directory on the way meanwhile. Raises
    `VersionTaken` for what is in its place and no capsule.
    """
    levels = [opened_store]
    path = store.path
    with ExitStack() as opened:
        try:
            for level in reference.levels[:-1]:
                path /= level
                with writing_to(store.path), suppress(FileExistsError):
                    os.mkdir(level, 0o755, dir_fd=levels[-1])
                inner = open_level(path, levels[-1])
                if inner is None:
                    return False
                opened.callback(os.close, inner)
                levels.append(inner)
            _insist_on_no_capsule(path, levels)
            return _renamed(staged, reference, path, levels)
        except BaseException:
            _remove_empty(levels, reference)
            raise


def _insist_on_no_capsule(path: Path, levels: list[int]) -> None:
    """Refuse a place within another capsule: `a/b@1` would be a part of `b`, a version of `a`."""
    if len(levels) > 2 and manifest_kind(path, levels[-1]) is not None:  # The store and the name come before it.
        raise VersionTaken(f"{visible(str(path))} is a capsule itself, of another name")


def _renamed(staged: str, reference: CapsuleReference, path: Path, levels: list[int]) -> bool:
    try:
        os.rename(staged, reference.version, src_dir_fd=levels[0], dst_dir_fd=levels[-1])
    except FileNotFoundError:
        return False
    except OSError as error:
        place = path / reference.version
        if error.errno not in _TAKEN:
            raise StoreUnusable(f"{visible(str(place))}: {reason_of(error)}") from error
        folder = open_level(place, levels[-1])
        if folder is None:
            return False
        try:
            if manifest_kind(place, folder) is None:
                raise VersionTaken(
                    f"{visible(str(place))} is there and no capsule: it has no {MANIFEST}",
                    hint="move it out of the way",
                ) from None
        finally:
            os.close(folder)
        return False
    for descriptor in reversed(levels):
        _flush(descriptor)
    return True


def _remove_empty(levels: list[int], reference: CapsuleReference) -> None:
    """Remove the directories of a name that hold nothing, the innermost first."""
    names = reference.levels[:-1]
    for parent, name in reversed(list(zip(levels, names, strict=False))):  # Of which not all may be open.
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)


def _flush(directory: int) -> None:
    """Have a rename on the disk; where that cannot be done it is none the less in place."""
    with suppress(OSError):
        os.fsync(directory)


def _flush_path(directory: Path) -> None:
    descriptor = os.open(directory, DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
