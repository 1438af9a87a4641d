"""`mur control`: ask a session for its state, or to pause, resume or drain."""

from typing import Annotated

import typer

from murmur.cli import wiring
from murmur.cli.asking import session_to_ask
from murmur.cli.output import reporting, say, say_document
from murmur.domain.door import NoAnswer, NoSuchAddress
from murmur.domain.errors import DoorRefused, NotControlled
from murmur.domain.secret import DoorToken
from murmur.domain.task_asks import control_ask, read_control
from murmur.domain.visible_text import visible

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_OPS = ("status", "pause", "resume", "drain")


@app.command()
def control(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="@N, a session id or its end.")],
    op: Annotated[str, typer.Argument(metavar="status|pause|resume|drain", help="What to ask for.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the session's state as JSON.")] = False,
) -> None:
    """Control a session whose manifest says `control:`.

    pause starts no further task, resume goes on. drain takes no further task and ends the session with its last one;
    it also resumes a paused session, and nothing pauses it again.
    """
    if op not in _OPS:
        raise typer.BadParameter(f"an operation is one of {', '.join(_OPS)}")
    with reporting(as_json=as_json):
        session = session_to_ask(address)
        record = session.record
        with wiring.running_directory(create=False) as directory:
            token = directory.control_token(session.stem)
        if token is None:
            raise NotControlled(
                f"session {visible(record.session_id)} has no control token", hint="its manifest must say `control: {}`"
            )
        sent = DoorToken(token.expose())
        try:
            (reading,) = wiring.doors.probe([control_ask(record.url, sent, op)])
        except NoSuchAddress as error:
            raise DoorRefused(str(error)) from None
        state = read_control(reading, sent)
        if isinstance(state, NoAnswer):
            raise DoorRefused(f"session {visible(record.session_id)}: {visible(state.reason)}")
        if as_json:
            say_document(state)
        else:
            say(
                "\n".join(
                    f"{visible(name)}: {visible(str(value))}" for name, value in state.items() if value is not None
                )
            )
