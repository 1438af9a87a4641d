"""`mur run`: host a command as a session for as long as it runs (M1, M3-M5)."""

import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from murmur.adapters.command import Tee, status_text
from murmur.adapters.door_server import bind_door
from murmur.adapters.host_log import HostLog
from murmur.adapters.identifiers import mint
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.registration import RunningGuard
from murmur.adapters.session_host import HostedSession, SessionEnd, host
from murmur.adapters.terminal import has_controlling_terminal
from murmur.cli import wiring
from murmur.cli.output import echo_bytes, report, reporting, say, warn
from murmur.domain.errors import FAILED, CommandFailed, CommandNotStarted, MurmurError
from murmur.domain.record import RunningRecord
from murmur.domain.served_door import ServedSession
from murmur.domain.uptime import started_at_text

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_VERSION = "0.0.0"
_TAIL_LINES = 20
# What belongs to this session's own launch and to no command: lifelines, handles and grants are one process's.
_WITHHELD = (
    "MURMUR_SPAWNER", "MURMUR_SPAWNER_LIFELINE", "MURMUR_FORMATION_LIFELINE", "MURMUR_FORMATION_CHANNEL",
    "MURMUR_FORMATION_PEERS",
)  # fmt: skip


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command to host.")],
    bind: Annotated[str, typer.Option("--bind", metavar="ADDR", help="Address of the door.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the door; 0 picks one.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the readiness line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Echo the command's output.")] = False,
) -> None:
    """Host a command as a session while it runs.

    It is addressable by `mur ps`, `mur stop` and its door, and ends with everything it started.
    """
    gc.enable()
    # A child's status is lost where a parent left SIGCHLD ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with reporting(as_json=as_json):
        end, failure = _host(command, bind, port, as_json=as_json, verbose=verbose)
        if failure is not None:
            # The readiness line was the one document of --json, so this goes to stderr.
            report(failure, as_json=False)
        raise typer.Exit(end.exit_status)


def _host(
    command: Sequence[str], bind: str, port: int, *, as_json: bool, verbose: bool
) -> tuple[SessionEnd, CommandFailed | None]:
    session_id = mint("ses_")
    started = wiring.clock.monotonic()
    workdir = _workdir()
    with ExitStack() as opened:
        records, recorded = _records(opened, workdir, session_id)
        door, authority = bind_door(bind, port)
        opened.callback(door.close)
        session = ServedSession(session_id, Path(command[0]).name or command[0], _VERSION, authority)
        _trace(
            records,
            "session_start",
            capsule_name=session.capsule_name,
            capsule_version=session.capsule_version,
        )
        output, tees = _output(opened, records, verbose=verbose, as_json=as_json)
        end: SessionEnd | None = None
        try:
            end = host(
                HostedSession(
                    session,
                    command,
                    _environment(records, session_id),
                    output,
                    records,
                    enter=lambda: _enter(session, records, recorded=recorded),
                    announce=lambda: _announce(session, records, workdir, tees, as_json=as_json),
                    log=_log(opened, records, session_id),
                ),
                door,
            )
        finally:
            milliseconds = round(1000 * (wiring.clock.monotonic() - started))
            status = FAILED if end is None else end.exit_status
            _trace(records, "session_end", exit_status=status, duration_ms=milliseconds)
        return end, CommandFailed(_failure(command, end, records)) if end.exit_status == FAILED else None


def _workdir() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise CommandNotStarted(
            f"the current directory cannot be read: {(error.strerror or str(error)).lower()}",
            hint="change to a directory that exists",
        ) from error


def _records(opened: ExitStack, workdir: Path, session_id: str) -> tuple[RecordsDirectory, bool]:
    """Open the session's records directory; in a private temporary place where there is no usable Murmur home."""
    try:
        return opened.enter_context(RecordsDirectory.create(os.environ, workdir, session_id)), True
    except MurmurError as error:
        try:
            path = Path(tempfile.mkdtemp(prefix="murmur-"))
        except OSError:
            raise error from None  # There is no place for its logs at all, so the first reason counts.
        warn(f"{error.message}; the session runs unrecorded, with its logs in {path}")
        return opened.enter_context(RecordsDirectory.elsewhere(path, session_id)), False


def _environment(records: RecordsDirectory, session_id: str) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
    return environment | {"MURMUR_SESSION_ID": session_id, "MURMUR_RECORDS_DIR": str(records.path)}


def _output(
    opened: ExitStack, records: RecordsDirectory, *, verbose: bool, as_json: bool
) -> tuple[tuple[int, int], Sequence[Tee]]:
    """Open the command's stdout and stderr: its logs, or pipes that are copied there and echoed."""
    logs = [records.open_log(name) for name in ("stdout.log", "stderr.log")]
    for log in logs:
        opened.callback(os.close, log)
    if not verbose:
        return (logs[0], logs[1]), ()
    # With --json stdout carries one document, so everything else goes to stderr.
    echoes = [echo_bytes(sys.stderr if as_json else sys.stdout), echo_bytes(sys.stderr)]
    tees = [Tee(log, echo) for log, echo in zip(logs, echoes, strict=True)]
    for tee in tees:
        opened.callback(tee.finish)
        opened.callback(os.close, tee.write_end)
    return (tees[0].write_end, tees[1].write_end), tees


def _enter(session: ServedSession, records: RecordsDirectory, *, recorded: bool) -> Callable[[], None]:
    """Record the session. Failing to is a warning: the session runs on, unlisted (G2)."""
    origin = wiring.processes.own_origin()
    record = RunningRecord(
        session_id=session.session_id,
        url=session.authority,
        pid=os.getpid(),
        process_start=origin.process_start or "",
        capsule_name=session.capsule_name,
        capsule_version=session.capsule_version,
        workdir=str(records.path),
        outlives_launcher=not has_controlling_terminal(),
        started_at=started_at_text(wiring.clock.now()),
    )
    if recorded:
        try:
            return RunningGuard(os.environ, record, origin, warn).close
        except MurmurError as error:
            warn(f"{error.message}; the session runs on, but `mur ps` will not list it")
    return lambda: None


def _announce(
    session: ServedSession, records: RecordsDirectory, workdir: Path, tees: Sequence[Tee], *, as_json: bool
) -> None:
    """Say that the session is there, before anything of its command is echoed."""
    line = {
        "name": session.capsule_name,
        "pid": os.getpid(),
        "records_dir": str(records.path),
        "session_id": session.session_id,
        "url": session.authority,
        "version": session.capsule_version,
        "workdir": str(workdir),
    }
    say(json.dumps(line, sort_keys=True) if as_json else f"murmur: url {line['url']}\nsession: {line['session_id']}")
    for tee in tees:
        tee.start()


def _log(opened: ExitStack, records: RecordsDirectory, session_id: str) -> HostLog:
    file = opened.enter_context(open(records.open_log("host.log"), "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - a descriptor
    return HostLog(file, session_id)


def _trace(records: RecordsDirectory, event_type: str, **fields: object) -> None:
    try:
        records.trace(event_type, **fields)
    except OSError as error:
        warn(f"the trace of {records.path} could not be written: {(error.strerror or str(error)).lower()}")


def _failure(command: Sequence[str], end: SessionEnd, records: RecordsDirectory) -> str:
    tail = records.log_tail("stderr.log", _TAIL_LINES)
    quoted = "; its last stderr lines were:" + "".join(f"\n  {line}" for line in tail) if tail else ""
    return f"the command {command[0]} ended with {status_text(end.returncode)}{quoted}"
