"""`mur run --detach`: start the same command again, out of the terminal's reach, and return once its door answers."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from types import FrameType
from typing import IO

from murmur.adapters.exit_status import status_text
from murmur.adapters.reasons import reason_of
from murmur.adapters.task_file import as_handed_on
from murmur.cli.output import echo_bytes, say
from murmur.domain.command_environment import DETACHED
from murmur.domain.errors import CommandNotStarted

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_detached(task: str | None, *, as_json: bool) -> int:
    """Start this very command line in a session of its own; return 0 once it is ready, else its exit status.

    The one that stays knows by its environment that it is the one, and gets the task on its stdin: it could not read
    a `<(…)` of ours. What it says before it is ready is passed on; its stderr is a file that nobody else sees, so that
    it never waits for us. Raises `CommandNotStarted`, and `OutputNotWritten` with the session running.
    """
    with ExitStack() as opened:
        try:
            errors = opened.enter_context(tempfile.TemporaryFile())
            stdin: IO[bytes] | int = subprocess.DEVNULL
            if task is not None:
                stdin = opened.enter_context(tempfile.TemporaryFile())
                stdin.write(as_handed_on(task))
                stdin.seek(0)
            signals = _WaitSignals()
            session = subprocess.Popen(
                # Without -P, `-m` would look for our modules in the caller's directory first.
                [sys.executable, "-P", "-m", "murmur.cli", *sys.argv[1:]],
                env={**os.environ, DETACHED: "1"},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise CommandNotStarted(f"the session could not be started: {reason_of(error)}") from error
        assert session.stdout is not None
        opened.enter_context(session.stdout)
        signals.pass_on_to(session)
        said = ""
        for line in session.stdout:
            said += line
            if _is_readiness(line, as_json=as_json) and signals.over() is None:
                # It is nobody's child from here on: the interpreter must not wait for it.
                session.returncode = 0
                _pass_on(errors)
                say(said.rstrip("\n"))
                return 0
        status = session.wait()
        ended_by = signals.over()
        _pass_on(errors)
        if ended_by is not None:
            return 128 + ended_by
        if said:
            say(said.rstrip("\n"))
        elif status <= 0:
            raise CommandNotStarted(f"the session ended before it was ready: {status_text(status)}")
        return status if status > 0 else 1


class _WaitSignals:
    """What ends the wait ends the session that is waited for: nobody would know of it."""

    def __init__(self) -> None:
        self._session: subprocess.Popen[str] | None = None
        self._taken: list[int] = []
        # What was ignored stays ignored, here and in the session.
        ours = [number for number in _ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._take) for number in ours}

    def pass_on_to(self, session: "subprocess.Popen[str]") -> None:
        """Tell that session of every signal from now on, and of those that came before."""
        self._session = session
        if self._taken:
            session.terminate()

    def over(self) -> int | None:
        """Return the first signal that was passed on; where there was none, none is from here on."""
        if not self._taken:
            session, self._session = self._session, None
            for number, handler in self._before.items():
                signal.signal(number, handler)
            if session is not None and self._taken:  # It came between these lines.
                session.terminate()
        return self._taken[0] if self._taken else None

    def _take(self, number: int, _: FrameType | None) -> None:
        self._taken.append(number)
        if self._session is not None:
            self._session.terminate()


def _is_readiness(line: str, *, as_json: bool) -> bool:
    """Whether that line says that the session is there. An error's document is a line as well."""
    if not as_json:
        return line.startswith("session: ")
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and "session_id" in document


def _pass_on(errors: IO[bytes]) -> None:
    """Print what is in that file. The session writes at the file's own position, which stays where it is."""
    echo, position = echo_bytes(sys.stderr), 0
    while part := os.pread(errors.fileno(), 65536, position):
        echo(part)
        position += len(part)
