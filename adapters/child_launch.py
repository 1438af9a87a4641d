"""How is one child capsule launched? (C2-C5, X1-X6).

The order is: lifeline, work folder, argv and environment, start, approval, stderr, readiness, watcher. A failure on the
way ends and reaps what was started and closes what was opened.
"""

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from murmur.adapters.beneath import NotReached, open_beneath, open_directory
from murmur.adapters.child_process import ChildProcess
from murmur.adapters.child_readiness import ReadinessWait
from murmur.adapters.child_streams import (
    DRAIN_TIMEOUT,
    ChildAnswer,
    ChildErrors,
    ChildExited,
    Overdue,
    Seen,
)
from murmur.adapters.child_watcher import ChildWatcher, Told
from murmur.adapters.child_workdir import ChildWorkdir, make_child_workdir
from murmur.adapters.completions import CompletionStore, Warn, post_completion
from murmur.adapters.delegations import Delegations, Marker
from murmur.adapters.exits import exit_descriptor
from murmur.adapters.identifiers import mint
from murmur.adapters.lifelines import LIFELINE_VARIABLE, Lifeline
from murmur.adapters.murmur_home import murmur_home
from murmur.adapters.reactor import Reactor, shared_reactor
from murmur.adapters.reasons import reason_of
from murmur.adapters.relay import Sink, outlets
from murmur.adapters.spawning import Cleared, ProcessLaunch, StartedProcess, mur_binary, raise_limit, start_process
from murmur.adapters.staging import write_staged
from murmur.domain.errors import ChildLate, ChildNotLaunched
from murmur.domain.launch.argv import child_argv
from murmur.domain.launch.environment import child_environment
from murmur.domain.launch.handle import handle_for
from murmur.domain.launch.readiness import Readiness, ReadinessRefused, parse_readiness
from murmur.domain.launch.request import ChildLaunchRequest
from murmur.domain.launch.watcher import WatchedChild, duration_ms, expired_outcome, is_watched
from murmur.domain.ports import Doors

READY_TIMEOUT = 180.0
"""Seconds from the start to the readiness line (X5)."""


class Output(NamedTuple):
    """Where a child's output goes, and what stands before each line; `None` leaves its stdout to ours."""

    stdout_prefix: str | None
    stderr_prefix: str
    instead: Sink | None = None
    """What takes it instead of our own stderr."""


class ChildLaunch:
    """One launch, step by step. What it opens is closed with the stack it is given."""

    workdir: ChildWorkdir
    argv: Sequence[str]
    environment: Sequence[tuple[str, str]]
    process: ChildProcess
    records: int

    def __init__(self, request: ChildLaunchRequest, warn: Warn, doors: Doors) -> None:
        self._request = request
        self._warn = warn
        self._doors = doors
        self._parent_environment: Mapping[str, str] = dict(os.environ)
        self._seen: SimpleQueue[Seen] = SimpleQueue()
        self.handle = None if request.spawner is None else handle_for(request.spawner, mint("dlg_"))
        self.errors = ChildErrors()
        self.watcher: ChildWatcher | None = None
        self.marker: Marker | None = None
        self._until_ready = ExitStack()

    def prepare(self, opened: ExitStack, script_task: str | None) -> None:
        """Make everything that a child needs; raise `ChildNotLaunched` or `RegistryUnusable` with nothing started."""
        request = self._request
        self._records_root = murmur_home(self._parent_environment) / "records"
        self.reactor = _reactor()
        opened.enter_context(self._until_ready)
        try:
            self._lifeline = Lifeline()
        except OSError as error:
            raise ChildNotLaunched(
                f"the child capsule's spawner lifeline could not be created: {reason_of(error)}"
            ) from error
        opened.callback(self._lifeline.close)
        parent = Path(request.parent_records_dir)
        _insist_on_utf8(parent, self._records_root)
        try:
            descriptor = open_directory(parent)
        except NotReached as error:
            raise ChildNotLaunched(f"the parent's records directory cannot be opened: {error}") from error
        opened.callback(os.close, descriptor)
        if self.handle is not None and is_watched(self.handle):
            self.marker = Marker(Delegations(descriptor, parent), self.handle.delegation_id)
        # Held until the child has looked at it: its number cannot become another folder's meanwhile.
        self.workdir = make_child_workdir(self._until_ready, descriptor, parent, request.capsule_name)
        if script_task is not None:
            self._put_task(script_task)
        self.argv = child_argv(
            mur_binary(self._parent_environment), request, str(self.workdir.path), self.workdir.identity
        )
        lifeline = (LIFELINE_VARIABLE, str(self._lifeline.read_end))
        self.environment = child_environment(self._parent_environment, request, self.handle, lifeline)

    def start(self, opened: ExitStack, output: Output, grace: float, seen: "SimpleQueue[Seen]") -> None:
        """Start the child and hand it its approval; raise `ChildNotLaunched`. It waits for nothing.

        The child gets the signal mask of the thread that this is called in.
        """
        self._seen = seen
        self._output = output
        self._answer = ChildAnswer(seen, None if output.stdout_prefix is None else output.stdout_prefix.encode())
        self.errors = ChildErrors(output.stderr_prefix.encode())
        self._put_marker(opened)
        self._spawned_at = time.monotonic()
        try:
            started = start_process(
                ProcessLaunch(
                    argv=self.argv,
                    environment=Cleared(self.environment),
                    cwd=self.workdir.path,
                    stdin_line=self._request.grant,
                    # A signal to our group, such as a terminal's ^C, must not reach it beside the one that we send:
                    # the second of two cuts a wind-down short.
                    own_process_group=True,
                    lifeline=self._lifeline,
                )
            )
        except (OSError, ValueError) as error:
            why = reason_of(error) if isinstance(error, OSError) else "a null character in its command line"
            raise ChildNotLaunched(f"failed to start the child capsule process '{self.argv[0]}': {why}") from None
        self.process = ChildProcess(
            started.process, self._lifeline, self.reactor, grace, before_ending=self._no_longer_outstanding
        )
        self._wait = ReadinessWait(self.workdir.path, self.process, self.errors, seen)
        opened.callback(self._stop_reading)
        opened.callback(self.process.shutdown)
        self.reactor.call(lambda: self._read_from(started))
        try:
            self.process.watch()
        except RuntimeError:
            raise ChildNotLaunched("the child capsule cannot be watched: no thread can be started") from None
        self.process.when_exited(lambda: self._seen.put(ChildExited()))
        self._stdin_refused = started.stdin_refused

    def read_readiness(self, opened: ExitStack, timeout: float, bound: float | None) -> Readiness:
        """Wait for the readiness line and open the records directory it names; raise `ChildNotLaunched`.

        `bound` is how many seconds the child gets from its start; then `ChildLate` is raised, and the spawner told.
        """
        if self._stdin_refused is not None:
            raise self._wait.not_handed_over(self._stdin_refused)
        if bound is not None and bound < timeout:
            self.reactor.call(lambda: self._watch_deadline(self._spawned_at + bound))
        line = self._wait.first_line(self._spawned_at + timeout, timeout)
        if isinstance(line, Overdue):
            assert bound is not None
            raise self._overdue(bound)
        root = self._records_root
        try:
            readiness = parse_readiness(line, root)
        except ReadinessRefused as error:
            raise ChildNotLaunched(str(error)) from None
        path = Path(readiness.records_dir)
        try:
            top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.records = open_beneath(top, path.relative_to(root).parts, path)
            finally:
                os.close(top)
        except (NotReached, OSError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            raise ChildNotLaunched(f"the child capsule's records directory could not be opened: {why}") from error
        opened.callback(os.close, self.records)
        self._readiness = readiness
        self._until_ready.close()
        return readiness

    def watch(self) -> None:
        """Have the end of the child told, if anybody wants to be."""
        handle, request = self.handle, self._request
        if handle is None or self.marker is None:
            return
        child = WatchedChild(
            handle.delegation_id,
            request.capsule_name,
            request.capsule_version,
            self._readiness.session_id,
            str(self.workdir.path),
        )
        told = Told(
            handle,
            child,
            self._spawned_at,
            CompletionStore(self.records),
            self.marker,
            self._doors,
            self._warn,
        )
        self.watcher = ChildWatcher(told, self.process, self.errors, request.completion_deadline)
        self.watcher.start(self.reactor)

    def _read_from(self, started: StartedProcess) -> None:
        stdout, stderr = started.process.stdout, started.process.stderr
        assert stdout is not None
        to_stdout, to_stderr = outlets(self.reactor)
        elsewhere = self._output.instead or to_stderr
        self._answer.read_from(self.reactor, stdout, to_stdout if self._output.stdout_prefix is None else elsewhere)
        self.errors.read_from(self.reactor, stderr, elsewhere)

    def _stop_reading(self) -> None:
        """Take the last of what the child said, and close its pipes. It is gone by now, and that has been seen to."""
        stopped = threading.Event()

        def stop() -> None:
            self._answer.give_up()
            self.errors.give_up()
            stopped.set()

        self.reactor.call(stop)
        stopped.wait(DRAIN_TIMEOUT)

    def _watch_deadline(self, at: float) -> None:
        self.reactor.call_at(at, lambda: self._seen.put(Overdue()))

    def _overdue(self, bound: float) -> ChildLate:
        """End the child at its deadline, and tell the spawner: nobody else will. It left no records to write to."""
        if self.process.begin_ending() and self.handle is not None and self.marker is not None:
            self.process.shutdown()
            child = WatchedChild(
                self.handle.delegation_id,
                self._request.capsule_name,
                self._request.capsule_version,
                "",
                str(self.workdir.path),
            )
            outcome = expired_outcome(child, duration_ms(self._spawned_at, time.monotonic()), bound)
            if self.marker.withdraw():
                self.marker.put()
                told = post_completion(self.handle, outcome, self._doors)
                if told.delivery_error is not None:
                    self._warn(f"the end of {self._wait.child} was not told: {told.delivery_error}")
        return ChildLate(f"the capsule was still running after {int(bound)}s and was ended at the delegation deadline")

    def _put_task(self, text: str) -> None:
        try:
            write_staged(self.workdir.descriptor, "task.md", text.encode("utf-8", "replace"), durable=False)
        except OSError as error:
            raise ChildNotLaunched(
                f"the task could not be written to {self.workdir.path / 'task.md'}: {reason_of(error)}"
            ) from error

    def _put_marker(self, opened: ExitStack) -> None:
        if self.marker is None:
            return
        try:
            self.marker.put()
        except (NotReached, OSError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            raise ChildNotLaunched(f"the delegation could not be entered in the parent's records: {why}") from error
        opened.callback(self.marker.remove)

    def _no_longer_outstanding(self) -> None:
        if self.marker is not None:
            self.marker.withdraw()


def _insist_on_utf8(*paths: Path) -> None:
    """Raise `ChildNotLaunched` for a path that a readiness line, which is JSON, cannot name."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise ChildNotLaunched(
                f"no child can be launched from {path}: it is not UTF-8, and a child could not report where it is",
                hint="delegate from a folder whose path is UTF-8",
            ) from None


def _reactor() -> Reactor:
    """Return the reactor, where a child's exit can be told from another process's (E5)."""
    raise_limit()
    probe = exit_descriptor(os.getpid())
    if probe is not None:
        os.close(probe)
    elif signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        raise ChildNotLaunched(
            "no child can be launched while SIGCHLD is ignored and this kernel has no pidfds: its number could become"
            " another process's unseen",
            hint="reset SIGCHLD to its default in the launching program",
        )
    try:
        return shared_reactor()
    except (OSError, RuntimeError) as error:
        why = reason_of(error) if isinstance(error, OSError) else "no thread can be started"
        raise ChildNotLaunched(f"the children of this process cannot be watched: {why}") from error
