"""A capsule is found in the right store, read whole and through no link, or refused by name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from murmur.adapters import capsule_folder
from murmur.adapters.capsule_store import StoredCapsule, capsule_at, find_capsule
from murmur.domain.capsule_store import DEPTH_LIMIT, MANIFEST_LIMIT, CapsuleReference, parse_reference
from murmur.domain.errors import CapsuleNotFound, CapsuleUnreadable, OutOfDescriptors
from tests.adapters.doors_for_tests import elapsed_below

pytestmark = pytest.mark.usefixtures("no_descriptor_left")

FIXTURES = Path(__file__).parents[2] / "fixtures" / "capsules"
WORKER = parse_reference("worker@1.0.0")
SCOPED = parse_reference("local/worker@1.0.0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def stored(root: Path, reference: CapsuleReference = WORKER, manifest: str = "name: worker\n") -> Path:
    """Put a capsule of two files into the store of a directory."""
    folder = root.joinpath(".murmur", "artifacts", *reference.levels)
    (folder / "bin").mkdir(parents=True)
    (folder / "murmur.yaml").write_text(manifest)
    (folder / "bin" / "run").write_text("#!/bin/sh\n")
    (folder / "bin" / "run").chmod(0o755)
    return folder


def find(start: Path, reference: CapsuleReference = WORKER) -> StoredCapsule:
    return find_capsule(reference, start, os.environ)


def digest(folder: Path) -> str:
    return capsule_at(folder, WORKER).digest


def test_the_fixture_has_the_digest_that_is_written_beside_it(tmp_path: Path) -> None:
    # Git keeps the x bit, and no other: the digest is the same in every clone.
    folder = tmp_path / "artifacts" / "worker" / "1.0.0"
    shutil.copytree(FIXTURES / "worker", folder)
    assert digest(folder) == (FIXTURES / "worker.sha256").read_text().strip()


@pytest.mark.parametrize("reference", [WORKER, SCOPED], ids=str)
@pytest.mark.parametrize("below", ["", "a", "a/b/c"])
def test_a_capsule_is_found_upwards_with_what_its_manifest_holds(
    project: Path, below: str, reference: CapsuleReference
) -> None:
    folder = stored(project, reference)
    start = project / below
    start.mkdir(parents=True, exist_ok=True)
    found = find(start, reference)
    assert (found.name, found.version, found.folder) == (reference.name, reference.version, folder)
    assert found.manifest == b"name: worker\n"
    assert len(found.digest) == 64
    assert found == capsule_at(folder, reference)


def test_the_nearest_store_is_first_and_one_s_own_last(project: Path, home: Path) -> None:
    own, outer, inner = stored(home), stored(project), stored(project / "inner")
    assert find(project / "inner").folder == inner
    assert find(project).folder == outer
    assert find(project.parent).folder == own
    shutil.rmtree(inner)
    assert find(project / "inner").folder == outer
    shutil.rmtree(outer)
    assert find(project / "inner").folder == own


def test_below_home_one_s_own_store_is_no_project_s(home: Path) -> None:
    (home / ".murmur" / "artifacts").mkdir(parents=True)
    work = home / "work"
    work.mkdir()
    with pytest.raises(CapsuleNotFound) as refused:
        find(work)
    assert refused.value.message.count(str(home / ".murmur" / "artifacts")) == 1


def test_home_behind_a_link_counts_once_too(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(home)
    link = tmp_path / "link"
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(link))
    found = find(home)
    assert found.folder == link.joinpath(*folder.relative_to(home).parts)


def test_what_is_nowhere_is_refused_with_the_places_looked_into(project: Path, home: Path) -> None:
    stored(project, parse_reference("worker@2.0.0"))
    with pytest.raises(CapsuleNotFound) as refused:
        find(project)
    assert refused.value.message == (
        f"there is no capsule worker@1.0.0: looked in {project}/.murmur/artifacts; {home}/.murmur/artifacts"
    )
    assert refused.value.hint is not None
    assert ".murmur/artifacts/worker/1.0.0/murmur.yaml" in refused.value.hint


def test_without_a_project_s_store_and_without_home_that_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    with pytest.raises(
        CapsuleNotFound, match=r"no .murmur/artifacts in .* or above it; no store of yours .HOME is not"
    ):
        find(project)


@pytest.mark.parametrize("empty", ["no manifest", "a file for a store", "a name beyond the file system's limit"])
def test_a_place_without_a_manifest_holds_no_capsule(project: Path, home: Path, empty: str) -> None:
    own = stored(home)
    reference = WORKER
    if empty == "no manifest":
        (stored(project) / "murmur.yaml").unlink()
    elif empty == "a file for a store":
        (project / ".murmur").mkdir()
        (project / ".murmur" / "artifacts").touch()
    else:
        stored(project)
        reference = CapsuleReference("w" * 300, "1")
        with pytest.raises(CapsuleNotFound):
            find(project, reference)
        return
    assert find(project).folder == own


def _without(path: Path) -> Path:
    path.unlink()
    return path


def _link_version(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to("real")


def _link_name(folder: Path) -> None:
    folder.parent.rename(folder.parent.with_name("real"))
    folder.parent.symlink_to("real")


def _link_manifest(folder: Path) -> None:
    (folder / "murmur.yaml").rename(folder / "other.yaml")
    (folder / "murmur.yaml").symlink_to("other.yaml")


def _socket(folder: Path) -> None:
    # By a short name relative to the folder: the path of a socket has 108 bytes.
    program = "import socket, sys; socket.socket(socket.AF_UNIX).bind('s')"
    subprocess.run([sys.executable, "-c", program], cwd=folder / "bin", check=True)


def _replace_version_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "the version's folder is a link": (_link_version, "a link or no directory"),
    "the name's folder is a link": (_link_name, "a link or no directory"),
    "the version is a file": (_replace_version_by_file, "a link or no directory"),
    "the manifest is a link": (_link_manifest, "murmur.yaml: it is a symbolic link"),
    "a link to a file": (lambda folder: (folder / "l").symlink_to("murmur.yaml"), "l: it is a symbolic link"),
    "a link to a directory": (lambda folder: (folder / "l").symlink_to("/"), "l: it is a symbolic link"),
    "a dangling link": (lambda folder: (folder / "bin" / "l").symlink_to("x"), "bin/l: it is a symbolic link"),
    "a named pipe": (lambda folder: os.mkfifo(folder / "bin" / "p"), "bin/p: it is a named pipe"),
    "a named pipe for a manifest": (
        lambda folder: os.mkfifo(_without(folder / "murmur.yaml")),
        "murmur.yaml: it is a named pipe",
    ),
    "a socket": (_socket, "bin/s: it is a socket"),
    "a manifest too large": (
        lambda folder: (folder / "murmur.yaml").write_bytes(b"#" * (MANIFEST_LIMIT + 1)),
        "murmur.yaml: it is larger than 256 KiB",
    ),
    "too many levels": (
        lambda folder: folder.joinpath(*["d"] * DEPTH_LIMIT).mkdir(parents=True),
        f"nested more than {DEPTH_LIMIT} directories deep",
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_capsule_that_holds_anything_else_is_refused_without_touching_that(project: Path, odd: str) -> None:
    change, reason = ODD[odd]
    change(stored(project))
    with elapsed_below(5), pytest.raises(CapsuleUnreadable) as refused:
        find(project)
    assert reason in refused.value.message
    assert refused.value.code == "E-RUN-917"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused_without_opening_it(project: Path) -> None:
    folder = stored(project)
    try:
        os.mknod(folder / "tty", 0o600 | 0o020000, os.makedev(5, 0))
    except PermissionError:
        pytest.skip("this root may make no devices")
    with pytest.raises(CapsuleUnreadable, match="tty: it is a device"):
        find(project)


def test_a_file_that_becomes_a_link_while_it_is_read_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(project)
    real = os.stat

    def swapping(path: str | bytes | int, **options: int | bool | None) -> os.stat_result:
        found = real(path, **options)  # type: ignore[arg-type]
        if path == b"run":
            (folder / "bin" / "run").unlink()
            (folder / "bin" / "run").symlink_to("/dev/zero")
        return found

    monkeypatch.setattr(os, "stat", swapping)
    with elapsed_below(5), pytest.raises(CapsuleUnreadable, match="bin/run: "):
        find(project)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_capsule_that_is_taken_away_while_it_is_read_is_never_half_of_one(
    project: Path, tmp_path: Path, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored(project)
    other = stored(tmp_path / "other", manifest="name: worker # other\n")
    real, taken = os.stat, tmp_path / "taken"

    def taking(path: str | bytes | int, **options: int | bool | None) -> os.stat_result:
        if path == b"bin" and not taken.exists():  # As `mur uninstall` does: away first, and then apart.
            folder.rename(taken)
            shutil.rmtree(taken / "bin")
            if replaced:
                other.rename(folder)
        return real(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", taking)
    if replaced:
        found = find(project)
        monkeypatch.undo()
        assert (found.manifest, found) == (b"name: worker # other\n", capsule_at(folder, WORKER))
    else:
        with pytest.raises(CapsuleNotFound):
            find(project)


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("ENTRIES_LIMIT", 2, "it holds more than 2 files and directories"),
        ("FOLDER_LIMIT", 20, "its files have more than 0 MiB together"),
    ],
)
def test_a_capsule_beyond_a_limit_is_refused(
    project: Path, limit: str, value: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(project)
    find(project)
    monkeypatch.setattr(capsule_folder, limit, value)
    with pytest.raises(CapsuleUnreadable, match=reason):
        find(project)


def test_a_huge_file_without_blocks_is_refused_before_it_is_read(project: Path) -> None:
    folder = stored(project)
    with (folder / "huge").open("wb") as huge:
        huge.truncate(2 << 40)
    with elapsed_below(5), pytest.raises(CapsuleUnreadable, match="1,024 MiB together"):
        find(project)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte of a file": lambda folder: (folder / "bin" / "run").write_text("#!/bin/zh\n"),
    "a file's length": lambda folder: (folder / "bin" / "run").write_text("#!/bin/sh\n\n"),
    "a file more": lambda folder: (folder / "more").touch(),
    "a file fewer": lambda folder: (folder / "bin" / "run").unlink(),
    "an empty directory more": lambda folder: (folder / "more").mkdir(),
    "a file's name": lambda folder: (folder / "bin" / "run").rename(folder / "bin" / "ran"),
    "a file's place": lambda folder: (folder / "bin" / "run").rename(folder / "run"),
    "that it may be executed": lambda folder: (folder / "bin" / "run").chmod(0o644),
    "a directory for a file": lambda folder: _without(folder / "bin" / "run").mkdir(),
    "the manifest": lambda folder: (folder / "murmur.yaml").write_text("name: other\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_what_runs_changes_the_digest(project: Path, change: str) -> None:
    folder = stored(project)
    before = digest(folder)
    CHANGES[change](folder)
    assert digest(folder) != before


def test_times_other_permissions_and_the_place_change_nothing(project: Path, home: Path) -> None:
    folder = stored(project)
    before = digest(folder)
    os.utime(folder / "bin" / "run", (1, 1))
    (folder / "bin" / "run").chmod(0o700)
    (folder / "murmur.yaml").chmod(0o600)
    assert digest(folder) == before
    assert digest(stored(home)) == before


def test_the_order_in_which_files_were_made_changes_nothing(project: Path, home: Path) -> None:
    names = [f"f{number}" for number in range(50)]
    for root, order in ((project, names), (home, names[::-1])):
        folder = stored(root)
        for name in order:
            (folder / name).write_text(name)
    assert find(project).digest == find(home).digest


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take UTF-8 alone")
def test_names_that_are_not_utf_8_or_hold_line_breaks_are_digested(project: Path) -> None:
    folder = stored(project)
    before = digest(folder)
    for name in (b"\xff\xfe", b"new\nline", b"\x1b[2J", b" "):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"\0\xff")
        now = digest(folder)
        assert now != before
        before = now
    (folder / os.fsdecode(b"\xffdir")).mkdir()
    (folder / os.fsdecode(b"\xffdir") / "l").symlink_to("x")
    with pytest.raises(CapsuleUnreadable) as refused:
        find(project)
    assert refused.value.message.isprintable()


def test_a_capsule_is_read_again_only_in_the_folder_that_it_can_have(project: Path) -> None:
    folder = stored(project)
    assert capsule_at(folder, WORKER).folder == folder
    for elsewhere in (folder.parent, folder / "bin", folder.parent / "2", folder.parent / "x" / ".." / "1.0.0"):
        with pytest.raises(CapsuleNotFound):
            capsule_at(elsewhere, WORKER)
    with pytest.raises(CapsuleNotFound):
        capsule_at(Path(*folder.parts[1:]), WORKER)
    shutil.rmtree(folder)
    with pytest.raises(CapsuleNotFound):
        capsule_at(folder, WORKER)


def test_without_a_descriptor_left_that_is_said_and_not_that_there_is_none(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(project)

    def full(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OutOfDescriptors):
        find(project)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", [".murmur", ".murmur/artifacts"])
def test_a_project_s_store_of_another_user_is_passed_over_and_named(project: Path, home: Path, given: str) -> None:
    stored(project)
    own = stored(home)
    os.chown(project / given, 4321, 4321)
    assert find(project).folder == own
    shutil.rmtree(own)
    with pytest.raises(CapsuleNotFound, match=r"not in .*/project/.murmur/artifacts, which belongs to another user"):
        find(project)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
def test_a_store_behind_another_user_s_link_is_passed_over(project: Path, tmp_path: Path) -> None:
    stored(tmp_path / "elsewhere")
    (project / ".murmur").symlink_to(tmp_path / "elsewhere" / ".murmur")
    assert find(project).name == "worker"
    os.chown(project / ".murmur", 4321, 4321, follow_symlinks=False)
    with pytest.raises(CapsuleNotFound):
        find(project)


def test_its_repr_shows_no_manifest(project: Path) -> None:
    stored(project, manifest="name: worker # swordfish\n")
    assert "swordfish" not in repr(find(project))
