"""`mur run`: host a command as a session, for as long as it runs or for the tasks it is sent (M1, M3-M5)."""

import gc
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from murmur.adapters.reasons import reason_of
from murmur.cli.hosting import host_session
from murmur.cli.launch import Launch
from murmur.cli.output import report, reporting, warn
from murmur.domain.command_environment import DETACHED, HANDED_ON, WITHHELD
from murmur.domain.durations import seconds_of
from murmur.domain.errors import FAILED, CommandFailed, CommandNotStarted
from murmur.domain.task_board import Acceptance, AfterTask

if TYPE_CHECKING:
    from murmur.adapters.launched_by import LaunchedBy

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_VERSION = "0.0.0"
_ACCEPTANCES: tuple[Acceptance, ...] = ("none", "single", "queue")
_AFTER_TASK: tuple[AfterTask, ...] = ("exit", "sleep")
_Choice = TypeVar("_Choice", bound=str)


@app.command(context_settings={"allow_interspersed_args": False})
def run(  # noqa: PLR0913, PLR0917 - one parameter an option
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="The command to host, without a manifest.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", readable=False, help="A capsule's murmur.yaml.")
    ] = None,
    workdir: Annotated[
        Path | None, typer.Option("--workdir", metavar="DIR", readable=False, help="Where the command works.")
    ] = None,
    bind: Annotated[str, typer.Option("--bind", metavar="ADDR", help="Address of the door.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Port of the door; 0 picks one.", show_default="0"
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TEXT|FILE", help="Begin with this task, or the one in that file.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="End the session then: 90s, 30m, 2h.")
    ] = None,
    task_acceptance: Annotated[
        str | None,
        typer.Option("--lifecycle-task-acceptance", metavar="none|single|queue", help="Instead of the manifest's."),
    ] = None,
    after_task: Annotated[
        str | None, typer.Option("--lifecycle-after-task", metavar="exit|sleep", help="Instead of the manifest's.")
    ] = None,
    env_file: Annotated[
        bool, typer.Option("--env-file/--no-env-file", help="Read the .env beside the manifest.")
    ] = True,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the door answers; the session stays.")] = False,
    capsule: Annotated[
        str | None, typer.Option("--capsule", metavar="NAME", help="A capsule of the project's store, or of yours.")
    ] = None,
    capsule_version: Annotated[
        str | None, typer.Option("--capsule-version", metavar="VERSION", help="Its version.")
    ] = None,
    workdir_identity: Annotated[str | None, typer.Option("--workdir-identity", hidden=True)] = None,
    spawn_grant_stdin: Annotated[bool, typer.Option("--spawn-grant-stdin", hidden=True)] = False,
    inherited_deadline: Annotated[int | None, typer.Option("--inherited-deadline", hidden=True)] = None,
    readiness_tokens: Annotated[bool, typer.Option("--readiness-tokens", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the readiness line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Echo the command's output.")] = False,
) -> None:
    """Host a command as a session.

    It is addressable by `mur ps`, `mur stop` and its door, and ends with everything it started.
    """
    # A child's status is lost where a parent left SIGCHLD ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if [bool(command), manifest is not None, capsule is not None].count(True) != 1:
        raise typer.BadParameter("give a command after --, or --manifest, or --capsule")
    if (capsule is None) != (capsule_version is None):
        raise typer.BadParameter("--capsule and --capsule-version belong together")
    if spawn_grant_stdin and capsule is None:
        raise typer.BadParameter("--spawn-grant-stdin is for a --capsule")
    # Taken out at once, so that nothing which is started from here inherits it.
    stays = os.environ.pop(DETACHED, None) is not None and detach
    # A launcher reads the readiness line on stdout, and quotes stderr when there is none (X6).
    with reporting(as_json=as_json and not spawn_grant_stdin):
        text = _task(task, handed_on=stays)
        if detach and not stays:
            # Imported by who wants it: it starts this very command again.
            from murmur.cli.detach import run_detached  # noqa: PLC0415

            raise typer.Exit(run_detached(text, as_json=as_json))
        by = _launched_by()
        place = _workdir(workdir)
        if workdir_identity is not None:
            _enter(place, workdir_identity)
        if command:
            launch = _from_command(command, place)
        elif manifest is not None:
            launch = _from_manifest(manifest, place, env_file=env_file)
        else:
            launch = _from_store(capsule, capsule_version, place, granted=spawn_grant_stdin, env_file=env_file)
        launch = launch.replaced(
            bind=bind,
            port=launch.port if port is None else port,
            acceptance=_choice("--lifecycle-task-acceptance", task_acceptance, _ACCEPTANCES, launch.acceptance),
            after_task=_choice("--lifecycle-after-task", after_task, _AFTER_TASK, launch.after_task),
            task=text,
            deadline=None if deadline is None else _seconds(deadline),
            as_json=as_json,
            verbose=verbose,
            readiness_tokens=readiness_tokens,
            detached=stays,
            in_workdir=workdir_identity is not None,
            launched_by=by,
        )
        _check_script(launch)
        if inherited_deadline is not None and not launch.script:
            launch = launch.replaced(deadline=_earlier(launch.deadline, inherited_deadline))
        gc.enable()  # Here it begins to stay; nearly all that it imports is there by now.
        end = host_session(launch)
        delegated = by is not None and by.handle is not None
        if end.exit_status == FAILED and not delegated:  # Who delegated it hears of it, and tells.
            # The readiness line was the one document of --json, so this goes to stderr.
            report(CommandFailed(end.reason or "the session failed"), as_json=False)
        raise typer.Exit(end.exit_status)


def _from_command(command: Sequence[str], workdir: Path) -> Launch:
    """Host a command as it is: named after itself, in the caller's environment, taking no tasks."""
    environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    return Launch(Path(command[0]).name or command[0], _VERSION, command, workdir, environment)


def _from_manifest(path: Path, workdir: Path, *, env_file: bool) -> Launch:
    # Imported by who has a manifest: a plain command pays for neither YAML nor pydantic.
    from murmur.cli.from_manifest import launch_from_manifest  # noqa: PLC0415

    return launch_from_manifest(path, workdir, read_env_file=env_file)


def _from_store(name: str | None, version: str | None, workdir: Path, *, granted: bool, env_file: bool) -> Launch:
    assert name is not None
    assert version is not None
    from murmur.adapters.launched_by import read_grant  # noqa: PLC0415 - see above
    from murmur.cli.from_store import launch_from_store  # noqa: PLC0415

    grant = read_grant() if granted else None
    return launch_from_store(name, version, workdir, grant, read_env_file=env_file)


def _launched_by() -> "LaunchedBy | None":
    """Return who launched this session, if somebody did and said so."""
    if not any(name in os.environ for name in HANDED_ON):
        return None
    from murmur.adapters.launched_by import launched_by  # noqa: PLC0415 - a session that nobody launched has none

    return launched_by(os.environ)


def _enter(workdir: Path, identity: str) -> None:
    """Go into the work folder, if it is the one that the launcher made. Nothing was written there by us before."""
    from murmur.adapters.launched_by import enter_workdir  # noqa: PLC0415 - only a launcher names an identity
    from murmur.domain.launch.argv import parse_identity  # noqa: PLC0415

    try:
        enter_workdir(workdir, parse_identity(identity))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _earlier(deadline: float | None, inherited: int) -> float:
    """Return the seconds to the earlier of the session's own deadline and its launcher's, which is a moment."""
    left = max(0.0, inherited / 1000 - time.time())
    return left if deadline is None else min(deadline, left)


def _workdir(given: Path | None) -> Path:
    try:
        # Not `Path.resolve`, which tells of a circle of links by another error from one Python to the next.
        place = Path.cwd() if given is None else Path(os.path.realpath(given, strict=True))
    except OSError as error:
        raise CommandNotStarted(
            f"the work folder {given or '.'} cannot be used: {reason_of(error)}",
            hint="give a directory that exists",
        ) from error
    if not place.is_dir():
        raise CommandNotStarted(f"the work folder {place} is no directory", hint="give a directory that exists")
    return place


def _task(given: str | None, *, handed_on: bool) -> str | None:
    """Return the task that `--task` gives; on standard input where whoever detached us has read it for us."""
    if given is None:
        return None
    from murmur.adapters.task_file import read_task, take_task  # noqa: PLC0415 - a plain command has no task

    if handed_on:
        return take_task()
    text, whole = read_task(given)
    if not whole:
        warn(f"the task {given} is not UTF-8: what is no text in it was replaced")
    return text


def _check_script(launch: Launch) -> None:
    """Refuse what a script has no door for: nobody could reach it, and nothing would end it."""
    if launch.script and launch.acceptance != "none":
        raise typer.BadParameter(
            f"--lifecycle-task-acceptance {launch.acceptance} needs a door, and the manifest's `kind: script` has none"
        )
    if launch.script and launch.detached:
        raise typer.BadParameter(
            "--detach needs a door to wait for, and the manifest's `kind: script` has none: leave --detach out"
        )


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"--deadline {text}: {error}") from None


def _choice(option: str, given: str | None, choices: Sequence[_Choice], otherwise: _Choice) -> _Choice:
    if given is None:
        return otherwise
    for choice in choices:
        if choice == given:
            return choice
    raise typer.BadParameter(f"{option} is one of {', '.join(choices)}")
