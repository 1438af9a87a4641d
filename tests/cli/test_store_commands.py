"""`mur install`, `mur list` and `mur uninstall`, run as a person runs them."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import MUR, Hosts, mur_json

Mur = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "below").mkdir(parents=True)
    return place


@pytest.fixture
def mur(project: Path) -> Mur:
    def run(*arguments: str, cwd: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [MUR, *arguments], cwd=project / cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return a_folder(tmp_path / "source")


def a_folder(folder: Path, **more: object) -> Path:
    folder.mkdir(exist_ok=True)
    document = {"name": "worker", "version": "1.0", "process": {"command": ["./upper"], "kind": "script"}}
    (folder / "murmur.yaml").write_text(json.dumps(document | more))
    (folder / "upper").write_text("#!/bin/sh\nexec tr a-z A-Z\n")
    (folder / "upper").chmod(0o755)
    return folder


def put(root: Path, *places: str) -> None:
    """Put capsules into the store of a directory, as anybody may by hand."""
    for place in places:
        folder = root / ".murmur" / "artifacts" / place
        folder.mkdir(parents=True)
        (folder / "murmur.yaml").touch()


def test_what_is_installed_from_below_the_project_can_be_delegated_to_from_there(
    mur: Mur, source: Path, project: Path
) -> None:
    (project / ".murmur").mkdir()
    done = mur("install", str(source), cwd="below")
    place = project / ".murmur" / "artifacts" / "worker" / "1.0"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"installed: worker@1.0 in {place}\n", "")
    delegated = mur("delegate", "worker@1.0", "--task", "hello", cwd="below")
    assert (delegated.returncode, delegated.stdout.strip()) == (0, "HELLO")


def test_where_there_is_no_project_here_becomes_one(mur: Mur, source: Path, project: Path) -> None:
    assert mur("install", str(source)).returncode == 0
    assert (project / ".murmur" / "artifacts" / "worker" / "1.0" / "upper").exists()
    assert mur("install", str(source), cwd="below").stdout.startswith("already installed: worker@1.0")


def test_g_means_one_s_own_store(mur: Mur, source: Path, project: Path, home: Path) -> None:
    document = json.loads(mur("install", "-g", str(source), "--json").stdout)
    folder = home / ".murmur" / "artifacts" / "worker" / "1.0"
    assert document == {
        "name": "worker",
        "version": "1.0",
        "folder": str(folder),
        "store": "home",
        "sha256": document["sha256"],
        "outcome": "installed",
    }
    assert len(document["sha256"]) == 64
    assert json.loads(mur("install", "-g", str(source), "--json").stdout) == document | {"outcome": "unchanged"}
    assert not (project / ".murmur").exists()
    assert mur("uninstall", "worker@1.0").returncode == 4
    assert json.loads(mur("uninstall", "-g", "worker@1.0", "--json").stdout) == {
        "name": "worker",
        "version": "1.0",
        "folder": str(folder),
        "store": "home",
    }
    assert not folder.exists()


def test_another_content_under_the_same_version_is_refused_with_what_to_do(mur: Mur, source: Path) -> None:
    mur("install", str(source))
    (source / "upper").write_text("#!/bin/sh\nexec cat\n")
    refused = mur("install", str(source))
    assert refused.returncode == 4
    assert refused.stderr.startswith("error[E-RUN-918]: ")
    assert "hint: give the manifest another version, or `mur uninstall` that one first" in refused.stderr
    assert json.loads(mur("install", str(source), "--json").stdout)["error"]["code"] == "E-RUN-918"
    assert mur("delegate", "worker@1.0", "--task", "hello").stdout.strip() == "HELLO"


@pytest.mark.parametrize(
    ("document", "code", "told"),
    [
        ({"version": "../1"}, "E-RUN-907", "no capsule has the version '../1'"),
        ({"name": "Worker"}, "E-RUN-907", "name: it is made of a-z"),
        ({"version": 1}, "E-RUN-907", "version: "),
    ],
)
def test_a_manifest_that_names_no_capsule_is_refused(
    mur: Mur, source: Path, document: dict[str, object], code: str, told: str
) -> None:
    a_folder(source, **document)
    refused = mur("install", str(source))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error[{code}]: {source}/murmur.yaml")
    assert told in refused.stderr


def test_a_key_that_is_not_known_is_told_when_it_is_installed(mur: Mur, source: Path) -> None:
    a_folder(source, odd=1)
    done = mur("install", str(source))
    assert done.returncode == 0
    assert "odd: this key is not known and has no effect" in done.stderr


def test_in_the_folder_itself_one_is_told_where_to_go(mur: Mur, project: Path) -> None:
    a_folder(project)
    refused = mur("install", ".")
    assert (refused.returncode, refused.stderr[:19]) == (1, "error[E-RUN-919]: /")
    assert "would hold itself" in refused.stderr
    assert not (project / ".murmur").exists()
    assert mur("install", "-g", ".").returncode == 0


def test_one_s_home_is_no_project(mur: Mur, source: Path, project: Path) -> None:
    refused = mur("install", str(source), HOME=str(project))
    assert refused.returncode == 1
    assert "is your home directory and no project" in refused.stderr


def test_where_there_is_no_capsule_the_list_says_so(mur: Mur) -> None:
    assert (mur("list").stdout, mur("list", "--json").stdout) == ("no capsules\n", "[]\n")


def test_the_list_says_what_can_be_launched_and_from_which_store(mur: Mur, project: Path, home: Path) -> None:
    put(project, "worker/1.0")
    put(home, "worker/1.0", "local/worker/1.10")
    assert mur("list", cwd="below").stdout.splitlines() == [
        "NAME          VERSION  STORE",
        "local/worker  1.10     home",
        "worker        1.0      project",
        "worker        1.0      home, shadowed",
    ]
    assert mur("list", "-g").stdout.splitlines()[1:] == ["local/worker  1.10     home", "worker        1.0      home"]
    first, second, _ = json.loads(mur("list", "--json").stdout)
    assert first["name"] == "local/worker"
    assert second == {
        "name": "worker",
        "version": "1.0",
        "folder": str(project / ".murmur" / "artifacts" / "worker" / "1.0"),
        "store": "project",
        "shadowed": False,
    }


def test_what_cannot_be_looked_at_is_a_warning_and_the_status_is_0(mur: Mur, project: Path) -> None:
    put(project, "worker/1.0")
    (project / ".murmur" / "artifacts" / "odd").symlink_to("worker")
    done = mur("list", "--json")
    assert (done.returncode, len(json.loads(done.stdout))) == (0, 1)
    assert done.stderr.startswith("warning: ")
    assert "odd: it is a link" in done.stderr


def test_without_a_home_the_project_s_store_is_listed_and_one_s_own_is_an_error(mur: Mur, project: Path) -> None:
    put(project, "worker/1.0")
    done = mur("list", HOME="")
    assert done.returncode == 0
    assert "worker  1.0      project" in done.stdout
    assert "warning: no store of yours (HOME is empty" in done.stderr
    assert mur("list", "-g", HOME="").returncode == 6


def test_what_a_capsule_s_command_can_delegate_to_it_can_list(mur: Mur, project: Path) -> None:
    put(project, "worker/1.0", "listing/1.0")
    a_folder(
        project / ".murmur" / "artifacts" / "listing" / "1.0",
        name="listing",
        process={"command": [str(MUR), "list"], "kind": "script"},
    )
    # It works in a folder of its own, outside the project.
    done = mur("delegate", "listing@1.0")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["listing", "1.0", "project"],
        ["worker", "1.0", "project"],
    ], done.stderr


def test_uninstalling_tells_what_is_gone_and_leaves_running_sessions(
    mur: Mur, source: Path, project: Path, hosts: Hosts
) -> None:
    a_folder(source, process={"command": ["cat"]}, lifecycle={"after_task": "sleep"})
    mur("install", str(source))
    folder = project / ".murmur" / "artifacts" / "worker" / "1.0"
    hosts.from_manifest(folder / "murmur.yaml")
    done = mur("uninstall", "worker@1.0")
    assert (done.returncode, done.stdout) == (0, f"uninstalled: worker@1.0 from {folder}\n")
    assert "sessions of it that run were not ended" in done.stderr
    assert not folder.parent.exists()
    assert [row["status"] for row in mur_json("ps")] == ["running"]
    again = mur("uninstall", "worker@1.0")
    assert (again.returncode, again.stderr[:18]) == (4, "error[E-RUN-008]: ")


@pytest.mark.parametrize("address", ["worker", "../worker@1", "worker@..", "worker@1.0/.."])
def test_what_names_no_version_of_a_capsule_uninstalls_nothing(mur: Mur, project: Path, address: str) -> None:
    put(project, "worker/1.0")
    assert mur("uninstall", address).returncode == 4
    assert (project / ".murmur" / "artifacts" / "worker" / "1.0" / "murmur.yaml").exists()


@pytest.mark.parametrize("command", [["list"], ["install", "x"], ["uninstall", "x@1"], ["delegate", "x@1"]], ids=str)
def test_in_a_directory_that_is_gone_that_is_the_error(tmp_path: Path, command: list[str]) -> None:
    code = 'cd gone && rmdir ../gone && exec "$@"'
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", code, "sh", str(MUR), *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error[E-RUN-919]: the current directory: no such file")
