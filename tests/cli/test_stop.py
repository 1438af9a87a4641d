"""`mur stop`, on real processes (O2, K1-K5)."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import MUR, Hosts, mur, mur_json, write_record

WAITS = ("sleep", "1000")


@pytest.mark.spec("O2", "K1")
def test_a_session_is_stopped_and_nothing_of_it_is_left(hosts: Hosts, running: Path) -> None:
    hosted, other = hosts.start(*WAITS), hosts.start(*WAITS)
    ended = mur("stop", hosted.session_id)
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        f"stopped: {hosted.session_id}",
        "capsule: sleep@0.0.0",
        "signal: SIGTERM",
    ]
    assert hosted.wait() == 0
    assert [row["session_id"] for row in mur_json("ps")] == [other.session_id]
    assert {path.stem for path in running.iterdir()} == {other.session_id}


@pytest.mark.spec("O2")
@pytest.mark.parametrize("form", ["@1", "id", "suffix", "upper"])
def test_every_form_of_an_address_ends_that_session(hosts: Hosts, form: str) -> None:
    hosted = hosts.start(*WAITS)
    session_id = hosted.session_id
    address = {"@1": "@1", "id": session_id, "suffix": session_id[-4:], "upper": session_id[-8:].upper()}[form]
    (target,) = mur_json("stop", address)
    assert target.items() >= {
        "address": address, "session_id": session_id, "outcome": "stopped", "signal": "SIGTERM",
    }.items()  # fmt: skip
    assert hosted.wait() == 0


@pytest.mark.spec("K4", "O2")
def test_a_frozen_session_ends_without_sigkill_and_without_waiting_for_its_door(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    hosted.kill(signal.SIGSTOP)
    started = time.monotonic()
    (target,) = mur_json("stop", "@1")
    assert (target["outcome"], target["signal"], target["door"]) == ("stopped", "SIGTERM", None)
    assert time.monotonic() - started < 1.9
    assert hosted.wait() == 0


@pytest.mark.spec("O2", "K5")
def test_a_session_that_ignores_sigterm_is_killed_at_the_timeout(running: Path) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()",
        ],
        stdout=subprocess.PIPE,
    ) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        start = Path(f"/proc/{stubborn.pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
        path = write_record(running, pid=stubborn.pid, process_start=start)
        (target,) = mur_json("stop", "@1", "--timeout", "0.1")
        assert (target["outcome"], target["signal"]) == ("killed", "SIGKILL")
        assert stubborn.wait(timeout=10) == -signal.SIGKILL
    assert not path.exists()


@pytest.mark.spec("O2")
def test_two_shells_at_once_both_find_it_ended(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    shells = [
        subprocess.Popen([MUR, "stop", hosted.session_id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for shell in shells:
        output, errors = shell.communicate(timeout=20)
        assert "Traceback" not in output + errors
        # The one that came later may have found nothing any more.
        assert shell.returncode in (0, 3), errors
    assert hosted.wait() in (0, 143)  # Two SIGTERMs may meet: the second one is immediate (M3).
    assert mur("ps").stdout == "no running capsules\n"


@pytest.mark.spec("O2")
def test_all_ends_every_row_within_one_grace(hosts: Hosts) -> None:
    sessions = [hosts.start(*WAITS) for _ in range(3)]
    targets = mur_json("stop", "--all")
    assert {target["outcome"] for target in targets} == {"stopped"}
    assert {target["session_id"] for target in targets} == {hosted.session_id for hosted in sessions}
    assert [hosted.wait() for hosted in sessions] == [0, 0, 0]
    assert mur("stop", "--all").stdout == "no running capsules\n"


@pytest.mark.spec("O2")
def test_one_grace_is_shared_by_several_that_ignore_sigterm(running: Path) -> None:
    stubborn = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()",
            ],
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for number, process in enumerate(stubborn):
        assert process.stdout is not None
        process.stdout.readline()
        start = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
        write_record(
            running, session_id=f"ses_0199c4e2f1b7712a9d3e4f506172839{number}", pid=process.pid, process_start=start
        )
    started = time.monotonic()
    assert {target["outcome"] for target in mur_json("stop", "--all", "--timeout", "0.5")} == {"killed"}
    assert time.monotonic() - started < 4 * 0.5
    for process in stubborn:
        with process:
            assert process.wait(timeout=10) == -signal.SIGKILL


@pytest.mark.spec("O2")
def test_an_address_that_names_nothing_is_status_3_with_a_hint(hosts: Hosts) -> None:
    hosts.start(*WAITS)
    for address in ("ses_nothing", "@2", "@0", "@x", "abc", ""):
        ended = mur("stop", address)
        assert ended.returncode == 3
        assert ended.stderr.startswith(f"error[E-RUN-022]: no session {address}: ")
    (target,) = mur_json("stop", "@2")
    assert (target["outcome"], target["session_id"], target["signal"]) == ("not_found", None, None)


@pytest.mark.spec("O2")
def test_an_ambiguous_address_lists_its_matches_and_ends_nothing(running: Path) -> None:
    ids = [f"ses_0199c4e2f1b7712a9d3e4f50617{last}8394" for last in (1, 2)]
    for session_id in ids:
        write_record(running, session_id=session_id)
    ended = mur("stop", "8394")
    assert ended.returncode == 3
    assert ended.stderr.startswith("error[E-RUN-022]: 8394 means 2 sessions:\n")
    assert all(f"  {session_id}  demo\n" in ended.stderr for session_id in ids)
    assert mur_json("stop", "8394")[0]["outcome"] == "ambiguous"


@pytest.mark.spec("O2")
def test_some_of_several_failing_is_status_1_and_the_others_are_ended(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    ended = mur("stop", "@1", "nothing-there")
    assert ended.returncode == 1
    assert f"stopped: {hosted.session_id}" in ended.stdout
    assert "error[E-RUN-022]" in ended.stderr


@pytest.mark.spec("O2")
def test_one_session_under_two_addresses_is_ended_once(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    targets = mur_json("stop", "@1", hosted.session_id)
    assert [target["outcome"] for target in targets] == ["stopped", "stopped"]
    assert hosted.wait() == 0


@pytest.mark.spec("O2")
def test_a_session_that_is_gone_when_resolved_is_not_found_with_the_reason(running: Path) -> None:
    write_record(running, process_start="not-this-process")
    ended = mur("stop", "ses_0199c4e2f1b7712a9d3e4f5061728394")
    assert ended.returncode == 3
    assert "held by a process that started at another time" in ended.stderr


@pytest.mark.spec("L8", "K1", "O2")
def test_an_unverified_session_is_refused_and_nothing_is_signalled(running: Path) -> None:
    path = write_record(running)
    (running / f"{path.stem}.origin").write_text(
        json.dumps({"pid": os.getpid(), "machine_id": "another", "boot_id": "another"})
    )
    ended = mur("stop", "@1")
    assert ended.returncode == 4
    assert ended.stderr.startswith(
        f"error[E-RUN-024]: session {path.stem} was not ended: the session was started on another machine"
    )
    assert path.exists()
    assert mur_json("stop", "@1")[0]["outcome"] == "refused"


@pytest.mark.spec("K1", "L2")
@pytest.mark.parametrize("pid", [0, 1, 2**31, 2**32 - 1])
def test_numbers_that_name_no_session_are_never_signalled(running: Path, pid: int) -> None:
    write_record(running, pid=pid, process_start="1" if pid == 1 else "42")
    if pid == 1 and Path("/proc/1/stat").read_bytes().rpartition(b")")[2].split()[19] == b"1":
        pytest.skip("process 1 really has the start token 1 here")
    assert mur("stop", "--all").stdout == "no running capsules\n"
    assert mur("ps").stdout == "no running capsules\n"


@pytest.mark.spec("O2")
def test_a_dry_run_says_what_would_be_signalled_and_signals_nothing(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    ended = mur("stop", "@1", "--dry-run")
    assert ended.stdout == f"would signal SIGTERM: {hosted.session_id} (sleep, pid {hosted.process.pid})\n"
    assert hosted.process.poll() is None
    assert mur_json("stop", "@1", "--dry-run")[0]["outcome"] == "planned"


@pytest.mark.spec("O2")
def test_a_silent_door_is_reported_and_not_fatal(running: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as session:
        start = Path(f"/proc/{session.pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
        write_record(running, pid=session.pid, process_start=start)
        ended = mur("stop", "@1")
        assert ended.returncode == 0
        assert "door: connection refused" in ended.stdout.splitlines()
        assert session.wait(timeout=10) == -signal.SIGTERM


@pytest.mark.spec("O2")
def test_a_target_whose_spawner_is_a_target_is_signalled_only_if_it_outlives_it(hosts: Hosts, running: Path) -> None:
    spawner, child = hosts.start(*WAITS), hosts.start(*WAITS)
    path = running / f"{child.session_id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spawned_by": spawner.session_id}))
    planned = {target["session_id"]: target["plan"] for target in mur_json("stop", "--all", "--dry-run")}
    assert planned[spawner.session_id].startswith("would signal SIGTERM")
    assert planned[child.session_id].startswith(f"would wait for its spawner {spawner.session_id}")
    targets = {target["session_id"]: target for target in mur_json("stop", "--all", "--timeout", "2")}
    assert {target["outcome"] for target in targets.values()} == {"stopped"}
    assert [spawner.wait(), child.wait()] == [0, 0]


@pytest.mark.spec("O2")
@pytest.mark.parametrize("arguments", [(), ("@1", "--all"), ("@1", "--timeout", "-1"), ("@1", "--timeout", "soon")])
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert mur("stop", *arguments).returncode == 2


@pytest.mark.spec("K5")
def test_a_session_that_obeys_is_reported_as_soon_as_it_is_gone(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    pidfd = os.pidfd_open(hosted.process.pid)
    with subprocess.Popen([MUR, "stop", "@1"], stdout=subprocess.PIPE) as stopping:
        select.select([pidfd], [], [], 10)
        gone = time.monotonic()
        stopping.communicate(timeout=10)
        assert time.monotonic() - gone < 1
    os.close(pidfd)


@pytest.mark.spec("O2")
@pytest.mark.parametrize("shape", ["flat", "chain", "circle"])
def test_planning_takes_no_longer_than_listing_whatever_launched_what(running: Path, shape: str) -> None:
    ids = [f"ses_0199c4e2f1b7712a9d3e4f50{number:08d}" for number in range(600)]
    for at, session_id in enumerate(ids):
        by = {"flat": {}, "chain": {"spawned_by": ids[max(0, at - 1)]}, "circle": {"spawned_by": ids[at - 1]}}[shape]
        write_record(running, session_id=session_id, **by)
    started = time.monotonic()
    listed = len(mur_json("ps"))
    took = time.monotonic() - started
    started = time.monotonic()
    assert len(mur_json("stop", "--all", "--dry-run")) == listed == 600
    assert time.monotonic() - started < 2 * took + 1
