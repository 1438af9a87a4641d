"""`mur send`: give a session a task and print its result."""

import sys
from typing import Annotated

import typer

from murmur.cli import wiring
from murmur.cli.asking import ask_session, session_to_ask, task_json
from murmur.cli.output import note, reporting, say, say_document
from murmur.domain.door import send_ask
from murmur.domain.errors import TaskNotCompleted
from murmur.domain.record import RunningRecord
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def send(
    address: Annotated[str, typer.Argument(help="@N, a session id or its end.")],
    text: Annotated[str, typer.Argument(help="What is to be done; - reads it from stdin.")],
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="Go on with the conversation of that name.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the task as JSON.")] = False,
) -> None:
    """Send a session a task.

    Its result goes to stdout. Exit status 1 when the task did not complete.
    """
    with reporting(as_json=as_json):
        if text == "-":
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
        from murmur.adapters.identifiers import mint  # noqa: PLC0415 - the commands that only look mint nothing

        message_id = mint("msg_")
        record = session_to_ask(address).record
        try:
            task = ask_session(
                record,
                lambda: send_ask(record.url, record.door_token, text, message_id, blocking=wait, context_id=context),
                wiring.task_doors if wait else wiring.handover_doors,
            )
        except KeyboardInterrupt:
            note(_left_behind(record))
            raise
        if as_json:
            say_document(task_json(task))
        elif task.state == "completed":
            say((task.result or "").removesuffix("\n"))
        else:
            note(f"task: {visible(task.id)}\nstate: {visible(task.state)}")
        if task.state not in ("completed", "submitted", "working"):
            if as_json:
                raise typer.Exit(TaskNotCompleted.exit_status)
            raise TaskNotCompleted(
                f"task {visible(task.id)} is {visible(task.state)}: {task.message or 'no reason was given'}"
            )


def _left_behind(record: RunningRecord) -> str:
    """Say what becomes of a task whose result nobody waits for any more. Its id comes with the answer alone."""
    session, records = visible(record.session_id), visible(record.workdir)
    return (
        f"\nnot waited for any longer; session {session} goes on with the task if it has it\n"
        f"  hint: its id is in {records}/trace.jsonl once it has started, its result in {records}/out at its end\n"
        f"  hint: `mur cancel {session} TASK` ends it, `mur stop {session}` ends the session"
    )
