"""What the stores hold is listed by name and version; what cannot be looked at is told, and never a failure."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from murmur.adapters.capsule_store import Store
from murmur.adapters.store_listing import ListedCapsule, list_capsules
from murmur.domain.errors import OutOfDescriptors

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

HEX = "0199c4e2f1b7712a9d3e4f5061728394"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "store"
    path.mkdir()
    return Store(path, "project")


def put(store: Store, *places: str) -> None:
    for place in places:
        (store.path / place).mkdir(parents=True)
        (store.path / place / "murmur.yaml").touch()


def listed(*stores: Store) -> list[ListedCapsule]:
    """List where nothing is to be told."""
    told: list[str] = []
    found = list_capsules(stores, told.append)
    assert told == []
    return found


def names(*stores: Store) -> list[str]:
    return [f"{each.name}@{each.version}" for each in listed(*stores)]


def test_capsules_come_in_the_order_of_their_names_and_the_numbers_in_their_versions(store: Store) -> None:
    put(store, "b/2", "b/1.10", "b/1.9", "b/1.9-rc1", "b/v1", "a/z/1", "a/1", "b/01")
    assert names(store) == ["a@1", "a/z@1", "b@v1", "b@01", "b@1.9", "b@1.9-rc1", "b@1.10", "b@2"]


def test_each_names_its_folder_and_its_store(store: Store) -> None:
    put(store, "local/worker/1.0")
    (found,) = listed(store)
    assert (found.folder, found.store, found.shadowed) == (store.path / "local" / "worker" / "1.0", store, False)


def test_what_a_nearer_store_has_too_is_shadowed(store: Store, tmp_path: Path) -> None:
    home = Store(tmp_path / "home", "home")
    put(store, "a/1", "b/1")
    put(home, "a/1", "a/2")
    assert [(each.version, each.store.kind, each.shadowed) for each in listed(store, home) if each.name == "a"] == [
        ("1", "project", False),
        ("1", "home", True),
        ("2", "home", False),
    ]


@pytest.mark.parametrize("absent", ["a store", "anything"])
def test_where_nothing_is_nothing_is_listed(store: Store, absent: str) -> None:
    if absent == "a store":
        store.path.rmdir()
    assert names(store) == []


def test_only_what_could_be_launched_is_listed(store: Store) -> None:
    put(store, "worker/1", f".install.77.{HEX}.tmp", "Upper/1", "worker/.hidden", "worker/1/examples")
    (store.path / "README").touch()
    (store.path / "file").touch()
    (store.path / "worker" / "file").touch()
    (store.path / "worker" / "empty").mkdir()
    (store.path / "worker" / "no" / "manifest").mkdir(parents=True)
    assert names(store) == ["worker@1"]


def _manifest(store: Path) -> Path:
    (store / "good" / "2").mkdir()
    return store / "good" / "2" / "murmur.yaml"


def _unreadable(place: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    place.mkdir(mode=0)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a name that is a link": (lambda store: (store / "odd").symlink_to("good"), "odd: it is a link"),
    "a version that is a link": (lambda store: (store / "good" / "2").symlink_to("1"), "good/2: it is a link"),
    "a manifest that is a link": (
        lambda store: _manifest(store).symlink_to("x"),
        "good/2/murmur.yaml: it is a symbolic link",
    ),
    "a manifest that is a pipe": (
        lambda store: os.mkfifo(_manifest(store)),
        "good/2/murmur.yaml: it is a named pipe",
    ),
    "a manifest that is a directory": (
        lambda store: _manifest(store).mkdir(),
        "good/2/murmur.yaml: it is a directory",
    ),
    "a name that may not be read": (
        lambda store: _unreadable(store / "odd"),
        "odd: permission denied",
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_entry_that_cannot_be_looked_at_is_told_and_the_others_are_listed(store: Store, odd: str) -> None:
    change, reason = ODD[odd]
    put(store, "good/1")
    change(store.path)
    told: list[str] = []
    assert [each.name for each in list_capsules([store], told.append)] == ["good"]
    (warning,) = told
    assert warning.startswith(f"{store.path}/{reason}")


def test_a_failing_directory_is_told_once_and_no_scope_is_looked_for_in_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "good/1", "good/2")
    real = os.open

    def refuse(path: str | Path, *arguments: int, **named: int) -> int:
        if path == "2":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    told: list[str] = []
    assert [each.version for each in list_capsules([store], told.append)] == ["1"]
    assert told == [f"{store.path}/good/2: permission denied"]


def test_a_capsule_that_is_uninstalled_meanwhile_is_no_warning(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "good/1", "good/2")
    real = os.open

    def vanishing(path: str | Path, *arguments: int, **named: int) -> int:
        if path == "2":
            shutil.rmtree(store.path / "good" / "2")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", vanishing)
    assert names(store) == ["good@1"]


def test_without_a_descriptor_left_that_is_the_error_and_not_that_there_are_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OutOfDescriptors):
        listed(store)
