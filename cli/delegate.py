"""`mur delegate`: have another agent on this machine do a piece of work, and print its result."""

import gc
import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from murmur.cli.output import error_lines, reporting, say, say_document, warn
from murmur.domain.durations import seconds_of

if TYPE_CHECKING:
    from murmur.cli.delegable import Wanted

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def delegate(  # noqa: PLR0913, PLR0917 - a parameter for each option
    capsules: Annotated[
        list[str], typer.Argument(metavar="NAME@VERSION...", help="Capsules of the project's store, or of yours.")
    ],
    task: Annotated[
        str | None, typer.Option("--task", metavar="TEXT|FILE", help="What is to be done, or the file that says it.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="End the work then: 90s, 30m, 2h.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME", help="Insist that the capsule gets this variable of yours. Repeatable."),
    ] = None,
    max_parallel: Annotated[
        int | None,
        typer.Option("--max-parallel", metavar="N", help="Of several, run so many at once; otherwise 4."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Have a capsule do a piece of work, and print its result; several side by side.

    The outcome goes to stderr. Exit status: 0 ok, 1 failed, 4 refused, 5 at the deadline, 6 for want of descriptors
    or of a registry; of several, that which all have that failed, or 1. However this command ends, the
    capsules end with it.
    """
    # A child's status is lost where a parent left SIGCHLD ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    at_once = _at_once(max_parallel)
    with reporting(as_json=as_json):
        from murmur.cli.delegable import Wanted  # noqa: PLC0415 - `--help` needs none of it

        wanted = Wanted(capsules, _task(task), _seconds(deadline), tuple(env or ()), at_once)
        if len(capsules) == 1:
            _delegate_one(wanted, as_json=as_json)
            return
        from murmur.cli.side_by_side import delegate_side_by_side  # noqa: PLC0415 - one capsule needs none of it

        gc.enable()
        if status := delegate_side_by_side(wanted, as_json=as_json):
            raise typer.Exit(status)


def _delegate_one(wanted: "Wanted", *, as_json: bool) -> None:
    from murmur.cli.delegating import run_delegations  # noqa: PLC0415
    from murmur.cli.onlookers import Silent  # noqa: PLC0415
    from murmur.cli.screen import Screen  # noqa: PLC0415 - `--help` needs none of it

    gc.enable()  # It waits for as long as the work takes, and has imported by now what there is to import.
    with Screen() as screen:
        (outcome,) = run_delegations(wanted, Silent(screen.warn, screen.hurry))
        error = outcome.error
        if outcome.session_id is None:
            assert error is not None
            raise error
        # Not behind the warnings: whoever reads the result may read nothing else.
        if as_json:
            say_document(outcome.document())
        elif outcome.result:
            say(outcome.result.removesuffix("\n"))
        if not as_json:
            screen.note(outcome.line())
            for line in () if error is None else error_lines(error):
                screen.note(line)
    if error is not None:
        raise typer.Exit(error.exit_status)


def _at_once(given: int | None) -> int:
    """Return how many may run at once: no more than our own referee lets us, where we have one of our own."""
    from murmur.cli.embedded_referee import children_at_once  # noqa: PLC0415 - `--help` needs none of it

    most, is_ours = children_at_once(os.environ)
    if given is None:
        return most
    if given < 1:
        raise typer.BadParameter(f"--max-parallel {given}: at least one has to run")
    if is_ours and given > most:
        raise typer.BadParameter(
            f"--max-parallel {given}: one session has {most} children at once, at most; a roost may allow more"
        )
    return given


def _task(given: str | None) -> str | None:
    if given is None:
        return None
    from murmur.adapters.task_file import read_task  # noqa: PLC0415 - a capsule may need no task

    text, whole = read_task(given)
    if not whole:
        warn(f"the task {given} is not UTF-8: what is no text in it was replaced")
    return text


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"--deadline {text}: {error}") from None
