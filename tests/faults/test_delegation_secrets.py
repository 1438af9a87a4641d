"""No approval, credential or token is anywhere but in a record and on a readiness line (I3, C3, C5)."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.capsules_for_tests import LIMIT, Family, Project, children_of, event, files_of
from tests.cli.conftest import MUR, Hosts

SECRET = re.compile(rb"(?:msa1|msc1|mdt1|ctl1)\.[\w-]+")
BEARER = {"authentication": {"scheme": "bearer", "credentials": {"watcher": {"scopes": ["tasks/get"]}}}}


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "project", home)
    monkeypatch.chdir(made.path)
    yield made
    made.close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where whoever wants a temporary file makes it."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@pytest.fixture
def hosts(home: Path) -> Iterator[Hosts]:
    started = Hosts()
    yield started
    started.end()


class Scan:
    """What /proc says of a process and all its descendants, read again and again.

    One once seen is read on when its parent has gone.
    """

    def __init__(self, pid: int) -> None:
        self.seen = {pid}
        self.found: set[tuple[str, bytes]] = set()

    def once(self) -> None:
        waiting, read = list(self.seen), set[int]()
        while waiting:
            pid = waiting.pop()
            if pid in read:
                continue
            read.add(pid)
            self.seen.add(pid)
            for name in ("cmdline", "environ"):
                with suppress(OSError):
                    content = Path("/proc", str(pid), name).read_bytes()
                    self.found |= {(name, secret) for secret in SECRET.findall(content)}
            waiting += children_of(pid)

    def until_ended(self, process: "subprocess.Popen[str]") -> int:
        """Read until the process has ended; return how often."""
        deadline, times = time.monotonic() + LIMIT, 0
        while process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.once()
            times += 1
        return times


@pytest.mark.parametrize("kind", ["msa1", "msc1", "mdt1", "ctl1"])
def test_the_scan_finds_a_secret_in_the_argv_and_in_the_environment_of_a_descendant(
    project: Project, kind: str
) -> None:
    up, text = project.fifo(), f"{kind}.payload-1_2"
    # The outer one reads it from its stdin, as a child does its approval; only the inner one has it in /proc.
    inner = f"echo up >{up}; read -r _; exit 0"
    with subprocess.Popen(
        ["sh", "-c", f"read -r text; SHOWN=$text sh -c '{inner}' sh \"$text\"; exit 0"],
        stdin=subprocess.PIPE, text=True,
    ) as outer:  # fmt: skip
        assert outer.stdin is not None
        scan = Scan(outer.pid)
        scan.once()
        assert scan.found == set()
        outer.stdin.write(f"{text}\n")
        outer.stdin.flush()
        up.line()
        scan.once()
    assert scan.found == {("cmdline", text.encode()), ("environ", text.encode())}


def session_that_delegates(project: Project, hosts: Hosts) -> "subprocess.Popen[str]":
    """Start a session with an authenticated door that delegates and keeps everything that it is told."""
    words = f"{MUR} delegate worker@1.0 --task x --json >{project.path}/said 2>&1; exit 0"
    manifest = {
        "name": "boss",
        "version": "1.0",
        "process": {"command": ["sh", "-c", words]},
        "lifecycle": {"task_acceptance": "none"},
        "capabilities": {"spawn": {"allow": ["worker"]}},
        "network": BEARER,
    }
    (project.path / "murmur.yaml").write_text(json.dumps(manifest))
    return hosts.from_manifest(project.path / "murmur.yaml").process


@pytest.mark.spec("I3", "C3", "C5", "X1")
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_secret_is_in_proc_in_a_file_or_in_what_is_printed(
    project: Project, hosts: Hosts, temporary: Path, inside: bool
) -> None:
    up, gate = project.fifo(), project.fifo()
    # A command with a grandchild, which fails, so that everything that is said of a failure is said.
    project.put(
        "worker", "sh", "-c", f"sleep 1000 & env >&2; echo up >{up}; read -r _ <{gate}; kill %1; exit 3",
        network=BEARER,
    )  # fmt: skip
    if inside:
        process = session_that_delegates(project, hosts)
    else:
        process = project.start("worker@1.0", "--task", "x", "--json").process
    pid = process.pid
    scan = Scan(pid)
    up.line(meanwhile=scan.once)
    with Family.of(pid) as family:
        scan.once()
        assert family.pidfds.keys() <= scan.seen
        # Ourselves, our child's host, its two watchers, its command and that one's child: all were looked at.
        assert len(family.pidfds) >= 6
    during = [(path, SECRET.findall(content)) for path, content in files_of(project.home)]
    assert [path for path, content in files_of(temporary) if SECRET.search(content)] == []
    gate.let_on()
    # On and on while the child ends and reports, until whoever delegates has ended too.
    assert scan.until_ended(process) > 0
    said = "".join(process.communicate(timeout=LIMIT))
    assert process.returncode == (0 if inside else 1)
    if inside:
        said += (project.path / "said").read_text()
    assert scan.found == set()
    # While they run, the tokens are in the records of their sessions, and nowhere else.
    held = {path.relative_to(project.home / ".murmur").parts[0] for path, secrets in during if secrets}
    assert held == {"running"}
    assert "the command ended with exit status: 3" in said
    assert SECRET.search(said.encode()) is None
    assert [path for path, content in files_of(project.home) if SECRET.search(content)] == []
    assert [path for path, content in files_of(project.path) if SECRET.search(content)] == []
    assert [path for path, content in files_of(temporary) if SECRET.search(content)] == []
    assert event(project.child("worker"), "session_end")["exit_status"] == 1


@pytest.mark.spec("I3", "X6")
def test_a_child_that_prints_its_approval_and_its_environment_finds_no_secret_but_that(project: Project) -> None:
    project.put("worker", "cat")
    # A foreign program may do with its own approval what it likes, but it gets that on stdin and nowhere else.
    curious = project.program("read -r grant; env >&2; tr '\\0' '\\n' </proc/$$/cmdline >&2; exit 1")
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(curious))
    assert done.returncode == 1
    assert "--spawn-grant-stdin" in done.stderr
    assert SECRET.search(done.stderr.encode()) is None


@pytest.mark.spec("I3")
def test_a_readiness_line_that_is_refused_is_not_repeated_with_its_token(project: Project) -> None:
    project.put("worker", "cat")
    line = {
        "session_id": "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
        "records_dir": "/elsewhere/ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
        "tokens": {"operator": "mdt1.secret.secret"},
    }
    for content in (json.dumps(line), json.dumps(line)[:-1], f"[{json.dumps(line)}]"):
        rude = project.program(f"read -r _; echo '{content}'; sleep 1000")
        done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(rude))
        assert done.returncode == 1
        assert "error[E-RUN-914]" in done.stderr
        assert "mdt1" not in done.stderr + done.stdout
    assert os.listdir(project.home / ".murmur" / "running") == []
