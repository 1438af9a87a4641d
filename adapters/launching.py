"""What is the launcher of a child capsule handed, and how long does the child live? (C1, E1-E5)."""

import atexit
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from murmur.adapters.child_launch import READY_TIMEOUT, ChildLaunch, Output
from murmur.adapters.child_streams import DRAIN_TIMEOUT, GivenUp, Seen
from murmur.adapters.completions import Warn
from murmur.adapters.doors import HttpDoors
from murmur.adapters.relay import Sink
from murmur.domain.launch.completion import POST_LIMITS
from murmur.domain.launch.ending import GRACE
from murmur.domain.launch.readiness import Readiness
from murmur.domain.launch.request import ChildLaunchRequest
from murmur.domain.ports import Doors

if TYPE_CHECKING:
    from murmur.domain.secret import DoorToken


class LaunchGivenUp:
    """Lets a launch under way be given up from another thread: its child is ended, and it fails."""

    def __init__(self) -> None:
        self.seen: SimpleQueue[Seen] = SimpleQueue()

    def give_up(self) -> None:
        """Give up the launch, now or as soon as its child is started. Idempotent."""
        self.seen.put(GivenUp())


class LaunchedChild:
    """A running child capsule. A context manager: leaving it ends the child and waits until that is told.

    Left open, it is ended when the interpreter ends.
    """

    def __init__(self, launch: ChildLaunch, readiness: Readiness, opened: ExitStack) -> None:
        self.workdir = launch.workdir.path
        """The child's work folder."""
        self.session_id = readiness.session_id
        self.records_dir = Path(readiness.records_dir)
        """Where the child's trace, its results and its `completion.json` are."""
        self.records_descriptor = launch.records
        """The same, open for as long as this is."""
        self.capsule_url = readiness.capsule_url
        """The child's door; empty for a script, which has none."""
        self.door_token: DoorToken | None = readiness.door_token
        """What the child's door asks for, if it asks."""
        self.formation_id = readiness.formation_id
        self.argv = list(launch.argv)
        self.env = list(launch.environment)
        self.delegation_id = None if launch.handle is None else launch.handle.delegation_id
        self._process = launch.process
        self._reactor = launch.reactor
        self._errors = launch.errors
        self._watcher = launch.watcher
        self._opened = opened
        _live.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LaunchedChild(session_id={self.session_id!r}, pid={self.pid}, delegation_id={self.delegation_id!r})"

    @property
    def pid(self) -> int:
        """The child's pid; 0 once it has been reaped."""
        return self._process.pid

    @property
    def is_being_ended(self) -> bool:
        """Whether the child was sent SIGTERM on purpose and has not been reaped (E4, E6)."""
        return self._process.is_being_ended

    @property
    def has_exited(self) -> bool:
        """Whether the child's process has ended, by itself or by being ended."""
        return self._process.has_exited

    @property
    def status(self) -> str | None:
        """How its process ended, in words; `None` before, and when nobody could read it."""
        return self._process.status

    @property
    def watcher_finished(self) -> bool:
        """Whether the outcome is on disk and told; true for a child that no watcher observes (W4)."""
        return self._watcher is None or self._watcher.is_finished

    @property
    def has_expired(self) -> bool:
        """Whether the delegation's deadline ended the child."""
        return self._watcher is not None and self._watcher.has_expired

    def stderr_tail(self) -> list[str]:
        """Return the last lines of stderr said so far, oldest first."""
        return self._errors.lines()

    def begin_ending(self) -> None:
        """Send SIGTERM, once, without waiting: several so ended share one grace (E2)."""
        self._process.begin_ending()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have that done by the thread that watches the children. This takes no lock, so a signal's handler may."""
        self._reactor.call(call)

    def force(self) -> None:
        """Kill the child without the rest of its grace."""
        self._process.force()

    def shutdown(self) -> None:
        """End the child: SIGTERM, its grace, SIGKILL, reap (E1). A second call meanwhile leaves it to the first."""
        self._process.shutdown()

    def when_exited(self, call: Callable[[], None]) -> None:
        """Have that called by the thread that watches the children once the child was reaped, also if it has been."""
        self._process.when_exited(call)

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Have that called at a monotonic time. To be asked for in the thread that watches the children."""
        self._reactor.call_at(when, call)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the child has ended and was reaped; say whether it has."""
        return self._process.wait(timeout)

    def wait_until_told(self, timeout: float | None = None) -> bool:
        """Wait until the outcome is on disk and told; say whether it is."""
        return self._watcher is None or self._watcher.wait(timeout)

    def close(self) -> None:
        """End the child, wait until that is told, and let go of everything. Idempotent.

        In a forked copy of the launcher it does nothing: the child, and what is told of it, are not its own.
        """
        if self._process.is_inherited:
            return
        self.shutdown()
        self._process.wait(self._process.patience)  # Another thread may be at it: its lifeline stays till the reap.
        self.wait_until_told(POST_LIMITS.total + 2 * DRAIN_TIMEOUT)
        self._opened.close()
        _live.discard(self)


class BegunLaunch:
    """A child that was started and has not reported itself. Wait for that with `ready`, in any thread, or `close` it.

    Both take it over: there is nothing left of it, or it is a `LaunchedChild`.
    """

    records_dir = None
    """It has not said yet where that is."""

    def __init__(self, launch: ChildLaunch, opened: ExitStack) -> None:
        self._launch = launch
        self._opened = opened

    @property
    def is_being_ended(self) -> bool:
        """Whether the child was sent SIGTERM on purpose and has not been reaped."""
        return self._launch.process.is_being_ended

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have that done by the thread that watches the children. This takes no lock, so a signal's handler may."""
        self._launch.reactor.call(call)

    def begin_ending(self) -> None:
        """Send SIGTERM, once, without waiting: several so ended share one grace (E2). Also once it is ready."""
        self._launch.process.begin_ending()

    def force(self) -> None:
        """Kill the child without the rest of its grace. Also once it is ready."""
        self._launch.process.force()

    def ready(self, timeout: float = READY_TIMEOUT, deadline: float | None = None) -> LaunchedChild:
        """Wait until the child reports itself, so many seconds from its start.

        `deadline` is how many seconds from its start it gets before its spawner is told that it was ended at its
        deadline: for a script, which reports itself when it is done (X5, W2).
        Raises `ChildNotLaunched` with nothing left of the child.
        """
        with self._opened as opened:
            readiness = self._launch.read_readiness(opened, timeout, deadline)
            self._launch.watch()
            return LaunchedChild(self._launch, readiness, opened.pop_all())

    def close(self) -> None:
        """End the child and let go of everything."""
        self._opened.close()


_live: set[LaunchedChild] = set()


def _end_all() -> None:
    """End what is left when the interpreter ends: together, in one grace."""
    left = list(_live)
    for child in left:
        child.begin_ending()
    for child in left:
        child.close()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_live.clear)


class LaunchOptions(TypedDict, total=False):
    """What `begin_launch` takes by name."""

    grace: float
    given_up: LaunchGivenUp | None
    warn: Warn
    doors: Doors | None
    script_task: str | None
    stdout_prefix: str | None
    stderr_prefix: str
    output: Sink | None


def begin_launch(  # noqa: PLR0913 - what is launched, and how it is told, each with a default
    request: ChildLaunchRequest,
    *,
    warn: Warn = lambda _: None,
    doors: Doors | None = None,
    script_task: str | None = None,
    stderr_prefix: str = "",
    stdout_prefix: str | None = None,
    output: Sink | None = None,
    grace: float = GRACE,
    given_up: LaunchGivenUp | None = None,
) -> BegunLaunch:
    """Start an approved child, without waiting for anything. It gets the signal mask of the calling thread.

    `script_task` is put into the work folder as `task.md` before the start: a script has no door to be sent it.
    `doors` carry a completion, `warn` is told what went wrong without being an error.
    The child's stderr goes on to ours behind `stderr_prefix`. So does its stdout behind `stdout_prefix`, if there is
    one; else it goes on to our stdout as it is. `output`, if there is one, takes what would go to our stderr.
    `grace` is how many seconds the child gets between SIGTERM and SIGKILL.
    Raises `ChildNotLaunched` with nothing left of the child, `RegistryUnusable` when HOME does not say where to look.
    """
    launch = ChildLaunch(request, warn, doors or HttpDoors(POST_LIMITS))
    with ExitStack() as opened:
        launch.prepare(opened, script_task)
        seen = (given_up or LaunchGivenUp()).seen
        launch.start(opened, Output(stdout_prefix, stderr_prefix, output), grace, seen)
        return BegunLaunch(launch, opened.pop_all())


def launch_child_capsule(
    request: ChildLaunchRequest,
    *,
    ready_timeout: float = READY_TIMEOUT,
    launch_deadline: float | None = None,
    **options: Unpack[LaunchOptions],
) -> LaunchedChild:
    """Start an approved child and wait until it reports itself: `begin_launch`, then `BegunLaunch.ready`.

    Raises what both do.
    """
    return begin_launch(request, **options).ready(ready_timeout, launch_deadline)
