"""A referee served on loopback and asked by the real client, over a real store (wire facts of the door: Roost)."""

import asyncio
import http.client
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

import murmur.adapters.manifest_file  # noqa: F401 - so that no test waits while it is imported
from murmur.adapters import referee_client, referee_server
from murmur.adapters.capsule_store import StoredCapsule, capsule_at, find_capsule
from murmur.adapters.clock import steady_milliseconds
from murmur.adapters.doors import HttpDoors
from murmur.adapters.referee_client import deregister, register, spawn
from murmur.adapters.referee_server import Find, Look, RefereeServer
from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.door_tokens import TokenKey
from murmur.domain.errors import RegistryUnusable, SpawnRefused
from murmur.domain.process import Claim, ProcessIdentity
from murmur.domain.referee import Referee
from murmur.domain.roll_call import Known, Present, Seen
from murmur.domain.roost_asks import DEREGISTER_LIMITS
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Outcome, SessionStatus
from tests.adapters.doors_for_tests import ScriptedDoor, answering, closed_port
from tests.adapters.doors_for_tests import http as http_answer
from tests.adapters.processes_for_tests import open_descriptors

ROOT = "ses_" + "0" * 32
CHILD = "ses_" + "1" * 32
MANIFEST = (
    'name: {name}\nversion: "1.0.0"\nprocess: {{command: ["true"]}}\ncapabilities: {{spawn: {{allow: [{allow}]}}}}\n'
)
SPAWN_BODY = b'{"name": "worker", "version": "1.0.0"}'


class Serving:
    """A referee server on a loop in a thread of its own."""

    def __init__(self, find: Find, allow: frozenset[str] | None = None, look: Look | None = None) -> None:
        numbers = count()
        self.referee = Referee(TokenKey(os.urandom(32).hex()), lambda: f"nonce-{next(numbers)}")
        self.root = self.referee.enrol_root(ROOT, allow)
        self.complaints: list[dict[str, Any]] = []
        self.url = ""
        self.server = RefereeServer(self.referee, find, unnamed=self.root if look else None, look=look)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        assert self.complaints == []

    def _run(self) -> None:
        self.url = self._loop.run_until_complete(self.server.serve())
        self._loop.call_soon(self._started.set)
        self._loop.run_forever()
        self._loop.run_until_complete(self.server.close())
        self._loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        """Ask with a client that is not ours."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            client.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = client.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            client.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a project that holds a worker, which may launch helpers, and a helper."""
    artifacts = tmp_path / "project" / ".murmur" / "artifacts"
    for name, allow in (("worker", "helper"), ("helper", "")):
        (artifacts / name / "1.0.0").mkdir(parents=True)
        (artifacts / name / "1.0.0" / "murmur.yaml").write_text(MANIFEST.format(name=name, allow=allow))
    return artifacts


@pytest.fixture
def serving(store: Path) -> Iterator[Serving]:
    before = open_descriptors()
    with Serving(partial(find_capsule, start=store.parents[1], environment=os.environ)) as found:
        yield found
    assert open_descriptors() <= before


def refused(asked: Callable[[], object]) -> str:
    with pytest.raises(SpawnRefused) as error:
        asked()
    assert (error.value.code, error.value.exit_status) == ("E-RUN-047", 4)
    return error.value.message


def test_it_is_served_on_loopback_alone(serving: Serving) -> None:
    assert serving.url == f"http://127.0.0.1:{serving.port}"
    assert serving.ask("GET", "/health") == (200, {})


def test_three_levels_of_children_are_approved_registered_and_ended(serving: Serving, store: Path) -> None:
    approved = spawn(serving.url, serving.root, "worker", "1.0.0")
    child = register(serving.url, approved.approval, CHILD, "worker", "1.0.0")
    folder = store / "worker" / "1.0.0"
    assert child.folder == str(folder)
    assert child.sha256 == approved.sha256 == capsule_at(folder, CapsuleReference("worker", "1.0.0")).digest
    grandchild = "ses_" + "2" * 32
    helper = spawn(serving.url, child.credential, "helper", "1.0.0")
    helped = register(serving.url, helper.approval, grandchild, "helper", "1.0.0")
    assert "may not launch helper: its allow-list names no capsule" in refused(
        lambda: spawn(serving.url, helped.credential, "helper", "1.0.0")
    )
    assert "may not launch worker: its allow-list names helper" in refused(
        lambda: spawn(serving.url, child.credential, "worker", "1.0.0")
    )
    deregister(serving.url, helped.credential, "failed")
    status = {"status": "running", "depth_remaining": 2, "live_children": 0}
    assert serving.ask("GET", f"/status/{CHILD}") == (200, status)
    deregister(serving.url, child.credential, "complete")
    assert serving.referee.status(CHILD) == SessionStatus("complete", 2, 0)
    assert "is over" in refused(lambda: spawn(serving.url, child.credential, "helper", "1.0.0"))


def test_an_approval_works_once_and_for_nothing_else(serving: Serving) -> None:
    approval = spawn(serving.url, serving.root, "worker", "1.0.0").approval
    assert "is for worker@1.0.0, not for helper@1.0.0" in refused(
        lambda: register(serving.url, approval, CHILD, "helper", "1.0.0")
    )
    register(serving.url, approval, CHILD, "worker", "1.0.0")
    again = refused(lambda: register(serving.url, approval, "ses_" + "2" * 32, "worker", "1.0.0"))
    assert "was used already" in again
    assert approval.expose() not in again


@pytest.mark.parametrize("change", ["a file", "the manifest", "the x bit"])
def test_a_capsule_whose_files_changed_after_approval_is_refused(serving: Serving, store: Path, change: str) -> None:
    folder = store / "worker" / "1.0.0"
    (folder / "agent").touch(0o644)
    approval = spawn(serving.url, serving.root, "worker", "1.0.0").approval
    if change == "a file":
        (folder / "agent").write_text("rm -rf\n")
    elif change == "the manifest":
        (folder / "murmur.yaml").write_text(MANIFEST.format(name="worker", allow="helper, worker"))
    else:
        (folder / "agent").chmod(0o744)
    words = refused(lambda: register(serving.url, approval, CHILD, "worker", "1.0.0"))
    assert words.endswith("refused: the files of worker@1.0.0 have changed since its launch was approved")
    assert serving.referee.status(CHILD) is None


def test_a_capsule_that_went_after_its_approval_is_refused(serving: Serving, store: Path) -> None:
    approval = spawn(serving.url, serving.root, "worker", "1.0.0").approval
    shutil.rmtree(store / "worker")
    assert "there is no capsule worker@1.0.0: looked in" in refused(
        lambda: register(serving.url, approval, CHILD, "worker", "1.0.0")
    )


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("worker", "2.0.0", "there is no capsule worker@2.0.0: looked in "),
        ("none", "1.0.0", "there is no capsule none@1.0.0: looked in "),
        ("worker/../../x", "1.0.0", "no capsule is called 'worker/../../x'"),
        ("worker", "../1.0.0", "no capsule has the version '../1.0.0'"),
        ("worker", "\udcff", "no capsule has the version '\\udcff'"),
    ],
)
def test_what_the_store_does_not_hold_is_refused_by_name(serving: Serving, name: str, version: str, words: str) -> None:
    assert words in refused(lambda: spawn(serving.url, serving.root, name, version))


def test_a_capsule_that_cannot_be_read_or_understood_is_refused_at_once(serving: Serving, store: Path) -> None:
    folder = store / "worker" / "1.0.0"
    (folder / "link").symlink_to("/")
    assert "link: it is a symbolic link" in refused(lambda: spawn(serving.url, serving.root, "worker", "1.0.0"))
    (folder / "link").unlink()
    (folder / "murmur.yaml").write_text("name: [\n")
    assert "murmur.yaml:" in refused(lambda: spawn(serving.url, serving.root, "worker", "1.0.0"))
    assert serving.referee.status(ROOT) == SessionStatus("running", 3, 0)


@pytest.mark.parametrize("header", ["x-murmur-spawn-credential", "X-Murmur-Spawn-Credential"])
def test_a_header_s_case_does_not_matter(serving: Serving, header: str) -> None:
    status, answer = serving.ask("POST", "/spawn", SPAWN_BODY, **{header: serving.root.expose()})
    assert (status, answer["name"], answer["version"]) == (200, "worker", "1.0.0")


def test_a_page_of_another_name_is_refused(serving: Serving) -> None:
    status, answer = serving.ask("POST", "/spawn", SPAWN_BODY, Host="evil.example", X_Murmur_Spawn_Credential="x")
    assert (status, list(answer)) == (403, ["error"])


class Gate:
    """A store whose looks begin at once and end when they are let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.looking = 0
        self.most = 0
        self._lock = threading.Lock()

    def find(self, reference: CapsuleReference) -> StoredCapsule:
        with self._lock:
            self.looking += 1
            self.most = max(self.most, self.looking)
        self.begun.release()
        assert self.open.wait(10)
        with self._lock:
            self.looking -= 1
        manifest = MANIFEST.format(name=reference.name, allow="").encode()
        return StoredCapsule(reference.name, reference.version, Path("/s"), "ab", manifest)


@contextmanager
def gated() -> Iterator[tuple[Serving, Gate]]:
    gate = Gate()
    with Serving(gate.find) as serving:
        try:
            yield serving, gate
        finally:
            gate.open.set()


def test_the_loop_answers_others_while_a_capsule_is_read() -> None:
    with gated() as (serving, gate):
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(spawn(serving.url, serving.root, "worker", "1.0.0")))
        asking.start()
        assert gate.begun.acquire(timeout=10)
        assert serving.ask("GET", "/health") == (200, {})
        assert answers == []
        gate.open.set()
        asking.join()
        assert len(answers) == 1


def test_callers_that_ask_and_leave_have_no_more_than_two_capsules_read_at_once() -> None:
    with gated() as (serving, gate):
        head = f"POST /spawn HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(SPAWN_BODY)}\r\n"
        request = f"{head}X-Murmur-Spawn-Credential: {serving.root.expose()}\r\n\r\n".encode() + SPAWN_BODY
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", serving.port)) as caller:
                caller.sendall(request)
                assert gate.begun.acquire(timeout=10)
        with ExitStack() as opened:
            for _ in range(10):
                caller = opened.enter_context(socket.create_connection(("127.0.0.1", serving.port)))
                caller.sendall(request)
            assert serving.ask("GET", "/health") == (200, {})
        assert serving.ask("GET", "/health") == (200, {})
        assert gate.looking == 2
        gate.open.set()
        assert spawn(serving.url, serving.root, "worker", "1.0.0").sha256 == "ab"
        assert gate.most == 2
        # Nobody was left to be told of an approval, so none was given.
        assert len(serving.referee._approvals) == 1


@pytest.mark.parametrize("wrong", ["a fault of ours", "no thread"])
def test_whatever_goes_wrong_there_is_an_answer_that_quotes_nothing(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: CapsuleReference) -> StoredCapsule:
        raise ValueError("swordfish")

    if wrong == "no thread":

        def start(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(referee_server, "start_thread", start)
    words = ""
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: told.append(fault.exc_type))
    with Serving(find) as serving:
        for _ in range(3):  # A turn that was not given back would be missed by now.
            words = refused(lambda: spawn(serving.url, serving.root, "worker", "1.0.0"))
    ours = wrong == "a fault of ours"
    assert words.endswith("failed to look into its store" if ours else "cannot start a thread now; ask again later")
    assert told == [ValueError] * 3 * ours  # Python tells of it, to our own stderr.
    assert "swordfish" not in words


def test_without_a_referee_the_transport_s_reason_is_told() -> None:
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        for asked in (
            lambda: spawn(url, SpawnCredential("msc1.a.b"), "worker", "1.0.0"),
            lambda: register(url, SpawnApproval("msa1.a.b"), CHILD, "worker", "1.0.0"),
            lambda: deregister(url, SpawnCredential("msc1.a.b"), "complete"),
        ):
            assert refused(asked) == f"the referee at 127.0.0.1:{port} did not answer: connection refused"


def test_a_refusal_of_any_length_is_read_within_bounds() -> None:
    endless = http_answer({"error": "x" * 2_000_000}, "403 Forbidden")
    with ScriptedDoor(answering(endless)) as door:
        words = refused(lambda: spawn(door.url, SpawnCredential("msc1.a.b"), "worker", "1.0.0"))
    assert words.endswith("did not answer: the door's answer is larger than 1048576 bytes")


def test_a_token_that_is_no_header_is_not_sent_and_not_shown() -> None:
    with ScriptedDoor(answering(b"")) as door:
        for token in ("a\r\nx: swordfish", "\u00fc\u4e2d swordfish", "swordfish\0"):
            words = refused(partial(spawn, door.url, SpawnCredential(token), "worker", "1.0.0"))
            assert "swordfish" not in words
        assert door.requests == []


def test_a_steady_clock_tells_unix_milliseconds_and_never_goes_back() -> None:
    now = steady_milliseconds()
    readings = [now() for _ in range(1000)]
    assert readings == sorted(readings)
    assert 1_700_000_000_000 < readings[0] < 10_000_000_000_000


class Machine:
    """What is to be seen running, as a look finds it."""

    def __init__(self) -> None:
        self.found = Seen([], frozenset(), {})
        self.outcomes: dict[str, Outcome] = {}
        self.fault: Exception | None = None
        self.known: list[Mapping[str, Known]] = []
        """What each look began with."""
        self.looking = 0
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()

    def look(self, known: Mapping[str, Known]) -> tuple[Seen, Mapping[str, Outcome]]:
        self.looking += 1
        assert self.looking == 1
        self.known.append(known)
        self.begun.release()
        assert self.open.wait(10)
        self.looking -= 1
        if self.fault is not None:
            raise self.fault
        return self.found, self.outcomes


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def roost(store: Path, machine: Machine) -> Iterator[Serving]:
    with Serving(partial(find_capsule, start=store.parents[1], environment=os.environ), look=machine.look) as found:
        yield found


def test_what_runs_is_looked_at_when_somebody_asks_for_what_depends_on_it(roost: Serving, machine: Machine) -> None:
    assert roost.ask("GET", "/health") == (200, {})
    assert machine.known == []
    approval = spawn(roost.url, None, "worker", "1.0.0").approval
    assert len(machine.known) == 1
    child = register(roost.url, approval, CHILD, "worker", "1.0.0")
    assert len(machine.known) == 1
    assert roost.ask("GET", f"/status/{CHILD}")[1]["status"] == "running"
    own = machine.known[1][CHILD].claim
    assert own.identity == ProcessIdentity(os.getpid(), own.identity.process_start)
    machine.found = Seen([], frozenset(), {CHILD: "no process holds its pid"})
    assert roost.ask("GET", f"/status/{CHILD}") == (
        200,
        {"status": "failed", "depth_remaining": 2, "live_children": 0},
    )
    deregister(roost.url, child.credential, "complete")
    roost.ask("GET", f"/status/{CHILD}")
    assert machine.known[-1] == {}


def test_what_runs_before_anybody_is_served_is_counted(store: Path, machine: Machine) -> None:
    machine.found = Seen([Present(CHILD, ROOT, Known(Claim(ProcessIdentity(1, "1"))))], frozenset({CHILD}), {})
    serving = Serving(partial(find_capsule, start=store, environment=os.environ), look=machine.look)
    serving.server.count()
    assert serving.referee.status(ROOT) == SessionStatus("running", 3, 1)
    with serving:
        assert serving.ask("GET", "/health") == (200, {})


def test_a_roost_that_cannot_tell_what_runs_approves_nothing(roost: Serving, machine: Machine) -> None:
    machine.fault = RegistryUnusable("~/.murmur/running cannot be listed")
    words = refused(lambda: spawn(roost.url, None, "worker", "1.0.0"))
    assert words.endswith("refused: the referee cannot tell what runs: ~/.murmur/running cannot be listed")
    assert roost.ask("GET", f"/status/{ROOT}")[0] == 500
    machine.fault = None
    assert roost.ask("GET", f"/status/{ROOT}")[1]["live_children"] == 0


def test_a_fault_of_a_look_is_an_answer_that_quotes_nothing(
    roost: Serving, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Semaphore(0)
    monkeypatch.setattr(threading, "excepthook", lambda _: told.release())
    machine.fault = ValueError("swordfish")
    for _ in range(3):
        assert roost.ask("GET", f"/status/{ROOT}") == (500, {"error": "the referee failed to look into its registry"})
        assert told.acquire(timeout=10)  # Python tells of it once the answer is on its way.


def test_all_who_ask_while_a_look_goes_on_share_the_one_after_it(roost: Serving, machine: Machine) -> None:
    request = f"GET /status/{ROOT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    machine.open.clear()
    with ExitStack() as opened:
        callers = [opened.enter_context(socket.create_connection(("127.0.0.1", roost.port))) for _ in range(20)]
        callers[0].sendall(request)
        assert machine.begun.acquire(timeout=10)
        for caller in callers[1:]:
            caller.sendall(request)
        assert roost.ask("GET", "/health") == (200, {})  # They have been read before this.
        callers.pop().close()  # One that leaves takes nobody's answer with it.
        machine.found = Seen([Present(CHILD, ROOT, Known(Claim(ProcessIdentity(1, "1"))))], frozenset({CHILD}), {})
        machine.open.set()
        for caller in callers[1:]:
            assert b'"live_children": 1' in caller.recv(65536).replace(b'":1', b'": 1')
        assert len(machine.known) == 2


def test_a_referee_that_does_not_answer_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referee_client, "_AT_ONCE", HttpDoors(DEREGISTER_LIMITS._replace(read=0.2, total=0.3)))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = refused(lambda: deregister(url, SpawnCredential("msc1.a.b"), "complete"))
    assert words.endswith("did not answer: timed out after 0.2s without an answer")
    assert DEREGISTER_LIMITS.total < 5
