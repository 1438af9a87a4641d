"""`mur delegate` inside a session is a delegation of that session (O4, C7, W6)."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.capsules_for_tests import Project, completion, event, events, outstanding, trace
from tests.cli.conftest import MUR, Hosts, mur_json


def manifest(project: Project, *command: str, **more: object) -> Path:
    """Write the manifest of a session that delegates."""
    path = project.path / "murmur.yaml"
    document = {
        "name": "boss",
        "version": "1.0",
        "process": {"command": list(command)},
        "lifecycle": {"task_acceptance": "none"},
    }
    path.write_text(json.dumps(document | more))
    return path


def delegating(project: Project, capsule: str, *options: str) -> tuple[str, ...]:
    """A command that delegates and leaves everything that came of it in files of the project."""
    words = " ".join([f"{MUR} delegate {capsule}", *options])
    return ("sh", "-c", f"{words} >{project.path}/out 2>{project.path}/err; echo $? >{project.path}/status")


def left(project: Project, name: str) -> str:
    return (project.path / name).read_text()


@pytest.mark.spec("O4", "W6")
def test_an_allowed_capsule_is_a_child_of_the_session_around_which_is_told_once_how_it_ended(
    hosts: Hosts, project: Project
) -> None:
    up, gate = project.fifo(), project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; read -r _ <{gate}; tr a-z A-Z")
    boss = hosts.from_manifest(
        manifest(
            project, *delegating(project, "worker@1.0", "--task hello"), capabilities={"spawn": {"allow": ["worker"]}}
        )
    )
    up.line()
    rows = {row["capsule_name"]: row for row in mur_json("ps")}
    assert rows.keys() == {"boss", "worker"}
    assert rows["worker"]["spawned_by"] == boss.session_id
    assert len(outstanding(boss.records)) == 1
    gate.let_on()
    assert boss.wait() == 0
    assert (left(project, "status"), left(project, "out")) == ("0\n", "HELLO\n")
    child = project.child("worker")
    assert child.is_relative_to(project.home / ".murmur" / "records")
    assert Path(completion(child)["workdir"]).parent == boss.records / "children"
    assert event(child, "session_start")["spawned_by"] == boss.session_id
    told = completion(child)
    assert (told["status"], told["delivered"]) == ("ok", True)
    assert events(boss.records) == ["session_start", "completion", "session_end"]
    assert event(boss.records, "completion")["delegation_id"] == told["delegation_id"]
    assert outstanding(boss.records) == []
    assert project.recorded == []


@pytest.mark.spec("O4", "W6", "I3")
def test_a_session_with_an_authenticated_door_takes_completions_without_a_token(hosts: Hosts, project: Project) -> None:
    project.put("worker", "cat")
    boss = hosts.from_manifest(
        manifest(
            project,
            *delegating(project, "worker@1.0", "--task hello"),
            capabilities={"spawn": {"allow": ["worker"]}},
            network={"authentication": {"scheme": "bearer", "credentials": {}}},
        )
    )
    assert boss.wait() == 0
    assert completion(project.child("worker"))["delivered"] is True
    assert events(boss.records).count("completion") == 1


@pytest.mark.spec("O4")
@pytest.mark.parametrize("allowed", [[], ["other"], ["worker-2", "scope/worker"]])
def test_a_capsule_that_the_manifest_does_not_name_is_refused_with_nothing_started(
    hosts: Hosts, project: Project, allowed: list[str]
) -> None:
    project.put("worker", "cat")
    boss = hosts.from_manifest(
        manifest(project, *delegating(project, "worker@1.0", "--task x"), capabilities={"spawn": {"allow": allowed}})
    )
    assert boss.wait() == 0
    assert (left(project, "status"), left(project, "out")) == ("4\n", "")
    assert "error[E-RUN-047]" in left(project, "err")
    assert "may not launch worker" in left(project, "err")
    assert project.records == [boss.records]
    assert not (boss.records / "children").exists()


@pytest.mark.spec("O4")
def test_a_session_without_a_manifest_may_delegate_to_any_capsule(hosts: Hosts, project: Project) -> None:
    project.put("worker", "cat")
    boss = hosts.start(*delegating(project, "worker@1.0", "--task hello"))
    assert boss.wait() == 0
    assert (left(project, "status"), left(project, "out")) == ("0\n", "hello\n")
    assert event(project.child("worker"), "session_start")["spawned_by"] == boss.session_id


@pytest.mark.slow  # Four interpreters for each of three levels.
@pytest.mark.spec("O4", "M3")
def test_a_child_may_delegate_in_turn_to_what_its_own_manifest_names(project: Project) -> None:
    project.put("third", "tr", "a-z", "A-Z")
    for name, to in (("second", "third"), ("first", "second")):
        project.put(
            name, "sh", "-c", f'{MUR} delegate {to}@1.0 --task "$(cat)"', capabilities={"spawn": {"allow": [to]}}
        )
    done = project.delegate("first@1.0", "--task", "deep")
    assert (done.returncode, done.stdout) == (0, "DEEP\n")
    first, second, third = (project.child(name) for name in ("first", "second", "third"))
    assert event(third, "session_start")["spawned_by"] == second.name
    assert event(second, "session_start")["spawned_by"] == first.name
    assert events(first).count("completion") == events(second).count("completion") == 1
    assert all(completion(each)["delivered"] for each in (first, second, third))
    assert project.recorded == []


@pytest.mark.slow  # As many sessions within one another as there may be, and one more.
@pytest.mark.spec("O4")
def test_a_capsule_that_delegates_to_itself_comes_to_the_limit_of_depth(project: Project) -> None:
    project.put("deep", "sh", "-c", f"{MUR} delegate deep@1.0 --task x", capabilities={"spawn": {"allow": ["deep"]}})
    done = project.delegate("deep@1.0", "--task", "x")
    assert done.returncode == 1
    assert "deep, the limit" in done.stderr
    assert len([each for each in project.records if trace(each)[0]["capsule_name"] == "deep"]) == 3
    assert project.processes == {}


@pytest.mark.spec("O4")
def test_a_session_that_does_not_say_how_it_delegates_is_refused(project: Project, tmp_path: Path) -> None:
    project.put("worker", "cat")
    session = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
    (tmp_path / "link").symlink_to(tmp_path)
    places = (str(tmp_path / "nowhere"), str(tmp_path), str(tmp_path / "link"), ".")
    for place in places:
        done = project.delegate("worker@1.0", "--task", "x", MURMUR_SESSION_ID=session, MURMUR_RECORDS_DIR=place)
        assert done.returncode == 1, place
        assert "error[E-RUN-020]" in done.stderr
    assert project.records == []


@pytest.mark.spec("O4", "W6")
def test_another_session_s_records_are_not_delegated_from(hosts: Hosts, project: Project) -> None:
    gate = project.fifo()
    project.put("worker", "cat")
    boss = hosts.start("sh", "-c", f"read -r _ <{gate}")
    other = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_SESSION_ID=other, MURMUR_RECORDS_DIR=str(boss.records))
    assert done.returncode == 1
    assert "does not say" in done.stderr
    assert os.listdir(boss.records / "out") == []
    gate.let_on()
    assert boss.wait() == 0


@pytest.mark.slow  # The deadline is four seconds away.
@pytest.mark.spec("C3", "M2")
def test_a_child_inherits_the_session_s_deadline(hosts: Hosts, project: Project) -> None:
    project.put("worker", "sleep", "1000")
    boss = hosts.start(*delegating(project, "worker@1.0", "--task x"), options=("--deadline", "4s"))
    assert boss.wait() == 0
    assert project.processes == {}
    child = project.child("worker")
    assert events(child)[-1] == "session_end"
    assert completion(child)["status"] in ("terminated", "error")
