"""`mur delegate`: what comes of one piece of work, and how a person and a program are told (O4)."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.capsules_for_tests import Project, completion, event, events, is_closed, outstanding, trace
from tests.cli.conftest import MUR

DOCUMENT = {
    "delegation_id", "session_id", "capsule_name", "capsule_version", "status", "result", "detail", "code",
    "duration_ms", "records_dir",
}  # fmt: skip


@pytest.mark.spec("O4", "W5")
def test_the_result_goes_to_stdout_the_outcome_to_stderr_and_the_completion_into_both_sessions(
    project: Project,
) -> None:
    project.put("worker", "tr", "a-z", "A-Z")
    done = project.delegate("worker@1.0", "--task", "hello")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
    child, parent = project.child("worker"), project.child("delegate")
    assert done.stderr == f"ok: worker@1.0 {child.name} ({done.stderr.split('(')[1]}"
    told = completion(child)
    assert (told["status"], told["reported_by"], told["delivered"]) == ("ok", "child", True)
    assert event(child, "session_start")["spawned_by"] == parent.name
    assert event(child, "session_start")["delegation_id"] == told["delegation_id"]
    assert events(parent) == ["session_start", "completion", "session_end"]
    assert event(parent, "completion")["delegation_id"] == told["delegation_id"]
    assert event(parent, "completion")["text"].startswith(f"delegation {told['delegation_id']} (worker@1.0) ended: ok")
    assert event(parent, "session_end")["exit_status"] == 0
    assert outstanding(parent) == []
    assert project.recorded == []
    assert project.processes == {}


@pytest.mark.spec("O4")
def test_a_script_reads_its_task_from_task_md_and_on_its_standard_input(project: Project) -> None:
    project.script("notes", "sh", "-c", "cat; printf ' and '; cat task.md; echo")
    done = project.delegate("notes@1.0", "--task", "this", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document.keys() == DOCUMENT
    child = project.child("notes")
    assert document == {
        "delegation_id": completion(child)["delegation_id"],
        "session_id": child.name,
        "capsule_name": "notes",
        "capsule_version": "1.0",
        "status": "ok",
        "result": "this and this\n",
        "detail": None,
        "code": None,
        "duration_ms": document["duration_ms"],
        "records_dir": str(child),
    }
    assert completion(child)["delivered"] is True
    assert (Path(completion(child)["workdir"]) / "task.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("O4")
def test_a_script_without_a_task_has_no_task_md_and_an_empty_standard_input(project: Project) -> None:
    project.script("notes", "sh", "-c", "cat; ls -A | grep task.md; echo done")
    assert project.delegate("notes@1.0").stdout == "done\n"


@pytest.mark.spec("O4")
def test_a_task_may_be_the_name_of_a_file_that_holds_it(project: Project) -> None:
    project.put("worker", "tr", "a-z", "A-Z")
    (project.path / "task.txt").write_bytes(b"from a file \xff")
    done = project.delegate("worker@1.0", "--task", "task.txt")
    assert done.stdout == "FROM A FILE �\n"
    assert done.stderr.startswith("warning: the task task.txt is not UTF-8")


@pytest.mark.spec("O4")
def test_a_task_that_cannot_be_read_is_refused_with_nothing_begun(project: Project) -> None:
    project.put("worker", "cat")
    done = project.delegate("worker@1.0", "--task", ".")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[E-RUN-902]: the task . cannot be read: it is a directory" in done.stderr
    assert project.records == []


@pytest.mark.spec("O4", "W2")
@pytest.mark.parametrize("as_json", [False, True])
def test_a_task_that_fails_is_1_with_the_result_there_is_and_the_reason(project: Project, as_json: bool) -> None:
    project.put("worker", "sh", "-c", "echo half; echo oops >&2; exit 3")
    done = project.delegate("worker@1.0", "--task", "x", *(["--json"] if as_json else []))
    assert done.returncode == 1
    child, why = project.child("worker"), "worker@1.0: the task failed: the command ended with exit status: 3"
    if as_json:
        document = json.loads(done.stdout)
        assert document.keys() == DOCUMENT
        assert (document["status"], document["result"], document["code"]) == ("error", "half\n", "E-RUN-915")
        assert document["detail"].startswith(why)
    else:
        assert done.stdout == "half\n"
        assert f"failed: worker@1.0 {child.name}" in done.stderr
        assert f"error[E-RUN-915]: {why}; its last stderr lines were:\noops" in done.stderr
        assert f"  hint: its records are in {child}" in done.stderr
    assert completion(child)["status"] == "error"
    assert event(project.child("delegate"), "session_end")["exit_status"] == 1


@pytest.mark.spec("O4", "X4")
def test_a_script_that_fails_is_1_with_its_reason(project: Project) -> None:
    project.script("notes", "sh", "-c", "echo oops >&2; exit 3")
    done = project.delegate("notes@1.0", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["status"], document["code"]) == ("error", "E-RUN-915")
    assert "ended with exit status: 3" in document["detail"]
    assert "oops" in document["detail"]


@pytest.mark.spec("M1", "O4")
def test_a_capsule_that_takes_no_task_is_waited_for(project: Project) -> None:
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    done = project.delegate("once@1.0")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("ok: once@1.0 ses_")


@pytest.mark.slow  # The deadline is a second away.
@pytest.mark.spec("W2", "W3", "O4")
def test_an_agent_at_work_at_the_deadline_is_ended_and_that_is_5(project: Project) -> None:
    project.put("worker", "sleep", "1000")
    done = project.delegate("worker@1.0", "--task", "x", "--deadline", "1s", "--json")
    assert done.returncode == 5
    document = json.loads(done.stdout)
    assert (document["status"], document["code"]) == ("terminated", "E-RUN-916")
    child, parent = project.child("worker"), project.child("delegate")
    told = completion(child)
    detail = "the capsule was still running after 1s and was ended at the delegation deadline"
    assert (told["status"], told["reported_by"], told["delivered"]) == ("terminated", "launcher", True)
    assert told["detail"] == detail
    assert detail in document["detail"]
    assert events(parent).count("completion") == 1
    assert "ended: terminated" in event(parent, "completion")["text"]
    assert event(parent, "session_end")["exit_status"] == 5
    assert outstanding(parent) == []


@pytest.mark.slow  # The deadline is a second away.
@pytest.mark.spec("W2", "O4")
def test_a_script_at_work_at_the_deadline_is_ended_and_that_is_5(project: Project) -> None:
    project.script("notes", "sleep", "1000")
    done = project.delegate("notes@1.0", "--deadline", "1s", "--json")
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["code"] == "E-RUN-916"
    assert project.processes == {}
    assert outstanding(project.child("delegate")) == []


@pytest.mark.spec("O4")
def test_work_that_is_done_before_the_deadline_is_ok(project: Project) -> None:
    project.put("worker", "cat")
    assert project.delegate("worker@1.0", "--task", "x", "--deadline", "10m").returncode == 0


@pytest.mark.spec("O4")
@pytest.mark.parametrize("deadline", ["soon", "-1s", ""])
def test_a_deadline_that_means_nothing_is_a_usage_error(project: Project, deadline: str) -> None:
    project.put("worker", "cat")
    done = project.delegate("worker@1.0", "--task", "x", "--deadline", deadline)
    assert done.returncode == 2
    assert project.records == []


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    ("capsule", "code", "words"),
    [
        ("nobody@1.0", "E-RUN-008", "there is no capsule nobody@1.0"),
        ("worker@2.0", "E-RUN-008", "there is no capsule worker@2.0"),
        ("worker", "E-RUN-008", "names no version"),
        ("worker@", "E-RUN-008", "no capsule has the version"),
        ("a/../worker@1.0", "E-RUN-008", "no capsule is called"),
        ("../worker@1.0", "E-RUN-008", "no capsule is called"),
        ("worker@../1.0", "E-RUN-008", "no capsule has the version"),
        ("work\x1b[31mer@1.0", "E-RUN-008", "no capsule is called"),
        ("broken@1.0", "E-RUN-907", "process"),
    ],
)
def test_a_capsule_that_no_store_holds_is_refused_by_name_with_nothing_begun(
    project: Project, capsule: str, code: str, words: str
) -> None:
    project.put("worker", "cat")
    project.put("broken", process={})
    done = project.delegate(capsule, "--task", "x")
    assert done.returncode == (4 if code == "E-RUN-008" else 1)
    assert done.stdout == ""
    assert f"error[{code}]" in done.stderr
    assert words in done.stderr
    assert "\x1b" not in done.stderr
    assert project.records == []


@pytest.mark.spec("O4")
def test_with_json_a_refusal_is_the_one_document_on_stdout(project: Project) -> None:
    done = project.delegate("nobody@1.0", "--json")
    assert done.returncode == 4
    assert done.stderr == ""
    assert json.loads(done.stdout)["error"].keys() == {"code", "message", "hint"}


@pytest.mark.spec("O4", "C5")
def test_a_capsule_gets_a_variable_that_it_declares_and_nothing_else_of_ours(project: Project) -> None:
    project.put("worker", "env", capabilities={"env": {"allow": ["DECLARED"]}})
    done = project.delegate("worker@1.0", "--task", "x", "--env", "DECLARED", DECLARED="yes", OTHER="no")
    assert done.returncode == 0
    assert "DECLARED=yes\n" in done.stdout
    assert "OTHER" not in done.stdout
    assert "MURMUR_SPAWNER" not in done.stdout


@pytest.mark.spec("O4")
def test_a_variable_that_the_capsule_does_not_declare_or_that_is_not_set_is_refused(project: Project) -> None:
    project.put("worker", "env", capabilities={"env": {"allow": ["DECLARED"]}})
    for name, words in (
        ("OTHER", "does not declare OTHER in capabilities.env.allow"),
        ("DECLARED", "DECLARED is not set"),
    ):
        done = project.delegate("worker@1.0", "--task", "x", "--env", name, OTHER="no")
        assert done.returncode == 4
        assert "error[E-RUN-047]" in done.stderr
        assert words in done.stderr
    assert project.records == []


@pytest.mark.spec("O4")
def test_a_task_for_a_capsule_that_takes_none_and_none_for_one_that_waits_for_one_are_refused(project: Project) -> None:
    project.put("once", "true", lifecycle={"task_acceptance": "none"})
    project.put("worker", "cat")
    for arguments, words in ((("once@1.0", "--task", "x"), "takes no task"), (("worker@1.0",), "waits for a task")):
        done = project.delegate(*arguments)
        assert done.returncode == 4
        assert words in done.stderr
    assert project.records == []


@pytest.mark.spec("M2", "O4")
def test_a_capsule_whose_files_change_between_approval_and_registration_is_refused(project: Project) -> None:
    folder, ran = project.put("worker", "cat"), project.path / "ran"
    changing = project.program(f'echo more > {folder}/more\nexec {MUR} "$@"')
    (folder / "murmur.yaml").write_text((folder / "murmur.yaml").read_text().replace("cat", f"touch {ran}"))
    done = project.delegate("worker@1.0", "--task", "x", MURMUR_MUR_BINARY=str(changing))
    assert done.returncode == 4
    assert "E-RUN-047" in done.stderr
    assert "changed" in done.stderr
    assert not ran.exists()
    assert [trace(each)[0]["capsule_name"] for each in project.records] == ["delegate"]
    assert outstanding(project.child("delegate")) == []


@pytest.mark.spec("X6", "O4")
def test_a_child_that_does_not_report_itself_is_told_of_with_what_it_said(project: Project) -> None:
    project.put("worker", "cat")
    rude = project.program("read -r _; echo because >&2; exit 7")
    done = project.delegate("worker@1.0", "--task", "x", "--json", MURMUR_MUR_BINARY=str(rude))
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "E-RUN-914"
    assert "exited without reporting a launch line (exit status: 7): because" in error["message"]


@pytest.mark.spec("W2", "X4")
def test_a_child_that_is_killed_at_work_is_told_of_as_crashed(project: Project) -> None:
    up = project.fifo()
    project.put("worker", "sh", "-c", f"echo $PPID > {up}; exec sleep 1000")
    delegating = project.start("worker@1.0", "--task", "x", "--json")
    os.kill(int(up.line()), signal.SIGKILL)
    status, stdout, _ = delegating.wait()
    assert status == 1
    document = json.loads(stdout)
    assert (document["status"], document["code"]) == ("crashed", "E-RUN-915")
    assert "signal: 9 (SIGKILL)" in document["detail"]
    told = completion(project.child("worker"))
    assert (told["status"], told["reported_by"], told["delivered"]) == ("crashed", "launcher", True)
    assert "ended: crashed" in event(project.child("delegate"), "completion")["text"]
    assert project.processes == {}


@pytest.mark.spec("W2")
def test_a_command_that_is_killed_at_work_is_a_task_that_failed(project: Project) -> None:
    project.put("worker", "sh", "-c", "kill -9 $$")
    done = project.delegate("worker@1.0", "--task", "x", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["status"] == "error"
    assert "signal: 9 (SIGKILL)" in document["detail"]


def test_a_reader_that_leaves_changes_nothing(project: Project) -> None:
    project.put("worker", "cat")
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [MUR, "delegate", "worker@1.0", "--task", "x"],
        cwd=project.path, stdin=subprocess.DEVNULL, stdout=write_end, stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert is_closed(read_end)
    assert done.returncode == 0
    assert done.stderr.startswith(b"ok: ")


@pytest.mark.spec("E1")
def test_a_capsule_that_stays_after_its_task_is_ended(project: Project) -> None:
    project.put("worker", "cat", lifecycle={"task_acceptance": "single", "after_task": "sleep"})
    done = project.delegate("worker@1.0", "--task", "x")
    assert (done.returncode, done.stdout) == (0, "x\n")
    told = completion(project.child("worker"))
    assert (told["status"], told["reported_by"]) == ("terminated", "launcher")
    assert project.processes == {}


@pytest.mark.spec("I3", "P4")
def test_a_capsule_with_an_authenticated_door_gets_its_task_with_the_token_of_its_readiness_line(
    project: Project,
) -> None:
    bearer = {"authentication": {"scheme": "bearer", "credentials": {}}}
    project.put("worker", "tr", "a-z", "A-Z", network=bearer)
    done = project.delegate("worker@1.0", "--task", "hello")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
