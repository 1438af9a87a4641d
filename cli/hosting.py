"""How does `mur run` put a session together and report its end? (M1, M5)."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from murmur.adapters.delegating_file import Delegating, write_delegating
from murmur.adapters.door_socket import bind_door
from murmur.adapters.ending_signals import EndingSignals
from murmur.adapters.exit_status import status_text
from murmur.adapters.host_log import HostLog
from murmur.adapters.hosted_command import CommandLine, CommandWork
from murmur.adapters.identifiers import mint
from murmur.adapters.reasons import reason_of
from murmur.adapters.records_directory import RecordsDirectory
from murmur.adapters.registration import RunningGuard
from murmur.adapters.session_host import HostedSession, SessionEnd, Work, host
from murmur.adapters.terminal import has_controlling_terminal
from murmur.cli import wiring
from murmur.cli.hosted_output import HostedOutput
from murmur.cli.launch import Launch
from murmur.cli.output import announce, fall_silent, warn
from murmur.domain.cards import ServedSession
from murmur.domain.errors import FAILED, MurmurError
from murmur.domain.record import RunningRecord
from murmur.domain.secret import ControlToken, DoorToken
from murmur.domain.served_door import Door
from murmur.domain.task_board import TaskBoard
from murmur.domain.uptime import started_at_text
from murmur.domain.value import Value

if TYPE_CHECKING:
    from murmur.cli.launched import Launched
    from murmur.domain.conversation import Conversations


class _Keys(Value):
    """The secrets of one session's door."""

    operator: DoorToken | None = None
    credentials: Mapping[str, DoorToken] = MappingProxyType({})
    control: ControlToken | None = None


def host_session(launch: Launch) -> SessionEnd:
    """Host a session to its end. Raises `MurmurError` with nothing left of it."""
    return _Hosting(launch).run()


class _Hosting:
    """One session being put together, run and put away."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._session_id = launch.session_id or mint("ses_")
        self._opened = ExitStack()
        self._output: HostedOutput | None = None
        self._keys = _Keys()
        self._concluded = False
        self._launcher: Launched | None = None

    def run(self) -> SessionEnd:
        launch = self._launch
        started = self._started = wiring.clock.monotonic()
        # Before anything is begun, so that whatever is begun is ended in order.
        signals = EndingSignals()
        with self._opened as opened:
            self._records, self._recorded = _records(opened, launch.workdir, self._session_id)
            socket, authority = (None, "") if launch.script else bind_door(launch.bind, launch.port)
            if socket is not None:
                opened.callback(socket.close)
            self._session = ServedSession(
                self._session_id,
                launch.name,
                launch.version,
                authority,
                accepts_tasks=launch.acceptance != "none",
                authenticated=launch.credentials is not None,
                wildcard=socket is not None and socket.getsockname()[0] in ("0.0.0.0", "::"),  # noqa: S104 - compared, not bound
            )
            if launch.launched_by is not None or launch.membership is not None:
                # A session that nobody launched pays for none of it.
                from murmur.cli.launched import Launched  # noqa: PLC0415

                self._launcher = Launched(launch, self._session_id, self._records, started)
            lineage = {} if self._launcher is None else self._launcher.lineage
            self._trace("session_start", capsule_name=launch.name, capsule_version=launch.version, **lineage)
            self._tell_delegates()
            opened.callback(self._trace_end, started)
            return host(self._hosted(), socket, signals)

    def _trace_end(self, started: float, end: SessionEnd | None = None) -> None:
        """Trace the session's end, once: a session that could not be begun has failed."""
        if not self._concluded:
            self._concluded = True
            milliseconds = round(1000 * (wiring.clock.monotonic() - started))
            status = FAILED if end is None else end.exit_status
            self._trace("session_end", exit_status=status, duration_ms=milliseconds)

    def _conclude(self, end: SessionEnd) -> None:
        self._trace_end(self._started, end)
        if self._launcher is not None:
            self._launcher.record(end)

    def _hosted(self) -> HostedSession:
        launch, launcher = self._launch, self._launcher
        board = TaskBoard(launch.acceptance, launch.after_task, launch.queue_depth, self._conversations())
        if launch.task is not None and launch.acceptance != "none":
            board.offer(mint("tsk_"), mint("ctx_"), launch.task)
        descriptor = self._records.open_log("host.log")
        self._opened.callback(os.close, descriptor)
        log = HostLog(descriptor, self._session_id)
        return HostedSession(
            self._door(board),
            self._work(board, log),
            enter=self._enter,
            announce=self._announce,
            log=log,
            threaded=launch.threaded,
            deadline=launch.deadline,
            conclude=self._conclude,
            report=None if launcher is None else launcher.report,
            lifeline=None
            if launcher is None
            else launcher.lifeline(lambda event, fields: self._trace(event, **fields)),
        )

    def _conversations(self) -> "Conversations | None":
        """Return what remembers the session's conversations, if it has any."""
        if not self._launch.threaded:
            return None
        from murmur.domain.conversation import Conversations  # noqa: PLC0415 - most sessions remember nothing

        return Conversations()

    def _door(self, board: TaskBoard) -> Door:
        launch = self._launch
        if launch.credentials is None and not launch.controlled:
            return Door(self._session, board, mint, completed=self._completed)
        # A public door needs no randomness and no hashing.
        import secrets  # noqa: PLC0415

        from murmur.domain.door_tokens import DoorKeys, TokenKey  # noqa: PLC0415

        keys = DoorKeys(TokenKey(secrets.token_hex(32)), self._session_id)
        control = keys.mint_control() if launch.controlled else None
        self._keys = _Keys(control=control)
        if launch.credentials is not None:
            self._keys = _Keys(*keys.mint_all(launch.credentials, self._session.methods), control)
        return Door(self._session, board, mint, keys, controlled=launch.controlled, completed=self._completed)

    def _completed(self, delegation_id: str, text: str) -> bool:
        """Take in how a delegation of this session ended; say whether it was outstanding (W6)."""
        from murmur.adapters.delegations import Delegations  # noqa: PLC0415 - most sessions delegate nothing

        if not Delegations(self._records.descriptor, self._records.path).take(delegation_id):
            return False
        self._trace("completion", delegation_id=delegation_id, text=text)
        return True

    def _tell_delegates(self) -> None:
        """Tell what a `mur delegate` of the command needs to know of this session."""
        launch, launcher = self._launch, self._launcher
        delegating = Delegating(
            self._session_id,
            mint("ctx_"),
            f"http://{self._session.authority}" if self._session.authority else None,
            launch.spawn_allow,
            None if launch.deadline is None else round(1000 * (wiring.clock.now() + launch.deadline)),
            None if launcher is None else launcher.formation_id,
            None if launch.membership is None else launch.membership.depth_remaining,
            None if launch.membership is None else launch.membership.depth_limit,
        )
        try:
            write_delegating(self._records.descriptor, delegating)
        except OSError as error:
            warn(f"{self._records.path} could not be told how to delegate: {reason_of(error)}")

    def _work(self, board: TaskBoard, log: HostLog) -> Work:
        launch = self._launch
        ours = {"MURMUR_SESSION_ID": self._session_id, "MURMUR_RECORDS_DIR": str(self._records.path)}
        workdir = None if launch.in_workdir else launch.workdir
        line = CommandLine(launch.argv, {**launch.environment, **ours}, workdir)
        if launch.acceptance == "none":
            self._output = HostedOutput(launch, self._session_id, self._records, self._opened)
            return CommandWork(line, self._output.command, self._stdin(workdir), log, self._explain)
        from murmur.adapters.task_runner import TaskRunner  # noqa: PLC0415 - a plain command has no tasks

        return TaskRunner(board, line, self._records, lambda event, fields: self._trace(event, **fields), log)

    def _stdin(self, workdir: Path | None) -> int | None:
        """Open what a command that takes no tasks reads: its one task, if it was given one."""
        stdin = None
        if self._launch.task is not None:
            stdin = self._records.open_task(self._launch.task, workdir)
        elif self._launch.script and self._launch.in_workdir:
            from murmur.adapters.launched_by import open_task  # noqa: PLC0415 - only a launched script has one

            stdin = open_task()
        if stdin is not None:
            self._opened.callback(os.close, stdin)
        return stdin

    def _enter(self) -> Callable[[], None]:
        """Record the session. Failing to is a warning: the session runs on, unlisted (G2)."""
        if self._launch.script or not self._recorded:
            return lambda: None
        try:
            return self._registered()
        except MurmurError as error:
            warn(f"{error.message}; the session runs on, but `mur ps` will not list it")
            return lambda: None

    def _registered(self) -> Callable[[], None]:
        origin = wiring.processes.own_origin()
        record = RunningRecord(
            session_id=self._session_id,
            url=self._session.authority,
            pid=os.getpid(),
            process_start=origin.process_start or "",
            capsule_name=self._session.capsule_name,
            capsule_version=self._session.capsule_version,
            workdir=str(self._records.path),
            outlives_launcher=not has_controlling_terminal(),
            started_at=started_at_text(wiring.clock.now()),
            door_token=self._keys.operator,
            credentials=self._keys.credentials,
            spawned_by=None if self._launcher is None else self._launcher.spawned_by,
            formation_id=None if self._launcher is None else self._launcher.formation_id,
        )
        return RunningGuard(os.environ, record, origin, warn, self._keys.control).close

    def _announce(self) -> None:
        """Say that the session is there, before anything of its command is echoed."""
        line: dict[str, object] = {
            "name": self._session.capsule_name,
            "pid": os.getpid(),
            "records_dir": str(self._records.path),
            "session_id": self._session_id,
            "url": self._session.authority,
            "version": self._session.capsule_version,
            "workdir": str(self._launch.workdir),
        }
        if self._launcher is not None and self._launcher.formation_id is not None:
            line["formation_id"] = self._launcher.formation_id
        if self._launch.readiness_tokens and self._keys.operator is not None:
            tokens = {"operator": self._keys.operator, **self._keys.credentials}
            # The third of the three places where a token is written (I3).
            line["tokens"] = {name: token.expose() for name, token in tokens.items()}
        door = f"murmur: url {self._session.authority}\n" if self._session.authority else ""
        plain = f"{door}session: {self._session_id}"
        announce(json.dumps(line, sort_keys=True) if self._launch.as_json else plain)
        if self._launch.detached:
            fall_silent()
        if self._output is not None:
            self._output.echo()

    def _explain(self, returncode: int) -> str:
        assert self._output is not None
        tail = self._output.last_errors()
        quoted = "; its last stderr lines were:" + "".join(f"\n  {line}" for line in tail) if tail else ""
        return f"the command {self._launch.argv[0]} ended with {status_text(returncode)}{quoted}"

    def _trace(self, event_type: str, **fields: object) -> None:
        try:
            self._records.trace(event_type, **fields)
        except OSError as error:
            warn(f"the trace of {self._records.path} could not be written: {reason_of(error)}")


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
