"""How is the end of a process told? (X6)."""

import os
import signal

UNKNOWN_STATUS = "unknown exit status"


def status_text(returncode: int, *, core_dumped: bool = False) -> str:
    """Say how a process ended: `exit status: N` or `signal: N (SIGNAME)`, with ` (core dumped)` where so."""
    if returncode >= 0:
        return f"exit status: {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "unknown"
    return f"signal: {-returncode} ({name}){' (core dumped)' if core_dumped else ''}"


def reap(pid: int) -> tuple[bool, str | None]:
    """Reap a child of ours if it has exited; return whether it is gone, and how it ended.

    `None` is a status that nobody can read any more: SIGCHLD is ignored, or somebody else reaped the child.
    """
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True, None
    if reaped == 0:
        return False, None
    return True, status_text(os.waitstatus_to_exitcode(status), core_dumped=os.WCOREDUMP(status))
