"""`mur token`: the token, a newline, and nothing else (O3)."""

from pathlib import Path

import pytest

from tests.cli.conftest import mur, write_record


@pytest.mark.spec("O3", "I3")
def test_the_operator_token_and_a_newline_are_all_that_is_printed(running: Path) -> None:
    write_record(running, door_token="mdt1.op.mac", credentials={"watcher": "mdt1.w.mac"})
    for arguments in ((), ("@1",), ("8394",), ("@1", "--credential", "operator")):
        ended = mur("token", *arguments)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "mdt1.op.mac\n", "")
    assert mur("token", "--credential", "watcher").stdout == "mdt1.w.mac\n"


@pytest.mark.spec("O3")
def test_a_public_door_has_no_token(running: Path) -> None:
    write_record(running)
    ended = mur("token")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error[E-RUN-048]: the door of ses_0199c4e2f1b7712a9d3e4f5061728394 is public")


@pytest.mark.spec("O3", "I3")
def test_an_unknown_credential_is_named_with_those_there_are(running: Path) -> None:
    write_record(running, door_token="mdt1.hidden.mac", credentials={"watcher": "mdt1.hidden.mac"})
    ended = mur("token", "--credential", "nobody")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error[E-RUN-049]: ")
    assert "it has: operator, watcher" in ended.stderr
    assert "hidden" not in ended.stderr


@pytest.mark.spec("O3")
def test_without_an_address_there_must_be_exactly_one_session(running: Path) -> None:
    assert mur("token").returncode == 3
    for last in (1, 2):
        write_record(running, session_id=f"ses_0199c4e2f1b7712a9d3e4f506172839{last}", door_token=f"mdt1.{last}.mac")
    ended = mur("token")
    assert ended.returncode == 3
    assert "2 sessions are running" in ended.stderr
    assert mur("token", "@1").stdout == "mdt1.2.mac\n"


@pytest.mark.spec("O3", "H3")
def test_asking_for_a_token_leaves_no_trace(home: Path) -> None:
    assert mur("token").returncode == 3
    assert list(home.iterdir()) == []
