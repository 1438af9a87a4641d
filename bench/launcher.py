"""One process that launches children, for what cannot be seen from outside it: `python -m bench.launcher WHAT ...`.

In its HOME's store is a capsule `sleeper`. It prints one JSON document and ends; whatever it launched ends with it.
"""

import json
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.capsule_store import find_capsule
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.launching import LaunchedChild, launch_child_capsule
from murmur.adapters.referee_client import spawn
from murmur.adapters.referee_server import RefereeServer
from murmur.adapters.serving import ServingThread
from murmur.domain.door_tokens import TokenKey
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.referee import Referee
from murmur.domain.secret import SpawnApproval
from murmur.domain.spawn_terms import SpawnLimits

_SESSION = "ses_0198f3a27c6e7d4281f0a1b2c3d4e5f6"
_NOBODY = "http://127.0.0.1:9"
"""Takes no completion: they are told to nobody, at once."""
_GIVEN = 256
"""The descriptor limit that the launcher starts with; 200 children need some 800."""
_LOOK_EVERY, _LOOK_FOR = 0.0002, 20.0

# As little as can be a child: its memory is what 200 of them take. Whoever asks for `STUBBORN` gets no end by SIGTERM.
_STAND_IN = """#!/bin/sh
[ -z "$STUBBORN" ] || trap '' TERM
read -r _
id=$(printf 'ses_%032x' $$)
records=$HOME/.murmur/records/stand-in/$id
mkdir -p "$records"
echo "{\\"session_id\\": \\"$id\\", \\"records_dir\\": \\"$records\\", \\"url\\": \\"\\"}"
read -r _ < "/proc/self/fd/$MURMUR_SPAWNER_LIFELINE"
"""

Launch = Callable[[], LaunchedChild]


class Launcher:
    """Launches stand-ins and real sessions, as children of a session that is only a name and a directory."""

    def __init__(self, opened: ExitStack) -> None:
        """Have `opened` end the children, all together, and then the referee."""
        home = Path.home()
        self._children: list[LaunchedChild] = []
        self._records = home / ".murmur" / "records" / "launcher" / _SESSION
        self._records.mkdir(parents=True)
        self._stand_in = home / "stand-in"
        self._stand_in.write_text(_STAND_IN)
        self._stand_in.chmod(0o700)
        referee = Referee(TokenKey(secrets.token_hex(32)), fresh_hex, SpawnLimits(children=10_000))
        self._credential = referee.enrol_root(_SESSION, None)
        server = RefereeServer(referee, lambda reference: find_capsule(reference, home, os.environ))
        serving = opened.enter_context(ServingThread())
        self._roost = serving.do(server.serve)
        serving.closes(server.close)
        opened.callback(self.close)

    def stand_in(self) -> LaunchedChild:
        """Launch a small shell that does as a session does."""
        os.environ["MURMUR_MUR_BINARY"] = str(self._stand_in)
        return self._launched(SpawnApproval("msa1.no.referee"))

    def stubborn(self) -> LaunchedChild:
        """Launch one that ignores SIGTERM."""
        os.environ["STUBBORN"] = "1"
        try:
            return self.stand_in()
        finally:
            del os.environ["STUBBORN"]

    def real(self) -> LaunchedChild:
        """Launch a `mur run`."""
        os.environ.pop("MURMUR_MUR_BINARY", None)
        return self._launched(spawn(self._roost, self._credential, "sleeper", "1.0").approval)

    def close(self) -> None:
        """End all that were launched. Idempotent."""
        children, self._children = self._children, []
        for child in children:
            child.begin_ending()
        for child in children:
            child.close()

    def _launched(self, approval: SpawnApproval) -> LaunchedChild:
        spawner = Spawner(session_id=_SESSION, context_id="ctx_bench", url=_NOBODY)
        child = launch_child_capsule(
            ChildLaunchRequest(
                parent_records_dir=self._records,
                capsule_name="sleeper",
                capsule_version="1.0",
                grant=approval,
                env_allow=("STUBBORN",),
                roost_url=self._roost,
                spawner=spawner,
            )
        )
        self._children.append(child)
        return child


def outcomes(launcher: Launcher, repetitions: int) -> dict[str, list[float]]:
    """Kill children; return how many milliseconds later the outcome of each was on disk."""
    kinds: dict[str, Launch] = {"a stand-in": launcher.stand_in, "a real mur run": launcher.real}
    return {kind: [_outcome(launch()) for _ in range(repetitions)] for kind, launch in kinds.items()}


def _outcome(child: LaunchedChild) -> float:
    file = child.records_dir / "completion.json"
    killed = time.perf_counter()
    os.kill(child.pid, signal.SIGKILL)
    while not file.exists():
        if time.perf_counter() > killed + _LOOK_FOR:
            sys.exit("a killed child's outcome is not on disk")
        time.sleep(_LOOK_EVERY)
    taken = 1000 * (time.perf_counter() - killed)
    child.close()
    if json.loads(file.read_text())["status"] != "crashed":
        sys.exit("a killed child is told of as something else")
    return taken


def many(launcher: Launcher, stand_ins: int, real: int, stubborn: int, seconds: float) -> dict[str, object]:
    """Have so many children, do nothing for so long, and end them, each kind by itself and all of it together."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_GIVEN, hard), hard))
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = _threads()
    obeying = [launcher.stand_in() for _ in range(stand_ins)]
    sessions = [launcher.real() for _ in range(real)]
    limits = {_descriptor_limit(child.pid) for child in (*obeying, *sessions)}
    time.sleep(1.0)  # The last of them report themselves with more than one line.
    extra = _threads() - before
    used, wakes = _used(), _wakes(extra)
    time.sleep(seconds)
    used, wakes = _used() - used, _wakes(extra) - wakes
    return {
        "cpu": used / seconds,
        "wakes": wakes,
        "threads": len(extra),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "own limit": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "given limit": list(given),
        "children's limits": sorted(limits),
        "ended, obeying": _ended(obeying),
        "ended, real": _ended(sessions),
        "ended, stubborn": _ended([launcher.stubborn() for _ in range(stubborn)]),
    }


def _ended(children: Sequence[LaunchedChild]) -> float:
    """End children together; return the seconds until the last was reaped. Every outcome must be on disk then."""
    started = time.monotonic()
    for child in children:
        child.begin_ending()
    for child in children:
        child.shutdown()
    taken = time.monotonic() - started
    for child in children:
        child.close()
        if json.loads((child.records_dir / "completion.json").read_text())["status"] != "terminated":
            sys.exit("a child that was ended is told of as something else")
    return taken


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def _used() -> float:
    """Return the seconds that this process has worked."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _wakes(threads: set[str]) -> int:
    """Return how often those threads have gone to sleep by themselves so far."""
    status = "".join(Path(f"/proc/self/task/{thread}/status").read_text() for thread in threads)
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))


def _descriptor_limit(pid: int) -> tuple[int, int]:
    """Return another process's soft and hard limit."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            soft, hard = line.split()[3:5]
            return int(soft), int(hard)
    sys.exit("a process has no limit of descriptors")


def main() -> None:
    """Do what the arguments say."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as opened:
        launcher = Launcher(opened)
        match sys.argv[1:]:
            case ["outcomes", repetitions]:
                found: object = outcomes(launcher, int(repetitions))
            case ["many", stand_ins, real, stubborn, seconds]:
                found = many(launcher, int(stand_ins), int(real), int(stubborn), float(seconds))
            case _:
                sys.exit("usage: see the functions")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
