"""What every test gets: a home of its own, and nothing of this machine's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.processes_for_tests import open_descriptors


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point HOME at a fresh directory, so that no test can touch the real `~/.murmur`."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("NO_COLOR", "HTTP_PROXY", "http_proxy", "COLUMNS", "MURMUR_MUR_BINARY"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def no_descriptor_left() -> Iterator[None]:
    """No test that uses this may leave a descriptor open."""
    before = open_descriptors()
    yield
    assert open_descriptors() <= before
