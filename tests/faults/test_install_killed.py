"""An install, or an uninstall, killed at any moment: the store holds each version whole or not at all (H4, H5).

`MURMUR_TEST_KILLS` says how many are killed at random moments, `MURMUR_TEST_SEED` which moments: the seed is printed,
and so shown by a failure.
"""

import json
import os
import random
import secrets
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from murmur.adapters.capsule_install import install_capsule, read_source
from murmur.adapters.capsule_store import Store, capsule_in
from murmur.adapters.store_listing import list_capsules
from murmur.domain.capsule_store import parse_reference
from tests.cli.conftest import MUR

KILLS = int(os.environ.get("MURMUR_TEST_KILLS", "20"))
SEED = int(os.environ.get("MURMUR_TEST_SEED", "0")) or secrets.randbits(32)
OLD, NEW = parse_reference("worker@1.0"), parse_reference("worker@2.0")


def a_folder(folder: Path, version: str, files: int, size: int) -> Path:
    """Write a capsule of so many files of so many bytes, which no two versions share."""
    (folder / "data").mkdir(parents=True)
    document = {"name": "worker", "version": version, "process": {"command": ["true"]}}
    (folder / "murmur.yaml").write_text(json.dumps(document))
    for number in range(files):
        (folder / "data" / str(number)).write_bytes(f"{version} {number}".encode() * (size // 4))
    return folder


def digest_of(folder: Path, store: Store) -> str:
    return read_source(folder, store).digest


def held(store: Store) -> dict[str, str]:
    """The versions that the store holds, with their digests. Each that is listed is there to be found, and is whole."""
    told: list[str] = []
    versions = {}
    for each in list_capsules([store], told.append):
        found = capsule_in(store.path, parse_reference(f"{each.name}@{each.version}"))
        assert found is not None
        versions[each.version] = found.digest
    assert told == []
    return versions


def staged(store: Store) -> list[str]:
    return [name for name in os.listdir(store.path) if name.startswith(".")]


# Does one thing again and again, each time in a fork that dies of its own SIGKILL right before the next of its calls,
# until one gets through. Says of each on a line what died, and waits to be let on.
_DIES_AT = """
import os, signal, sys
from pathlib import Path
from murmur.adapters.capsule_install import install_capsule, read_source, uninstall_capsule
from murmur.adapters.capsule_store import Store
from murmur.domain.capsule_store import parse_reference

action, source, store = sys.argv[1], Path(sys.argv[2]), Store(Path(sys.argv[3]), "project")
reference = parse_reference(sys.argv[4])
NAMES = ("open", "mkdir", "write", "fsync", "rename", "scandir", "rmdir", "unlink", "close", "stat")

def dying(number):
    def wrapped(real):
        def call(*arguments, **named):
            nonlocal number
            number -= 1
            if number < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)
        return call
    for name in NAMES:
        setattr(os, name, wrapped(getattr(os, name)))

number = 0
while True:
    pid = os.fork()
    if pid == 0:
        read = read_source(source, store)
        dying(number)
        if action == "install":
            install_capsule(read, reference, store, os.environ)
        else:
            uninstall_capsule(reference, store)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(status, flush=True)
    sys.stdin.readline()
    number += 1
"""


def dying(action: str, source: Path, store: Store, reference: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _DIES_AT, action, str(source), str(store.path), str(reference)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def next_death(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def let_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("on\n")
    process.stdin.flush()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "project" / ".murmur").mkdir(parents=True)
    return Store(tmp_path / "project" / ".murmur" / "artifacts", "project")


@pytest.mark.spec("H4", "H5")
def test_an_install_killed_before_any_of_its_calls_leaves_the_store_whole(tmp_path: Path, store: Store) -> None:
    old, new = (a_folder(tmp_path / version, version, 1, 40) for version in ("1.0", "2.0"))
    whole = {"1.0": digest_of(old, store), "2.0": digest_of(new, store)}
    install_capsule(read_source(old, store), OLD, store, os.environ)
    deaths, left, placed = 0, 0, False
    with dying("install", new, store, NEW) as process:
        while (status := next_death(process)) != 0:
            assert status == -9
            deaths += 1
            now = held(store)
            assert now["1.0"] == whole["1.0"]
            assert now.get("2.0", whole["2.0"]) == whole["2.0"]
            placed = placed or "2.0" in now
            left = max(left, len(staged(store)))
            let_on(process)
        process.kill()
    # The one that got through has swept what the others left, and each of those what the one before it did.
    assert held(store) == whole
    assert (left, staged(store)) == (1, [])
    assert placed
    assert deaths > 30


@pytest.mark.spec("H4", "H5")
def test_an_uninstall_killed_before_any_of_its_calls_leaves_the_version_whole_or_gone(
    tmp_path: Path, store: Store
) -> None:
    old = a_folder(tmp_path / "1.0", "1.0", 3, 40)
    whole = {"1.0": digest_of(old, store)}
    deaths, seen = 0, set()
    install_capsule(read_source(old, store), OLD, store, os.environ)
    with dying("uninstall", old, store, OLD) as process:
        while (status := next_death(process)) != 0:
            assert status == -9
            deaths += 1
            now = held(store)
            assert now in ({}, whole)
            seen.add(len(now))
            install_capsule(read_source(old, store), OLD, store, os.environ)
            assert staged(store) == []
            let_on(process)
        process.kill()
    assert seen == {0, 1}
    assert os.listdir(store.path) == []
    assert deaths > 10


class Machine:
    """A project, its store, and commands that may be killed."""

    def __init__(self, place: Path, store: Store) -> None:
        self.cwd = store.path.parents[1]
        self.store = store
        self.old = a_folder(place / "1.0", "1.0", 40, 4096)
        self.new = a_folder(place / "2.0", "2.0", 200, 16384)
        self.other = a_folder(place / "other", "2.0", 150, 16384)
        self._moments = random.Random(SEED)
        self._lengths: dict[str, float] = {}

    def mur(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([MUR, *arguments], cwd=self.cwd, capture_output=True, text=True, timeout=60, check=False)

    def takes(self, *arguments: str) -> None:
        """Run a command to its end, for how long it takes."""
        began = time.monotonic()
        done = self.mur(*arguments)
        assert done.returncode == 0, done.stderr
        self._lengths[arguments[0]] = time.monotonic() - began

    def killed(self, *arguments: str) -> bool:
        """Start a command and kill it at a random moment; return whether it was still there."""
        began = time.monotonic()
        with subprocess.Popen(
            [MUR, *arguments], cwd=self.cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            pidfd = os.pidfd_open(process.pid)
            try:
                # Not to wait for anything: it is what makes the moment of the kill random.
                select.select([pidfd], [], [], self._moments.uniform(0.2, 1) * self._lengths[arguments[0]])
            finally:
                os.close(pidfd)
                process.kill()
            if process.wait() == -9:
                return True
        self._lengths[arguments[0]] = time.monotonic() - began
        return False

    def listed(self) -> set[str]:
        done = self.mur("list", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        document: list[dict[str, Any]] = json.loads(done.stdout)
        return {each["version"] for each in document}


@pytest.mark.slow  # Whole commands are started and killed, and run once more after each kill.
@pytest.mark.spec("H4", "H5")
def test_installs_killed_at_random_moments_leave_the_old_version_or_the_new_one_whole(
    tmp_path: Path, store: Store
) -> None:
    sys.stdout.write(f"MURMUR_TEST_SEED={SEED} MURMUR_TEST_KILLS={KILLS}\n")
    machine = Machine(tmp_path, store)
    whole = {digest_of(folder, store) for folder in (machine.new, machine.other)}
    first = digest_of(machine.old, store)
    machine.takes("install", str(machine.old))
    machine.takes("install", str(machine.new))
    machine.takes("uninstall", str(NEW))
    killed = in_the_middle = 0
    for number in range(KILLS * 3):
        # The version is replaced by one of other content: uninstalled, then installed, either of which may be killed.
        folder = (machine.other, machine.new)[number % 2]
        if number % 5 == 4:
            killed += machine.killed("uninstall", str(NEW))
        else:
            machine.mur("uninstall", str(NEW))
            killed += machine.killed("install", str(folder))
        in_the_middle += bool(staged(store))
        now = held(store)
        assert now["1.0"] == first
        assert now.get("2.0") in {None, *whole}
        assert machine.listed() == set(now)
        # A further one succeeds, and leaves nothing behind.
        machine.mur("uninstall", str(NEW))
        further = machine.mur("install", str(folder))
        assert further.returncode == 0, further.stderr
        assert held(store) == {"1.0": first, "2.0": digest_of(folder, store)}
        assert sorted(os.listdir(store.path / "worker")) == ["1.0", "2.0"]
        assert staged(store) == []
        if killed == KILLS:
            break
    sys.stdout.write(f"{killed} killed before their end, {in_the_middle} of them with something staged\n")
    assert killed == KILLS
