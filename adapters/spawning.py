"""How is a `mur run` process started? The one place that starts them, delegated children and members alike (X8)."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Literal, NamedTuple

from murmur.adapters.lifelines import Lifeline
from murmur.adapters.reasons import reason_of
from murmur.domain.errors import ChildNotLaunched
from murmur.domain.secret import Secret
from murmur.domain.value import Value


class Cleared(Value):
    """An environment of exactly these pairs: a delegated child's."""

    pairs: Sequence[tuple[str, str]]


class Inherited(Value):
    """This process's own environment, without some names and then with others: a formation member's."""

    remove: Sequence[str] = ()
    set: Sequence[tuple[str, str]] = ()


class ProcessLaunch(Value):
    """One process to start."""

    argv: Sequence[str]
    environment: Cleared | Inherited
    cwd: Path | None = None
    """`None`: this process's own."""
    stdin_line: Secret | None = None
    """Written, with a newline, to its standard input, which is closed then; `None` gives it none."""
    inherit_output: bool = False
    """Give it our own standard output and error, which are not read then."""
    own_process_group: bool = False
    """Keep a terminal's ^C from it, and let its whole tree be signalled at once."""
    inherit_descriptor: int | None = None
    """A descriptor that it gets under the same number, and nobody else does."""
    lifeline: Lifeline | None = None


class StartedProcess(Value):
    """A process just started. Its pipes are the caller's to read and to close."""

    process: "subprocess.Popen[bytes]"
    stdin_refused: str | None = None
    """Why its line could not be handed over; `None` when it was, or there was none."""


def start_process(launch: ProcessLaunch) -> StartedProcess:
    """Start a process; raise `OSError` or `ValueError` with nothing left of it.

    The process gets the signal mask of the calling thread, as any does: unblocking anything here could let a signal in
    that this program holds back. `mur run` unblocks what ends it; another program may not.

    The lifeline's read end is closed here once the process has it. Its old descriptor limit is back before it can
    read its line.
    """
    kept = [] if launch.inherit_descriptor is None else [launch.inherit_descriptor]
    if launch.lifeline is not None:
        kept.append(launch.lifeline.read_end)
    with ExitStack() as ours, ExitStack() as theirs:
        # Not `subprocess.PIPE`: before Python 3.11.4 that leaks the first pipes when there is no descriptor for the
        # last one.
        stdin = None if launch.stdin_line is None else _pipe(ours, theirs, "wb")
        stdout, stderr = (None if launch.inherit_output else _pipe(ours, theirs, "rb") for _ in range(2))
        process = subprocess.Popen(
            list(launch.argv),
            stdin=subprocess.DEVNULL if stdin is None else stdin.theirs,
            stdout=None if stdout is None else stdout.theirs,
            stderr=None if stderr is None else stderr.theirs,
            cwd=launch.cwd,
            env=_environment(launch.environment),
            process_group=0 if launch.own_process_group else None,
            pass_fds=kept,
        )
        process.stdin, process.stdout, process.stderr = (
            None if pipe is None else pipe.ours for pipe in (stdin, stdout, stderr)
        )
        ours.pop_all()
    if launch.lifeline is not None:
        launch.lifeline.handed()
    _restore_limit(process.pid)
    return StartedProcess(process, None if launch.stdin_line is None else _hand_over(process, launch.stdin_line))


class _Pipe(NamedTuple):
    ours: FileIO
    theirs: int


def _pipe(ours: ExitStack, theirs: ExitStack, mode: Literal["rb", "wb"]) -> _Pipe:
    """Make a pipe of which this process uses one end, each end to be closed with its stack. Raises `OSError`."""
    read_end, write_end = os.pipe()
    own, other = (read_end, write_end) if mode == "rb" else (write_end, read_end)
    theirs.callback(os.close, other)
    return _Pipe(ours.enter_context(FileIO(own, mode)), other)


def _environment(environment: Cleared | Inherited) -> Mapping[str, str]:
    if isinstance(environment, Cleared):
        return dict(environment.pairs)
    kept = {name: value for name, value in os.environ.items() if name not in environment.remove}
    return kept | dict(environment.set)


def _hand_over(process: "subprocess.Popen[bytes]", line: Secret) -> str | None:
    """Write the one line and close; a pipe takes so little at once, so nothing can wait here."""
    assert process.stdin is not None
    with ExitStack() as opened:
        opened.callback(process.stdin.close)
        os.set_blocking(process.stdin.fileno(), False)
        content = line.expose().encode("utf-8", "surrogateescape") + b"\n"
        try:
            if process.stdin.write(content) != len(content):
                return "it does not fit into a pipe"
        except OSError as error:
            return reason_of(error)
    return None


BINARY_VARIABLE = "MURMUR_MUR_BINARY"


def mur_binary(environment: Mapping[str, str]) -> str:
    """Return the program that children are started from (C4); raise `ChildNotLaunched`."""
    named = environment.get(BINARY_VARIABLE)
    if named:
        # A relative path is meant from here, and not from the folder that the child works in.
        return str(Path(named).absolute()) if "/" in named else named
    installed = Path(sys.executable).with_name("mur")
    if not installed.exists():
        raise ChildNotLaunched(
            f"cannot locate the mur binary to launch a child capsule with: {installed} does not exist",
            hint=f"name it with {BINARY_VARIABLE}",
        )
    return str(installed)


_given: tuple[int, int] | None = None
"""The descriptor limit that this process was started with, once `raise_limit` has changed it."""


def raise_limit() -> None:
    """Raise this process's descriptor limit as far as it may: a child takes four. Its children get back the old one.

    Only where a child's limit can be set from outside, which is Linux.
    """
    global _given  # noqa: PLW0603 - a limit is the process's own, as this is
    if sys.platform == "linux" and _given is None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(OSError, ValueError):  # The machine's own limit is lower by now: this one will do.
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                _given = (soft, hard)


def _restore_limit(pid: int) -> None:
    if sys.platform == "linux" and _given is not None:
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)
        except (ProcessLookupError, PermissionError):  # It has ended, or is another user's by now.
            return
