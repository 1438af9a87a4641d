"""What does a whole `mur delegate` cost, where does its time go, and how soon does a child miss its launcher?"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil  # type: ignore[import-untyped]  # its stubs are not worth another dependency

from bench.imports import largest_imports
from bench.machines import MUR, BenchError, environment, temporary_home
from bench.measuring import run_timed

_Found = TypeVar("_Found")

_WITHIN = 60.0
"""Seconds in which anything that is waited for has happened."""
_LOOK_EVERY = 0.002
_DELEGATE = ("delegate", "worker@1.0", "--task", "anything", "--json")

PHASES = ("to its own session", "launch to the task's start", "the task", "the end")
"""In order. The first is mostly the delegating process's imports, the second the child's."""


def put_capsule(home: Path, name: str, command: Sequence[str], acceptance: str) -> None:
    """Put a capsule of version 1.0 into the store of that HOME."""
    folder = home / ".murmur" / "artifacts" / name / "1.0"
    folder.mkdir(parents=True)
    (home / ".murmur").chmod(0o700)
    manifest = {
        "name": name,
        "version": "1.0",
        "process": {"command": list(command)},
        "lifecycle": {"task_acceptance": acceptance},
    }
    (folder / "murmur.yaml").write_text(json.dumps(manifest))  # JSON is YAML.


class Whole(NamedTuple):
    """Seconds of a whole delegation and of an empty interpreter, and milliseconds of its phases: medians."""

    delegation: float
    empty: float
    phases: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many empty interpreters it takes."""
        return self.delegation / self.empty

    @property
    def detail(self) -> str:
        """Both times in words."""
        return f"{1000 * self.delegation:.0f} ms to {1000 * self.empty:.1f} ms"


def whole_delegation(repetitions: int) -> Whole:
    """Delegate to a capsule that runs `true`, and start an empty interpreter, in turn."""
    with ExitStack() as opened:
        home = _home(opened)
        taken: list[float] = []
        empty: list[float] = []
        phases: list[Sequence[float]] = []
        for repetition in range(-1, repetitions):
            nothing = run_timed([sys.executable, "-c", "pass"], home)[0]
            started = time.time()
            seconds, output = run_timed([str(MUR), *_DELEGATE], home)
            outcome = json.loads(output)
            if outcome["status"] != "ok":
                raise BenchError(f"a delegation ended otherwise: {output}")
            if repetition >= 0:  # The first one fills caches.
                taken.append(seconds)
                empty.append(nothing)
                phases.append(_phases(home, Path(outcome["records_dir"]), 1000 * started, 1000 * seconds))
        medians = [statistics.median(each) for each in zip(*phases, strict=True)]
        return Whole(statistics.median(taken), statistics.median(empty), medians)


def _home(opened: ExitStack) -> Path:
    home = temporary_home(opened)
    opened.callback(insist_nothing_left, home)
    put_capsule(home, "worker", ["true"], "single")
    return home


def _phases(home: Path, records: Path, started: float, whole: float) -> Sequence[float]:
    """Tell a delegation's phases apart by both sessions' traces, which have whole milliseconds."""
    child = _times(records)
    # A child's records directory repeats the path of its work folder, which is in its parent's records directory.
    workdir = Path("/") / records.relative_to(home / ".murmur" / "records")
    own = _times(workdir.parents[2])
    marks = (started, own["session_start"], child["task_start"], child["task_end"], started + whole)
    return [later - earlier for earlier, later in pairwise(marks)]


def _times(records: Path) -> Mapping[str, float]:
    """Return when each event of a trace was, in Unix ms."""
    lines = (records / "trace.jsonl").read_text().splitlines()
    return {event["event_type"]: event["timestamp"] for event in map(json.loads, lines)}


def imports_of_both() -> tuple[str, str]:
    """Tell the largest imports of a delegating process, and of a session of the same capsule."""
    with ExitStack() as opened:
        home = _home(opened)
        run = ("run", "--capsule", "worker", "--capsule-version", "1.0", "--task", "anything", "--json")
        return largest_imports(home, _DELEGATE), largest_imports(home, run)


def lifeline_cut(repetitions: int) -> Sequence[float]:
    """Kill a launching process and see when its child, a real `mur run`, notes it: milliseconds, one a repetition."""
    return [_one_cut() for _ in range(repetitions)]


def _one_cut() -> float:
    with ExitStack() as opened:
        home = temporary_home(opened)
        opened.callback(insist_nothing_left, home)
        put_capsule(home, "sleeper", ["sleep", "1000"], "none")
        launcher = subprocess.Popen(
            [MUR, "delegate", "sleeper@1.0"],
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        opened.callback(launcher.wait)
        opened.callback(launcher.kill)
        records = Path(_awaited(lambda: _child_of(home, launcher.pid))["workdir"])
        cut = 1000 * time.time()
        os.kill(launcher.pid, signal.SIGKILL)
        return _awaited(lambda: _times(records).get("spawner_ended")) - cut


def _child_of(home: Path, launcher: int) -> dict[str, str] | None:
    """Return the record of the one session in that HOME that is not the launcher's."""
    running = home / ".murmur" / "running"
    records = [json.loads(file.read_text()) for file in running.glob("ses_*.json")] if running.exists() else []
    return next((record for record in records if record["pid"] != launcher), None)


def _awaited(look: Callable[[], _Found | None]) -> _Found:
    until = time.monotonic() + _WITHIN
    while time.monotonic() < until:
        found = look()
        if found is not None:
            return found
        time.sleep(_LOOK_EVERY)
    raise BenchError(f"what was waited for did not happen within {_WITHIN:g}s")


def insist_nothing_left(home: Path) -> None:
    """Wait until no process has that HOME any more; kill what stays, and complain."""
    until = time.monotonic() + _WITHIN
    while (left := [process for process in psutil.process_iter() if _lives_in(process, home)]) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    if left:
        raise BenchError(f"left behind: {', '.join(str(process) for process in left)}")


def _lives_in(process: psutil.Process, home: Path) -> bool:
    try:
        return bool(process.environ().get("HOME") == str(home))
    except psutil.Error:
        return False
