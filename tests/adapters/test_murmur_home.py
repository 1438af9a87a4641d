"""The Murmur home on a real file system: found, made private, and left alone when it is not ours."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from murmur.adapters import murmur_home as murmur_home_module
from murmur.adapters.murmur_home import murmur_home, open_home, open_running, running_location
from murmur.cli import wiring
from murmur.domain.errors import RegistryUnusable

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else or become them")


class TappedOs:
    """The `os` module as one module sees it: some calls replaced."""

    def __init__(self, **replaced: Callable[..., object]) -> None:
        self._replaced = replaced

    def __getattr__(self, name: str) -> object:
        return self._replaced.get(name, getattr(os, name))


def snapshot(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Every entry's mode, owner, inode and time of change."""
    entries = [root]
    for place, directories, files in os.walk(root):
        entries += [Path(place, name) for name in (*directories, *files)]
    found = {str(entry): entry.lstat() for entry in entries}
    return {name: (entry.st_mode, entry.st_uid, entry.st_ino, entry.st_mtime_ns) for name, entry in found.items()}


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home)}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def nothing_changes(home: Path) -> Iterator[None]:
    """Hold that neither a file nor a descriptor of this process is other than before."""
    files, descriptors = snapshot(home), sorted(os.listdir("/dev/fd"))
    yield
    assert snapshot(home) == files
    assert sorted(os.listdir("/dev/fd")) == descriptors


def opened(home: Path, *, create: bool) -> bool:
    """Open the running directory, close it again, and say whether there was one."""
    descriptor = open_running(environment(home), create=create)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def as_nobody(place: Path, *statements: str) -> str:
    """Run statements as another user; return the `RegistryUnusable` they raised, or what they printed."""
    script = "\n".join(
        (
            "import os",
            "from murmur.adapters.murmur_home import open_home, open_running",
            "from murmur.domain.errors import RegistryUnusable",
            f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})",
            "try:",
            *(f"    {statement}" for statement in statements),
            "except RegistryUnusable as error:",
            "    print(error.message)",
        )
    )
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"HOME": str(place)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert finished.stderr == ""
    return finished.stdout.strip()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A home that another user can reach, unlike pytest's own directories."""
    with tempfile.TemporaryDirectory(prefix="murmur-home-") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.mark.spec("H1")
@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, "not set"), ({"HOME": ""}, "empty"), ({"HOME": "some/where"}, "not an absolute path: some/where")],
    ids=["unset", "empty", "relative"],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_home_that_says_nowhere_is_an_error_that_says_which(
    home: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str, create: bool
) -> None:
    monkeypatch.chdir(home)
    with nothing_changes(home), pytest.raises(RegistryUnusable, match=said) as refused:
        open_running(variables, create=create)
    assert refused.value.hint is not None
    with nothing_changes(home), pytest.raises(RegistryUnusable, match=said):
        open_home(variables)


@pytest.mark.spec("H1")
def test_the_home_is_the_environments_and_nobody_elses(home: Path) -> None:
    assert murmur_home({"HOME": "/some where"}) == Path("/some where/.murmur")
    assert running_location({"HOME": "/some where"}) == Path("/some where/.murmur/running")
    assert list(home.iterdir()) == []


@pytest.mark.spec("H2")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_new_directories_are_private_whatever_the_umask(home: Path, umask: int) -> None:
    # In a process of its own, since the umask is the whole process's.
    script = (
        "import os, sys; os.umask(int(sys.argv[1]));"
        "from murmur.adapters.murmur_home import open_running; os.close(open_running(os.environ, create=True))"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script, str(umask)], env=environment(home), check=True)
    assert mode_of(home / ".murmur") == 0o700
    assert mode_of(home / ".murmur" / "running") == 0o700


@pytest.mark.spec("H2")
@pytest.mark.parametrize(("before", "after"), [(0o777, 0o700), (0o755, 0o700), (0o500, 0o500), (0o1770, 0o1700)])
def test_an_existing_home_only_loses_what_group_and_others_may(home: Path, before: int, after: int) -> None:
    murmur = home / ".murmur"
    murmur.mkdir()
    murmur.chmod(before)
    os.close(open_home(environment(home)))
    assert mode_of(murmur) == after
    murmur.chmod(before)
    (murmur / "running").mkdir()
    assert opened(home, create=True)
    assert mode_of(murmur) == after


@pytest.mark.spec("H2")
@pytest.mark.parametrize("before", [0o777, 0o500, 0o000, 0o1700], ids=oct)
def test_an_existing_running_directory_is_held_at_exactly_0700(home: Path, before: int) -> None:
    running = home / ".murmur" / "running"
    running.mkdir(parents=True)
    running.chmod(before)
    if before == 0 and os.geteuid() != 0:
        pytest.skip("only root opens a directory of mode 0")
    assert opened(home, create=True)
    assert mode_of(running) == 0o700


@pytest.mark.spec("H3")
@pytest.mark.parametrize("there", ["nothing", ".murmur", ".murmur/running"])
def test_a_reader_that_must_leave_no_trace_changes_nothing(home: Path, there: str) -> None:
    if there != "nothing":
        (home / there).mkdir(parents=True)
        (home / ".murmur").chmod(0o777)
        (home / there).chmod(0o777)
    with nothing_changes(home):
        assert opened(home, create=False) is (there == ".murmur/running")


@pytest.mark.spec("H3")
def test_a_missing_directory_is_an_empty_machine(home: Path) -> None:
    with nothing_changes(home), wiring.running_directory(create=False) as directory:
        listing = wiring.read_registry(directory, prune=True)
        assert (listing.sessions, listing.removed, listing.kept) == ([], [], [])


@pytest.mark.spec("H3")
def test_a_missing_parent_of_the_home_is_an_empty_machine_to_a_reader_and_an_error_to_a_writer(home: Path) -> None:
    missing = home / "not there"
    with nothing_changes(home):
        assert not opened(missing, create=False)
    with nothing_changes(home), pytest.raises(RegistryUnusable) as refused:
        open_running(environment(missing), create=True)
    assert refused.value.message == f"{missing}/.murmur: No such file or directory"


@pytest.mark.spec("H2", "H3")
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
@pytest.mark.parametrize("kind", ["file", "fifo", "link to a file", "dangling link"])
def test_what_is_no_directory_is_an_error_naming_the_path(home: Path, name: str, kind: str, create: bool) -> None:
    place = home / name
    place.parent.mkdir(exist_ok=True)
    place.parent.chmod(0o755)
    (home / "file").write_text("kept")
    match kind:
        case "file":
            place.write_text("kept")
        case "fifo":
            os.mkfifo(place)
        case "link to a file":
            place.symlink_to(home / "file")
        case _:
            place.symlink_to(home / "nowhere")
    with nothing_changes(home), pytest.raises(RegistryUnusable) as refused:
        open_running(environment(home), create=create)
    assert refused.value.message.startswith(f"{place}: ")


@as_root
@pytest.mark.spec("H2")
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
def test_a_symbolic_link_of_somebody_else_is_not_followed(home: Path, name: str, create: bool) -> None:
    target = home / "target"
    (target / "running").mkdir(parents=True)
    target.chmod(0o755)
    link = home / name
    link.parent.mkdir(exist_ok=True)
    link.parent.chmod(0o755)
    link.symlink_to(target)
    os.lchown(link, NOBODY, NOBODY)
    with nothing_changes(home), pytest.raises(RegistryUnusable) as refused:
        open_running(environment(home), create=create)
    assert refused.value.message == f"{link}: it is a symbolic link of another user"


@pytest.mark.spec("H2")
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
def test_a_symbolic_link_of_ones_own_is_followed_and_its_target_held_private(home: Path, name: str) -> None:
    target = home / "elsewhere"
    target.mkdir()
    target.chmod(0o755)
    link = home / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    descriptor = open_running(environment(home), create=True)
    assert descriptor is not None
    try:
        assert os.fstat(descriptor).st_ino == (home / ".murmur" / "running").stat().st_ino
    finally:
        os.close(descriptor)
    assert link.is_symlink()
    assert mode_of(target) == 0o700


@as_root
@pytest.mark.spec("H3")
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
def test_a_directory_that_this_user_may_not_read_is_an_error_naming_it(
    reachable: Path, name: str, create: bool
) -> None:
    running = reachable / ".murmur" / "running"
    running.mkdir(parents=True)
    (reachable / ".murmur").chmod(0o755)
    (reachable / name).chmod(0o700)
    with nothing_changes(reachable):
        said = as_nobody(reachable, f"open_running(os.environ, create={create})")
    assert said == f"{reachable / name}: Permission denied"


@as_root
@pytest.mark.spec("H2")
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
def test_a_directory_that_cannot_be_made_private_is_an_error_that_changed_nothing(reachable: Path, name: str) -> None:
    running = reachable / ".murmur" / "running"
    running.mkdir(parents=True)
    for place in (reachable / ".murmur", running):
        place.chmod(0o755)
        os.chown(place, NOBODY, NOBODY)
    os.chown(reachable / name, 0, 0)
    with nothing_changes(reachable):
        said = as_nobody(reachable, "open_running(os.environ, create=True)")
    assert said == f"{reachable / name}: Operation not permitted"


@as_root
@pytest.mark.spec("H2")
def test_a_home_where_nothing_may_be_made_is_an_error_naming_what_could_not(reachable: Path) -> None:
    with nothing_changes(reachable):
        said = as_nobody(reachable, "open_home(os.environ)")
    assert said == f"{reachable}/.murmur: Permission denied"


@pytest.mark.spec("H2")
def test_a_directory_that_another_session_makes_first_is_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(name: str | Path, mode: int, *, dir_fd: int | None = None) -> None:
        os.mkdir(name, mode, dir_fd=dir_fd)
        os.mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(murmur_home_module, "os", TappedOs(mkdir=too_late))
    assert opened(home, create=True)
    assert mode_of(home / ".murmur") == mode_of(home / ".murmur" / "running") == 0o700


@pytest.mark.spec("H2")
@pytest.mark.parametrize("name", [".murmur", ".murmur/running"])
def test_a_file_system_that_keeps_no_modes_is_an_error_and_leaks_no_descriptor(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(descriptor: int, mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (home / ".murmur" / "running").mkdir(parents=True)
    for place in (".murmur", ".murmur/running"):
        (home / place).chmod(0o755 if place == name else 0o700)
    monkeypatch.setattr(murmur_home_module, "os", TappedOs(fchmod=refuse))
    with nothing_changes(home), pytest.raises(RegistryUnusable) as refused:
        open_running(environment(home), create=True)
    assert refused.value.message == f"{home / name}: Read-only file system"
    if name == ".murmur":
        with nothing_changes(home), pytest.raises(RegistryUnusable, match="Read-only"):
            open_home(environment(home))


@pytest.mark.spec("H2", "H3")
def test_the_error_says_what_an_operator_can_do(home: Path) -> None:
    (home / ".murmur").write_text("")
    with pytest.raises(RegistryUnusable) as refused:
        open_running(environment(home), create=True)
    assert refused.value.hint is not None
    assert refused.value.exit_status == 6
