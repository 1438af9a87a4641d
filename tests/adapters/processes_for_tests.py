"""Real processes in the states that tests need, each ended when its block is left."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from murmur.domain.origin import Origin

ROOT = Path(__file__).parents[2]
MUR = Path(sys.executable).parent / "mur"

NO_PIDFDS = ("missing", "ENOSYS", "EPERM", "EMFILE", "ENFILE")
"""Why pidfds cannot be used: the call is not there, or fails with this errno."""

Process = subprocess.Popen[bytes]


@contextmanager
def running(*argv: str, **options: Any) -> Iterator[Process]:
    """Run a process, `sleep` when none is named; kill and reap it at the end."""
    process: Process = subprocess.Popen(argv or ("sleep", "1000"), **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def stopped() -> Iterator[Process]:
    """Run a process that a SIGSTOP holds."""
    with running() as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield process


@contextmanager
def zombie() -> Iterator[Process]:
    """Run a process that has exited and is not reaped before the end."""
    with running("true") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process


_WITHOUT_LEADER = """
import ctypes, os, sys, threading

def work():
    while b") Z " not in open(f"/proc/self/task/{os.getpid()}/stat", "rb").read():
        pass
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def without_leader() -> Iterator[Process]:
    """Run a process whose leader thread has exited while another one works, until its stdin is closed."""
    with running(sys.executable, "-c", _WITHOUT_LEADER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def exhaust_pidfds(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pidfds unusable, for one of the reasons in `NO_PIDFDS`."""
    if why == "missing":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        return

    def refuse(pid: int, flags: int = 0) -> int:
        number = getattr(errno, why)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)


def is_running(process: Process) -> bool:
    """Whether a child has not exited; it is not reaped by asking."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def open_descriptors() -> set[str]:
    """Return the descriptors open now, each with what it leads to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {Path('/proc/self/fd', name).readlink()}")
        except FileNotFoundError:
            continue  # The listing's own.
    return found


def changed(origin: Origin, **changes: Any) -> Origin:
    """Return an origin that differs in these fields."""
    fields = {
        "pid": origin.pid,
        "process_start": origin.process_start,
        "machine_id": origin.machine_id,
        "boot_id": origin.boot_id,
        "pid_namespace": origin.pid_namespace,
        "time_namespace": origin.time_namespace,
        "pidfd_inode": origin.pidfd_inode,
    }
    return Origin(**(fields | changes))


_FRESH = ("unshare", "--pid", "--fork")


@cache
def _permitted(argv: Sequence[str]) -> str | None:
    """Return why that command cannot be run; `None` when it can."""
    try:
        subprocess.run((*argv, "true"), check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None


def fresh_pid_namespace(*, mount_proc: bool = True) -> tuple[str, ...]:
    """Return the start of a command line that runs the rest in a pid namespace of its own, or skip the test.

    The namespace ends with its command: everything in it is killed.
    """
    argv = (*_FRESH, "--kill-child", *(("--mount-proc",) if mount_proc else ()))
    refusal = _permitted(argv)
    if refusal is not None:
        pytest.skip(f"no pid namespace can be made here: {refusal}")
    return argv


def call_inside(prefix: Sequence[str], module: str, function: str, **environment: str) -> Any:
    """Call a function of a test module in a process started through that prefix; return the JSON that it returns."""
    code = f"import json, {module} as inside; print(json.dumps(inside.{function}()))"
    done = subprocess.run(
        (*prefix, sys.executable, "-W", "error", "-c", code),
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
