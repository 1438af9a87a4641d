"""What do a launcher's children cost it, and how soon are they told of and ended?"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.delegation import insist_nothing_left, put_capsule
from bench.machines import ROOT, BenchError, environment, temporary_home

_END_WITHIN = 30.0


class Many(NamedTuple):
    """Many children of one launcher, which does nothing else."""

    cpu: float
    """Of one core's time."""
    wakes: int
    """How often the thread that they cost went back to sleep."""
    threads: int
    descriptors: int
    raised: bool
    """Whether the launcher has all descriptors that it may have."""
    restored: bool
    """Whether every child has the limit that the launcher was given."""
    obeying: float
    """Seconds in which all that obey have ended."""
    real: float
    """The same of real sessions."""
    stubborn: float
    """The same of those that ignore SIGTERM."""


def outcome_delays(repetitions: int) -> Mapping[str, Sequence[float]]:
    """Kill children of each kind; return the milliseconds until the outcome of each was on disk."""
    found = _launched("outcomes", repetitions)
    return {str(kind): [float(each) for each in delays] for kind, delays in found.items()}


def many_children(stand_ins: int, real: int, stubborn: int, seconds: float) -> Many:
    """Launch so many of each kind, watch them idle for so long, and end them."""
    found = _launched("many", stand_ins, real, stubborn, seconds)
    _, hard = found["given limit"]
    return Many(
        cpu=found["cpu"],
        wakes=found["wakes"],
        threads=found["threads"],
        descriptors=found["descriptors"],
        raised=found["own limit"] == [hard, hard],
        restored=found["children's limits"] == [found["given limit"]],
        obeying=found["ended, obeying"],
        real=found["ended, real"],
        stubborn=found["ended, stubborn"],
    )


def _launched(*what: object) -> Mapping[str, Any]:
    """Run the launcher in a HOME of its own, and see to it that nothing of it is left."""
    with ExitStack() as opened:
        home = temporary_home(opened)
        opened.callback(insist_nothing_left, home)
        put_capsule(home, "sleeper", ["sleep", "1000"], "none")
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.launcher", *map(str, what)],
            cwd=ROOT,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        opened.callback(_end, process)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise BenchError(f"the launcher of {' '.join(map(str, what))} ended with {process.returncode}")
        found: dict[str, Any] = json.loads(output)
        return found


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_END_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
