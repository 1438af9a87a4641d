"""`mur cancel`: end one task of a session, not the session."""

from typing import Annotated

import typer

from murmur.cli import wiring
from murmur.cli.asking import ask_session, session_to_ask, task_json
from murmur.cli.output import reporting, say, say_document
from murmur.domain.errors import TaskNotCompleted
from murmur.domain.task_asks import cancel_ask
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def cancel(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="@N, a session id or its end.")],
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the task as JSON.")] = False,
) -> None:
    """Cancel a task of a session."""
    with reporting(as_json=as_json):
        record = session_to_ask(address).record
        task = ask_session(record, lambda: cancel_ask(record.url, record.door_token, task_id), wiring.cancel_doors)
        if as_json:
            say_document(task_json(task))
        if task.state in ("submitted", "working"):
            raise TaskNotCompleted(
                f"task {visible(task.id)} is {visible(task.state)}: its end was asked for, and not waited for",
                hint="ask again: as many callers wait for tasks as the door lets wait",
            )
        if task.state != "canceled":
            raise TaskNotCompleted(f"task {visible(task.id)} is {visible(task.state)}, not canceled")
        if not as_json:
            say(f"canceled: {visible(task.id)}")
