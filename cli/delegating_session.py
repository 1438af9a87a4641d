"""Whose delegation is a `mur delegate`? That of the session it runs in, or of one of its own."""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from murmur.adapters.beneath import NotReached, open_directory
from murmur.adapters.completions import Warn
from murmur.adapters.delegating_file import Delegating, read_delegating
from murmur.adapters.delegations import Delegations
from murmur.adapters.door_server import DoorServer
from murmur.adapters.door_socket import bind_door
from murmur.adapters.identifiers import mint
from murmur.adapters.reasons import reason_of
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.registration import RunningGuard
from murmur.adapters.serving import ServingThread
from murmur.adapters.terminal import has_controlling_terminal
from murmur.cli import wiring
from murmur.cli.output import warn
from murmur.cli.version import VERSION
from murmur.domain.cards import ServedSession
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.errors import FAILED, LaunchRefused, MurmurError
from murmur.domain.record import RunningRecord
from murmur.domain.served_door import Door, OpenStream
from murmur.domain.task_board import TaskBoard
from murmur.domain.uptime import started_at_text
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

if TYPE_CHECKING:
    from murmur.adapters.streams import Stream, Streams

_NAME = "delegate"
_HINT = "unset MURMUR_SESSION_ID and MURMUR_RECORDS_DIR to delegate from a session of its own"


class DelegatingSession(Value):
    """The session that delegates, and its records directory."""

    delegating: Delegating
    records: Path
    conclude: Callable[[int], None] | None = None
    """Takes this command's exit status, for a session of its own to say so at its end."""


def delegating_session(
    environment: Mapping[str, str], opened: ExitStack, serving: ServingThread, warn: Warn = warn
) -> DelegatingSession:
    """Return the session around us, or begin one of our own, there until `opened` is left. Raises `MurmurError`."""
    session_id, records = environment.get("MURMUR_SESSION_ID"), environment.get("MURMUR_RECORDS_DIR")
    if session_id and records:
        return _around_us(session_id, Path(records))
    return _OwnSession(opened, serving, warn).begin()


def _around_us(session_id: str, records: Path) -> DelegatingSession:
    if not records.is_absolute():
        raise LaunchRefused(f"MURMUR_RECORDS_DIR is {visible(str(records))}, which is no absolute path", hint=_HINT)
    try:
        descriptor = open_directory(records)
    except NotReached as error:
        raise LaunchRefused(
            f"the session around this command cannot be asked how it delegates: {error}", hint=_HINT
        ) from error
    try:
        delegating = read_delegating(descriptor)
    finally:
        os.close(descriptor)
    if delegating is None or delegating.session_id != session_id:
        raise LaunchRefused(
            f"session {visible(session_id)} does not say in {visible(str(records))} how it delegates", hint=_HINT
        )
    return DelegatingSession(delegating, records)


class _OwnSession:
    """A session of this process's own: recorded, with a public door that takes in completions and nothing else."""

    def __init__(self, opened: ExitStack, serving: ServingThread, warn: Warn) -> None:
        self._opened = opened
        self._serving = serving
        self._warn = warn
        self._session_id = mint("ses_")
        self._exit_status = FAILED

    def begin(self) -> DelegatingSession:
        opened, started = self._opened, wiring.clock.monotonic()
        records = opened.enter_context(RecordsDirectory.create(os.environ, Path.cwd(), self._session_id))
        self._records = records
        self._trace("session_start", capsule_name=_NAME, capsule_version=VERSION)
        opened.callback(self._end, started)
        door, authority = bind_door("127.0.0.1", 0)
        served = ServedSession(self._session_id, _NAME, VERSION, authority)
        answers = Door(served, TaskBoard("none"), mint, completed=self._completed)
        own = _OwnDoor(answers)
        self._serving.do(lambda: own.serve(door))
        self._serving.closes(own.close)
        self._record(authority)
        delegating = Delegating(self._session_id, mint("ctx_"), f"http://{authority}", None)
        return DelegatingSession(delegating, records.path, self._conclude)

    def _record(self, authority: str) -> None:
        origin = wiring.processes.own_origin()
        record = RunningRecord(
            session_id=self._session_id,
            url=authority,
            pid=os.getpid(),
            process_start=origin.process_start or "",
            capsule_name=_NAME,
            capsule_version=VERSION,
            workdir=str(self._records.path),
            outlives_launcher=not has_controlling_terminal(),
            started_at=started_at_text(wiring.clock.now()),
        )
        try:
            self._opened.enter_context(RunningGuard(os.environ, record, origin, self._warn))
        except MurmurError as error:
            self._warn(f"{error.message}; the delegation goes on, but `mur ps` will not list who delegates")

    def _completed(self, delegation_id: str, text: str) -> bool:
        if not Delegations(self._records.descriptor, self._records.path).take(delegation_id):
            return False
        self._trace("completion", delegation_id=delegation_id, text=text)
        return True

    def _conclude(self, exit_status: int) -> None:
        self._exit_status = exit_status

    def _end(self, started: float) -> None:
        milliseconds = round(1000 * (wiring.clock.monotonic() - started))
        self._trace("session_end", exit_status=self._exit_status, duration_ms=milliseconds)

    def _trace(self, event_type: str, **fields: object) -> None:
        try:
            self._records.trace(event_type, **fields)
        except OSError as error:
            self._warn(f"the trace of {self._records.path} could not be written: {reason_of(error)}")


class _OwnDoor:
    """Serves the session's door: there are no tasks, and who watches sees its end."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._server = DoorServer(self._respond)
        self._streams: Streams | None = None

    async def serve(self, socket_: socket.socket) -> None:
        await self._server.serve(socket_)

    async def close(self) -> None:
        if self._streams is not None:
            await self._streams.finish()
            self._streams.close()
            await self._server.flush()
        await self._server.close()

    def _respond(self, request: DoorRequest) -> "DoorResponse | Stream":
        answer = self._door.answer(request)
        if isinstance(answer, OpenStream):
            if self._streams is None:
                # Few are watched while they delegate.
                from murmur.adapters.streams import Streams  # noqa: PLC0415

                self._streams = Streams(lambda _event, _detail: None, threaded=False)
            return self._streams.open(answer)
        assert isinstance(answer, DoorResponse)  # It accepts no tasks.
        return answer
