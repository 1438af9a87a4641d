"""What the `.env` file beside a manifest gives, and that no error shows any of it."""

import errno
import os
import time
from pathlib import Path

import pytest

from murmur.adapters.env_file import BLANKS_LIMIT, ENV_FILE_LIMIT, LINES_LIMIT, read_env_file
from murmur.domain.errors import FAILED, EnvFileRefused

SECRET = "hunter2"


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def refusal_of(path: Path) -> EnvFileRefused:
    with pytest.raises(EnvFileRefused) as refused:
        read_env_file(path)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    return refused.value


def test_a_missing_file_sets_nothing(env_file: Path) -> None:
    assert read_env_file(env_file) == ({}, [])


def test_each_line_sets_a_variable(env_file: Path) -> None:
    env_file.write_text(
        "# keys\nA=1\nexport B='two words'\nC=\"three\\nlines\"\nD=\nE=é # not this\n", encoding="utf-8"
    )
    assert read_env_file(env_file) == ({"A": "1", "B": "two words", "C": "three\nlines", "D": "", "E": "é"}, [])


def test_a_name_without_a_value_sets_nothing_and_is_warned_of_by_its_line(env_file: Path) -> None:
    env_file.write_text("B=1\n\nhunter2\r\nexport C # why\n")
    assert read_env_file(env_file) == (
        {"B": "1"},
        [f"{env_file}:{line}: a name without = sets nothing" for line in (3, 4)],
    )


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("hunter2 B=1", 3),
        ("A: hunter2", 3),
        ("=hunter2", 3),
        ('A="hunter2', 3),
        ("A='1' hunter2", 3),
        ("\r\n \n'hunter2=1", 5),
        ("B='x\ny' \nA=\"1\" 'hunter2'", 5),
    ],
)
def test_a_line_that_sets_nothing_and_is_no_comment_is_refused(env_file: Path, line: str, number: int) -> None:
    env_file.write_text(f"A=1\n# hunter2\n{line}\nC=1\n", newline="")
    message = f"{env_file}:{number}: it is not NAME=VALUE, or a quote does not end"
    assert refusal_of(env_file).message == message


def test_a_file_of_too_many_lines_is_refused(env_file: Path) -> None:
    env_file.write_text("A=1\r" * LINES_LIMIT, newline="")
    assert read_env_file(env_file) == ({"A": "1"}, [])
    env_file.write_text("A=1\r" * (LINES_LIMIT + 1), newline="")
    assert refusal_of(env_file).message == f"{env_file}: it has more than 2,000 lines"


@pytest.mark.parametrize("blank", [" ", "\t", "\u3000"])
def test_blanks_cost_no_more_than_their_number(env_file: Path, blank: str) -> None:
    before = time.process_time()
    env_file.write_text(f"A=x{blank * BLANKS_LIMIT}y", encoding="utf-8")
    assert len(read_env_file(env_file)[0]["A"]) == BLANKS_LIMIT + 2
    env_file.write_text(f"\nA=x{blank * 80_000}y", encoding="utf-8")
    assert refusal_of(env_file).message == f"{env_file}:2: it has more than 200 blanks in a row"
    assert time.process_time() - before < 0.5


def test_a_value_stands_as_it_is_written(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "own")
    env_file.write_text("A=1\nB=${A}\nC=$A\nD=${E:-x}\n")
    assert read_env_file(env_file)[0] == {"A": "1", "B": "${A}", "C": "$A", "D": "${E:-x}"}


def test_a_byte_order_mark_is_no_part_of_a_name(env_file: Path) -> None:
    env_file.write_bytes(b"\xef\xbb\xbfA=1\n")
    assert read_env_file(env_file) == ({"A": "1"}, [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"A=hunter2\nB=\xff\n", "2: it is not UTF-8"),
        (b"A=hunter2\n\nB=\0\n", "3: it holds a null character"),
    ],
)
def test_bytes_that_are_no_text_are_refused_by_their_line(env_file: Path, content: bytes, reason: str) -> None:
    env_file.write_bytes(content)
    refused = refusal_of(env_file)
    assert refused.message == f"{env_file}:{reason}"
    assert (refused.code, refused.exit_status) == ("E-RUN-908", FAILED)
    assert "--no-env-file" in (refused.hint or "")


def test_a_directory_is_refused(env_file: Path) -> None:
    env_file.mkdir()
    assert refusal_of(env_file).message == f"{env_file}: it is a directory"


def test_a_fifo_is_refused_without_waiting_for_a_writer(env_file: Path) -> None:
    os.mkfifo(env_file)
    assert refusal_of(env_file).message == f"{env_file}: it is not a regular file"


def test_a_file_over_the_limit_is_refused(env_file: Path) -> None:
    env_file.write_bytes(b"A=".ljust(ENV_FILE_LIMIT, b"x"))
    assert len(read_env_file(env_file)[0]["A"]) == ENV_FILE_LIMIT - 2
    env_file.write_bytes(b"A=hunter2".ljust(ENV_FILE_LIMIT + 1, b"x"))
    assert refusal_of(env_file).message == f"{env_file}: it is larger than 256 KiB"


def test_a_file_that_may_not_be_read_is_refused(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    env_file.write_text("A=hunter2\n")
    monkeypatch.setattr(os, "open", refusing)  # The file's mode means nothing to root.
    assert refusal_of(env_file).message == f"{env_file}: permission denied"
