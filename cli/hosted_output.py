"""Where does the one command of a session write, who sees that, and what has it said last?"""

import os
import sys
from contextlib import ExitStack

from murmur.adapters.command import Tee
from murmur.adapters.command_output import CommandOutput, Output
from murmur.adapters.records_directory import RecordsDirectory, read_tail
from murmur.cli.launch import Launch
from murmur.cli.output import echo_bytes

_TAIL_LINES = 20


class HostedOutput:
    """The output of a command that takes no tasks: its logs, or pipes that are copied there and echoed."""

    def __init__(self, launch: Launch, session_id: str, records: RecordsDirectory, opened: ExitStack) -> None:
        """Open the files, to be closed with `opened`. Raises `RecordsUnusable`, `CommandNotStarted`."""
        self._records = records
        self._opened = opened
        self._tees: list[Tee] = []
        self.command = self._script() if launch.script else self._logs(launch, session_id)
        """Where the command writes."""

    def echo(self) -> None:
        """Begin to echo, if that is wanted; until then the pipes hold what is written."""
        for tee in self._tees:
            tee.start()

    def last_errors(self) -> list[str]:
        """Return the last lines of its stderr."""
        return read_tail(self._errors, _TAIL_LINES)

    def _script(self) -> CommandOutput:
        """Open where a script's result and errors go."""
        result = self._records.open_new("out/result.txt")
        self._opened.callback(os.close, result)
        self._errors = self._records.open_log("stderr.log")
        self._opened.callback(os.close, self._errors)
        return CommandOutput((result, self._errors))

    def _logs(self, launch: Launch, session_id: str) -> CommandOutput:
        logs = [self._records.open_log(name) for name in ("stdout.log", "stderr.log")]
        for log in logs:
            self._opened.callback(os.close, log)
        self._errors = logs[1]
        followed = [Output(name, log, f"logs/{name}.log") for name, log in zip(("stdout", "stderr"), logs, strict=True)]
        # Who watches sees the command as the session's only task.
        own = session_id.removeprefix("ses_")
        shown_as = f"tsk_{own}", f"ctx_{own}"
        if not launch.verbose:
            return CommandOutput((logs[0], logs[1]), followed, shown_as)
        # With --json stdout carries one document, so everything else goes to stderr.
        echoes = [echo_bytes(sys.stderr if launch.as_json else sys.stdout), echo_bytes(sys.stderr)]
        for log, echo in zip(logs, echoes, strict=True):
            self._tees.append(tee := Tee(log, echo))
            self._opened.callback(tee.finish)
            self._opened.callback(tee.handed)
        ends = self._tees[0].write_end, self._tees[1].write_end
        return CommandOutput(ends, followed, shown_as, self._hand_over, self._settle)

    def _hand_over(self) -> None:
        for tee in self._tees:
            tee.handed()

    def _settle(self) -> None:
        for tee in self._tees:
            tee.finish()
