"""How fast is a session's own door, how soon is it there, and what does an idle session cost?"""

import importlib.util
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.imports import largest_imports
from bench.machines import MUR, ROOT, BenchError, environment, temporary_home
from bench.measuring import run_timed
from murmur.domain.door import CARD_PATH

_CONNECTIONS = 8
_ROUND = 0.5
"""Seconds of asking in one round."""
_CHUNK = 65536
_END_WITHIN = 30.0

PLAIN = ("--", "sleep", "1000")
"""What a plain session hosts."""
_MANIFEST = {
    "name": "worker",
    "version": "1.0.0",
    "process": {"command": ["cat"]},
    "lifecycle": {"task_acceptance": "queue", "after_task": "sleep"},
    "network": {"authentication": {"scheme": "bearer", "credentials": {"watcher": {"scopes": ["tasks/get"]}}}},
}


class Session:
    """One `mur run --json` in a HOME of its own, timed from its start to its readiness line. Ended with `opened`."""

    def __init__(self, opened: ExitStack, home: Path, arguments: Sequence[str]) -> None:
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [MUR, "run", "--json", *arguments],
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        opened.callback(self._end)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.seconds = time.perf_counter() - started
        if not line:
            raise BenchError(f"`mur run {' '.join(arguments)}` ended without a readiness line")
        self.port = int(json.loads(line)["url"].rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The host's process."""
        return self.process.pid

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def with_authentication(home: Path) -> tuple[str, ...]:
    """Write a manifest that asks for tokens; return how `mur run` is given it."""
    path = home / "murmur.yaml"
    path.write_text(json.dumps(_MANIFEST))  # JSON is YAML.
    return ("--manifest", str(path))


KINDS: dict[str, Callable[[Path], Sequence[str]]] = {
    "a plain session": lambda _: PLAIN,
    "a manifest, authenticated": with_authentication,
}


class Rates(NamedTuple):
    """Cards a second of both doors, medians of their rounds."""

    ours: float
    bare: float
    parser: str
    """What reads HTTP in the bare one."""

    @property
    def ratio(self) -> float:
        """How much of the bare door's rate is ours."""
        return self.ours / self.bare


def card_rates(rounds: int) -> Rates:
    """Ask a session's door and a bare one for the same card, in turn."""
    with ExitStack() as opened:
        session = Session(opened, temporary_home(opened), PLAIN)
        ours = _Asker(opened, session.port)
        askers = (ours, _Asker(opened, _bare_door(opened, ours.body)))
        if askers[1].body != ours.body:
            raise BenchError("the bare door answers something else")
        for asker in askers:
            asker.rate(_ROUND)  # What is imported and compiled at the first request is no part of it.
        taken = [tuple(asker.rate(_ROUND) for asker in askers) for _ in range(rounds)]
        parser = "httptools" if importlib.util.find_spec("httptools") else "h11"
        return Rates(statistics.median(each[0] for each in taken), statistics.median(each[1] for each in taken), parser)


def _bare_door(opened: ExitStack, body: bytes) -> int:
    process = opened.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "bench.bare_door"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(body.decode()) + "\n")
    process.stdin.flush()
    told = process.stdout.readline()
    if not told:
        raise BenchError("the bare door did not start")
    return int(told)


class _Asker:
    """Connections that are kept, each with one request on its way at a time."""

    def __init__(self, opened: ExitStack, port: int) -> None:
        self._request = f"GET {CARD_PATH} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        self._selector = opened.enter_context(selectors.DefaultSelector())
        self._connections: list[socket.socket] = []
        for _ in range(_CONNECTIONS):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, connection)
            self._connections.append(connection)
        self._answer = self._whole_answer(self._connections[0])

    @property
    def body(self) -> bytes:
        """Return what is answered."""
        return self._answer.partition(b"\r\n\r\n")[2]

    def rate(self, seconds: float) -> float:
        """Ask for so long; return answers a second. Every answer must be as long as the first."""
        until = time.perf_counter() + seconds
        started = time.perf_counter()
        size, answers = len(self._answer), 0
        got = dict.fromkeys(self._connections, 0)
        for each in self._connections:
            each.sendall(self._request)
        waiting = len(got)
        while waiting:
            for key, _ in self._selector.select():
                connection: socket.socket = key.data
                data = connection.recv(_CHUNK)
                if not data:
                    raise BenchError("a door closed a connection that was to be kept")
                got[connection] += len(data)
                if got[connection] < size:
                    continue
                got[connection], answers = 0, answers + 1
                if time.perf_counter() < until:
                    connection.sendall(self._request)
                else:
                    waiting -= 1
        return answers / (time.perf_counter() - started)

    def _whole_answer(self, connection: socket.socket) -> bytes:
        connection.sendall(self._request)
        answer = b""
        while True:
            answer += connection.recv(_CHUNK)
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            if length is not None and len(body) >= int(length[1]):
                return answer


class Readiness(NamedTuple):
    """Seconds to a readiness line and of an empty interpreter, medians of runs in turn."""

    ready: float
    empty: float

    @property
    def ratio(self) -> float:
        """How many empty interpreters it takes."""
        return self.ready / self.empty

    @property
    def detail(self) -> str:
        """Both times in words."""
        return f"{1000 * self.ready:.0f} ms to {1000 * self.empty:.1f} ms"


def readiness(arguments_of: Callable[[Path], Sequence[str]], repetitions: int) -> Readiness:
    """Start a session and an empty interpreter in turn."""
    with ExitStack() as opened:
        home = temporary_home(opened)
        arguments = arguments_of(home)
        ready: list[float] = []
        empty: list[float] = []
        for repetition in range(-1, repetitions):
            nothing = run_timed([sys.executable, "-c", "pass"], home)[0]
            with ExitStack() as session:
                seconds = Session(session, home, arguments).seconds
            if repetition >= 0:  # The first one fills caches.
                empty.append(nothing)
                ready.append(seconds)
        return Readiness(statistics.median(ready), statistics.median(empty))


def largest_imports_of(arguments_of: Callable[[Path], Sequence[str]]) -> str:
    """Tell which packages take the most of a session's imports."""
    with ExitStack() as opened:
        home = temporary_home(opened)
        return largest_imports(home, ["run", "--json", *arguments_of(home)])


class Idle(NamedTuple):
    """What a session does and holds while nobody asks it anything."""

    wakes: int
    """Voluntary context switches of its host, all threads, during the time."""
    private: int
    """Bytes of memory that are its host's alone."""


def idle(arguments_of: Callable[[Path], Sequence[str]], seconds: float) -> Idle:
    """Let a session be for so long, after it was asked for its card once."""
    with ExitStack() as opened:
        home = temporary_home(opened)
        session = Session(opened, home, arguments_of(home))
        with ExitStack() as asked:
            _Asker(asked, session.port)
        _settle(session.pid)
        before = _switches(session.pid)
        time.sleep(seconds)
        return Idle(_switches(session.pid) - before, _private(session.pid))


def _settle(pid: int) -> None:
    """Wait until the closing of the asked connections has been seen: the host sleeps, with no connection left."""
    until = time.monotonic() + _END_WITHIN
    while time.monotonic() < until:
        before = _switches(pid)
        time.sleep(0.5)
        if _switches(pid) == before:
            return
    raise BenchError("a session never became idle")


def _switches(pid: int) -> int:
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
        total += int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[0])
    return total


def _private(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(each) for each in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", rollup, re.MULTILINE))
