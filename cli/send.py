"""`mur send`: give a session a task and print its result."""

import sys
from typing import Annotated

import typer

from murmur.cli import wiring
from murmur.cli.asking import ask_session, session_to_ask, task_json
from murmur.cli.output import ReaderLeft, note, reporting, say, say_document
from murmur.domain.errors import OutputNotWritten, TaskNotCompleted
from murmur.domain.record import RunningRecord
from murmur.domain.task_asks import send_ask
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def send(  # noqa: PLR0913, PLR0917 - its options
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="@N, a session id or its end.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is to be done; - reads it from stdin.")],
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="Go on with the conversation of that name.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the result.")] = True,
    stream: Annotated[bool, typer.Option("--stream", help="Show the output as it comes.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the task as JSON; with --stream, each event as a line.")
    ] = False,
) -> None:
    """Send a session a task.

    Its result goes to stdout. Exit status 1 when the task did not complete.
    """
    if stream and not wait:
        raise typer.BadParameter("--stream waits for the task's end, and --no-wait does not")
    with reporting(as_json=as_json):
        if text == "-":
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
        from murmur.adapters.identifiers import mint  # noqa: PLC0415 - the commands that only look mint nothing

        message_id = mint("msg_")
        record = session_to_ask(address).record
        try:
            if stream:
                _stream(record, text, message_id, context, as_json=as_json)
                return
            task = ask_session(
                record,
                lambda: send_ask(record.url, record.door_token, text, message_id, blocking=wait, context_id=context),
                wiring.task_doors if wait else wiring.handover_doors,
            )
        except (KeyboardInterrupt, OutputNotWritten, ReaderLeft):
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


def _stream(record: RunningRecord, text: str, message_id: str, context: str | None, *, as_json: bool) -> None:
    """Send the task and show what it says until its end."""
    from murmur.cli.watching import Watching, reason_alone  # noqa: PLC0415 - a task that is waited for in silence needs none of it
    from murmur.domain.watching import stream_ask  # noqa: PLC0415 - as above

    watching = Watching(record, as_json=as_json, to_final=True)
    watching.run(lambda: stream_ask(record.url, record.door_token, text, message_id, context))
    ended = watching.final
    assert ended is not None
    if ended.state != "completed":
        if as_json:
            raise typer.Exit(TaskNotCompleted.exit_status)
        why = reason_alone(ended.message or "no reason was given")
        raise TaskNotCompleted(f"task {visible(ended.task_id)} is {visible(ended.state)}: {why}")


def _left_behind(record: RunningRecord) -> str:
    """Say what becomes of a task whose result nobody waits for any more. Its id comes with the answer alone."""
    session, records = visible(record.session_id), visible(record.workdir)
    return (
        f"\nnot waited for any longer; session {session} goes on with the task if it has it\n"
        f"  hint: its id is in {records}/trace.jsonl once it has started, its result in {records}/out at its end\n"
        f"  hint: `mur cancel {session} TASK` ends it, `mur stop {session}` ends the session"
    )
