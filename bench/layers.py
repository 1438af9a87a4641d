"""What does one look at a recorded process cost, layers 1 and 2, race-free, beside psutil?"""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]  # its stubs are not worth another dependency

from bench.machines import BenchError
from murmur.adapters.processes import SystemProcesses
from murmur.domain.process import Alive, Claim, ProcessIdentity, judge

PROCESSES = 100
_ROUNDS_AT_ONCE = 5


class LayerFigures(NamedTuple):
    """Microseconds a record: our two layers, psutil's two calls alone, and with making its `Process`."""

    ours: float
    psutil_calls: float
    psutil_whole: float


def measure_layers(repetitions: int) -> LayerFigures:
    """Look at the same processes in turn with each, and take the medians."""
    with ExitStack() as opened:
        pids = [_sleeper(opened) for _ in range(PROCESSES)]
        processes = SystemProcesses()
        claims = [
            Claim(ProcessIdentity(pid, reading.start_token or ""))
            for pid, reading in zip(pids, processes.readings([ProcessIdentity(pid, "") for pid in pids]), strict=True)
        ]

        def ours() -> None:
            for _ in range(_ROUNDS_AT_ONCE):
                here = processes.here()
                readings = processes.readings([claim.identity for claim in claims])
                states = [judge(claim, reading, here) for claim, reading in zip(claims, readings, strict=True)]
                if not all(isinstance(state, Alive) for state in states):
                    raise BenchError("a sleeping process was not found alive")

        taken: tuple[list[float], ...] = ([], [], [])
        for repetition in range(-1, repetitions):
            made = [[psutil.Process(pid) for pid in pids] for _ in range(_ROUNDS_AT_ONCE)]
            figures = (
                _microseconds(ours),
                _microseconds(lambda made=made: _ask(made)),  # type: ignore[misc]
                _microseconds(lambda: _make_and_ask(pids)),
            )
            if repetition >= 0:  # The first round fills caches.
                for kept, figure in zip(taken, figures, strict=True):
                    kept.append(figure)
        return LayerFigures(*(statistics.median(each) for each in taken))


def _sleeper(opened: ExitStack) -> int:
    process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    opened.callback(process.wait)
    opened.callback(process.kill)
    return process.pid


def _ask(made: Sequence[Sequence[psutil.Process]]) -> None:
    for processes in made:
        for process in processes:
            process.status()
            process.create_time()


def _make_and_ask(pids: Sequence[int]) -> None:
    for _ in range(_ROUNDS_AT_ONCE):
        _ask([[psutil.Process(pid) for pid in pids]])


def _microseconds(look: Callable[[], None]) -> float:
    started = time.perf_counter()
    look()
    return 1e6 * (time.perf_counter() - started) / (PROCESSES * _ROUNDS_AT_ONCE)
