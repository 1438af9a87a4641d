"""How is one delegation carried out, from the referee's approval to the outcome? (sections 9 to 13)."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import PurePath
from signal import Signals

from murmur.adapters.capsule_store import StoredCapsule
from murmur.adapters.completions import CompletionStore
from murmur.adapters.doors import HttpDoors
from murmur.adapters.identifiers import mint
from murmur.adapters.launching import LaunchedChild, LaunchGivenUp, launch_child_capsule
from murmur.adapters.manifest_file import parse_manifest
from murmur.adapters.reactor import shared_reactor
from murmur.adapters.referee_client import spawn
from murmur.adapters.results import read_result
from murmur.adapters.serving import ServingThread
from murmur.adapters.session_host import EndingSignals
from murmur.cli.delegating_session import DelegatingSession, delegating_session
from murmur.cli.embedded_referee import embedded_referee
from murmur.cli.output import warn
from murmur.cli.stores import stored_capsule
from murmur.domain.capsule_store import MANIFEST, parse_reference
from murmur.domain.door import TASK_LIMITS, NoAnswer, NoSuchAddress, TaskSeen, read_task, send_ask
from murmur.domain.errors import ChildNotLaunched, DelegationDeadline, DelegationFailed, MurmurError, SpawnRefused
from murmur.domain.launch.completion import DelegationOutcome
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.manifest import Manifest
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_ENDS_BY_ITSELF = 5.0
"""Seconds that a child which ends with its task gets to do so."""


class Wanted(Value):
    """What is to be delegated."""

    capsule: str
    """`NAME@VERSION`."""
    task: str | None
    deadline: float | None
    """Seconds."""
    env: Sequence[str] = ()
    """The variables that the capsule must get."""


class Delegated(Value):
    """What became of it."""

    delegation_id: str
    session_id: str
    capsule: str
    records_dir: str
    seconds: float
    status: str
    """`ok`, `error`, `crashed` or `terminated`."""
    result: str | None
    error: MurmurError | None

    def document(self) -> dict[str, object]:
        """Say it for a program."""
        name, _, version = self.capsule.partition("@")
        return {
            "delegation_id": self.delegation_id,
            "session_id": self.session_id,
            "capsule_name": name,
            "capsule_version": version,
            "status": self.status,
            "result": self.result,
            "detail": None if self.error is None else self.error.message,
            "code": None if self.error is None else self.error.code,
            "duration_ms": round(1000 * self.seconds),
            "records_dir": self.records_dir,
        }

    def line(self) -> str:
        """Say it for a person, on one line."""
        said = "failed" if self.status == "error" else self.status
        return f"{said}: {self.capsule} {visible(self.session_id)} ({self.seconds:.1f} s)"


def run_delegation(wanted: Wanted) -> Delegated:
    """Launch the child, deliver the task, wait for the end. Raises `MurmurError` when nothing was launched."""
    return _Delegation(wanted).run()


class _Delegation:
    """One delegation. Its signals end it: the first in order, the second at once."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._given_up = LaunchGivenUp()
        self._child: LaunchedChild | None = None
        self._signal: Signals | None = None
        self._late = False

    def run(self) -> Delegated:
        signals = EndingSignals()
        self._reference = parse_reference(self._wanted.capsule)
        self._capsule = stored_capsule(self._reference)
        self._manifest = _manifest(self._capsule)
        self._check()
        try:
            with ExitStack() as opened:
                serving = opened.enter_context(ServingThread())
                session = delegating_session(os.environ, opened, serving)
                signals.tell(self._take_signal)
                outcome = self._delegate(opened, serving, session)
                if session.conclude is not None:
                    session.conclude(0 if outcome.error is None else outcome.error.exit_status)
                return outcome
        finally:
            signals.ignore()

    @property
    def _is_script(self) -> bool:
        return self._manifest.process.kind == "script"

    def _check(self) -> None:
        """Refuse what could only fail later."""
        declared = self._manifest.capabilities.env.allow
        for name in self._wanted.env:
            if name not in declared:
                raise SpawnRefused(f"{self._wanted.capsule} does not declare {visible(name)} in capabilities.env.allow")
            if name not in os.environ:
                raise SpawnRefused(f"{visible(name)} is not set, so {self._wanted.capsule} cannot get it")
        takes_tasks = self._is_script or self._manifest.lifecycle.task_acceptance != "none"
        if self._wanted.task is not None and not takes_tasks:
            raise SpawnRefused(f"{self._wanted.capsule} takes no task: its manifest says `task_acceptance: none`")
        if self._wanted.task is None and takes_tasks and not self._is_script:
            raise SpawnRefused(f"{self._wanted.capsule} waits for a task", hint="give it with --task TEXT|FILE")

    def _delegate(self, opened: ExitStack, serving: ServingThread, session: DelegatingSession) -> Delegated:
        wanted, capsule = self._wanted, self._capsule
        roost, credential = embedded_referee(session.delegating, serving, os.environ)
        approved = spawn(roost, credential, capsule.name, capsule.version)
        request = ChildLaunchRequest(
            parent_records_dir=PurePath(session.records),
            capsule_name=capsule.name,
            capsule_version=capsule.version,
            grant=approved.approval,
            env_allow=tuple(self._manifest.capabilities.env.allow),
            roost_url=roost,
            spawner=Spawner(session.delegating.session_id, session.delegating.context_id, session.delegating.url),
            completion_deadline=None if self._is_script else wanted.deadline,
            formation_id=session.delegating.formation_id,
            deadline_unix_ms=session.delegating.deadline_unix_ms,
        )
        started = time.monotonic()
        self._bound_script(started)
        try:
            child = launch_child_capsule(
                request,
                warn=warn,
                script_task=wanted.task if self._is_script else None,
                given_up=self._given_up,
                # Our stdout is for the result alone, and who says what has to be told apart.
                stdout_prefix=f"{capsule.name}: ",
                stderr_prefix=f"{capsule.name}: ",
            )
        except ChildNotLaunched as error:
            raise self._why_not(error, approved.sha256) from None
        opened.callback(child.close)
        self._child = child
        if self._signal is not None:
            child.begin_ending()
        task = None if self._is_script or wanted.task is None else self._deliver(child, wanted.task)
        self._wait_for_end(child, task)
        return self._outcome(child, task, time.monotonic() - started)

    def _bound_script(self, started: float) -> None:
        """Have a script's launch given up at the deadline: it reports itself only when it is done."""
        if self._is_script and self._wanted.deadline is not None:
            reactor, at = shared_reactor(), started + self._wanted.deadline

            def watch() -> None:
                reactor.call_at(at, self._too_late)

            reactor.call(watch)

    def _too_late(self) -> None:
        self._late = True
        self._given_up.give_up()

    def _why_not(self, error: ChildNotLaunched, approved: str | None) -> MurmurError:
        if self._late:
            return DelegationDeadline(f"{self._wanted.capsule} was still at work at the deadline and was ended")
        if self._signal is not None:
            return DelegationFailed(f"{self._wanted.capsule} was ended by {self._signal.name}")
        with suppress(MurmurError):
            if approved is not None and stored_capsule(self._reference).digest != approved:
                return SpawnRefused(f"the files of {self._wanted.capsule} changed after its launch was approved")
        return error

    def _take_signal(self, number: Signals) -> None:
        """End the child. This runs between any two steps of the main thread, so it takes no lock."""
        again, self._signal = self._signal is not None, number
        self._given_up.give_up()
        child = self._child
        if child is not None:
            child.call_soon(child.force if again else child.begin_ending)

    def _deliver(self, child: LaunchedChild, text: str) -> TaskSeen | NoAnswer:
        """Send the task to the child's door and wait for what becomes of it."""
        try:
            ask = send_ask(child.capsule_url, child.door_token, text, mint("msg_"), blocking=True)
        except NoSuchAddress as error:
            return NoAnswer(str(error))
        (reading,) = HttpDoors(TASK_LIMITS).probe([ask])
        return read_task(reading, child.door_token)

    def _wait_for_end(self, child: LaunchedChild, task: TaskSeen | NoAnswer | None) -> None:
        """Wait for a child that ends by itself; end one that would stay although its task is over."""
        if task is None:
            child.wait()
        elif self._manifest.lifecycle.after_task == "exit":
            child.wait(_ENDS_BY_ITSELF)
        child.shutdown()
        child.wait_until_told()

    def _outcome(self, child: LaunchedChild, task: TaskSeen | NoAnswer | None, seconds: float) -> Delegated:
        recorded = CompletionStore(child.records_descriptor).read()
        result, error = self._judged(child, task, recorded)
        status = "ok" if error is None else "error"
        if error is not None and recorded is not None and recorded.status != "ok":
            status = recorded.status
        assert child.delegation_id is not None
        return Delegated(
            child.delegation_id,
            child.session_id,
            self._wanted.capsule,
            str(child.records_dir),
            seconds,
            status,
            result,
            error,
        )

    def _judged(
        self, child: LaunchedChild, task: TaskSeen | NoAnswer | None, recorded: DelegationOutcome | None
    ) -> tuple[str | None, MurmurError | None]:
        capsule, where = self._wanted.capsule, f"its records are in {child.records_dir}"
        if child.has_expired:
            detail = None if recorded is None else recorded.detail
            return None, DelegationDeadline(f"{capsule}: {detail or 'it was ended at the deadline'}", hint=where)
        if isinstance(task, TaskSeen) and task.state == "completed":
            return task.result, None
        if self._signal is not None:
            return None, DelegationFailed(f"{capsule} was ended by {self._signal.name}", hint=where)
        if isinstance(task, TaskSeen):
            why = task.message or "it gave no reason"
            return task.result, DelegationFailed(f"{capsule}: the task {task.state}: {why}", hint=where)
        if isinstance(task, NoAnswer) and (recorded is None or recorded.status == "terminated"):
            return None, DelegationFailed(f"{capsule} did not take the task: {task.reason}", hint=where)
        if recorded is not None and recorded.status == "ok" and task is None:
            return read_result(child.records_descriptor), None
        detail = None if recorded is None else recorded.detail
        return None, DelegationFailed(f"{capsule}: {detail or child.status or 'it ended'}", hint=where)


def _manifest(capsule: StoredCapsule) -> Manifest:
    manifest, unknown = parse_manifest(capsule.manifest, visible(str(capsule.folder / MANIFEST)))
    for warning in unknown:
        warn(warning)
    return manifest
