"""`mur run`: host a command as a session, for as long as it runs or for the tasks it is sent (M1, M3-M5)."""

import gc
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from murmur.adapters.reasons import reason_of
from murmur.cli.hosting import Launch, host_session
from murmur.cli.output import report, reporting
from murmur.domain.command_environment import WITHHELD
from murmur.domain.durations import seconds_of
from murmur.domain.errors import FAILED, CommandFailed, CommandNotStarted
from murmur.domain.task_board import Acceptance, AfterTask

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
        Path | None, typer.Option("--manifest", metavar="FILE", help="A capsule's murmur.yaml.")
    ] = None,
    workdir: Annotated[Path | None, typer.Option("--workdir", metavar="DIR", help="Where the command works.")] = None,
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
    readiness_tokens: Annotated[bool, typer.Option("--readiness-tokens", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the readiness line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Echo the command's output.")] = False,
) -> None:
    """Host a command as a session.

    It is addressable by `mur ps`, `mur stop` and its door, and ends with everything it started.
    """
    gc.enable()
    # A child's status is lost where a parent left SIGCHLD ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if bool(command) == (manifest is not None):
        raise typer.BadParameter("give a command after --, or --manifest")
    if detach:
        # Imported by who wants it: it starts this very command again.
        from murmur.cli.detach import run_detached  # noqa: PLC0415

        raise typer.Exit(run_detached(as_json=as_json))
    with reporting(as_json=as_json):
        launch = _from_command(command, workdir) if command else _from_manifest(manifest, workdir, env_file=env_file)
        launch = launch.replaced(
            bind=bind,
            port=launch.port if port is None else port,
            acceptance=_choice("--lifecycle-task-acceptance", task_acceptance, _ACCEPTANCES, launch.acceptance),
            after_task=_choice("--lifecycle-after-task", after_task, _AFTER_TASK, launch.after_task),
            task=None if task is None else _task(task),
            deadline=None if deadline is None else _seconds(deadline),
            as_json=as_json,
            verbose=verbose,
            readiness_tokens=readiness_tokens,
        )
        end = host_session(launch)
        if end.exit_status == FAILED:
            # The readiness line was the one document of --json, so this goes to stderr.
            report(CommandFailed(end.reason or "the session failed"), as_json=False)
        raise typer.Exit(end.exit_status)


def _from_command(command: Sequence[str], workdir: Path | None) -> Launch:
    """Host a command as it is: named after itself, in the caller's environment, taking no tasks."""
    environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    return Launch(Path(command[0]).name or command[0], _VERSION, command, _workdir(workdir), environment)


def _from_manifest(path: Path | None, workdir: Path | None, *, env_file: bool) -> Launch:
    assert path is not None
    # Imported by who has a manifest: a plain command pays for neither YAML nor pydantic.
    from murmur.cli.from_manifest import launch_from_manifest  # noqa: PLC0415

    return launch_from_manifest(path, _workdir(workdir), read_env_file=env_file)


def _workdir(given: Path | None) -> Path:
    try:
        place = Path.cwd() if given is None else given.resolve(strict=True)
    except OSError as error:
        raise CommandNotStarted(
            f"the work folder {given or '.'} cannot be used: {reason_of(error)}",
            hint="give a directory that exists",
        ) from error
    if not place.is_dir():
        raise CommandNotStarted(f"the work folder {place} is no directory", hint="give a directory that exists")
    return place


def _task(given: str) -> str:
    """Return the content of the file of that name, or the text itself where there is none."""
    try:
        return Path(given).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # No such file, or no possible name of one.
        return given


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
