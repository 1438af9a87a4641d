"""How a session that is over ended, as its records say (W5, M5)."""

import json
import os
from pathlib import Path

import pytest

from murmur.adapters.completions import CompletionStore
from murmur.adapters.outcomes import read_outcome
from murmur.domain.launch.completion import DelegationOutcome, DelegationStatus
from tests.adapters.processes_for_tests import open_descriptors

START = {"event_type": "session_start"}


def trace(place: Path, *events: object) -> None:
    (place / "trace.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def completed(place: Path, status: DelegationStatus) -> None:
    outcome = DelegationOutcome(
        delegation_id="dlg_1",
        capsule_name="worker",
        capsule_version="1",
        session_id="ses_1",
        status=status,
        workdir="/w",
        duration_ms=1,
        reported_by="child",
    )
    directory = os.open(place, os.O_RDONLY)
    CompletionStore(directory).write(outcome)
    os.close(directory)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ({"event_type": "session_end", "exit_status": 0}, "complete"),
        ({"event_type": "session_end", "exit_status": 1}, "failed"),
        ({"event_type": "session_end", "exit_status": None}, "failed"),
        ({"event_type": "session_end"}, "failed"),
        ({"event_type": "task_end", "exit_status": 0}, "failed"),
        ([], "failed"),
    ],
)
def test_a_session_that_nobody_delegated_is_judged_by_the_last_line_of_its_trace(
    tmp_path: Path, last: object, outcome: str
) -> None:
    trace(tmp_path, START, last)
    assert read_outcome(str(tmp_path)) == outcome


@pytest.mark.parametrize(
    ("status", "outcome"), [("ok", "complete"), ("error", "failed"), ("crashed", "failed"), ("terminated", "failed")]
)
def test_a_delegation_is_judged_by_its_completion(tmp_path: Path, status: DelegationStatus, outcome: str) -> None:
    trace(tmp_path, START, {"event_type": "session_end", "exit_status": 0})
    completed(tmp_path, status)
    assert read_outcome(str(tmp_path)) == outcome


def test_what_leaves_no_word_of_its_end_has_failed(tmp_path: Path) -> None:
    before = open_descriptors()
    (tmp_path / "link").symlink_to(tmp_path)
    trace(tmp_path, {"event_type": "session_end", "exit_status": 0})
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "trace.jsonl").symlink_to(tmp_path / "trace.jsonl")
    empty = tmp_path / "empty"
    empty.mkdir()
    trace(empty)
    places = ["", "nowhere", "/a\0b", str(tmp_path / "nowhere"), str(tmp_path / "link"), str(inner), str(empty)]
    assert [read_outcome(place) for place in places] == ["failed"] * len(places)
    assert open_descriptors() == before
