"""Small programs that stand in for `mur run`: they read an approval, report themselves, and wait for their end."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from murmur.adapters.launching import LaunchedChild, launch_child_capsule
from murmur.adapters.reactor import shared_reactor
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.secret import SpawnApproval

if TYPE_CHECKING:
    import subprocess

PATIENCE = 30.0
"""Seconds that a test waits for what must come."""
GRANT = "msa1.secret.approval"

_SH = """#!/bin/sh
ready() {
    records="$HOME/.murmur/records/place/ses_$$"
    mkdir -p "$records"
    echo '{"session_id":"ses_'$$'","records_dir":"'"$records"'","url":"localhost:1"}'
}
orphaned() { read -r _ < "/dev/fd/$MURMUR_SPAWNER_LIFELINE"; }
read -r grant
"""
_PYTHON = f"""#!{sys.executable} -IS
import json, os, signal, sys
records = os.environ["HOME"] + f"/.murmur/records/place/ses_{{os.getpid()}}"
def ready():
    os.makedirs(records)
    session = os.path.basename(records)
    print(json.dumps({{"session_id": session, "records_dir": records, "url": "localhost:1"}}), flush=True)
def say(word):
    with open(WORDS, "w") as words:
        words.write(word + "\\n")
def orphaned():
    os.read(int(os.environ["MURMUR_SPAWNER_LIFELINE"]), 1)
grant = sys.stdin.readline()
"""
OBEDIENT = "ready; orphaned"
"""In sh: it ends with its parent, and by SIGTERM."""
STUBBORN = "trap '' TERM; ready; orphaned"
"""In sh: it ignores SIGTERM, and ends with its parent. It starts nothing, which would outlive it when it is killed."""


def write_program(path: Path, text: str) -> Path:
    """Write an executable; whoever starts it meanwhile sees the old one, or none."""
    staged = path.with_name(f"{path.name}.new")
    staged.write_text(text)
    staged.chmod(0o700)
    staged.rename(path)
    return path


def sh(path: Path, body: str) -> Path:
    """Write a child in sh, with `ready` and `orphaned` to call."""
    return write_program(path, _SH + body + "\n")


def python(path: Path, body: str, words: "Words | None" = None) -> Path:
    """Write a child in Python, with `ready`, `say` and `orphaned` to call."""
    first, rest = _PYTHON.split("\n", 1)
    return write_program(path, f"{first}\nWORDS = {str(words and words.path)!r}\n{rest}{body}\n")


def request_from(parent: Path, **changes: Any) -> ChildLaunchRequest:
    """Make a request to launch a child of that records directory."""
    fields: dict[str, Any] = {
        "parent_records_dir": parent,
        "capsule_name": "local/worker",
        "capsule_version": "0.1.0",
        "grant": SpawnApproval(GRANT),
        "env_allow": (),
        "roost_url": "http://127.0.0.1:1",
    }
    return ChildLaunchRequest(**(fields | changes))


def spawner(url: str | None = "http://127.0.0.1:7000") -> Spawner:
    return Spawner("ses_parent", "ctx_parent", url)


class Words:
    """A FIFO that children say words into, and a test waits on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._begun = b""

    def next(self, timeout: float = PATIENCE) -> str:
        """Return the next word; fail the test when none comes."""
        deadline = monotonic() + timeout
        while b"\n" not in self._begun:
            left = deadline - monotonic()
            assert left > 0, "no word came"
            if select.select([self._descriptor], [], [], left)[0]:
                self._begun += os.read(self._descriptor, 4096)
        word, self._begun = self._begun.split(b"\n", 1)
        return word.decode()

    def close(self) -> None:
        os.close(self._descriptor)


def wait_for_exit(pid: int) -> None:
    """Wait until a process, of ours or of another, has exited."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], PATIENCE)[0], f"pid {pid} lives on"
    finally:
        os.close(pidfd)


def end(pid: int) -> None:
    """End a process that a test's own child left behind."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_for_exit(pid)


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Kill and reap a process at the end, whatever else it waits for, and close its pipes."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def busy_reactor() -> Iterator[None]:
    """Hold the reactor up, so that whoever asks sees what it has not."""
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        free.wait(PATIENCE)

    shared_reactor().call(hold)
    assert held.wait(PATIENCE)
    try:
        yield
    finally:
        free.set()


def own_children() -> set[int]:
    """Return the pids of this process's children, the unreaped ones too."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                line = Path("/proc", entry, "stat").read_bytes()
            except OSError:
                continue
            if int(line.rpartition(b")")[2].split()[1]) == os.getpid():
                found.add(int(entry))
    return found


def holders(inode: int) -> dict[int, set[int]]:
    """Return which processes have that pipe open, each with the access modes of its descriptors."""
    found: dict[int, set[int]] = {}
    for process in Path("/proc").iterdir():
        for descriptor in _listed(process / "fd") if process.name.isdecimal() else ():
            with suppress(OSError):  # Closed meanwhile, as the listing's own is.
                if descriptor.readlink() == Path(f"pipe:[{inode}]"):
                    info = (process / "fdinfo" / descriptor.name).read_text()
                    flags = int(info.split("flags:")[1].split()[0], 8)
                    found.setdefault(int(process.name), set()).add(flags & os.O_ACCMODE)
    return found


def _listed(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError:  # It has ended.
        return []


class Launching:
    """Launches children of one parent, and ends them with the test."""

    def __init__(self, place: Path, parent: Path, monkeypatch: Any) -> None:
        self.place = place
        self.parent = parent
        self.words = Words(place / "words")
        self.children: list[LaunchedChild] = []
        self._monkeypatch = monkeypatch

    def program(self, body: str) -> Path:
        """Have children run that, in sh."""
        return self.use(sh(self.place / "child", body))

    def python(self, body: str) -> Path:
        """Have children run that, in Python."""
        return self.use(python(self.place / "child", body, self.words))

    def use(self, path: Path) -> Path:
        self._monkeypatch.setenv("MURMUR_MUR_BINARY", str(path))
        return path

    def launch(self, request: ChildLaunchRequest | None = None, **options: Any) -> LaunchedChild:
        child = launch_child_capsule(request or request_from(self.parent), **options)
        self.children.append(child)
        return child

    def close(self) -> None:
        for child in self.children:
            child.force()
        for child in self.children:
            child.close()
        self.words.close()
