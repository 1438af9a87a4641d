"""Many tasks from many clients through one session: none is lost, none runs twice, and memory stays flat (M1)."""

import http.client
import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Hosted, Hosts

TASKS = int(os.environ.get("MURMUR_TEST_TASKS", "600"))
"""How many; 2,000 show the whole claim in several times the time."""
CLIENTS = 50
WINDOW = TASKS // 4
"""How many tasks the first and the last reading of the memory are averaged over."""
GROWTH = 0.10
RAN = "ran"
"""The file in the work folder to which each run of the command appends its task's text."""


@pytest.fixture
def session(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Start a session that gives back each task's own text, and has room for one of each client."""
    manifest = {
        "name": "echo",
        "version": "0.1.0",
        "process": {"command": ["tee", "--append", RAN]},
        "lifecycle": {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": CLIENTS},
    }
    path = tmp_path / "murmur.yaml"
    path.write_text(json.dumps(manifest))
    hosts = Hosts()
    yield hosts.from_manifest(path)
    hosts.end()


@dataclass
class Seen:
    """What the clients were told, and the host's memory after each ended task."""

    session: Hosted
    results: dict[str, str] = field(default_factory=dict)
    """The result of each task, by its id."""
    memory: list[int] = field(default_factory=list)
    wrong: list[object] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, number: int, answer: Any) -> None:
        task = answer.get("result", {})
        with self._lock:
            self.memory.append(anonymous_memory(self.session.process.pid))
            right = (
                task.get("status") == {"state": "completed"}
                and task["id"] not in self.results
                and text_of(task) == f"task {number}"
            )
            if right:
                self.results[task["id"]] = text_of(task)
            else:
                self.wrong.append(answer)


class Client:
    """One caller with one connection that it keeps."""

    def __init__(self, session: Hosted) -> None:
        self._connection = http.client.HTTPConnection(session.ready["url"], timeout=60)

    def call(self, method: str, params: object) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        self._connection.request("POST", "/", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())

    def send(self, text: str) -> Any:
        message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}]}
        return self.call("message/send", {"message": message})

    def close(self) -> None:
        self._connection.close()


def text_of(task: Any) -> str:
    return str(task["artifacts"][0]["parts"][0]["text"])


def anonymous_memory(pid: int) -> int:
    """Return the KiB of a process's resident memory that is its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon")


def each_client(work: Callable[[int], None]) -> None:
    """Let all clients work at once, and wait until they have; what one of them raises fails the test by itself."""
    clients = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


# Slow: it starts hundreds of commands, one after the other, which is what it is about.
@pytest.mark.slow
@pytest.mark.spec("M1")
def test_every_one_of_many_tasks_ends_once_with_its_own_result_in_flat_memory(session: Hosted, tmp_path: Path) -> None:
    seen = Seen(session)

    def work(client_number: int) -> None:
        client = Client(session)
        try:
            for number in range(client_number, TASKS, CLIENTS):
                seen.ended(number, client.send(f"task {number}"))
        finally:
            client.close()

    each_client(work)
    assert seen.wrong == []
    assert sorted(seen.results.values()) == sorted(f"task {number}" for number in range(TASKS))

    # By the commands themselves: as often as they ran, whatever the session says of it.
    ran = (tmp_path / RAN).read_text()
    texts = re.findall(r"task \d+", ran)
    assert "".join(texts) == ran
    assert Counter(texts) == Counter(f"task {number}" for number in range(TASKS))

    events = [json.loads(line) for line in (session.records / "trace.jsonl").read_text().splitlines()]
    for event_type in ("task_start", "task_end"):
        counted = Counter(event["task_id"] for event in events if event["event_type"] == event_type)
        assert counted == Counter(seen.results.keys())
    assert all(event["exit_status"] == 0 for event in events if event["event_type"] == "task_end")
    assert {event["event_type"] for event in events} == {"session_start", "task_start", "task_end"}

    files = {path.name: path.read_text() for path in (session.records / "out").glob("result_*")}
    assert files == {f"result_{task_id}.txt": text for task_id, text in seen.results.items()}

    last = [event["task_id"] for event in events if event["event_type"] == "task_end"][-1000:]
    client = Client(session)
    for task_id in last:
        task = client.call("tasks/get", {"id": task_id})["result"]
        assert (task["status"], text_of(task)) == ({"state": "completed"}, seen.results[task_id])
    client.close()

    first, last_ones = (sum(part) / len(part) for part in (seen.memory[:WINDOW], seen.memory[-WINDOW:]))
    # To stderr, which a test process of several shows with `-s` too.
    sys.stderr.write(f"{TASKS} tasks, RssAnon: first {first:.0f} KiB, last {last_ones:.0f} KiB\n")
    assert last_ones <= first * (1 + GROWTH), f"{first:.0f} KiB grew to {last_ones:.0f} KiB"
