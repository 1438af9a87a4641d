"""`mur delegate`: have another agent on this machine do a piece of work, and print its result."""

import gc
import signal
from typing import Annotated

import typer

from murmur.cli.output import note, report, reporting, say, say_document, warn
from murmur.domain.durations import seconds_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def delegate(
    capsule: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="A capsule of the project's store, or of yours.")
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Have a capsule do a piece of work, and print its result.

    The outcome goes to stderr. Exit status: 0 ok, 1 failed, 4 refused, 5 at the deadline. However this command ends,
    the capsule ends with it.
    """
    # A child's status is lost where a parent left SIGCHLD ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with reporting(as_json=as_json):
        from murmur.cli.delegating import Wanted, run_delegation  # noqa: PLC0415 - `--help` needs none of it

        gc.enable()  # It waits for as long as the work takes, and has imported by now what there is to import.
        outcome = run_delegation(Wanted(capsule, _task(task), _seconds(deadline), tuple(env or ())))
        if as_json:
            say_document(outcome.document())
        elif outcome.result:
            say(outcome.result.removesuffix("\n"))
        if not as_json:
            note(outcome.line())
        if outcome.error is not None:
            if not as_json:
                report(outcome.error, as_json=False)
            raise typer.Exit(outcome.error.exit_status)


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
