"""A parent that launches real children, and the insistence that nothing of them is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from murmur.adapters.doors import HttpDoors
from murmur.adapters.reactor import shared_reactor
from tests.adapters.launching.children_for_tests import Launching, own_children
from tests.adapters.processes_for_tests import open_descriptors


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a descriptor, a child or a zombie."""
    shared_reactor()
    HttpDoors().probe([])
    descriptors, children = open_descriptors(), own_children()
    yield
    assert open_descriptors() == descriptors
    assert own_children() == children


@pytest.fixture
def parent(home: Path) -> Path:
    """The records directory of a session that delegates."""
    place = home / ".murmur/records/parent/ses_parent"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def launching(
    nothing_is_left: None, tmp_path: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launching]:
    """What launches children of `parent`; they are ended with the test."""
    launching = Launching(tmp_path, parent, monkeypatch)
    yield launching
    launching.close()
