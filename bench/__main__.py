"""Measure the commands and say whether each budget held: `python -m bench [--quick] [--only SECTION]`.

Start-up is told as a ratio to `-c pass` of the interpreter that runs `mur`, since milliseconds are the machine's.
Exit status 1 names the budgets that were missed.
"""

import argparse
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import NamedTuple, NoReturn

from bench.children import many_children, outcome_delays
from bench.delegation import PHASES, imports_of_both, lifeline_cut, whole_delegation
from bench.door import KINDS, card_rates, idle, largest_imports_of, readiness
from bench.door_process import ANSWERS, DRIPS, SILENT
from bench.layers import measure_layers
from bench.machines import BenchError, RealSessions, answering, machine, temporary_home
from bench.measuring import Command, Report, compile_caches, ps_shows, ratio_to_empty
from bench.streams import watched_session

_SLACK = 0.3
"""Seconds granted to a listing beyond what its slowest door is waited for."""
_MICROSECONDS, _TIMES_FASTER = 15.0, 3.0
_OF_A_BARE_DOOR, _TO_READINESS, _MEGABYTES = 0.7, 30.0, 35.0
_WHOLE_DELEGATION = 55.0
_OUTCOME, _LIFELINE = 50.0, 100.0
"""Milliseconds."""
_READING, _SILENT, _WATCHED, _GROWN = 80, 20, 1.10, 32.0
_CPU, _OBEYING, _STUBBORN = 0.005, 2.0, 6.0


class _Effort(NamedTuple):
    """How often things are run."""

    ratios: int
    waits: int
    layers: int
    rates: int
    idle: float
    """Seconds."""
    deaths: int
    children: int
    """Of one launcher; and a tenth of it of two other kinds."""
    at_rest: float
    """Seconds that those are left alone."""


_FULL = _Effort(21, 3, 41, 9, idle=60.0, deaths=11, children=200, at_rest=30.0)
_QUICK = _Effort(5, 1, 11, 3, idle=10.0, deaths=3, children=40, at_rest=5.0)


def main() -> int:
    """Measure everything; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first impression, not a verdict")
    parser.add_argument("--only", choices=list(_SECTIONS), help="leave out the others")
    arguments = parser.parse_args()
    effort = _QUICK if arguments.quick else _FULL
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    report = Report()
    compile_caches()
    try:
        for name, section in _SECTIONS.items():
            if arguments.only in (None, name):
                section(report, effort)
    except BenchError as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if report.missed:
        print("\nmissed:", *report.missed, sep="\n  ")
        return 1
    print("\nevery budget held")
    return 0


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """Turn a signal into an exception, so that everything started is ended on the way out."""
    sys.exit(128 + number)


def _startup(report: Report, effort: _Effort) -> None:
    repetitions = effort.ratios
    report.heading(f"Ratios to an empty interpreter, {repetitions} runs each")

    def tell(name: str, budget: float | None, command: Command) -> None:
        report.ratio(name, *_in_order(ratio_to_empty(command, repetitions), budget))

    with ExitStack() as opened:
        home = temporary_home(opened)
        tell("mur --version", 7, Command(["--version"], home, lambda said: said.startswith("mur ")))
        ten = machine(opened, answering(10))
        tell("mur ps, 10 live", 9, Command(["ps"], ten.home, ps_shows(10)))
        tell(
            "mur stop @1 --dry-run, 10 live",
            9,
            Command(["stop", "@1", "--dry-run"], ten.home, lambda said: said.startswith("would signal SIGTERM: ses_")),
        )
    with ExitStack() as opened:
        many = machine(opened, answering(200))
        tell("mur ps, 200 live", 12, Command(["ps"], many.home, ps_shows(200)))
    with ExitStack() as opened:
        stale = machine(opened, answering(100), dead=900)
        tell("mur ps, 1000 records, 900 dead", 16, Command(["ps"], stale.home, ps_shows(100), stale.put_back))
    for number in (10, 50):
        with ExitStack() as opened:
            real = RealSessions(opened, number)
            tell(f"mur ps, {number} real mur run", None, Command(["ps"], real.home, ps_shows(number)))


def _in_order(figure: tuple[float, str], budget: float | None) -> tuple[float, float | None, str]:
    ratio, detail = figure
    return ratio, budget, detail


def _hung_doors(report: Report, effort: _Effort) -> None:
    repetitions = effort.waits
    report.heading(f"Listing 200 sessions, 20 of them hung, {repetitions} run{'s' if repetitions > 1 else ''} each")
    for name, manner, wait in (("20 silent doors", SILENT, 5.0), ("20 dripping doors", DRIPS, 7.0)):
        with ExitStack() as opened:
            manners = [manner if index % 10 == 0 else ANSWERS for index in range(200)]
            command = Command(["ps"], machine(opened, manners).home, ps_shows(180, 20))
            seconds = statistics.median(command.timed() for _ in range(repetitions))
            report.figure(name, f"{seconds:.2f} s", f"<= {wait + _SLACK:g} s", held=seconds <= wait + _SLACK)


def _layers(report: Report, effort: _Effort) -> None:
    repetitions = effort.layers
    report.heading(f"Layers 1 and 2 of one record, race-free, {repetitions} rounds")
    ours, calls, whole = measure_layers(repetitions)
    report.figure("readings + judge", f"{ours:.1f} us", f"<= {_MICROSECONDS:g} us", held=ours <= _MICROSECONDS)
    report.figure("psutil status + create_time", f"{calls:.1f} us", detail="on Process objects already made")
    report.figure("psutil Process, status + create_time", f"{whole:.1f} us", detail="from a pid, as a record has it")
    report.figure(
        "faster than psutil, from the same pids",
        f"{whole / ours:.2f}x",
        f">= {_TIMES_FASTER:g}x",
        held=whole / ours >= _TIMES_FASTER,
        detail=f"{calls / ours:.2f}x its two calls alone",
    )


def _door(report: Report, effort: _Effort) -> None:
    report.heading(f"A session's own door, {effort.rates} rounds in turn with a bare starlette app")
    rates = card_rates(effort.rates)
    report.figure(
        "cards a second, of the bare door's",
        f"{rates.ratio:.2f}x",
        f">= {_OF_A_BARE_DOOR:g}x",
        held=rates.ratio >= _OF_A_BARE_DOOR,
        detail=f"{rates.ours:.0f} to {rates.bare:.0f}; uvicorn reads with {rates.parser}",
    )
    # A median of fewer runs moves more than the budget leaves.
    repetitions = max(15, effort.ratios)
    report.heading(f"From start to readiness line, to an empty interpreter, {repetitions} runs each")
    for kind, arguments_of in KINDS.items():
        ready = readiness(arguments_of, repetitions)
        report.ratio(kind, ready.ratio, _TO_READINESS, ready.detail)
        report.figure("  its largest imports", "", detail=largest_imports_of(arguments_of))
    report.heading(f"An idle session, {effort.idle:g} s")
    for kind, arguments_of in KINDS.items():
        found = idle(arguments_of, effort.idle)
        report.figure(f"wake-ups, {kind}", str(found.wakes), "0", held=found.wakes == 0)
        megabytes = found.private / 1e6
        report.figure(
            f"private memory, {kind}", f"{megabytes:.1f} MB", f"<= {_MEGABYTES:g} MB", held=megabytes <= _MEGABYTES
        )


def _delegation(report: Report, effort: _Effort) -> None:
    # As for readiness: a median of fewer runs moves more than the budget leaves.
    repetitions = max(15, effort.ratios)
    report.heading(f"A whole mur delegate of `true`, to an empty interpreter, {repetitions} runs each")
    whole = whole_delegation(repetitions)
    report.ratio("mur delegate", whole.ratio, _WHOLE_DELEGATION, whole.detail)
    for name, milliseconds in zip(PHASES, whole.phases, strict=True):
        report.figure(f"  {name}", f"{milliseconds:.0f} ms")
    for whose, largest in zip(("its", "its child's"), imports_of_both(), strict=True):
        report.figure(f"  {whose} largest imports", "", detail=largest)
    report.heading(f"Who launched is gone, {effort.deaths} times each")
    _within(report, "lifeline cut to `spawner_ended`", lifeline_cut(effort.deaths), _LIFELINE)


def _children(report: Report, effort: _Effort) -> None:
    report.heading(f"A killed child, {effort.deaths} of each kind")
    for kind, delays in outcome_delays(effort.deaths).items():
        _within(report, f"{kind}'s outcome on disk", delays, _OUTCOME)
    some = effort.children // 10
    report.heading(f"One launcher of {effort.children} stand-ins and {some} real mur run, {effort.at_rest:g} s at rest")
    many = many_children(effort.children, some, some, effort.at_rest)
    report.figure("CPU of the launcher", f"{many.cpu:.4%}", f"<= {_CPU:.1%}", held=many.cpu <= _CPU)
    report.figure("threads more than without", str(many.threads), "1", held=many.threads == 1)
    report.figure("wake-ups of those", str(many.wakes), "0", held=many.wakes == 0)
    each = many.descriptors / (effort.children + some)
    report.figure("descriptors", str(many.descriptors), detail=f"{each:.1f} a child")
    report.figure("limit of descriptors raised", _yes(many.raised), "yes", held=many.raised)
    report.figure("limit restored in every child", _yes(many.restored), "yes", held=many.restored)
    for name, seconds, budget in (
        (f"ending {effort.children} that obey", many.obeying, _OBEYING),
        (f"ending {some} real ones", many.real, _OBEYING),
        (f"ending {some} that ignore SIGTERM", many.stubborn, _STUBBORN),
    ):
        report.figure(name, f"{seconds:.2f} s", f"<= {budget:g} s", held=seconds <= budget)


def _streams(report: Report, effort: _Effort) -> None:
    report.heading(f"A session that prints 10,000 lines, alone and watched by 100, {effort.rates} rounds in turn")
    watched = watched_session(effort.rates, _READING, _SILENT)
    report.figure(
        "the task, watched to alone",
        f"{watched.ratio:.3f}x",
        f"<= {_WATCHED:g}x",
        held=watched.ratio <= _WATCHED,
        detail=f"{watched.watched:.2f} s to {watched.alone:.2f} s",
    )
    report.figure("of 80 who read, with every line", str(watched.whole), "80", held=watched.whole == _READING)
    megabytes = watched.grown / 1e6
    report.figure("the host's memory grew by", f"{megabytes:.1f} MB", f"<= {_GROWN:g} MB", held=megabytes <= _GROWN)


def _within(report: Report, name: str, delays: Sequence[float], budget: float) -> None:
    """Hold the median to the budget."""
    middle = statistics.median(delays)
    report.figure(
        name, f"{middle:.1f} ms", f"<= {budget:g} ms", held=middle <= budget, detail=f"at most {max(delays):.1f} ms"
    )


def _yes(so: bool) -> str:  # noqa: FBT001 - a word for it
    return "yes" if so else "no"


_SECTIONS: Mapping[str, Callable[[Report, _Effort], None]] = {
    "startup": _startup,
    "hung": _hung_doors,
    "layers": _layers,
    "door": _door,
    "delegation": _delegation,
    "children": _children,
    "streams": _streams,
}

if __name__ == "__main__":
    sys.exit(main())
