"""The installed `mur`, run as a person runs it, and sessions that are really there."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.capsules_for_tests import Project

MUR = Path(sys.executable).parent / "mur"
SPAWNER = json.dumps({"session_id": "ses_other", "context_id": "ctx_other", "delegation_id": "dlg_other"})
"""A spawner handle of somebody who wants no completion."""


def mur(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a `mur` command to its end."""
    return subprocess.run(
        [MUR, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=30, check=False
    )


def wait_for_exit(pid: int, seconds: float = 10) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def mur_json(*arguments: str) -> Any:
    """Run a `mur` command that prints one JSON document, and read it."""
    return json.loads(mur(*arguments, "--json").stdout)


@dataclass
class Hosted:
    """One `mur run` and its readiness line."""

    process: "subprocess.Popen[str]"
    ready: dict[str, Any]

    @property
    def session_id(self) -> str:
        return str(self.ready["session_id"])

    @property
    def records(self) -> Path:
        return Path(self.ready["records_dir"])

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(timeout=20)


@dataclass
class Hosts:
    """Starts sessions and ends those that a test leaves behind."""

    started: list[Hosted] = field(default_factory=list)

    def start(self, *command: str, options: tuple[str, ...] = (), **environment: str) -> Hosted:
        return self._started(*options, "--", *command, **environment)

    def from_manifest(self, manifest: Path, *options: str, **environment: str) -> Hosted:
        return self._started("--manifest", str(manifest), "--workdir", str(manifest.parent), *options, **environment)

    def _started(self, *arguments: str, **environment: str) -> Hosted:
        process = subprocess.Popen(
            [MUR, "run", "--json", *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        ready = select.select([process.stdout], [], [], 30)[0]
        if not ready:
            process.kill()
        line = process.stdout.readline() if ready else ""
        if not line:
            _, errors = process.communicate()
            raise AssertionError(f"no readiness line: {errors}")
        hosted = Hosted(process, json.loads(line))
        self.started.append(hosted)
        return hosted

    def end(self) -> None:
        for hosted in self.started:
            if hosted.process.poll() is None:
                hosted.process.kill()
            hosted.process.communicate()


@pytest.fixture
def hosts(home: Path) -> Iterator[Hosts]:
    started = Hosts()
    yield started
    started.end()


@pytest.fixture
def running(home: Path) -> Path:
    """The running directory, made as `mur` makes it."""
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    return place


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[Project]":
    """A project with a store, in which the test is."""
    # That module is on top of this one.
    from tests.cli.capsules_for_tests import Project  # noqa: PLC0415

    with closing(Project(tmp_path / "project", home)) as made:
        monkeypatch.chdir(made.path)
        yield made


def record(**fields: object) -> dict[str, object]:
    """A record of this very process, live by layers 1 and 2, whose door nobody holds."""
    start = Path(f"/proc/{os.getpid()}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    return {
        "session_id": "ses_0199c4e2f1b7712a9d3e4f5061728394",
        "url": "localhost:1",
        "pid": os.getpid(),
        "process_start": start,
        "capsule_name": "demo",
        "capsule_version": "0.1.0",
        "workdir": "/tmp/demo",
        "outlives_launcher": True,
        "started_at": "2026-01-01T00:00:00Z",
    } | fields


def write_record(running: Path, name: str | None = None, **fields: object) -> Path:
    document = record(**fields)
    path = running / f"{name or document['session_id']}.json"
    path.write_text(json.dumps(document))
    return path
