"""How is one delegation carried out, from the referee's approval to the outcome? (sections 9 to 13)."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import PurePath
from queue import SimpleQueue
from signal import Signals

from murmur.adapters.capsule_store import StoredCapsule
from murmur.adapters.descriptors import exhausted, spare_descriptors
from murmur.adapters.doors import HttpDoors
from murmur.adapters.identifiers import mint
from murmur.adapters.launching import LaunchedChild, LaunchGivenUp, launch_child_capsule
from murmur.adapters.manifest_file import parse_manifest
from murmur.adapters.referee_client import spawn
from murmur.adapters.serving import ServingThread
from murmur.adapters.session_host import EndingSignals
from murmur.adapters.threads import start_thread
from murmur.cli.delegated import Delegated, what_became
from murmur.cli.delegating_session import DelegatingSession, delegating_session
from murmur.cli.embedded_referee import embedded_referee
from murmur.cli.output import warn
from murmur.cli.stores import stored_capsule
from murmur.domain.capsule_store import MANIFEST, parse_reference
from murmur.domain.door import TASK_LIMITS, DoorReading, NoAnswer, NoSuchAddress
from murmur.domain.errors import (
    FAILED,
    CapsuleUnreadable,
    ChildLate,
    ChildNotLaunched,
    DelegationDeadline,
    DelegationFailed,
    MurmurError,
    SpawnRefused,
)
from murmur.domain.launch.completion import POST_LIMITS
from murmur.domain.launch.ending import GRACE
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.manifest import Manifest
from murmur.domain.task_asks import TaskSeen, read_task, send_ask
from murmur.domain.value import Value
from murmur.domain.visible_text import visible

_ENDS_BY_ITSELF = POST_LIMITS.total + 2 * GRACE
"""Seconds that a child which ends with its task gets to do so, and to tell of it."""


_LAST_WORDS = 2.0
"""Seconds that the answer of a child which has ended gets to arrive."""
_DESCRIPTORS = 24
"""How many one delegation needs at most, its doors and what it imports included."""


class Wanted(Value):
    """What is to be delegated."""

    capsule: str
    """`NAME@VERSION`."""
    task: str | None
    deadline: float | None
    """Seconds."""
    env: Sequence[str] = ()
    """The variables that the capsule must get."""


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
        self._waits = False

    def run(self) -> Delegated:
        signals = EndingSignals()
        signals.tell(self._take_signal)
        try:
            self._reference = parse_reference(self._wanted.capsule)
            with self._interruptible():
                self._capsule = stored_capsule(self._reference)
                self._manifest = _manifest(self._capsule)
            self._check()
            _insist_on_descriptors()
            with ExitStack() as opened:
                serving = opened.enter_context(ServingThread())
                session = delegating_session(os.environ, opened, serving)
                return self._concluded(session, opened, serving)
        finally:
            # Everything is put away: what is left is to print, and whoever does not want to wait for that need not.
            signals.give_back()

    def _concluded(self, session: DelegatingSession, opened: ExitStack, serving: ServingThread) -> Delegated:
        """Delegate, and tell a session of our own how that ended."""
        status = FAILED
        try:
            outcome = self._delegate(opened, serving, session)
            status = 0 if outcome.error is None else outcome.error.exit_status
        except MurmurError as error:
            status = error.exit_status
            raise
        finally:
            if session.conclude is not None:
                session.conclude(status)
        return outcome

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let a signal cut short what may take long and has begun nothing that would have to be ended."""
        self._waits = True
        try:
            if self._signal is not None:
                raise self._cut_short()
            yield
        finally:
            self._waits = False

    def _cut_short(self) -> DelegationFailed:
        assert self._signal is not None
        return DelegationFailed(f"{self._wanted.capsule} was not launched: {self._signal.name} came first")

    @property
    def _is_script(self) -> bool:
        return self._manifest.process.kind == "script"

    def _check(self) -> None:
        """Refuse what could only fail later."""
        named = f"{self._manifest.name}@{self._manifest.version}"
        if named != str(self._reference):
            file = self._capsule.folder / MANIFEST
            raise CapsuleUnreadable(f"{visible(str(file))} says that it is {visible(named)}, not {self._reference}")
        declared = self._manifest.capabilities.env.allow
        for name in self._wanted.env:
            if name in ("PATH", "HOME", "LOGNAME", "USER"):
                continue  # Every child gets these.
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
        with self._interruptible():
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
        try:
            child = launch_child_capsule(
                request,
                warn=warn,
                script_task=wanted.task if self._is_script else None,
                given_up=self._given_up,
                # A script reports itself only when it is done.
                launch_deadline=wanted.deadline if self._is_script else None,
                # Our stdout is for the result alone, and who says what has to be told apart.
                stdout_prefix=f"{capsule.name}: ",
                stderr_prefix=f"{capsule.name}: ",
            )
        except ChildLate as error:
            raise DelegationDeadline(f"{wanted.capsule}: {error.message}") from None
        except ChildNotLaunched as error:
            raise self._why_not(error, approved.sha256) from None
        opened.callback(child.close)
        self._child = child
        if self._signal is not None:
            child.begin_ending()
        task = None if self._is_script or wanted.task is None else self._deliver(child, wanted.task)
        self._wait_for_end(child, task)
        return what_became(wanted.capsule, child, task, self._signal, time.monotonic() - started)

    def _why_not(self, error: ChildNotLaunched, approved: str | None) -> MurmurError:
        if self._signal is not None:
            return DelegationFailed(f"{self._wanted.capsule} was ended by {self._signal.name}")
        with suppress(MurmurError):
            if approved is not None and stored_capsule(self._reference).digest != approved:
                return SpawnRefused(f"the files of {self._wanted.capsule} changed after its launch was approved")
        return error

    def _take_signal(self, number: Signals) -> None:
        """End the child. This runs between any two steps of the main thread, so it takes no lock."""
        again, self._signal = self._signal is not None, number
        if self._waits:
            self._waits = False
            raise self._cut_short()
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
        readings: SimpleQueue[DoorReading] = SimpleQueue()

        def send() -> None:
            for reading in HttpDoors(TASK_LIMITS).probe([ask]):
                readings.put(reading)

        start_thread("task", send)

        def ended() -> None:
            # Who answers for a child that is gone? Nobody, or what it left behind.
            child.call_at(time.monotonic() + _LAST_WORDS, lambda: readings.put(NoAnswer("it ended without an answer")))

        child.when_exited(ended)
        return read_task(readings.get(), child.door_token)

    def _wait_for_end(self, child: LaunchedChild, task: TaskSeen | NoAnswer | None) -> None:
        """Wait for a child that ends by itself; end one that would stay although its task is over."""
        if task is None:
            child.wait()
        elif self._manifest.lifecycle.after_task == "exit":
            child.wait(_ENDS_BY_ITSELF)
        child.shutdown()
        child.wait_until_told()


def _insist_on_descriptors() -> None:
    """Raise `OutOfDescriptors` where there are too few for a delegation: it would fail somewhere on the way."""
    if spare_descriptors(_DESCRIPTORS) < _DESCRIPTORS:
        raise exhausted("delegate with")


def _manifest(capsule: StoredCapsule) -> Manifest:
    manifest, unknown = parse_manifest(capsule.manifest, visible(str(capsule.folder / MANIFEST)))
    for warning in unknown:
        warn(warning)
    return manifest
