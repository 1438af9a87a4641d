"""How is a command timed, and how is a figure told beside its budget?"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.machines import MUR, ROOT, BenchError, environment

_COLUMNS = "{:<46} {:>13} {:>13}  {}"


@dataclass(slots=True)
class Report:
    """Prints one line a figure, as it is found, and remembers which budgets were missed."""

    missed: list[str] = field(default_factory=list)

    def heading(self, title: str) -> None:
        """Begin a group of figures."""
        print(f"\n{_COLUMNS.format(title, 'measured', 'budget', '')}".rstrip(), flush=True)

    def figure(
        self, name: str, measured: str, budget: str = "-", *, held: bool | None = None, detail: str = ""
    ) -> None:
        """Print one figure; `held` is `None` where there is no budget."""
        verdict = {None: "    ", True: "ok  ", False: "MISS"}[held]
        print(_COLUMNS.format(f"  {name}", measured, budget, f"{verdict} {detail}").rstrip(), flush=True)
        if held is False:
            self.missed.append(f"{name}: {measured}, budget {budget}")

    def ratio(self, name: str, measured: float, budget: float | None, detail: str) -> None:
        """Print one ratio to the empty interpreter."""
        self.figure(
            name,
            f"{measured:.2f}x",
            "-" if budget is None else f"<= {budget:g}x",
            held=None if budget is None else measured <= budget,
            detail=detail,
        )


@dataclass(frozen=True, slots=True)
class Command:
    """One `mur` command, the HOME it runs in and what its output must look like to count."""

    arguments: Sequence[str]
    home: Path
    expect: Callable[[str], bool]
    prepare: Callable[[], None] | None = None
    """What comes before each run, outside the time taken."""

    def timed(self) -> float:
        """Run it once, from start to end of output, and return the seconds it took."""
        if self.prepare is not None:
            self.prepare()
        seconds, output = run_timed([str(MUR), *self.arguments], self.home)
        if not self.expect(output):
            raise BenchError(f"`mur {' '.join(self.arguments)}` printed something else:\n{output}")
        return seconds


def run_timed(arguments: Sequence[str], home: Path) -> tuple[float, str]:
    """Run a program with its output into a pipe; return seconds and output."""
    env = environment(home)
    started = time.perf_counter()
    done = subprocess.run(
        arguments, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        check=True,
    )  # fmt: skip
    return time.perf_counter() - started, done.stdout.decode()


def compile_caches() -> None:
    """Compile what the commands import, so that no run is the one that does."""
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "domain", "adapters", "cli"],
        cwd=ROOT,
        env=environment(ROOT),
        check=True,
    )


def ratio_to_empty(command: Command, repetitions: int) -> tuple[float, str]:
    """Run an empty interpreter and the command in turn; return the ratio of their medians, and both in words.

    In turn, so that whatever else the machine does meets both alike.
    """
    empty = [sys.executable, "-c", "pass"]
    command.timed()
    nothing: list[float] = []
    taken: list[float] = []
    for _ in range(repetitions):
        nothing.append(run_timed(empty, command.home)[0])
        taken.append(command.timed())
    base, middle = statistics.median(nothing), statistics.median(taken)
    return middle / base, f"{1000 * middle:.0f} ms to {1000 * base:.1f} ms"


def ps_shows(running: int, unreachable: int = 0) -> Callable[[str], bool]:
    """Expect a table with exactly so many rows of each status."""

    def expect(output: str) -> bool:
        statuses = [line.split()[2] for line in output.splitlines()[1:]]
        return (
            statuses.count("running") == running
            and statuses.count("unreachable") == unreachable
            and len(statuses) == running + unreachable
        )

    return expect
