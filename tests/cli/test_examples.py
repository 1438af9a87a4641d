"""The capsules of `examples/`, used as their page says, and what becomes of one that is cut short (O4, M3)."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.capsules_for_tests import Family, Project, completion, event, events, trace, until
from tests.cli.conftest import MUR, mur, mur_json

EXAMPLES = Path(__file__).parents[2] / "examples"
SECTIONS = dict(
    re.findall(
        r"^## (\w+):.*?^```console\n(.*?)^```$", (EXAMPLES / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
)
AT_ONCE = 5.0
"""Seconds in which three levels have ended that obey."""


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A folder with the examples in it, and `mur` on the PATH."""
    made = Project(tmp_path / "project", home)
    shutil.copytree(EXAMPLES, made.path / "examples")
    monkeypatch.setenv("PATH", f"{MUR.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(made.path)
    yield made
    made.close()


def same_everywhere(text: str, home: Path | None = None) -> str:
    """Leave out what is another each time."""
    text = text if home is None else text.replace(str(home), "/home/kim")
    for pattern, instead in (
        (r"\b(ses|tsk)_\w{32}\b", r"\1_…"),
        (r"localhost:\d+", "localhost:…"),
        (r"\d+\.\d s", "… s"),
    ):
        text = re.sub(pattern, instead, text)
    return text


def follow(section: str, project: Project) -> None:
    """Run each command of a section of the page, and hold what it prints to what the page says."""
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", SECTIONS[section], re.MULTILINE)
    assert len(steps) > 3
    for command, expected in steps:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=project.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert same_everywhere(done.stdout, project.home) == same_everywhere(expected), command
        assert done.returncode == 0, command


def install(*names: str) -> None:
    for name in names:
        assert mur("install", f"examples/{name}").returncode == 0


def test_the_page_has_a_section_for_each_example_that_is_tested_here() -> None:
    assert list(SECTIONS) == ["lead", "ledger"]
    assert {each.parent.name for each in EXAMPLES.rglob("murmur.yaml")} == {"lead", "worker", "ledger"}


@pytest.mark.slow  # Five sessions, one after the other, on three levels.
@pytest.mark.spec("O4")
def test_the_lead_delegates_from_inside_as_its_page_says(project: Project) -> None:
    follow("lead", project)
    assert project.recorded == []
    assert project.processes == {}
    names = [trace(each)[0]["capsule_name"] for each in project.records]
    assert sorted(names) == ["delegate", "lead", "lead", "worker", "worker", "worker"]


@pytest.mark.slow  # Nine commands, each an interpreter.
@pytest.mark.spec("M1")
def test_the_ledger_loops_over_its_queue_as_its_page_says(project: Project) -> None:
    follow("ledger", project)
    until(lambda: project.processes == {})
    assert mur_json("ps") == []


@pytest.mark.slow  # Three levels of a host, its command and a delegation.
@pytest.mark.spec("O1", "M3", "E5")
def test_when_the_root_of_three_levels_is_killed_all_are_gone_and_their_traces_have_ends(project: Project) -> None:
    install("lead")
    up = project.fifo()
    project.put("worker", "sh", "-c", f"echo up >{up}; exec sleep 1000")
    root = project.start("lead@1.0", "--task", "fence\n    paint\n")
    up.line()
    heading, *rows = mur("ps", "--tree", LC_ALL="C").stdout.splitlines()
    names = [row[heading.index("CAPSULE") :].partition("@")[0] for row in rows]
    assert names == ["delegate", "`- lead", "   `- lead", "      `- worker"]
    with Family.of(root.pid) as family:
        assert len(family.pidfds) >= 10
        root.signal(signal.SIGKILL)
        root.wait()
        assert family.left(AT_ONCE) == {}
    assert mur_json("ps") == []
    assert project.processes == {}
    _, *children = project.records
    assert [trace(each)[0]["capsule_name"] for each in children] == ["lead", "lead", "worker"]
    for records in children:
        seen = events(records)
        assert seen[-1] == "session_end"
        assert completion(records)["status"] in ("error", "terminated")
        # Whose spawner was still there to end in order was ended by it, and has not seen its end.
        by_its_spawner = completion(records).get("detail") == "the parent ended this delegation"
        assert seen.count("spawner_ended") + by_its_spawner == 1, seen
    first = children[0]
    assert event(first, "spawner_ended")["spawned_by"] == project.records[0].name
    assert [each for each in events(first) if each in ("spawner_ended", "session_end")] == [
        "spawner_ended",
        "session_end",
    ]


@pytest.mark.slow  # Three levels, and the refusal on its way back up.
@pytest.mark.spec("O4")
def test_a_plan_that_is_four_levels_deep_is_refused_with_the_reason(project: Project) -> None:
    install("lead", "worker")
    done = project.delegate("lead@1.0", "--task", "a\n b\n  c\n")
    assert done.returncode == 1
    refusal = r"the referee at \S+ refused: session ses_\w{32} may launch nothing: it is 3 launches deep, the limit"
    assert re.search(refusal, done.stderr.partition("error[E-RUN-915]")[2])
    assert [trace(each)[0]["capsule_name"] for each in project.records] == ["delegate", "lead", "lead", "lead"]
    assert project.processes == {}


@pytest.mark.slow  # Three sessions and two launches.
@pytest.mark.spec("O4")
def test_no_line_of_a_plan_is_taken_for_the_name_of_a_file(project: Project) -> None:
    install("lead", "worker")
    # There is one of that name, with the whole plan, where the command of the lead works.
    done = project.delegate("lead@1.0", "--task", "task.md\nanother")
    assert (done.returncode, done.stdout) == (0, "done: task.md\ndone: another\n")
