"""`mur ps`: what a person and a program see, and what is left of the files (O1, S2, S3, S5, H1-H3)."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import MUR, Hosts, mur, mur_json, record, write_record

WAITS = ("sleep", "1000")


def on_a_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """Run `mur` on a terminal of that width and return what it drew."""
    leader, follower = pty.openpty()
    drawn = b""
    with subprocess.Popen(
        [MUR, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"} | environment,
    ):
        os.close(follower)
        try:
            while data := os.read(leader, 4096):
                drawn += data
        except OSError:  # Linux says EIO at the end of a terminal.
            pass
        os.close(leader)
    return drawn.decode()


@pytest.mark.spec("O1", "H2")
def test_an_empty_machine_says_so_and_gets_its_directory(home: Path) -> None:
    ended = mur("ps")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "no running capsules\n", "")
    assert [(home / name).stat().st_mode & 0o777 for name in (".murmur", ".murmur/running")] == [0o700, 0o700]


@pytest.mark.spec("O1")
def test_live_sessions_are_listed_newest_first(hosts: Hosts) -> None:
    first, second = hosts.start(*WAITS), hosts.start(*WAITS)
    lines = mur("ps").stdout.splitlines()
    assert lines[0].split() == ["SESSION", "CAPSULE", "STATUS", "DETACHED", "UPTIME", "URL"]
    assert [line.split()[0] for line in lines[1:]] == [second.session_id, first.session_id]
    assert lines[1].split()[1:4] == ["sleep@0.0.0", "running", "yes"]
    assert lines[1].split()[-1] == second.ready["url"]


@pytest.mark.spec("O1")
def test_json_is_one_array_with_every_pinned_key(hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    (row,) = mur_json("ps")
    assert (
        row.items()
        >= {
            "session_id": hosted.session_id,
            "capsule_name": "sleep",
            "capsule_version": "0.0.0",
            "status": "running",
            "reason": None,
            "pid": hosted.process.pid,
            "url": hosted.ready["url"],
            "workdir": str(hosted.records),
            "outlives_launcher": True,
            "formation_id": None,
            "spawned_by": None,
        }.items()
    )
    assert row["started_at"].endswith("Z")


@pytest.mark.spec("O1", "L9", "G1")
def test_a_killed_session_is_pruned_with_its_companions_and_counted(hosts: Hosts, running: Path) -> None:
    hosted = hosts.start(*WAITS)
    (running / f"{hosted.session_id}.control").write_text("ctl1.a.b")
    hosted.kill(signal.SIGKILL)
    hosted.wait()
    ended = mur("ps", "--verbose")
    assert ended.stdout == "no running capsules\n"
    assert ended.stderr.splitlines()[0] == "pruned 1 stale record"
    assert f"removed: {hosted.session_id}.json: no process holds pid {hosted.process.pid}" in ended.stderr
    assert list(running.iterdir()) == []


@pytest.mark.slow  # A frozen door is waited for as long as the contract says: 5 seconds.
@pytest.mark.spec("O1", "P5", "P6")
def test_a_frozen_session_is_unreachable_and_kept_until_it_thaws(hosts: Hosts) -> None:
    frozen, well = hosts.start(*WAITS), hosts.start(*WAITS)
    frozen.kill(signal.SIGSTOP)
    rows = {row["session_id"]: row for row in mur_json("ps")}
    assert rows[well.session_id]["status"] == "running"
    assert rows[frozen.session_id]["status"] == "unreachable"
    assert rows[frozen.session_id]["reason"] == "timed out after 5s without an answer"
    frozen.kill(signal.SIGCONT)
    assert {row["status"] for row in mur_json("ps")} == {"running"}


@pytest.mark.spec("O1", "P3")
def test_the_reason_of_an_unreachable_row_is_told_on_stderr(running: Path) -> None:
    write_record(running)
    ended = mur("ps")
    assert ended.returncode == 0
    assert "unreachable" in ended.stdout
    assert ended.stderr == "unreachable: ses_0199c4e2f1b7712a9d3e4f5061728394: connection refused\n"


@pytest.mark.spec("O1", "I3")
def test_no_token_is_ever_shown(running: Path) -> None:
    write_record(running, door_token="mdt1.hidden.mac", credentials={"watcher": "mdt1.hidden.mac"})
    for arguments in (
        ["ps"],
        ["ps", "--json"],
        ["ps", "-v"],
        ["stop", "@1", "--dry-run", "--json"],
        ["prune", "--json"],
    ):
        ended = mur(*arguments)
        assert "hidden" not in ended.stdout + ended.stderr
        assert ended.returncode == 0


@pytest.mark.spec("O1")
def test_a_formation_has_its_column_only_where_there_is_one(running: Path) -> None:
    write_record(running)
    assert "FORMATION" not in mur("ps").stdout
    write_record(running, session_id="ses_0199c4e2f1b7712a9d3e4f5061728395", formation_id="frm_" + "0" * 32)
    lines = mur("ps").stdout.splitlines()
    assert lines[0].split()[-2:] == ["FORMATION", "URL"]
    assert [line.split()[-2] for line in lines[1:]] == ["frm_" + "0" * 32, "-"]


@pytest.mark.spec("O1", "S5")
@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_names_that_could_deceive_are_shown_escaped_under_any_locale(running: Path, locale: str) -> None:
    write_record(running, "odd", session_id="../../x", capsule_name="a\x1b[31m\u202eb\n漢字", url="localhost:1\r")
    ended = mur("ps", LC_ALL=locale, LANG=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert r"a\x1b[31m\u202eb\x0a" in ended.stdout
    assert "../../x" in ended.stdout
    assert "kept: odd.json: it is not named after its session ../../x" in ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


@pytest.mark.spec("O1")
def test_columns_line_up_by_display_width(running: Path) -> None:
    write_record(running, capsule_name="漢字")
    write_record(running, session_id="ses_0199c4e2f1b7712a9d3e4f5061728395", capsule_name="abcd")
    wide, plain = sorted(mur("ps", PYTHONUTF8="1").stdout.splitlines()[1:], key=str.isascii)
    assert plain.index("unreachable") - wide.index("unreachable") == 2  # Two characters of two columns each.


@pytest.mark.spec("O1")
def test_colour_is_for_terminals_whose_user_wants_it(running: Path) -> None:
    write_record(running)
    assert "\x1b[33munreachable\x1b[0m" in on_a_terminal(200, "ps")
    assert "\x1b" not in on_a_terminal(200, "ps", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(200, "ps", TERM="dumb")
    assert "\x1b" not in mur("ps").stdout


@pytest.mark.spec("O1")
def test_a_narrow_terminal_gets_the_ends_of_ids_which_are_addresses(running: Path) -> None:
    write_record(running)
    lines = on_a_terminal(80, "ps", NO_COLOR="1").splitlines()
    assert all(len(line) <= 80 for line in lines)
    address = lines[1].split()[0]
    assert address == "4f5061728394"
    assert mur("stop", address, "--dry-run").returncode == 0


@pytest.mark.spec("O1")
def test_a_reader_that_leaves_early_is_silence(running: Path) -> None:
    for last in range(10, 40):
        write_record(running, session_id=f"ses_0199c4e2f1b7712a9d3e4f50617283{last}")
    ended = subprocess.run(f'"{MUR}" ps | head -1', shell=True, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("SESSION")
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr


@pytest.mark.spec("R5", "S1", "S3", "O1")
def test_hostile_files_beside_good_records_are_reported_and_mostly_kept(running: Path, tmp_path: Path) -> None:
    good = write_record(running)
    target = tmp_path / "target.json"
    target.write_text("{")
    os.mkfifo(running / "fifo.json")
    (running / "directory.json").mkdir()
    (running / "link.json").symlink_to(target)
    (running / "zero.json").symlink_to("/dev/zero")
    (running / "empty.json").write_text("")
    (running / "big.json").write_bytes(b" " * 2 * 1024 * 1024)
    (running / "deep.json").write_text('{"x":' + "[" * 100_000 + "]" * 100_000 + "}")
    Path(os.fsdecode(os.fsencode(running) + b"/\xff.json")).write_text("{")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(running / "socket.json"))
        ended = mur("ps", "--verbose")
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[1].split()[0] == good.stem
    assert "pruned 2 unreadable or leftover files" in ended.stderr
    for reason in (
        "kept: fifo.json: it is a FIFO",
        "kept: directory.json: it is a directory",
        "kept: link.json: it is a symbolic link",
        "kept: zero.json: it is a symbolic link",
        "kept: big.json: it is larger than 1048576 bytes",
        "kept: deep.json: it is nested deeper than this reader can hold",
        "kept: socket.json: it is a socket",
        "removed: empty.json: it is not JSON",
        "removed: \\udcff.json: it is not JSON",
    ):
        assert reason in ended.stderr
    assert target.read_text() == "{"
    assert len(list(running.iterdir())) == 8


@pytest.mark.spec("S3", "R3")
@pytest.mark.parametrize("unknown", ["[" * 3000 + "]" * 3000, "1" * 5000])
def test_a_record_beyond_our_parser_is_kept_whatever_is_made_of_it(running: Path, unknown: str) -> None:
    path = running / "ses_x.json"
    path.write_text(json.dumps(record(session_id="ses_x"))[:-1] + f', "later": {unknown}}}')
    ended = mur("ps")
    assert ended.returncode == 0
    assert path.exists()
    # Some Pythons can hold the nesting; then the record is a row, else it is reported.
    assert "ses_x" in ended.stdout or "kept: ses_x.json: it " in ended.stderr


@pytest.mark.spec("H1", "O1")
@pytest.mark.parametrize(
    ("home_value", "message"), [("", "HOME is empty"), ("here", "HOME is not an absolute path: here")]
)
@pytest.mark.parametrize("command", [("ps",), ("stop", "@1"), ("token",), ("prune",)])
def test_an_unusable_home_is_one_error_and_status_6(home_value: str, message: str, command: tuple[str, ...]) -> None:
    ended = mur(*command, HOME=home_value)
    assert ended.returncode == 6
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"error[E-RUN-028]: {message}")
    assert len(ended.stderr.splitlines()) == 2


@pytest.mark.spec("H2", "O1", "O2", "O3")
@pytest.mark.parametrize("command", [("ps",), ("stop", "@1"), ("token",), ("prune",)])
def test_a_murmur_home_that_is_a_file_is_named_and_left_alone(home: Path, command: tuple[str, ...]) -> None:
    (home / ".murmur").write_text("mine")
    ended = mur(*command)
    assert ended.returncode == 6
    assert ended.stderr.startswith(f"error[E-RUN-028]: {home}/.murmur: Not a directory")
    assert (home / ".murmur").read_text() == "mine"


@pytest.mark.spec("O1")
def test_with_json_an_unusable_registry_is_a_document(home: Path) -> None:
    (home / ".murmur").write_text("")
    ended = mur("ps", "--json")
    assert ended.returncode == 6
    assert json.loads(ended.stdout)["error"].keys() == {"code", "message", "hint"}
    assert ended.stderr == ""


@pytest.mark.spec("S3", "P6", "L7")
def test_few_descriptors_cost_no_row_its_truth(running: Path, hosts: Hosts) -> None:
    hosted = hosts.start(*WAITS)
    answering = json.loads((running / f"{hosted.session_id}.json").read_text())
    for number in range(200):
        session_id = f"ses_0199c4e2f1b7712a9d3e4f50{number:08d}"
        write_record(running, session_id=session_id, **{key: answering[key] for key in ("url", "pid", "process_start")})
    ended = subprocess.run(
        ["sh", "-c", f'ulimit -n 20; exec "{MUR}" ps --json'], capture_output=True, text=True, check=False, timeout=30
    )
    assert ended.returncode == 0
    rows = json.loads(ended.stdout)
    assert len(rows) == 201
    # They all point to one door, which answers, for its own session.
    assert {row["reason"] for row in rows} == {
        None,
        f"the capsule at {answering['url']} answers for session {hosted.session_id}",
    }
    assert len(list(running.glob("*.json"))) == 201


@pytest.mark.spec("O1")
@pytest.mark.parametrize("command", [("ps",), ("ps", "--json"), ("token",)])
def test_a_full_disk_behind_stdout_is_no_success(running: Path, command: tuple[str, ...]) -> None:
    write_record(running, door_token="mdt1.hidden.mac")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([MUR, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "error[E-RUN-913]: the result could not be written to stdout: no space left on device"
    )


@pytest.mark.spec("O1", "O2", "O3")
def test_no_name_of_a_record_forges_a_line_of_ours(running: Path) -> None:
    forged = "x\nerror[E-RUN-999]: forged"
    write_record(running, "a", session_id=forged, capsule_name=forged, url=f"localhost:1{forged}")
    (running / "a.origin").write_text('{"machine_id": "another"}')
    for command in (("ps",), ("stop", "@1"), ("token", "@1"), ("prune", "--unverified", "@1"), ("send", "@1", "x")):
        ended = mur(*command)
        assert not any(line.startswith("error[E-RUN-999]") for line in (ended.stdout + ended.stderr).splitlines())


# Everything is imported before the user changes, who may not be able to read the interpreter's own files.
AS_NOBODY = """
import importlib, os, sys
from murmur.cli.main import main
importlib.import_module(f"murmur.cli.{sys.argv[1]}")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main()
"""


@pytest.mark.spec("H2")
@pytest.mark.parametrize("command", [("ps",), ("stop", "--all"), ("token",), ("prune",)])
def test_every_command_refuses_a_running_directory_that_is_not_ours_alone(command: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory() as place:  # Where others may go, unlike pytest's own.
        running = Path(place, ".murmur", "running")
        running.mkdir(parents=True)
        for directory in (Path(place), running.parent, running):
            directory.chmod(0o755)
        ended = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, *command],
            env=os.environ | {"HOME": place},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 6, ended.stderr
    assert ended.stderr.startswith(f"error[E-RUN-028]: {place}/.murmur")


def numbered(number: int) -> str:
    return f"ses_0199c4e2f1b7712a9d3e4f5061728{number:03}"


@pytest.fixture
def family(running: Path) -> Path:
    """Records of a session, its two children, a grandchild, another, and one whose spawner is not listed."""
    rows = ((1, "root", None), (2, "first", 1), (3, "other", None), (4, "deep", 2), (5, "second", 1), (6, "lone", 7))
    for number, name, by in rows:
        lineage = {} if by is None else {"spawned_by": numbered(by)}
        write_record(running, session_id=numbered(number), capsule_name=name, **lineage)
    return running


UTF8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}


@pytest.mark.spec("O1")
def test_a_tree_shows_who_spawned_whom_and_each_row_by_the_number_that_addresses_it(family: Path) -> None:
    lines = mur("ps", "--tree", **UTF8).stdout.splitlines()
    assert lines[0].split() == ["@", "SESSION", "CAPSULE", "STATUS", "DETACHED", "UPTIME", "URL"]
    at = lines[0].index("CAPSULE")
    assert [(line.split()[0], line[at:].partition("  unreachable")[0].rstrip()) for line in lines[1:]] == [
        ("@1", f"lone@0.1.0 (of {numbered(7)}, not listed)"),
        ("@4", "other@0.1.0"),
        ("@6", "root@0.1.0"),
        ("@5", "├─ first@0.1.0"),
        ("@3", "│  └─ deep@0.1.0"),
        ("@2", "└─ second@0.1.0"),
    ]
    assert len({line.index("unreachable") for line in lines[1:]}) == 1
    for line in lines[1:]:
        address, session_id = line.split()[:2]
        plan = mur_json("stop", address, "--dry-run")
        assert session_id in json.dumps(plan)


@pytest.mark.spec("O1")
def test_a_tree_changes_nothing_of_the_document_for_programs(family: Path) -> None:
    assert mur_json("ps", "--tree") == mur_json("ps")
    assert [row["spawned_by"] for row in mur_json("ps", "--tree")][:2] == [numbered(7), numbered(1)]


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "1"},
        {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_tree_is_drawn_in_ascii_where_the_locale_has_nothing_else(family: Path, variables: dict[str, str]) -> None:
    drawn = mur("ps", "--tree", **variables).stdout
    assert drawn.isascii()
    for line in ("|- first@0.1.0", "|  `- deep@0.1.0", "`- second@0.1.0"):
        assert f"  {line}  " in drawn


@pytest.mark.spec("O1")
def test_a_tree_fits_a_narrow_terminal_without_the_columns_that_can_be_done_without(family: Path) -> None:
    lines = on_a_terminal(80, "ps", "--tree", NO_COLOR="1", **UTF8).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["@", "SESSION", "CAPSULE", "STATUS"]
    assert f"lone@0.1.0 (of {numbered(7)[-12:]}, not listed)" in lines[1]
    assert lines[5].split()[:5] == ["@3", numbered(4)[-12:], "│", "└─", "deep@0.1.0"]
    (family / f"{numbered(6)}.json").unlink()
    lines = on_a_terminal(80, "ps", "--tree", NO_COLOR="1", **UTF8).splitlines()
    assert max(map(len, lines)) <= 80
    assert "URL" in lines[0]
    wide = on_a_terminal(200, "ps", "--tree", NO_COLOR="1", **UTF8).splitlines()
    assert wide[0].split() == ["@", "SESSION", "CAPSULE", "STATUS", "DETACHED", "UPTIME", "URL"]
    assert numbered(1) in wide[2]


@pytest.mark.spec("O1", "S5")
def test_a_tree_of_records_that_say_anything_ends_and_shows_each_once(running: Path) -> None:
    claims = {1: numbered(3), 2: numbered(1), 3: numbered(2), 4: numbered(4), 5: "x" * 100_000 + "\x1b[31m", 6: ""}
    for number, by in claims.items():
        write_record(running, session_id=numbered(number), capsule_name="└─ x", spawned_by=by)
    ended = mur("ps", "--tree", **UTF8)
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) < 220
    assert [line.split()[1] for line in ended.stdout.splitlines()[1:]] == [
        numbered(each) for each in (6, 5, 4, 3, 1, 2)
    ]
    assert "(of ," not in ended.stdout  # Spawned by nobody is not spawned.
    for mark in ("(of itself)", f"(of {numbered(2)}, in a circle)", "[…], not listed)"):
        assert mark in ended.stdout
    assert ended.stdout.count('"└─ x@0.1.0"') == 6


@pytest.mark.spec("O1")
def test_a_tree_of_nothing_is_told_as_a_list_of_nothing(running: Path) -> None:
    assert mur("ps", "--tree").stdout == "no running capsules\n"
