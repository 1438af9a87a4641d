"""What a launch says of the child (C1)."""

from pathlib import PurePosixPath

import pytest

from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.secret import SpawnApproval

REQUEST = ChildLaunchRequest(
    parent_records_dir=PurePosixPath("/r/ses_parent"),
    capsule_name="local/worker",
    capsule_version="0.1.0",
    grant=SpawnApproval("msa1.swordfish.mac"),
    env_allow=("A",),
    roost_url="http://127.0.0.1:7700",
)


@pytest.mark.spec("C1")
def test_a_launch_is_no_delegation_and_bounded_by_nothing_unless_it_says_so() -> None:
    assert REQUEST.spawner is None
    assert REQUEST.completion_deadline is None
    assert REQUEST.formation_id is None
    assert REQUEST.deadline_unix_ms is None
    assert Spawner("ses_parent", "ctx_parent").url is None


@pytest.mark.spec("C1", "I3")
def test_the_approval_is_in_no_print_of_a_launch() -> None:
    for shown in (repr(REQUEST), str(REQUEST), f"{REQUEST}"):
        assert "swordfish" not in shown
        assert "grant" not in shown
        assert "local/worker" in shown


@pytest.mark.spec("C1")
def test_a_launch_cannot_be_changed_once_it_is_made() -> None:
    with pytest.raises(AttributeError):
        REQUEST.roost_url = "http://127.0.0.1:1"  # type: ignore[misc]
