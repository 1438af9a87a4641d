"""How does one `mur delegate` carry out all that it delegates, side by side, from the plan to the last outcome?

One session, one serving thread and one referee are for all of it. Children are started by the main thread, whose signal
mask they get. Each is then waited for by a thread of its own, so that the main thread waits for one thing: what happens
next, to any of them.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from signal import Signals
from typing import assert_never

from murmur.adapters.descriptors import exhausted
from murmur.adapters.ending_signals import EndingSignals
from murmur.adapters.mailbox import Mailbox
from murmur.adapters.serving import ServingThread
from murmur.adapters.threads import start_thread
from murmur.cli.delegable import Planned, Wanted, insist_on_descriptors, plan
from murmur.cli.delegated import Delegated
from murmur.cli.delegated_child import DelegatedChild
from murmur.cli.delegating_session import DelegatingSession, delegating_session
from murmur.cli.embedded_referee import embedded_referee
from murmur.cli.onlookers import Onlooker
from murmur.domain.errors import FAILED, ChildNotLaunched, DelegationFailed, MurmurError
from murmur.domain.side_by_side import SideBySide, exit_status
from murmur.domain.value import Value


class _Asked(Value):
    """The referee has answered."""

    position: int
    refused: MurmurError | None


class _Ended(Value):
    """A begun child is over."""

    position: int
    outcome: Delegated


class _Broke(Value):
    """A thread failed in a way that nobody foresaw, and its traceback was printed."""

    position: int


class _Signalled(Value):
    """A signal came."""


_Happened = _Asked | _Ended | _Broke | _Signalled


def run_delegations(wanted: Wanted, onlooker: Onlooker) -> Sequence[Delegated]:
    """Carry out all that is wanted; return what became of each, in order.

    Raises `MurmurError`, with nothing launched, for what can be known before.
    """
    try:
        mailbox: Mailbox[_Happened] = Mailbox()
    except OSError:
        raise exhausted("delegate with") from None
    with mailbox:
        return _Delegations(wanted, onlooker, mailbox).run()


class _Delegations:
    """All of one command. Its signals end them all: the first in order, the second at once."""

    def __init__(self, wanted: Wanted, onlooker: Onlooker, happened: Mailbox[_Happened]) -> None:
        self._wanted = wanted
        self._onlooker = onlooker
        self._happened = happened
        self._board = SideBySide(len(wanted.capsules), wanted.at_once)
        self._children: Sequence[DelegatedChild] = ()
        self._asking: set[int] = set()
        self._running: set[int] = set()
        self._outcomes: dict[int, Delegated] = {}
        self._signal: Signals | None = None
        self._waits = False

    def run(self) -> Sequence[Delegated]:
        signals = EndingSignals()
        signals.tell(self._take_signal)
        try:
            with self._interruptible():
                planned = plan(self._wanted, self._onlooker.warn)
            insist_on_descriptors(min(self._wanted.at_once, len(planned)))
            with ExitStack() as opened:
                serving = opened.enter_context(ServingThread())
                session = delegating_session(os.environ, opened, serving, self._onlooker.warn)
                return self._concluded(planned, session, serving)
        finally:
            # Everything is put away: what is left is to print, and whoever does not want to wait for that need not.
            signals.give_back()

    def _concluded(
        self, planned: Sequence[Planned], session: DelegatingSession, serving: ServingThread
    ) -> Sequence[Delegated]:
        """Delegate, and tell a session of our own how that ended."""
        status = FAILED
        try:
            referee = embedded_referee(session.delegating, serving, os.environ)
            witnesses = self._onlooker.begins(planned)
            self._children = [
                DelegatedChild(each, session, referee, witness)
                for each, witness in zip(planned, witnesses, strict=True)
            ]
            try:
                self._run_all()
            finally:
                self._end_what_is_left()
            outcomes = [self._outcomes[position] for position in range(len(planned))]
            status = exit_status(0 if each.error is None else each.error.exit_status for each in outcomes)
        finally:
            if session.conclude is not None:
                session.conclude(status)
        return outcomes

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let a signal cut short what may take long and has begun nothing that would have to be ended."""
        self._waits = True
        try:
            if self._signal is not None:
                raise self._cut_short(self._signal)
            yield
        finally:
            self._waits = False

    def _cut_short(self, by: Signals) -> DelegationFailed:
        capsules = self._wanted.capsules
        what = f"{capsules[0]} was not" if len(capsules) == 1 else "nothing was"
        return DelegationFailed(f"{what} launched: {by.name} came first")

    def _take_signal(self, number: Signals) -> None:
        """End all children. This runs between any two steps of the main thread, so it takes no lock."""
        again, self._signal = self._signal is not None, number
        self._onlooker.signalled()
        if self._waits:
            self._waits = False
            raise self._cut_short(number)
        for child in self._children:
            child.end(number.name, at_once=again)
        self._happened.put(_Signalled())

    def _run_all(self) -> None:
        while not self._board.is_over:
            if self._signal is not None:
                self._launch_no_more(self._signal.name)
            begun = self._board.begin()
            for position in begun:
                self._asking.add(position)
                self._in_a_thread(position, partial(self._ask, position))
            # Nothing happens to those for which no thread could be started: others may have their turn at once.
            if not begun and not self._board.is_over:
                self._take(self._happened.take())

    def _take(self, happened: _Happened) -> None:
        match happened:
            case _Asked(position, refused):
                if position in self._asking and self._signal is None:
                    self._asking.remove(position)
                    self._begin(position, refused)
            case _Ended(position, outcome):
                self._running.remove(position)
                self._over(position, outcome)
            case _Broke(position):
                self._running.discard(position)
                raise RuntimeError("what a thread was to do for a delegation failed, as told above")
            case _Signalled():
                pass
            case _:
                assert_never(happened)

    def _ask(self, position: int) -> _Happened:
        try:
            self._children[position].approve()
        except MurmurError as refused:
            return _Asked(position, refused)
        return _Asked(position, None)

    def _begin(self, position: int, refused: MurmurError | None) -> None:
        """Start an approved child, and have a thread see it to its end."""
        child = self._children[position]
        try:
            if refused is not None:
                raise refused
            child.begin()
        except MurmurError as error:
            self._over(position, child.failed(error))
            return
        self._running.add(position)
        self._in_a_thread(position, lambda: _Ended(position, child.finish()))

    def _in_a_thread(self, position: int, work: Callable[[], _Happened]) -> None:
        """Have that done without being waited for: what comes of it is told like all that happens."""

        def do() -> None:
            happened: _Happened = _Broke(position)
            try:
                happened = work()
            finally:
                self._happened.put(happened)

        child = self._children[position]
        try:
            start_thread("delegation", do)
        except RuntimeError:
            child.close()
            self._asking.discard(position)
            self._running.discard(position)
            self._over(position, child.failed(ChildNotLaunched("no thread can be started")))

    def _launch_no_more(self, by: str) -> None:
        """Begin none of those that have not begun. A referee that does not answer is not waited for."""
        never = [*self._asking, *self._board.end()]
        self._asking.clear()
        # All of them first: when one is told, so may be those behind it.
        self._outcomes.update((position, self._children[position].cut_short(by)) for position in never)
        for position in never:
            self._over(position, self._outcomes[position])

    def _over(self, position: int, outcome: Delegated) -> None:
        self._outcomes[position] = outcome
        self._board.over(position)
        self._children[position].gone()
        self._onlooker.ended(position, outcome)
        for due in self._board.due():
            self._onlooker.told(self._outcomes[due])

    def _end_what_is_left(self) -> None:
        """End all that still run, begun together and so in one grace: something has gone wrong here."""
        for position in self._running:
            self._children[position].end("the end of `mur delegate`")
        while self._running:
            happened = self._happened.take()
            if isinstance(happened, _Ended | _Broke):
                self._running.discard(happened.position)
