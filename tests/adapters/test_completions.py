"""The completion file on a real file system, and its post to doors that answer, refuse, or are not there (W5, W6)."""

import errno
import json
import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from murmur.adapters import completions
from murmur.adapters.completions import CompletionStore, post_completion, record, report
from murmur.adapters.doors import HttpDoors
from murmur.adapters.staging import write_staged
from murmur.domain.door import AskLimits, DoorAsk, DoorReading, NoAnswer
from murmur.domain.errors import OutOfDescriptors
from murmur.domain.launch.completion import (
    COMPLETION_LIMIT,
    DelegationOutcome,
    delivery_of,
    parse_completion,
    render_completion,
)
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.launch.watcher import WatchedChild, terminated_outcome
from tests.adapters.doors_for_tests import Script, ScriptedDoor, answering, closed_port, http, silent
from tests.fakes.doors import FakeDoors, answer, result

AUTHORITY = "127.0.0.1:7000"
HANDLE = SpawnerHandle("ses_parent", "ctx_parent", "dlg_1", f"http://{AUTHORITY}")
OUTCOME = DelegationOutcome(
    delegation_id="dlg_1",
    capsule_name="worker",
    capsule_version="0.1.0",
    session_id="ses_child",
    status="ok",
    workdir="/data/child",
    duration_ms=1234,
    reported_by="child",
)
OLD = OUTCOME.replaced(status="error", detail="the child's own account")
TASK = {"id": "tsk_1", "status": {"state": "submitted"}}
LIMITS = AskLimits(connect=0.2, read=0.3, total=0.3)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    directory.mkdir()
    return directory


@pytest.fixture
def store(place: Path) -> Iterator[CompletionStore]:
    """The store of `place`; no descriptor may be left when the test is over."""
    HttpDoors().probe([])
    before = sorted(os.listdir("/dev/fd"))
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield CompletionStore(descriptor)
    os.close(descriptor)
    assert sorted(os.listdir("/dev/fd")) == before


@pytest.fixture
def warnings() -> list[str]:
    return []


def file_of(place: Path) -> Path:
    return place / "completion.json"


@contextmanager
def full_fifo(fifo: Path) -> Iterator[None]:
    """Hold a whole completion in a FIFO, for whoever reads it."""
    held = os.open(fifo, os.O_RDWR)
    try:
        os.write(held, render_completion(OUTCOME))
        os.set_blocking(held, False)
        yield
        assert os.read(held, COMPLETION_LIMIT) == render_completion(OUTCOME)
    finally:
        os.close(held)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Lower the limit so that no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.spec("W5")
def test_a_completion_is_written_private_whatever_the_umask_and_read_back(place: Path, store: CompletionStore) -> None:
    assert store.read() is None
    umask = os.umask(0o777)
    try:
        store.write(OUTCOME)
    finally:
        os.umask(umask)
    assert [entry.name for entry in place.iterdir()] == ["completion.json"]
    assert stat.S_IMODE(file_of(place).stat().st_mode) == 0o600
    assert file_of(place).read_bytes() == render_completion(OUTCOME)
    assert store.read() == OUTCOME


@pytest.mark.spec("W5")
def test_the_store_stays_with_its_directory_when_that_is_moved_and_a_link_put_in_its_place(
    place: Path, store: CompletionStore, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = place.rename(tmp_path / "moved")
    place.symlink_to(elsewhere)
    store.write(OUTCOME)
    assert store.read() == OUTCOME
    assert file_of(moved).exists()
    assert not list(elsewhere.iterdir())


@pytest.mark.spec("W5")
def test_a_link_is_no_completion_and_is_replaced_without_being_followed(
    place: Path, store: CompletionStore, tmp_path: Path
) -> None:
    target = tmp_path / "target.json"
    target.write_bytes(render_completion(OLD))
    file_of(place).symlink_to(target)
    assert store.read() is None
    store.write(OUTCOME)
    assert not file_of(place).is_symlink()
    assert store.read() == OUTCOME
    assert target.read_bytes() == render_completion(OLD)


@pytest.mark.spec("W5")
def test_a_fifo_is_no_completion_and_is_neither_waited_for_nor_read(place: Path, store: CompletionStore) -> None:
    os.mkfifo(file_of(place))
    assert store.read() is None
    with full_fifo(file_of(place)):
        assert store.read() is None
    store.write(OUTCOME)
    assert store.read() == OUTCOME


@pytest.mark.spec("W5")
@pytest.mark.parametrize("kind", ["link", "empty fifo", "full fifo"])
def test_what_takes_the_files_place_after_it_was_looked_at_is_neither_followed_nor_waited_for_nor_read(
    kind: str, place: Path, store: CompletionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(OUTCOME)
    kept = tmp_path / "kept.json"
    looked = os.stat

    def swapped(name: str, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        found = looked(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        file_of(place).rename(kept)
        if kind == "link":
            file_of(place).symlink_to(kept)
        else:
            os.mkfifo(file_of(place))
            if kind == "full fifo":
                opened.enter_context(full_fifo(file_of(place)))
        return found

    with ExitStack() as opened, monkeypatch.context() as patch:
        patch.setattr(os, "stat", swapped)
        assert store.read() is None


@pytest.mark.spec("W5")
def test_a_directory_and_a_socket_are_no_completion(place: Path, store: CompletionStore) -> None:
    file_of(place).mkdir()
    assert store.read() is None
    file_of(place).rmdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(place)  # The name of a socket has little room.
        try:
            listener.bind("completion.json")
        finally:
            os.chdir(here)
        assert store.read() is None


@pytest.mark.spec("W5")
def test_a_file_of_1_mib_is_read_and_one_byte_more_is_no_completion(place: Path, store: CompletionStore) -> None:
    content = render_completion(OUTCOME)
    file_of(place).write_bytes(content + b" " * (COMPLETION_LIMIT - len(content)))
    assert store.read() == OUTCOME
    with file_of(place).open("ab") as file:
        file.write(b" ")
    assert store.read() is None


@pytest.mark.spec("W5")
def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_the_limit(
    place: Path, store: CompletionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(OUTCOME)
    read, taken = os.read, 0

    def growing(descriptor: int, size: int) -> bytes:
        nonlocal taken
        if taken <= 2 * COMPLETION_LIMIT:
            with file_of(place).open("ab") as file:
                file.write(b" " * 65536)
        data = read(descriptor, min(size, 65536))
        taken += len(data)
        return data

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", growing)
        assert store.read() is None
    assert taken == COMPLETION_LIMIT + 1


@pytest.mark.spec("W5")
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", render_completion(OUTCOME)[:-4]])
def test_a_malformed_file_is_no_completion(content: bytes, place: Path, store: CompletionStore) -> None:
    file_of(place).write_bytes(content)
    assert store.read() is None


@pytest.mark.spec("W5")
def test_a_want_of_descriptors_is_not_taken_for_a_child_that_recorded_nothing(store: CompletionStore) -> None:
    store.write(OUTCOME)
    with no_descriptor_left(), pytest.raises(OutOfDescriptors):
        store.read()
    assert store.read() == OUTCOME


@pytest.mark.spec("W6")
def test_a_report_is_on_disk_undelivered_before_it_is_posted_and_then_with_the_result(
    store: CompletionStore, warnings: list[str]
) -> None:
    doors = FakeDoors()
    meanwhile: list[DelegationOutcome | None] = []

    def take(_: DoorAsk) -> DoorReading:
        meanwhile.append(store.read())
        return result(TASK)

    doors.serve(AUTHORITY, take)
    told = report(HANDLE, OUTCOME.replaced(delivered=True), store, doors, warnings.append)
    assert meanwhile == [OUTCOME.replaced(delivered=False)]
    assert told == store.read() == OUTCOME.replaced(delivered=True)
    assert warnings == []


@pytest.mark.spec("W6", "W2")
def test_a_retry_that_is_delivered_takes_the_earlier_reason_away(store: CompletionStore, warnings: list[str]) -> None:
    doors = FakeDoors()
    failed = report(HANDLE, OUTCOME, store, doors, warnings.append)
    assert failed == store.read() == OUTCOME.replaced(delivery_error="connection refused")
    assert warnings == ["the completion of delegation dlg_1 was not delivered: connection refused"]
    doors.serve(AUTHORITY, result(TASK))
    assert report(HANDLE, failed, store, doors, warnings.append) == OUTCOME.replaced(delivered=True)
    assert store.read() == OUTCOME.replaced(delivered=True)
    assert len(warnings) == 1


@pytest.mark.spec("W6")
def test_every_post_has_a_message_id_of_its_own(store: CompletionStore, warnings: list[str]) -> None:
    doors = FakeDoors()
    doors.serve(AUTHORITY, result(TASK))
    for _ in range(2):
        report(HANDLE, OUTCOME, store, doors, warnings.append)
    ids = [json.loads(ask.body)["params"]["message"]["messageId"] for (ask,) in doors.asked]
    assert len(set(ids)) == 2
    assert all(each.startswith("msg_") for each in ids)


@pytest.mark.spec("W4", "W6")
def test_a_spawner_without_a_url_is_told_nothing_and_that_is_no_warning(
    store: CompletionStore, warnings: list[str]
) -> None:
    doors = FakeDoors()
    assert report(HANDLE.replaced(url=None), OUTCOME, store, doors, warnings.append) == OUTCOME
    assert store.read() == OUTCOME
    assert (doors.asked, warnings) == ([], [])


@pytest.mark.spec("W6")
def test_a_url_that_cannot_be_asked_is_undelivered_with_the_reason_and_asked_nowhere(
    store: CompletionStore, warnings: list[str]
) -> None:
    doors = FakeDoors()
    told = report(
        HANDLE.replaced(url="http://evil.example:80/\x1b" + "x" * 9000), OUTCOME, store, doors, warnings.append
    )
    assert doors.asked == []
    assert told == store.read()
    assert not told.delivered
    assert told.delivery_error is not None
    assert told.delivery_error.startswith("the recorded address evil.example:80/\\x1bxxx")
    assert len(told.delivery_error) < 400
    assert len(warnings) == 1


@pytest.mark.spec("W6")
def test_a_want_of_descriptors_for_the_post_is_a_reason_and_not_raised(
    store: CompletionStore, warnings: list[str]
) -> None:
    doors = FakeDoors()
    doors.descriptors_left = False
    told = report(HANDLE, OUTCOME, store, doors, warnings.append)
    assert told == store.read() == OUTCOME.replaced(delivery_error="no descriptor is left to ask a door with")


@pytest.mark.spec("W6")
@pytest.mark.parametrize("failing", [{1}, {2}, {1, 2}])
def test_a_write_that_fails_is_a_warning_and_the_spawner_is_told_all_the_same(
    failing: set[int], store: CompletionStore, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    write = write_staged

    def full(directory: int, name: str, content: bytes) -> None:
        nonlocal written
        written += 1
        if written in failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(directory, name, content)

    monkeypatch.setattr(completions, "write_staged", full)
    doors = FakeDoors()
    doors.serve(AUTHORITY, result(TASK))
    assert report(HANDLE, OUTCOME, store, doors, warnings.append).delivered
    assert len(doors.asked) == 1
    assert warnings == [
        "the completion of delegation dlg_1 could not be recorded: no space left on device" for _ in failing
    ]


@pytest.mark.spec("W6")
def test_a_directory_in_the_way_is_a_warning_and_nothing_staged_is_left(
    place: Path, store: CompletionStore, warnings: list[str]
) -> None:
    file_of(place).mkdir()
    record(OUTCOME, store, warnings.append)
    assert warnings == ["the completion of delegation dlg_1 could not be recorded: is a directory"]
    assert os.listdir(place) == ["completion.json"]


@pytest.mark.spec("W2")
def test_an_ending_by_the_parent_is_recorded_over_what_the_child_wrote(
    store: CompletionStore, warnings: list[str]
) -> None:
    store.write(OLD.replaced(delivered=True))
    ended = terminated_outcome(WatchedChild("dlg_1", "worker", "0.1.0", "ses_child", "/data/child"), 77)
    record(ended, store, warnings.append)
    assert store.read() == ended
    assert warnings == []


def test_post_reads_the_doors_answer() -> None:
    doors = FakeDoors()
    doors.serve(AUTHORITY, answer({}, status=500))
    posted = post_completion(HANDLE, OUTCOME, doors)
    assert posted == OUTCOME.replaced(delivery_error="the door answered with HTTP status 500")
    doors.serve(AUTHORITY, result(TASK))
    assert post_completion(HANDLE, posted, doors) == OUTCOME.replaced(delivered=True)


@pytest.mark.spec("W6")
def test_over_real_http_the_post_is_one_request_with_three_headers_and_no_token(
    store: CompletionStore, warnings: list[str]
) -> None:
    with ScriptedDoor(answering(http({"jsonrpc": "2.0", "id": 1, "result": TASK}))) as door:
        told = report(HANDLE.replaced(url=f"http://{door.url}/"), OUTCOME, store, HttpDoors(LIMITS), warnings.append)
    assert told.delivered
    (request,) = door.requests
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert first == "POST / HTTP/1.1"
    assert headers == {
        "host": door.url,
        "connection": "close",
        "content-type": "application/json",
        "accept": "application/json",
        "content-length": str(len(body)),
        "x-murmur-task-origin": "completion",
        "x-murmur-delegation-id": "dlg_1",
        "x-murmur-completion-session": "ses_parent",
    }
    message = json.loads(body)["params"]["message"]
    assert message["contextId"] == "ctx_parent"
    assert message["parts"] == [{"text": "delegation dlg_1 (worker@0.1.0) ended: ok"}]


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answering(http({}, "500 Internal Server Error")), "the door answered with HTTP status 500"),
        (
            answering(http({}, "307 Temporary Redirect", "Location: http://127.0.0.1:1/")),
            "the door answered with HTTP status 307",
        ),
        (answering(b""), "the door closed the connection without an answer"),
        (silent, "timed out after 0.3s before the answer was whole"),
    ],
    ids=["500", "redirect", "hang up", "silence"],
)
def test_over_real_http_a_door_that_does_not_take_it_leaves_it_undelivered(
    script: Script, reason: str, store: CompletionStore, warnings: list[str]
) -> None:
    with ScriptedDoor(script) as door:
        report(HANDLE.replaced(url=door.url), OUTCOME, store, HttpDoors(LIMITS), warnings.append)
    assert len(door.requests) == 1
    assert store.read() == OUTCOME.replaced(delivery_error=reason)
    assert warnings == [f"the completion of delegation dlg_1 was not delivered: {reason}"]


@pytest.mark.spec("W6")
def test_over_real_http_a_door_that_is_gone_leaves_it_undelivered(store: CompletionStore, warnings: list[str]) -> None:
    with closed_port() as port:
        told = report(
            HANDLE.replaced(url=f"http://127.0.0.1:{port}"), OUTCOME, store, HttpDoors(LIMITS), warnings.append
        )
    assert told == store.read() == OUTCOME.replaced(delivery_error=delivery_of(NoAnswer("connection refused")))


@pytest.mark.spec("W5")
def test_what_is_recorded_is_what_parses(place: Path, store: CompletionStore) -> None:
    store.write(OUTCOME.replaced(workdir="/data/\udcff", detail="x" * 5000))
    assert store.read() == parse_completion(file_of(place).read_bytes())
    assert store.read() is not None
