"""What `--task` gives: the text itself, or what can be read to its end under that name."""

import os
import threading
from pathlib import Path

import pytest

from murmur.adapters.task_file import TASK_LIMIT, as_handed_on, read_task
from murmur.domain.errors import FAILED, CommandNotStarted


def refusal_of(given: str) -> CommandNotStarted:
    with pytest.raises(CommandNotStarted) as refused:
        read_task(given)
    assert refused.value.exit_status == FAILED
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("text", ["", "no such file", "a/b: no such file", "x" * 300, "null \0 character", "\udcff"])
def test_what_names_no_file_or_cannot_is_the_task(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_task(text) == (text, True)


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "task").write_text("é\n" * 1000, encoding="utf-8")
    assert read_task(str(tmp_path / "task")) == ("é\n" * 1000, True)


def test_bytes_that_are_no_text_are_replaced_and_told_of(tmp_path: Path) -> None:
    (tmp_path / "task").write_bytes(b"caf\xe9")
    assert read_task(str(tmp_path / "task")) == ("caf�", False)


def test_a_fifo_is_read_until_its_writer_is_done(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "task")
    writer = threading.Thread(target=lambda: (tmp_path / "task").write_bytes(b"x" * 100_000))
    writer.start()
    assert read_task(str(tmp_path / "task")) == ("x" * 100_000, True)
    writer.join()


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert refusal_of(str(tmp_path)).message == f"the task {tmp_path} cannot be read: it is a directory"


@pytest.mark.parametrize("target", ["link", "nowhere"])
def test_what_is_there_and_cannot_be_opened_is_no_text(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    assert str(tmp_path / "link") in refusal_of(str(tmp_path / "link")).message


def test_a_file_is_as_large_as_what_a_door_takes_and_no_larger(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.write_bytes(b"x" * TASK_LIMIT)
    assert len(read_task(str(task))[0]) == TASK_LIMIT
    task.write_bytes(b"x" * (TASK_LIMIT + 1))
    refused = refusal_of(str(task))
    assert refused.message == f"the task {task} is larger than 1 MiB"
    assert "a file of the work folder" in (refused.hint or "")


def test_what_never_ends_is_not_read_for_ever() -> None:
    assert "larger than 1 MiB" in refusal_of("/dev/zero").message


def test_bytes_that_came_as_an_argument_are_handed_on_as_they_are() -> None:
    assert as_handed_on(os.fsdecode(b"caf\xe9 \xc3\xa9")) == b"caf\xe9 \xc3\xa9"
