"""What a command writes into a file is read on as whole lines, and what is not read is told of (M1)."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murmur.adapters.command_output import Output
from murmur.adapters.output_follower import FollowedOutput
from murmur.domain.output_text import PIECE
from tests.adapters.processes_for_tests import open_descriptors

TAIL = 64 * 1024


class Log:
    """A file that a command appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, data: bytes) -> None:
        assert os.write(self.descriptor, data) == len(data)

    def output(self, since: int = 0, channel: str = "stdout") -> Output:
        return Output(channel, self.descriptor, f"logs/{self.path.name}", since)

    def followed(self, since: int = 0, *, from_tail: bool = False) -> FollowedOutput:
        return FollowedOutput.open(self.output(since), from_tail=from_tail)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log; nobody may leave a descriptor."""
    before = open_descriptors()
    found = Log(tmp_path / "stdout.log")
    yield found
    os.close(found.descriptor)
    assert open_descriptors() <= before


@pytest.fixture
def follow(log: Log) -> Iterator[Callable[..., FollowedOutput]]:
    """Follow the log, and let go of it at the end."""
    opened: list[FollowedOutput] = []

    def follow(since: int = 0, *, from_tail: bool = False) -> FollowedOutput:
        opened.append(log.followed(since, from_tail=from_tail))
        return opened[-1]

    yield follow
    for each in opened:
        each.close()


Follow = Callable[..., FollowedOutput]


def read_all(output: FollowedOutput) -> str:
    """Read until there is nothing more now."""
    found = ""
    while (step := output.read())[0]:
        found += step[1]
    assert step == (False, "")
    return found


@pytest.mark.spec("M1")
def test_lines_are_read_as_they_come(log: Log, follow: Follow) -> None:
    output = follow()
    assert output.read() == (False, "")
    log.write(b"one\ntw")
    assert output.read() == (True, "one\n")
    assert output.read() == (False, "")
    log.write(b"o\n")
    assert output.read() == (True, "two\n")
    log.write(b"rest")
    assert output.read() == (True, "")
    output.end()
    assert (output.read(), output.rest()) == ((False, ""), "rest")


@pytest.mark.spec("M1")
def test_a_piece_is_read_at_once_and_no_more(log: Log, follow: Follow) -> None:
    log.write(b"x" * 10 + b"\n" + b"y" * 3 * PIECE)
    output = follow()
    assert output.read() == (True, "x" * 10 + "\n")
    assert len(read_all(output)) + len(output.rest()) == 3 * PIECE


@pytest.mark.spec("M1")
def test_following_begins_where_the_commands_own_output_does(log: Log, follow: Follow) -> None:
    log.write(b"another's\n")
    output = follow(since=10)
    log.write(b"its own\n")
    assert read_all(output) == "its own\n"


@pytest.mark.spec("M1")
def test_what_others_append_behind_its_end_is_not_its_own(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"its own\nno end")
    output.end()
    log.write(b" but another's\n" * 3)
    assert read_all(output) == "its own\n"
    assert output.rest() == "no end"


@pytest.mark.spec("M1")
def test_what_was_not_read_at_the_end_is_counted_in_its_place(log: Log, follow: Follow) -> None:
    log.write(b"line\n" * 100)
    output = follow()
    output.end()
    log.write(b"another's\n")
    assert output.rest() == "[500 bytes are left out here; logs/stdout.log has them]\n"


@pytest.mark.spec("M1")
def test_what_was_read_and_held_back_comes_before_what_was_not_read(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"one\nheld")
    assert output.read() == (True, "one\n")
    log.write(b" back\n")
    output.end()
    rest = output.rest()
    assert rest.startswith("held")
    assert rest.endswith("[6 bytes are left out here; logs/stdout.log has them]\n")


@pytest.mark.spec("M1")
@pytest.mark.parametrize("size", [0, 1, TAIL - 1, TAIL])
def test_an_output_that_fits_the_tail_is_read_from_its_beginning(log: Log, follow: Follow, size: int) -> None:
    log.write(b"x" * size)
    output = follow(from_tail=True)
    text = read_all(output)
    output.end()
    assert text + output.rest() == "x" * size


@pytest.mark.spec("M1")
@pytest.mark.parametrize("since", [0, 7, 1000])
@pytest.mark.parametrize("excess", [1, 5, 9, 10, 11, 12_345])
def test_the_tail_begins_at_a_line_and_says_how_much_is_left_out(
    log: Log, follow: Follow, since: int, excess: int
) -> None:
    log.write(b"-" * since)
    whole = "".join(f"line {number:4}\n" for number in range((TAIL + excess) // 10))
    whole += "z" * (TAIL + excess - len(whole) - 1) + "\n"
    log.write(whole.encode())
    text = read_all(follow(since, from_tail=True))
    note, _, shown = text.partition("\n")
    left = len(whole) - len(shown)
    assert note == f"[{left} bytes are left out here; logs/stdout.log has them]"
    assert whole.endswith(shown)
    assert whole[left - 1] == "\n"
    assert excess <= left < excess + 10  # Not a line more than must be.


@pytest.mark.spec("M1")
def test_a_tail_without_a_line_begins_somewhere_and_says_so(log: Log, follow: Follow) -> None:
    log.write(b"x" * (TAIL + 10))
    output = follow(from_tail=True)
    output.end()
    note = "[10 bytes are left out here; logs/stdout.log has them]\n"
    assert read_all(output) + output.rest() == note + "x" * TAIL


@pytest.mark.spec("M1")
def test_a_tail_that_was_never_read_is_left_out_as_well(log: Log, follow: Follow) -> None:
    log.write(b"x" * 10 + b"\n" + b"y" * (TAIL - 1) + b"\n")
    output = follow(from_tail=True)
    output.end()
    counted = [int(line.split()[0].lstrip("[")) for line in output.rest().splitlines()]
    assert sum(counted) == TAIL + 11


@pytest.mark.spec("M1")
def test_a_file_that_is_cut_short_is_shown_from_its_beginning(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"a long line before\n")
    assert read_all(output) == "a long line before\n"
    os.truncate(log.descriptor, 0)
    assert output.read() == (False, "")
    log.write(b"new\n")
    assert read_all(output) == "new\n"
    os.truncate(log.descriptor, 0)
    log.write(b"er\n")  # Before anybody has looked.
    assert output.read() == (False, "")
    assert read_all(output) == "er\n"
    output.end()
    assert output.rest() == ""


@pytest.mark.spec("M1")
def test_a_file_that_is_cut_short_after_the_end_has_nothing_more_and_ends(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"one\n" * 10)
    output.end()
    os.truncate(log.descriptor, 8)
    assert read_all(output) == "one\n" * 2
    assert output.read() == (False, "")


@pytest.mark.spec("M1")
def test_it_is_followed_by_a_descriptor_of_its_own(log: Log) -> None:
    before = open_descriptors()
    output = log.followed()
    assert output.descriptor != log.descriptor
    assert not os.get_inheritable(output.descriptor)
    log.write(b"one\n")
    (log.path).unlink()
    assert read_all(output) == "one\n"
    output.close()
    assert open_descriptors() == {name.replace("stdout.log", "stdout.log (deleted)") for name in before}


@pytest.mark.spec("M1")
def test_where_no_descriptor_is_left_that_is_an_error_and_leaves_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            log.followed()


@pytest.mark.spec("M1")
def test_a_tail_that_cannot_be_read_is_an_error_and_leaves_no_descriptor(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b"x" * (TAIL + 1))
        before = open_descriptors()
        with pytest.raises(OSError, match="Bad file descriptor"):
            FollowedOutput.open(Output("stdout", descriptor, "log"), from_tail=True)
        assert open_descriptors() <= before
    finally:
        os.close(descriptor)


@pytest.mark.spec("M1")
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 400)), max_size=12), st.integers(0, 20))
def test_whatever_is_written_is_read_once_and_in_order(log: Log, writes: list[tuple[bytes, int]], since: int) -> None:
    os.truncate(log.descriptor, 0)
    log.write(b"-" * since)
    output, found = log.followed(since), ""
    try:
        for data, times in writes:
            log.write(data * times)
            found += output.read()[1]
        output.end()
        log.write(b"another's")
        found += read_all(output) + output.rest()
    finally:
        output.close()
    assert found == b"".join(data * times for data, times in writes).decode("utf-8", "replace")


@pytest.mark.spec("M1")
def test_what_is_left_out_is_told_on_a_line_of_its_own(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"begun")
    assert read_all(output) == ""
    log.write(b"x" * 200_000 + b"\nlast\n")
    output.skip_to_tail()
    output.end()
    held, note, *_ = read_all(output).split("\n")
    assert held == "begun"
    assert note.endswith(" bytes are left out here; logs/stdout.log has them]")


@pytest.mark.spec("M1")
def test_a_file_that_is_cut_short_after_all_was_read_has_said_all(log: Log, follow: Follow) -> None:
    output = follow()
    log.write(b"one\n" * 10)
    output.end()
    assert read_all(output) == "one\n" * 10
    os.truncate(log.descriptor, 8)
    assert read_all(output) == ""
    assert output.rest() == ""
