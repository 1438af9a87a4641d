"""How did a session end? Its records say so, if it came to its end at all."""

import os
from pathlib import Path

from murmur.adapters.beneath import NotReached, open_directory
from murmur.adapters.completions import CompletionStore
from murmur.adapters.records_directory import read_tail
from murmur.domain.json_text import NotJson, read_json
from murmur.domain.spawn_terms import Outcome

_TRACE = "trace.jsonl"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_outcome(records: str) -> Outcome:
    """Say how the session of a records directory ended, which is over: `failed`, unless it says that it did well.

    A delegation's completion says it, else the last line of the trace. Raises `OutOfDescriptors`.
    """
    if not records.startswith("/"):
        return "failed"
    try:
        directory = open_directory(Path(records))
    except (NotReached, ValueError):
        return "failed"
    try:
        completion = CompletionStore(directory).read()
        if completion is not None:
            return "complete" if completion.status == "ok" else "failed"
        return _told_by(_last_line(directory))
    finally:
        os.close(directory)


def _last_line(directory: int) -> str:
    try:
        descriptor = os.open(_TRACE, _READ, dir_fd=directory)
    except OSError:
        return ""
    try:
        return next(iter(read_tail(descriptor, 1)), "")
    finally:
        os.close(descriptor)


def _told_by(line: str) -> Outcome:
    try:
        event = read_json(line.encode())
    except NotJson:
        return "failed"
    match event:
        case {"event_type": "session_end", "exit_status": int(status)} if status == 0:
            return "complete"
        case _:
            return "failed"
