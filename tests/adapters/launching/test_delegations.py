"""A delegation is taken once, whoever asks and however often (W6, E6)."""

import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.beneath import NotReached
from murmur.adapters.delegations import Delegations
from murmur.adapters.identifiers import mint
from tests.adapters.processes_for_tests import open_descriptors


@pytest.fixture
def delegations(parent: Path) -> Iterator[Delegations]:
    records = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    yield Delegations(records, parent)
    os.close(records)


@pytest.mark.spec("W6", "E6")
def test_of_sixteen_who_ask_at_once_one_is_told_that_it_was_outstanding(delegations: Delegations) -> None:
    for _ in range(20):
        delegation = mint("dlg_")
        delegations.put(delegation)
        together = threading.Barrier(16)
        taken: list[bool] = []

        def take(name: str = delegation, together: threading.Barrier = together, taken: list[bool] = taken) -> None:
            together.wait(20)
            taken.append(delegations.take(name))

        takers = [threading.Thread(target=take) for _ in range(16)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join(20)
        assert sorted(taken) == [False] * 15 + [True]


@pytest.mark.spec("W6")
def test_what_was_taken_or_never_put_is_not_outstanding_and_can_be_put_again(delegations: Delegations) -> None:
    before = open_descriptors()
    one, other = mint("dlg_"), mint("dlg_")
    assert not delegations.take(one)
    delegations.put(one)
    delegations.put(one)
    assert not delegations.take(other)
    assert delegations.take(one)
    assert not delegations.take(one)
    delegations.put(one)
    assert delegations.take(one)
    assert open_descriptors() == before


@pytest.mark.spec("W6")
@pytest.mark.parametrize("forged", ["", ".", "..", "../secret", "/etc/passwd", "secret", "dlg_", "dlg_" + "A" * 32])
def test_what_is_no_delegation_id_never_becomes_a_path(forged: str, delegations: Delegations, parent: Path) -> None:
    delegations.put(mint("dlg_"))
    (parent / "secret").touch()
    (parent / "delegations" / "secret").touch()
    assert not delegations.take(forged)
    assert (parent / "secret").exists()
    assert (parent / "delegations" / "secret").exists()


@pytest.mark.spec("W6")
def test_the_marker_is_private_and_empty(delegations: Delegations, parent: Path) -> None:
    delegation = mint("dlg_")
    delegations.put(delegation)
    found = (parent / "delegations" / delegation).stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_size == 0
    assert stat.S_IMODE((parent / "delegations").stat().st_mode) == 0o700


@pytest.mark.spec("W6")
def test_nothing_is_put_or_taken_through_a_link(delegations: Delegations, parent: Path, tmp_path: Path) -> None:
    elsewhere, delegation = tmp_path / "elsewhere", mint("dlg_")
    elsewhere.mkdir()
    (elsewhere / delegation).touch()
    (parent / "delegations").symlink_to(elsewhere)
    before = open_descriptors()
    with pytest.raises(NotReached, match="it is a symbolic link"):
        delegations.put(mint("dlg_"))
    assert not delegations.take(delegation)
    assert [entry.name for entry in elsewhere.iterdir()] == [delegation]
    assert open_descriptors() == before


@pytest.mark.spec("E6")
def test_what_is_taken_without_a_descriptor_left_is_taken(delegations: Delegations, parent: Path) -> None:
    delegation = mint("dlg_")
    delegations.put(delegation)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        assert delegations.take(delegation)
        assert not delegations.take(delegation)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list((parent / "delegations").iterdir()) == []
