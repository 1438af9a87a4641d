"""Machines to list: a temporary HOME whose records name a light process, and one with real sessions in it."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its stubs are not worth another dependency

from bench.door_process import ANSWERS
from murmur.adapters.identifiers import mint
from murmur.adapters.processes import SystemProcesses
from murmur.domain.process import PID_MAX, ProcessIdentity
from murmur.domain.record import RunningRecord, render_record

MUR = Path(sys.executable).parent / "mur"
ROOT = Path(__file__).resolve().parent.parent
_READY_WITHIN = 120.0
_END_WITHIN = 30.0
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR")


class BenchError(Exception):
    """The benchmark itself could not be carried out; what it was told is no measurement."""


def environment(home: Path) -> dict[str, str]:
    """Return a small environment around `home`: nothing in it keeps Python from using its caches."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | {"HOME": str(home)}


def temporary_home(opened: ExitStack) -> Path:
    """Make a HOME that is removed with `opened`."""
    return Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="murmur-bench-")))


@dataclass(frozen=True, slots=True)
class Machine:
    """A HOME and its running directory, with the content of each record file in it."""

    home: Path
    files: Mapping[str, bytes]

    @property
    def running(self) -> Path:
        """Where the records are."""
        return self.home / ".murmur" / "running"

    def put_back(self) -> None:
        """Write the records that are not there: `mur ps` has pruned those of the dead."""
        present = set(os.listdir(self.running))
        for name, content in self.files.items():
            if name not in present:
                path = self.running / name
                path.write_bytes(content)
                path.chmod(0o600)


def machine(opened: ExitStack, manners: Sequence[str], dead: int = 0) -> Machine:
    """Make a machine with one live record for each door's manner, and so many of processes that are gone.

    The live ones name the one light process that has all the doors, by its real pid and start token.
    """
    home = temporary_home(opened)
    ids = [mint("ses_") for _ in range(len(manners) + dead)]
    # Dead records lie between live ones, as they would after a day's work.
    step = max(1, len(ids) // max(1, len(manners)))
    live = ids[::step][: len(manners)]
    process, ports = _light_doors(opened, live, manners)
    (reading,) = SystemProcesses().readings([ProcessIdentity(process, "")])
    if reading.start_token is None:
        raise BenchError("the start time of a process of our own could not be read")
    files = {f"{each}.json": _record(each, process, reading.start_token, port) for each, port in ports.items()}
    # Numbers above every kernel's largest pid: nobody holds them, now or during the measurement.
    numbers = iter(range(PID_MAX, 0, -1))
    files |= {f"{each}.json": _record(each, next(numbers), "1", 9) for each in ids if each not in ports}
    made = Machine(home, files)
    made.running.mkdir(parents=True, mode=0o700)
    made.running.parent.chmod(0o700)
    made.put_back()
    return made


def _record(session_id: str, pid: int, start_token: str, port: int) -> bytes:
    return render_record(
        RunningRecord(
            session_id=session_id,
            url=f"localhost:{port}",
            pid=pid,
            process_start=start_token,
            capsule_name="worker",
            capsule_version="1.0.0",
            workdir=f"/home/someone/.murmur/records/home/someone/project/{session_id}",
            outlives_launcher=False,
            started_at="2026-01-01T00:00:00Z",
        )
    )


def _light_doors(opened: ExitStack, ids: Sequence[str], manners: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Start the light process; return its pid and the port of each session's door."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.door_process"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    opened.callback(_end, [process])
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(list(zip(ids, manners, strict=True))) + "\n")
    process.stdin.flush()
    told = process.stdout.readline()
    if not told:
        raise BenchError("the light process ended before it had its doors")
    return process.pid, dict(zip(ids, json.loads(told), strict=True))


def answering(doors: int) -> list[str]:
    """Return the manners of so many doors that answer at once."""
    return [ANSWERS] * doors


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End processes of ours, all at once, and reap them."""
    for process in processes:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        process.terminate()
    until = time.monotonic() + _END_WITHIN
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class RealSessions:
    """So many `mur run -- sleep 1000` in one HOME. Leaving it ends them and insists that nothing is left."""

    def __init__(self, opened: ExitStack, number: int) -> None:
        self.home = temporary_home(opened)
        self._processes: list[subprocess.Popen[str]] = []
        self._seen: list[psutil.Process] = []
        opened.callback(self._end)
        for _ in range(number):
            self._processes.append(
                subprocess.Popen(
                    [MUR, "run", "--json", "--", "sleep", "1000"],
                    cwd=self.home,
                    env=environment(self.home),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        self._await_readiness()
        for process in self._processes:
            self._seen += psutil.Process(process.pid).children(recursive=True)

    def _await_readiness(self) -> None:
        until = time.monotonic() + _READY_WITHIN
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(until - time.monotonic())
                if not ready:
                    raise BenchError(f"{len(selector.get_map())} sessions were not ready within {_READY_WITHIN:g}s")
                for key, _ in ready:
                    if not key.fileobj.readline():  # type: ignore[union-attr]
                        raise BenchError("a `mur run` ended without a readiness line")
                    selector.unregister(key.fileobj)

    def _end(self) -> None:
        _end(self._processes)
        left = [str(process.pid) for process in self._seen if process.is_running()]
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        running = self.home / ".murmur" / "running"
        left += [str(path) for path in running.iterdir()] if running.exists() else []
        if left:
            raise BenchError(f"`mur run` left behind: {', '.join(left)}")
