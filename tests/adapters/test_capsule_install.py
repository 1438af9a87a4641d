"""A capsule comes into a store whole or not at all, and leaves it so."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters.capsule_install import Installed, install_capsule, read_source, uninstall_capsule
from murmur.adapters.capsule_store import Store, find_capsule, home_store, new_project_store, project_store
from murmur.domain.capsule_store import CapsuleReference, parse_reference
from murmur.domain.errors import (
    CapsuleNotFound,
    CapsuleUnreadable,
    ManifestRefused,
    MurmurError,
    OutOfDescriptors,
    StoreUnusable,
    VersionTaken,
)
from tests.adapters.processes_for_tests import running

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

WORKER = parse_reference("worker@1.0.0")
SCOPED = parse_reference("local/worker@1.0.0")
HEX = "0199c4e2f1b7712a9d3e4f5061728394"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".murmur").mkdir(parents=True)
    return project


@pytest.fixture
def store(project: Path) -> Store:
    return Store(project / ".murmur" / "artifacts", "project")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return a_folder(tmp_path / "source")


def a_folder(folder: Path, content: str = "#!/bin/sh\n") -> Path:
    (folder / "bin" / "empty").mkdir(parents=True)
    (folder / "murmur.yaml").write_text("name: worker\n")
    (folder / "bin" / "run").write_text(content)
    (folder / "bin" / "run").chmod(0o755)
    return folder


def install(source: Path, store: Store, reference: CapsuleReference = WORKER) -> Installed:
    return install_capsule(read_source(source, store), reference, store, os.environ)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything beneath a directory, with what the files hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("reference", [WORKER, SCOPED], ids=str)
def test_what_is_installed_is_found_with_the_content_of_its_folder(
    source: Path, store: Store, project: Path, reference: CapsuleReference
) -> None:
    installed = install(source, store, reference)
    assert installed.folder == store.path.joinpath(*reference.levels)
    assert not installed.was_there
    assert tree(installed.folder) == tree(source)
    found = find_capsule(reference, project, os.environ)
    assert (found.folder, found.digest) == (installed.folder, installed.digest)
    assert len(os.listdir(store.path)) == 1, "something staged was left"


def test_the_same_again_is_told_from_the_first_and_writes_nothing(source: Path, store: Store) -> None:
    first = install(source, store)
    before = {path: path.stat() for path in store.path.rglob("*")}
    again = install(source, store)
    assert again == first.replaced(was_there=True)
    assert {path: path.stat() for path in store.path.rglob("*")} == before


def test_another_content_under_the_same_version_is_refused_and_the_old_one_stays(source: Path, store: Store) -> None:
    install(source, store)
    before = tree(store.path)
    (source / "bin" / "run").write_text("#!/bin/zh\n")
    with pytest.raises(VersionTaken, match=r"holds worker@1.0.0 with other content") as refused:
        install(source, store)
    assert (refused.value.code, refused.value.exit_status) == ("E-RUN-918", 4)
    assert tree(store.path) == before


@pytest.mark.parametrize(("mode", "copied"), [(0o777, 0o755), (0o600, 0o600), (0o400, 0o600), (0o4711, 0o711)])
def test_a_copy_is_never_more_open_than_the_file_and_keeps_its_x_bit(
    source: Path, store: Store, mode: int, copied: int
) -> None:
    (source / "bin" / "run").chmod(mode)
    before = os.umask(0)
    try:
        folder = install(source, store).folder
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "bin" / "run").stat().st_mode) == copied


def test_a_private_folder_stays_private(source: Path, store: Store) -> None:
    source.chmod(0o700)
    (source / "bin").chmod(0o500)
    folder = install(source, store).folder
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "bin")] == [0o700, 0o700]


def test_a_umask_takes_no_x_bit_from_the_copy(source: Path, store: Store) -> None:
    store.path.mkdir()
    before = os.umask(0o177)
    try:
        with pytest.MonkeyPatch.context() as patched:
            # Such a umask takes the right to enter a directory from those just made; root alone may go on.
            patched.setattr(os, "mkdir", _mkdir_and_chmod)
            folder = install(source, store).folder
    finally:
        os.umask(before)
    assert os.access(folder / "bin" / "run", os.X_OK)


_real_mkdir = os.mkdir


def _mkdir_and_chmod(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    _real_mkdir(path, mode, dir_fd=dir_fd)
    os.chmod(path, 0o755, dir_fd=dir_fd)


def test_everything_is_on_the_disk_before_it_gets_its_name(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def rename(old: str, new: str, **directories: int) -> None:
        staged = store.path / old
        assert {path.stat().st_ino for path in (staged, *staged.rglob("*"))} <= synced
        synced.clear()
        real_rename(old, new, **directories)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    folder = install(source, store).folder
    assert {folder.parent.stat().st_ino, store.path.stat().st_ino} <= synced


# ---- what is refused ----


def _link_manifest(folder: Path) -> None:
    (folder / "murmur.yaml").rename(folder / "m")
    (folder / "murmur.yaml").symlink_to("m")


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a file": (lambda folder: (folder / "l").symlink_to("murmur.yaml"), "l: it is a symbolic link"),
    "a link to a directory": (lambda folder: (folder / "l").symlink_to("/"), "l: it is a symbolic link"),
    "a named pipe": (lambda folder: os.mkfifo(folder / "bin" / "p"), "bin/p: it is a named pipe"),
    "a manifest that is a link": (_link_manifest, "murmur.yaml: it is a symbolic link"),
    "too much": (lambda folder: os.truncate(folder / "bin" / "run", 2 << 40), "1,024 MiB together"),
    "nothing": (shutil.rmtree, "no such file or directory"),
    "a file": (_replace_by_file, "not a directory"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_no_capsule_may_hold_is_refused_and_no_store_is_made_for_it(source: Path, store: Store, odd: str) -> None:
    change, reason = ODD[odd]
    change(source)
    with pytest.raises(CapsuleUnreadable) as refused:
        install(source, store)
    assert reason in refused.value.message
    assert not store.path.exists()


def test_a_folder_without_a_manifest_is_no_capsule(source: Path, store: Store) -> None:
    (source / "murmur.yaml").unlink()
    with pytest.raises(ManifestRefused, match=r"murmur.yaml: there is no such file"):
        install(source, store)


@pytest.mark.parametrize("start", ["", ".murmur", ".murmur/artifacts"])
def test_a_folder_that_holds_the_store_is_refused(project: Path, store: Store, start: str) -> None:
    store.path.mkdir()
    with pytest.raises(StoreUnusable, match="would hold itself"):
        read_source(project / start, store)


def test_a_folder_that_changes_while_it_is_installed_is_refused_and_nothing_is_left(source: Path, store: Store) -> None:
    read = read_source(source, store)
    (source / "bin" / "run").write_text("#!/bin/zh\n")
    with pytest.raises(CapsuleUnreadable, match="it changed while it was installed"):
        install_capsule(read, WORKER, store, os.environ)
    assert not store.path.exists()


@pytest.mark.parametrize("odd", ["a folder that is no capsule", "a file", "a link", "a scope that is a capsule"])
def test_what_is_in_its_place_stays(source: Path, store: Store, odd: str, tmp_path: Path) -> None:
    place = store.path / "local" / "worker" / "1.0.0"
    place.parent.mkdir(parents=True)
    if odd == "a folder that is no capsule":
        place.mkdir()
        (place / "notes").touch()
    elif odd == "a file":
        place.touch()
    elif odd == "a link":
        place.symlink_to(tmp_path)
    else:
        (place.parent / "murmur.yaml").touch()
    before = tree(store.path)
    with pytest.raises((VersionTaken, CapsuleUnreadable), match="local/worker"):
        install(source, store, SCOPED)
    assert tree(store.path) == before


def test_a_version_that_is_the_scope_of_others_is_refused(source: Path, store: Store) -> None:
    install(source, store, SCOPED)
    with pytest.raises(VersionTaken):
        install(source, store, parse_reference("local@worker"))
    with pytest.raises(CapsuleNotFound):
        uninstall_capsule(parse_reference("local@worker"), store)
    assert (store.path / "local" / "worker" / "1.0.0" / "murmur.yaml").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_store_of_another_user_is_not_written_to(source: Path, store: Store) -> None:
    store.path.mkdir()
    os.chown(store.path, 4321, 4321)
    with pytest.raises(StoreUnusable, match="belongs to another user"):
        install(source, store)
    assert os.listdir(store.path) == []


# ---- nothing is left of what fails ----

CALLS = ("open", "mkdir", "write", "fsync", "rename", "scandir")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
def test_whichever_call_fails_nothing_is_left_and_a_further_install_succeeds(
    source: Path, project: Path, number: int
) -> None:
    """Each call fails once, the first one of them first, until an install gets through without."""
    store = Store(project / ".murmur" / "artifacts", "project")
    for failing in range(1000):
        calls = 0
        with pytest.MonkeyPatch.context() as patched:

            def fail(real: Any, failing: int = failing) -> Any:
                def called(*arguments: Any, **named: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls == failing + 1:
                        raise OSError(number, os.strerror(number))
                    return real(*arguments, **named)

                return called

            for name in CALLS:
                patched.setattr(os, name, fail(getattr(os, name)))
            try:
                installed = install(source, store)
            except (StoreUnusable, CapsuleUnreadable, OutOfDescriptors):
                installed = None
        if installed is None:
            assert tree(project / ".murmur") == {}, f"call {failing + 1}"
        else:
            # What came after the rename, or only to tidy up, is no reason to call it failed.
            assert tree(installed.folder) == tree(source)
            assert os.listdir(store.path) == ["worker"]
            if calls <= failing:
                break
            shutil.rmtree(store.path)
    assert failing > 20


def test_a_umask_that_takes_its_owner_s_bits_leaves_nothing_that_its_owner_cannot_remove(
    source: Path, store: Store
) -> None:
    # As root every mode can be entered, so the modes are looked at.
    store.path.mkdir(parents=True)
    before = os.umask(0o777)
    try:
        install(source, store)
    finally:
        os.umask(before)
    folders = [each for each in store.path.rglob("*") if each.is_dir()]
    assert folders
    inside = [each for each in folders if "1.0.0" in each.parts]
    assert [stat.filemode(each.stat().st_mode) for each in inside] == ["drwx------"] * len(inside)


def test_a_disk_that_is_full_leaves_nothing(source: Path, store: Store) -> None:
    # A limit on the size of files, which the kernel holds to as it does to the size of a disk.
    (source / "large").write_bytes(b"x" * 300_000)
    code = (
        "import os, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from murmur.adapters.capsule_install import install_capsule, read_source\n"
        "from murmur.adapters.capsule_store import Store\n"
        "from murmur.domain.capsule_store import parse_reference\n"
        "from murmur.domain.errors import StoreUnusable\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "store = Store(Path(sys.argv[2]), 'project')\n"
        "try:\n"
        "    install_capsule(read_source(Path(sys.argv[1]), store), parse_reference('w@1'), store, os.environ)\n"
        "except StoreUnusable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, source, store.path], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == f"{store.path}: file too large\n"
    assert not store.path.exists()


def test_a_store_that_cannot_be_made_is_told_of(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".murmur").touch()
    with pytest.raises(StoreUnusable, match=r"artifacts: (not a directory|file exists)"):
        install(source, Store(tmp_path / "elsewhere" / ".murmur" / "artifacts", "project"))


def test_without_a_home_there_is_no_store_of_one_s_own() -> None:
    with pytest.raises(MurmurError) as refused:
        home_store({})
    assert refused.value.exit_status == 6


def test_one_s_own_store_is_private(source: Path, home: Path) -> None:
    folder = install(source, home_store(os.environ)).folder
    assert folder == home / ".murmur" / "artifacts" / "worker" / "1.0.0"
    assert stat.S_IMODE((home / ".murmur").stat().st_mode) == 0o700


# ---- which store ----


def test_the_nearest_directory_with_a_murmur_that_is_nobody_s_home_is_the_project(home: Path, tmp_path: Path) -> None:
    told: list[str] = []
    deep = tmp_path / "outer" / "inner" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "outer" / ".murmur").mkdir()
    # As of a HOME that was another once.
    (tmp_path / "outer" / "inner" / ".murmur" / "running").mkdir(parents=True)
    (home / ".murmur").mkdir()
    (home / "work").mkdir()
    assert project_store(deep, os.environ, told.append) == Store(
        tmp_path / "outer" / ".murmur" / "artifacts", "project"
    )
    assert project_store(home / "work", os.environ, told.append) is None
    assert new_project_store(home / "work", os.environ).path == home / "work" / ".murmur" / "artifacts"
    with pytest.raises(StoreUnusable, match="is your home directory and no project"):
        new_project_store(home, os.environ)
    assert told == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", [".murmur", ".murmur/artifacts"])
def test_a_project_of_another_user_is_passed_over_and_named(project: Path, given: str) -> None:
    told: list[str] = []
    (project / ".murmur" / "artifacts").mkdir()
    os.chown(project / given, 4321, 4321)
    assert project_store(project, os.environ, told.append) is None
    assert told == [f"not in {project}/.murmur/artifacts, which belongs to another user"]


# ---- uninstalling ----


def test_uninstalling_removes_that_version_alone_and_the_directories_that_are_empty_then(
    source: Path, store: Store
) -> None:
    other = parse_reference("local/worker@2.0.0")
    for reference in (WORKER, SCOPED, other):
        install(source, store, reference)
    assert uninstall_capsule(SCOPED, store).folder == store.path / "local" / "worker" / "1.0.0"
    assert sorted(os.listdir(store.path)) == ["local", "worker"]
    assert os.listdir(store.path / "local" / "worker") == ["2.0.0"]
    assert uninstall_capsule(other, store).left is None
    assert os.listdir(store.path) == ["worker"]


@pytest.mark.parametrize("odd", ["no store", "no name", "no version", "no manifest"])
def test_what_is_not_there_is_told_and_nothing_is_removed(source: Path, store: Store, odd: str) -> None:
    reference = WORKER
    if odd != "no store":
        folder = install(source, store).folder
        if odd == "no manifest":
            (folder / "murmur.yaml").unlink()
        else:
            reference = parse_reference("other@1" if odd == "no name" else "worker@2")
    before = tree(store.path)
    with pytest.raises(CapsuleNotFound):
        uninstall_capsule(reference, store)
    assert tree(store.path) == before


def test_what_cannot_be_renamed_stays_whole(source: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    install(source, store)
    before = tree(store.path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(StoreUnusable, match="permission denied"):
        uninstall_capsule(WORKER, store)
    assert tree(store.path) == before


def test_a_capsule_that_could_not_be_read_can_be_uninstalled(source: Path, store: Store) -> None:
    folder = install(source, store).folder
    (folder / "murmur.yaml").unlink()
    os.mkfifo(folder / "murmur.yaml")
    (folder / "l").symlink_to(source)
    uninstall_capsule(WORKER, store)
    assert os.listdir(store.path) == []
    assert (source / "murmur.yaml").exists()


def test_files_that_stay_are_named_and_the_next_sweep_takes_them(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(source, store)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        left = uninstall_capsule(WORKER, store).left
    (staged,) = os.listdir(store.path)
    assert left == f"{store.path / staged}: input/output error"
    # Ours is a live process: what it has let go of waits for its age.
    os.utime(store.path / staged, (0, 0))
    install(source, store)
    assert os.listdir(store.path) == ["worker"]


# ---- what crashed ones leave ----


def staged(store: Store, pid: int, what: str = "install") -> Path:
    folder = a_folder(store.path / f".{what}.{pid}.{HEX}.tmp")
    assert folder.is_dir()
    return folder


@pytest.fixture
def dead() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.spec("H5")
@pytest.mark.parametrize("what", ["install", "uninstall"])
@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_what_a_dead_process_left_is_swept(source: Path, store: Store, dead: int, what: str, action: str) -> None:
    install(source, store)
    left = staged(store, dead, what)
    if action == "install":
        install(source, store)
    else:
        uninstall_capsule(WORKER, store)
    assert not left.exists()


@pytest.mark.spec("H5")
def test_what_a_live_process_works_on_stays_however_old(source: Path, store: Store) -> None:
    with running() as writer:
        left = staged(store, writer.pid)
        descriptor = os.open(left, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.utime(left, (0, 0))
            install(source, store)
            assert left.exists()
        finally:
            os.close(descriptor)
        install(source, store)
        assert not left.exists()


@pytest.mark.spec("H5")
def test_what_another_container_s_process_works_on_stays_though_its_pid_is_nobody_s_here(
    source: Path, store: Store, dead: int
) -> None:
    left = staged(store, dead)
    descriptor = os.open(left, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        install(source, store)
        assert left.exists()
    finally:
        os.close(descriptor)


@pytest.mark.spec("H5")
def test_what_a_live_process_has_just_made_stays_before_it_is_locked(source: Path, store: Store) -> None:
    with running() as writer:
        left = staged(store, writer.pid)
        install(source, store)
        assert left.exists()


def test_no_other_name_is_swept_and_a_link_is_not_followed(source: Path, store: Store, dead: int) -> None:
    store.path.mkdir()
    odd = [".install.tmp", f".install.x.{HEX}.tmp", f"install.{dead}.{HEX}.tmp", ".git"]
    for name in odd:
        a_folder(store.path / name)
    (store.path / f".install.{dead}.{HEX}.tmp").symlink_to(source)
    before = tree(source)
    install(source, store)
    assert {*odd, f".install.{dead}.{HEX}.tmp"} < set(os.listdir(store.path))
    assert tree(source) == before


# ---- several at once ----


def at_once(*actions: Callable[[], object]) -> None:
    failed: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_of_several_at_once_one_wins_and_the_others_hear_of_it(store: Store, tmp_path: Path) -> None:
    folders = [a_folder(tmp_path / f"s{number}", f"content {number // 2}") for number in range(4)]
    for turn in range(10):
        outcomes: list[str] = []
        reference = parse_reference(f"worker@{turn}")

        def one(folder: Path, reference: CapsuleReference = reference, outcomes: list[str] = outcomes) -> None:
            try:
                outcomes.append("same" if install(folder, store, reference).was_there else "won")
            except VersionTaken:
                outcomes.append("other")

        at_once(*(lambda folder=folder: one(folder) for folder in folders))
        assert Counter(outcomes) == {"won": 1, "same": 1, "other": 2}
    assert os.listdir(store.path) == ["worker"]


def test_installing_while_another_uninstalls_never_fails_for_a_directory_that_goes_away(
    source: Path, store: Store
) -> None:
    over = threading.Event()

    def installs() -> None:
        try:
            for _ in range(50):
                install(source, store, SCOPED)
        finally:
            over.set()

    def uninstalls() -> None:
        while not over.is_set():
            try:
                uninstall_capsule(SCOPED, store)
            except CapsuleNotFound:
                continue

    at_once(installs, uninstalls)
    assert set(os.listdir(store.path)) <= {"local"}, "something staged was left"
