"""`mur prune`: on evidence, or because a person says so (H5, L8, L9)."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import mur, mur_json, write_record

DEAD = {"process_start": "not-this-process"}


@pytest.mark.spec("H5", "G1")
def test_what_is_stale_is_removed_and_named(running: Path) -> None:
    path = write_record(running, **DEAD)
    (running / f"{path.stem}.control").write_text("ctl1.a.b")
    (running / "broken.json").write_text("{")
    staged = running / f".x.json.{2**31 - 1}.{'0' * 32}.tmp"
    staged.write_text("half")
    os.utime(staged, (time.time() - 61, time.time() - 61))
    fresh = running / f".y.json.{2**31 - 1}.{'0' * 32}.tmp"
    fresh.write_text("half")
    ended = mur("prune")
    assert ended.returncode == 0
    assert sorted(line.split(": ")[1] for line in ended.stdout.splitlines()) == sorted(
        [path.name, "broken.json", staged.name]
    )
    assert list(running.iterdir()) == [fresh]
    assert mur("prune").stdout == "nothing to prune\n"


@pytest.mark.spec("H5")
def test_a_dry_run_names_the_same_and_removes_nothing(running: Path) -> None:
    write_record(running, **DEAD)
    (running / "broken.json").write_text("{")
    before = sorted(running.iterdir())
    planned = mur_json("prune", "--dry-run")
    assert sorted(running.iterdir()) == before
    assert planned["removed"] == mur_json("prune")["removed"]
    assert list(running.iterdir()) == []


@pytest.mark.spec("H5", "H3")
def test_a_dry_run_on_an_empty_machine_creates_nothing(home: Path) -> None:
    assert mur("prune", "--dry-run").stdout == "nothing to prune\n"
    assert list(home.iterdir()) == []


@pytest.mark.spec("L8")
def test_an_unverified_record_goes_only_when_a_person_says_so(running: Path) -> None:
    path = write_record(running)
    (running / f"{path.stem}.origin").write_text(json.dumps({"machine_id": "another"}))
    assert mur("prune").stdout == "nothing to prune\n"
    assert mur("prune", "--unverified", "@1", "--dry-run").stdout.startswith(f"would remove: {path.name}: unverified: ")
    assert path.exists()
    assert mur("prune", "--unverified", "@1").stdout.startswith(f"removed: {path.name}: unverified: ")
    assert list(running.iterdir()) == []


@pytest.mark.spec("L8", "L9")
def test_a_verified_record_stays_whatever_a_person_says(running: Path) -> None:
    path = write_record(running)
    ended = mur("prune", "--unverified", "@1")
    assert ended.returncode == 4
    assert ended.stderr.startswith("error[E-RUN-024]: ")
    assert path.exists()


@pytest.mark.spec("H5")
def test_a_control_token_without_record_and_origin_is_kept_and_reported(running: Path) -> None:
    path = running / "ses_rust.control"
    path.write_text("ctl1.a.b")
    ended = mur("ps")
    assert "kept: ses_rust.control: it has no record, and no origin file says whose it is" in ended.stderr
    assert path.exists()


@pytest.mark.spec("L8")
def test_a_record_that_was_to_be_removed_and_is_still_there_is_a_failure(running: Path) -> None:
    path = write_record(running)
    (running / f"{path.stem}.origin").write_text(json.dumps({"machine_id": "another"}))
    immutable = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
    if immutable.returncode != 0:
        pytest.skip("this file system or user cannot make a file immutable")
    try:
        ended = mur("prune", "--unverified", "@1")
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"error[E-RUN-912]: {path.name}: it could not be removed")
