"""How many descriptors a process may still use, and which failures are about that."""

import errno
import os
import resource

import pytest

from murmur.adapters import descriptors
from murmur.adapters.descriptors import exhausted, is_exhaustion, spare_descriptors
from murmur.domain.errors import OutOfDescriptors


def in_use() -> int:
    return len(os.listdir("/dev/fd")) - 1


def limited_to(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))


@pytest.mark.spec("S3", "P6")
@pytest.mark.parametrize("most", [1, 64])
def test_no_more_than_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for soft in (100_000, resource.RLIM_INFINITY):
        limited_to(monkeypatch, soft)
        assert spare_descriptors(most) == most


@pytest.mark.spec("S3", "P6")
def test_what_is_open_already_is_not_spare_and_some_are_left_to_the_rest_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited_to(monkeypatch, in_use() + 20)
    spare = spare_descriptors(64)
    assert 1 < spare <= 20 - 8
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        assert spare_descriptors(64) == spare - 5
    finally:
        for descriptor in opened:
            os.close(descriptor)


@pytest.mark.spec("S3")
@pytest.mark.parametrize("left", [0, 1, 8])
def test_there_is_always_one_to_try_with(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    limited_to(monkeypatch, in_use() + left)
    assert spare_descriptors(64) == 1


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    ("number", "expected"), [(errno.EMFILE, 1), (errno.ENFILE, 1), (errno.ENOENT, 92)], ids=errno.errorcode.get
)
def test_a_count_that_cannot_be_taken_is_one_when_the_descriptors_are_why(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: int
) -> None:
    class NoList:
        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def listdir(self, _: str) -> list[str]:
            raise OSError(number, os.strerror(number))

    limited_to(monkeypatch, 108)
    monkeypatch.setattr(descriptors, "os", NoList())
    assert spare_descriptors(1000) == expected


@pytest.mark.spec("S3")
def test_only_a_full_table_is_exhaustion() -> None:
    full = {number for number in errno.errorcode if is_exhaustion(OSError(number, ""))}
    assert full == {errno.EMFILE, errno.ENFILE}


@pytest.mark.spec("S3")
def test_the_error_says_what_could_not_be_done_and_what_can() -> None:
    error = exhausted("look with")
    assert isinstance(error, OutOfDescriptors)
    assert error.message == "this process has no file descriptor left to look with"
    assert error.hint is not None
    assert "ulimit -n" in error.hint
