"""Is a session any slower when many watch it, some of whom never read?"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.machines import MUR, ROOT, BenchError, environment, temporary_home

_LINES = 10_000
_PRINTS = f"""
import sys
print(sys.stdin.read())
for number in range({_LINES}):
    print(f"line {{number:05}}", sum(range(2000)), flush=True)
"""
"""Some work for every line, so that the session is at it for about as long as one that thinks about what it says."""
_WITHIN = 120.0


class Watched(NamedTuple):
    """What it cost to be watched."""

    alone: float
    """Seconds of a task, a median."""
    watched: float
    whole: int
    """How many of those who read got every line in order, in the worst round."""
    grown: int
    """Bytes by which the host's peak of memory grew."""

    @property
    def ratio(self) -> float:
        """How much longer the task took."""
        return self.watched / self.alone


def watched_session(rounds: int, reading: int, silent: int) -> Watched:
    """Run the same task with nobody watching and with all of them, in turn."""
    alone, watched, whole = [], [], []
    with ExitStack() as opened:
        home = temporary_home(opened)
        host, ready = opened.enter_context(_session(home))
        records = Path(ready["records_dir"])
        _task(home, ready["session_id"], "the first one pays for imports")
        before = _peak(host.pid)
        for number in range(rounds):
            _task(home, ready["session_id"], "alone")
            alone.append(_last_task(records))
            with _watchers(ready["url"], reading, silent, task := f"round {number}") as watching:
                _task(home, ready["session_id"], task)
                watched.append(_last_task(records))
                wanted = (records / "out" / "result.txt").read_text()
                said, _ = watching.communicate(wanted, timeout=_WITHIN)
                whole.append(int(said))
        return Watched(statistics.median(alone), statistics.median(watched), min(whole), _peak(host.pid) - before)


@contextmanager
def _session(home: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    manifest = {
        "name": "printer",
        "version": "1.0",
        "process": {"command": [sys.executable, "-c", _PRINTS]},
        "lifecycle": {"task_acceptance": "single", "after_task": "sleep"},
    }
    (home / "murmur.yaml").write_text(json.dumps(manifest))  # JSON is YAML.
    host = subprocess.Popen(
        [MUR, "run", "--json", "--manifest", "murmur.yaml"],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        text=True,
    )
    with host:
        try:
            assert host.stdout is not None
            yield host, json.loads(host.stdout.readline())
        finally:
            host.terminate()


@contextmanager
def _watchers(url: str, reading: int, silent: int, task: str) -> Iterator["subprocess.Popen[str]"]:
    watching = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bench.watchers",
            url.replace("localhost", "127.0.0.1"),
            str(reading),
            str(silent),
            task,
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with watching:
        try:
            assert watching.stdout is not None
            if watching.stdout.readline() != "watching\n":
                raise BenchError("those who were to watch could not")
            yield watching
        finally:
            watching.kill()


def _task(home: Path, session_id: str, text: str) -> None:
    command = [str(MUR), "send", session_id, text, "--json"]
    sent = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=_WITHIN, check=False)
    if sent.returncode != 0:
        raise BenchError(f"a task ended otherwise: {sent.stdout}{sent.stderr}")


def _last_task(records: Path) -> float:
    """Return how many seconds the last task took, by the session's own trace."""
    events = [json.loads(line) for line in (records / "trace.jsonl").read_text().splitlines()]
    began, ended = (
        next(event["timestamp"] for event in reversed(events) if event["event_type"] == kind)
        for kind in ("task_start", "task_end")
    )
    return float(ended - began) / 1000


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
