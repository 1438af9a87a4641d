"""Launchers that a test runs as processes of their own, since what is tested is how they end.

Each is called by name: `python -c "from … import launchers_for_tests as l; l.run()" NAME ARGUMENT…`.
"""

import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import NoReturn

from murmur.adapters.launching import LaunchedChild, launch_child_capsule
from murmur.domain.errors import ChildNotLaunched
from murmur.domain.launch.completion import parse_completion
from tests.adapters.launching.children_for_tests import PATIENCE, request_from, spawner
from tests.fakes.doors import FakeDoors, result

PARENT = Path(os.environ["HOME"]) / ".murmur/records/parent/ses_parent"


def launched(*, watched: bool = False) -> LaunchedChild:
    doors = FakeDoors()
    doors.serve("127.0.0.1:7000", result({}))
    return launch_child_capsule(request_from(PARENT, spawner=spawner() if watched else None), doors=doors)


def say(*words: object) -> None:
    """Say something to the test: our own stdout carries what children write, too."""
    with Path(os.environ["SAID"]).open("a") as said:
        said.write(json.dumps(words) + "\n")


def left_open() -> None:
    """End the interpreter with a child open."""
    child = launched(watched=True)
    say(child.pid, str(child.records_dir))


def exited_by_exception() -> None:
    """End the interpreter by an exception that nobody catches."""
    left_open()
    raise ValueError


def killed() -> None:
    """Wait with a child open until somebody kills this."""
    child = launched()
    say(child.pid)
    time.sleep(1000)


def sigchld_ignored() -> None:
    """Launch while SIGCHLD is ignored: one that is ended, one that ends, and one that ends before it is ready."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    child = launched(watched=True)
    ended, pid = child, child.pid
    child.close()
    outcome = parse_completion((ended.records_dir / "completion.json").read_bytes())
    assert outcome is not None
    say(pid, child.status, outcome.status)
    os.environ["MURMUR_MUR_BINARY"] = os.environ["EXITS"]
    child = launched(watched=True)
    assert child.wait(PATIENCE)
    assert child.wait_until_told(PATIENCE)
    outcome = parse_completion((child.records_dir / "completion.json").read_bytes())
    assert outcome is not None
    say(child.status, outcome.status, outcome.detail)
    os.environ["MURMUR_MUR_BINARY"] = "/bin/true"
    try:
        launched()
    except ChildNotLaunched as error:
        say(error.message)


def forked_copy() -> None:
    """Have a forked copy leave the block in which the child was launched; say whether the child lives on."""
    warnings.simplefilter("ignore")
    with launched(watched=True) as child:
        copy = os.fork()
        if copy == 0:
            try:
                child.begin_ending()
                child.force()
                child.shutdown()
            finally:
                child.__exit__(None, None, None)
                os._exit(0)
        begun = time.monotonic()
        status = os.waitpid(copy, 0)[1]
        took = time.monotonic() - begun
        outstanding = os.listdir(PARENT / "delegations")
        say(status, took < 4.0, child.has_exited, child.wait(0.1), outstanding == [child.delegation_id])
    say(child.status)


def forked_copy_that_ends() -> None:
    """Have a forked copy run to the end of the interpreter."""
    warnings.simplefilter("ignore")
    child = launched()
    if (copy := os.fork()) == 0:
        sys.exit(0)
    say(os.waitpid(copy, 0)[1], child.has_exited, child.wait(0.1))
    child.close()


def forked_copy_that_stays() -> None:
    """Be killed while a forked copy lives on."""
    warnings.simplefilter("ignore")
    child = launched()
    if (copy := os.fork()) == 0:
        time.sleep(1000)
    say(child.pid, copy)
    os.kill(os.getpid(), signal.SIGKILL)


def thread_that_ends() -> None:
    """Launch in a thread that ends, and be killed."""
    children: list[LaunchedChild] = []
    thread = threading.Thread(target=lambda: children.append(launched()))
    thread.start()
    thread.join(PATIENCE)
    say(children[0].pid, children[0].wait(0.2))
    os.kill(os.getpid(), signal.SIGKILL)


def closed_streams() -> None:
    """Launch with no standard streams at all."""
    for number in range(3):
        os.close(number)
    for name in ("__stdout__", "__stderr__"):
        setattr(sys, name, None)  # As they are when the interpreter starts like that.
    with launched(watched=True) as child:
        say(child.session_id == f"ses_{child.pid}")
    say(child.status)


def many_together() -> None:
    """End the interpreter with children open that ignore SIGTERM."""
    say([launched().pid for _ in range(3)])


def run() -> NoReturn:
    """Be the launcher that is named."""
    globals()[sys.argv[1]]()
    sys.exit(0)
