"""Capsules in a project's store, `mur delegate` run on them, and what is to be seen of that from outside."""

import errno
import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.cli.conftest import MUR

LIMIT = 20.0
"""Seconds after which whatever a test waits for has not come."""


class Fifo:
    """A named pipe by which a process far away says that it has come to a place, or waits to be let on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Both ends, so that opening it waits for nobody and it never ends.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __str__(self) -> str:
        return str(self.path)

    def line(self, seconds: float = LIMIT, meanwhile: Callable[[], object] | None = None) -> str:
        """Wait for a line; call `meanwhile` again and again until it is there."""
        deadline = time.monotonic() + seconds
        while not select.select([self._descriptor], [], [], seconds if meanwhile is None else 0)[0]:
            assert time.monotonic() < deadline, f"nobody wrote to {self.path}"
            if meanwhile is not None:
                meanwhile()
        return os.read(self._descriptor, 65536).decode().strip()

    def let_on(self) -> None:
        """Write a line, for whoever reads one."""
        self.write("on\n")

    def write(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def close(self) -> None:
        os.close(self._descriptor)


class Project:
    """A directory with a store of capsules."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home
        self._opened = ExitStack()
        self._fifos = 0
        path.mkdir()

    def put(self, name: str, *command: str, **more: Any) -> Path:
        """Put a capsule into the store, one that takes a single task unless `more` says otherwise. JSON is YAML."""
        folder = self.path / ".murmur" / "artifacts" / name / "1.0"
        folder.mkdir(parents=True)
        document = {
            "name": name,
            "version": "1.0",
            "process": {"command": list(command)},
            "lifecycle": {"task_acceptance": "single"},
        }
        (folder / "murmur.yaml").write_text(json.dumps(document | more))
        return folder

    def script(self, name: str, *command: str, **more: Any) -> Path:
        """Put a script into the store."""
        return self.put(name, process={"kind": "script", "command": list(command)}, **more)

    def fifo(self) -> Fifo:
        self._fifos += 1
        fifo = Fifo(self.path / f"fifo{self._fifos}")
        self._opened.callback(fifo.close)
        return fifo

    def program(self, text: str) -> Path:
        """Write an executable for /bin/sh."""
        self._fifos += 1
        path = self.path / f"program{self._fifos}"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def delegate(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run `mur delegate` in the project to its end."""
        return subprocess.run(
            [MUR, "delegate", *arguments],
            cwd=self.path, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def start(self, *arguments: str, **environment: str) -> "Delegating":
        """Start `mur delegate` as the leader of a group of its own."""
        return Delegating(self._opened, [str(MUR), "delegate", *arguments], self.path, environment)

    # ---- what is on disk ----

    @property
    def records(self) -> list[Path]:
        """The records directories of all sessions, those of parents before those of their children."""
        found = (self.home / ".murmur" / "records").rglob("ses_*")
        return sorted((each for each in found if (each / "trace.jsonl").exists()), key=lambda each: len(each.parts))

    def child(self, capsule: str) -> Path:
        """The records directory of the one session of that capsule."""
        (found,) = [each for each in self.records if trace(each)[0]["capsule_name"] == capsule]
        return found

    @property
    def recorded(self) -> list[str]:
        """The sessions that are recorded as running."""
        return [each.name for each in (self.home / ".murmur" / "running").glob("ses_*.json")]

    @property
    def processes(self) -> dict[int, str]:
        """The command lines of all processes that have this home, zombies aside."""
        wanted, found = f"HOME={self.home}".encode(), {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if wanted in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                    line = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if line:
                        found[int(pid)] = line
        found.pop(os.getpid(), None)
        return found

    def close(self) -> None:
        self._opened.close()
        for pid in self.processes:  # Left by a test that failed.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Delegating:
    """A `mur delegate` that runs."""

    def __init__(self, opened: ExitStack, argv: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        self.process: subprocess.Popen[str] = subprocess.Popen(
            argv, cwd=cwd, env=os.environ | environment, process_group=0, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        opened.callback(self._end)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)

    def line(self) -> str:
        """Read one line of its stderr, where what its child prints goes."""
        assert self.process.stderr is not None
        assert select.select([self.process.stderr], [], [], LIMIT)[0], "it says nothing"
        return self.process.stderr.readline()

    def wait(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit status and what it wrote to stdout and stderr."""
        stdout, stderr = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, stdout, stderr

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@dataclass
class Family:
    """A process and all its descendants at one moment, held by pidfds."""

    pidfds: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, pid: int) -> Self:
        family = cls()
        waiting = [pid]
        while waiting:
            each = waiting.pop()
            with suppress(ProcessLookupError):
                family.pidfds[each] = os.pidfd_open(each)
            waiting += children_of(each)
        return family

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pidfd in self.pidfds.values():
            os.close(pidfd)

    def left(self, seconds: float) -> dict[int, str]:
        """Wait until all have ended, so long at most; return those that have not."""
        deadline, waiting = time.monotonic() + seconds, dict(self.pidfds)
        while waiting:
            ready = select.select(list(waiting.values()), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                return {pid: command_line(pid) for pid in waiting}
            waiting = {pid: pidfd for pid, pidfd in waiting.items() if pidfd not in ready}
        return {}


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path("/proc", str(pid), "task", thread, "children").read_text().split())
    return found


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def trace(records: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (records / "trace.jsonl").read_text().splitlines()]


def events(records: Path) -> list[str]:
    return [event["event_type"] for event in trace(records)]


def event(records: Path, kind: str) -> dict[str, Any]:
    """The one event of that kind."""
    (found,) = [each for each in trace(records) if each["event_type"] == kind]
    return found


def completion(records: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((records / "completion.json").read_text())
    return document


def outstanding(records: Path) -> list[str]:
    """The delegations that a session still waits for."""
    place = records / "delegations"
    return os.listdir(place) if place.exists() else []


def until(condition: Callable[[], object], seconds: float = LIMIT) -> None:
    """Look again and again, for what no descriptor tells of."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come about"
        select.select([], [], [], 0.01)


def files_of(place: Path) -> Iterator[tuple[Path, bytes]]:
    """Every regular file beneath a directory, and what it holds."""
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):
                yield path, path.read_bytes()


def is_closed(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError as error:
        return error.errno == errno.EBADF
    return False
