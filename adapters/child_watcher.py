"""Who sees to it that the end of a delegated child is told, once? (W1-W4, E6).

It sleeps in the reactor until the child ends or its deadline comes, and takes a thread for as long as telling takes.
"""

import threading
import time
from typing import assert_never

from murmur.adapters.beneath import NotReached
from murmur.adapters.child_process import ChildProcess
from murmur.adapters.child_streams import ChildErrors
from murmur.adapters.completions import CompletionStore, Warn, record, report
from murmur.adapters.delegations import Marker
from murmur.adapters.reactor import Reactor
from murmur.adapters.reasons import reason_of
from murmur.adapters.threads import start_thread
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.launch.completion import DelegationOutcome
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.launch.watcher import (
    Deliberate,
    Exited,
    LeaveAlone,
    PostCrashed,
    PostTerminated,
    RecordTerminated,
    RetryOnce,
    WatchedChild,
    crashed_outcome,
    decide,
    duration_ms,
    expired_outcome,
    expiry,
    terminated_outcome,
)
from murmur.domain.ports import Doors
from murmur.domain.value import Value


class Told(Value):
    """Whom and what a watcher tells, and by what means."""

    handle: SpawnerHandle
    child: WatchedChild
    spawned_at: float
    store: CompletionStore
    marker: Marker
    doors: Doors
    warn: Warn


class ChildWatcher:
    """The watcher of one delegated child."""

    def __init__(self, told: Told, process: ChildProcess, errors: ChildErrors, bound: float | None) -> None:
        """`bound` is how many seconds the child gets from now on; `None` is any number."""
        self._told = told
        self._process = process
        self._errors = errors
        self._bound = bound
        self._expired = False
        self._finished = threading.Event()
        self._ready_at = time.monotonic()

    def start(self, reactor: Reactor) -> None:
        """Begin to watch."""
        reactor.call(lambda: self._watch(reactor))

    @property
    def is_finished(self) -> bool:
        """Whether the outcome is on disk and told."""
        return self._finished.is_set()

    @property
    def has_expired(self) -> bool:
        """Whether the deadline ended the child."""
        return self._expired

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the outcome is on disk and told; say whether it is."""
        return self._finished.wait(timeout)

    def _watch(self, reactor: Reactor) -> None:
        at = expiry(self._ready_at, self._bound)
        timer = None if at is None else reactor.call_at(at, self._expire)

        def ended() -> None:
            if timer is not None:
                timer.cancel()
            self._ended()

        self._process.when_exited(ended)

    def _expire(self) -> None:
        # Only if it was this that ended the child: one that had exited, or was being ended, is judged by that (E3), and
        # one whose word the door has taken by that.
        self._expired = self._process.begin_ending() and self._told.marker.withdraw()

    def _ended(self) -> None:
        ended_at = time.monotonic()
        try:
            start_thread("watcher", lambda: self._tell(ended_at))
        except RuntimeError:  # No thread can be started: the other children wait for this one to be told of.
            self._tell(ended_at)

    def _tell(self, ended_at: float) -> None:
        try:
            self._decide(duration_ms(self._told.spawned_at, ended_at))
        except OutOfDescriptors as error:
            # A reading that could not be taken says nothing about what the child recorded.
            self._told.warn(f"delegation {self._told.handle.delegation_id} was not told of: {error.message}")
        finally:
            self._told.marker.remove()
            self._finished.set()

    def _decide(self, milliseconds: int) -> None:
        told, ending = self._told, self._process.ending
        if not told.marker.withdraw() and self._keep_its_word():
            return
        recorded = told.store.read() if isinstance(ending, Exited) else None
        action = decide(ending, recorded, self._expired)
        match action:
            case LeaveAlone():
                pass
            case RetryOnce():
                assert recorded is not None
                self._report(recorded, recorded)
            case RecordTerminated():
                record(terminated_outcome(told.child, milliseconds), told.store, told.warn)
            case PostTerminated():
                assert self._bound is not None
                self._report(expired_outcome(told.child, milliseconds, self._bound), told.store.read())
            case PostCrashed():
                assert not isinstance(ending, Deliberate)
                tail = self._errors.lines_at_end()
                self._report(crashed_outcome(told.child, milliseconds, ending.status, tail), None)
            case _:
                assert_never(action)

    def _keep_its_word(self) -> bool:
        """Leave what the child recorded, since the door has taken its word; false if it recorded nothing.

        That it was delivered it may not have lived to learn.
        """
        told = self._told
        recorded = told.store.read()
        if recorded is not None and not recorded.delivered:
            record(recorded.replaced(delivered=True, delivery_error=None), told.store, told.warn)
        return recorded is not None

    def _report(self, outcome: DelegationOutcome, own: DelegationOutcome | None) -> None:
        """Record and post an outcome; `own` is what the child recorded.

        A post of the child's may still be on its way to the door: it is the door that says whose word it takes.
        """
        told = self._told
        if not told.marker.withdraw():
            # The door has the child's word, and takes no other.
            record(outcome, told.store, told.warn)
            return
        self._stand_again()
        reported = report(told.handle, outcome, told.store, told.doors, told.warn)
        if not reported.delivered and not told.marker.remove() and own is not None:
            record(own.replaced(delivered=True, delivery_error=None), told.store, told.warn)
            self._expired = False

    def _stand_again(self) -> None:
        """Let the delegation be outstanding once more: the child cannot tell of its end any more, and we can."""
        try:
            self._told.marker.put()
        except (NotReached, OSError) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            self._told.warn(f"delegation {self._told.handle.delegation_id} cannot be told of: {why}")
