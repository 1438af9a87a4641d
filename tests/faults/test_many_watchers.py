"""A hundred watchers, some of whom never read: the others get every line, and the session never waits (M1, ADR 14)."""

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from murmur.domain.sse import Event, EventReader
from murmur.domain.stream_reader import LEFT_BEHIND
from murmur.domain.watching import ErrorSeen, OutputSeen, read_event
from tests.cli.conftest import Hosted, Hosts

LINES = 10_000
WATCHERS, SILENT = 100, 20
MEMORY = 48 * 1024
"""Kilobytes that a host may grow by: a hundred connections of 64 KiB, 2 MiB of events, and what a task needs."""
PRINTS = f"""
import sys
is_gated = sys.stdin.read() == "at the gate"
if is_gated:
    open("gate").read()
for number in range({LINES}):
    print(f"line {{number:05}} " + "x" * 100, flush=True)
if is_gated:
    open("printed", "w").close()
"""
WANTED = "".join(f"line {number:05} {'x' * 100}\n" for number in range(LINES))


@pytest.fixture
def session(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Start a session whose command prints all the lines, and tells when it has through `printed`."""
    manifest = {
        "name": "printer",
        "version": "0.1.0",
        "process": {"command": [sys.executable, "-c", PRINTS]},
        "lifecycle": {"task_acceptance": "single", "after_task": "sleep"},
    }
    for name in ("gate", "printed"):
        os.mkfifo(tmp_path / name)
    path = tmp_path / "murmur.yaml"
    path.write_text(json.dumps(manifest))
    hosts = Hosts()
    yield hosts.from_manifest(path)
    hosts.end()


def request(method: str, params: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Watcher:
    """One connection that watches the session. Chunks end where events do, so lines are read without minding them."""

    def __init__(self, session: Hosted) -> None:
        host, _, port = session.ready["url"].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.sendall(request("stream/watch", {}))
        self._reader = EventReader()
        self.events: list[Event] = []
        while not self.events:
            self.take(self.socket.recv(65536))

    def take(self, data: bytes) -> None:
        self.events += self._reader.feed(data)

    @property
    def output(self) -> str:
        seen = [read_event(event, None) for event in self.events]
        return "".join(each.text for each in seen if isinstance(each, OutputSeen) and each.channel == "stdout")

    def read_to_end(self) -> None:
        while data := self.socket.recv(1 << 18):
            self.take(data)


@pytest.fixture
def watchers(session: Hosted) -> Iterator[list[Watcher]]:
    """Begin to watch, a hundred times over."""
    with ExitStack() as opened:
        watching = [Watcher(session) for _ in range(WATCHERS)]
        for each in watching:
            opened.callback(each.socket.close)
        yield watching


def read_until(watchers: list[Watcher], kind: str) -> None:
    """Read until the last event of each is of that kind, and a final one if it is a status."""

    def is_done(watcher: Watcher) -> bool:
        last = watcher.events[-1]
        return last.kind == kind and (kind != "status" or '"final":true' in last.data)

    with selectors.DefaultSelector() as selector:
        for each in watchers:
            if not is_done(each):
                selector.register(each.socket, selectors.EVENT_READ, each)
        while selector.get_map():
            ready = selector.select(20)
            assert ready, "nothing comes any more"
            for key, _ in ready:
                data = key.data.socket.recv(1 << 18)
                assert data, "a stream ended too soon"
                key.data.take(data)
                if is_done(key.data):
                    selector.unregister(key.data.socket)


def peak_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def send(session: Hosted, text: str) -> None:
    host, _, port = session.ready["url"].rpartition(":")
    message = {"messageId": "msg_1", "role": "user", "parts": [{"text": text}]}
    with socket.create_connection((host, int(port)), timeout=20) as sender:
        sender.sendall(request("message/send", {"message": message, "configuration": {"blocking": False}}))
        assert b"submitted" in sender.recv(65536)


def let_go(session: Hosted) -> list[str]:
    """Return what the host's log says of watchers that were let go."""
    lines = (session.records / "logs" / "host.log").read_text(encoding="utf-8").splitlines()
    return [entry["detail"] for entry in map(json.loads, lines) if entry["event"] == "stream"]


# Slow: ten thousand lines are read eighty times over.
@pytest.mark.slow
@pytest.mark.spec("M1")
def test_every_line_reaches_all_who_read_and_those_who_do_not_are_let_go(
    session: Hosted, watchers: list[Watcher]
) -> None:
    silent, reading = watchers[:SILENT], watchers[SILENT:]
    before = peak_memory(session.process.pid)
    send(session, "at once")
    read_until(reading, "status")
    assert peak_memory(session.process.pid) - before < MEMORY
    for each in reading:
        assert each.output == WANTED
    assert let_go(session) == [LEFT_BEHIND] * SILENT
    for each in silent:
        each.read_to_end()
        reason = read_event(each.events[-1], None)
        assert reason == ErrorSeen(LEFT_BEHIND)
        assert WANTED.startswith(each.output)
    session.kill(signal.SIGTERM)
    read_until(reading, "capsule-closed")
    assert session.wait() == 0


# Slow: ten thousand lines are read a hundred times over.
@pytest.mark.slow
@pytest.mark.spec("M1")
def test_a_command_prints_on_while_its_host_does_nothing_at_all(session: Hosted, watchers: list[Watcher]) -> None:
    work = Path(session.ready["workdir"])
    printed = os.open(work / "printed", os.O_RDONLY | os.O_NONBLOCK)
    try:
        send(session, "at the gate")
        gate = os.open(work / "gate", os.O_WRONLY)  # Once the command is there.
        session.kill(signal.SIGSTOP)
        os.close(gate)
        with selectors.DefaultSelector() as selector:
            selector.register(printed, selectors.EVENT_READ)
            assert selector.select(20), "the command waits for somebody"
    finally:
        os.close(printed)
        session.kill(signal.SIGCONT)
    read_until(watchers, "status")
    for each in watchers:
        assert each.output == WANTED
