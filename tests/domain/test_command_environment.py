"""Which variables reach the command of a manifest."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.command_environment import environment_for

ORDINARY = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_X", "TERM", "TMPDIR", "TZ")
WITHHELD = (
    "MURMUR_SPAWNER",
    "MURMUR_SPAWNER_LIFELINE",
    "MURMUR_FORMATION_LIFELINE",
    "MURMUR_FORMATION_CHANNEL",
    "MURMUR_FORMATION_PEERS",
    "MURMUR_SPAWN_GRANT",
    "MURMUR_CONVERSATION",
)
_ENVIRONMENTS = st.dictionaries(st.sampled_from((*ORDINARY, *WITHHELD, "A", "B", "LCX", "MURMUR_X")), st.text())


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_variable_is_passed_on_without_being_allowed(name: str) -> None:
    assert environment_for([], {name: "x"}, {}) == {name: "x"}


@pytest.mark.parametrize("name", ["API_KEY", "path", "PATHS", "LCX", "LANGUAGE", "PYTHONPATH", "MURMUR_SESSION_ID"])
def test_another_is_passed_on_only_when_allowed(name: str) -> None:
    assert environment_for([], {name: "x"}, {name: "y"}) == {}
    assert environment_for([name], {name: "x"}, {}) == {name: "x"}


def test_an_allowed_name_is_taken_from_the_file_where_the_process_has_none() -> None:
    assert environment_for(["A", "B", "C"], {"A": ""}, {"A": "file", "B": "file", "D": "file"}) == {
        "A": "",
        "B": "file",
    }


def test_the_file_gives_an_ordinary_variable_only_when_it_is_allowed() -> None:
    assert environment_for([], {}, {"PATH": "x"}) == {}
    assert environment_for(["PATH"], {}, {"PATH": "x"}) == {"PATH": "x"}


@pytest.mark.parametrize("name", WITHHELD)
def test_what_a_launcher_told_the_session_never_reaches_its_command(name: str) -> None:
    assert environment_for([name], {name: "x"}, {name: "x"}) == {}


@given(st.lists(st.sampled_from((*WITHHELD, "A", "B", "PATH"))), _ENVIRONMENTS, _ENVIRONMENTS)
@settings(deadline=None, max_examples=60)
def test_every_variable_comes_from_somewhere_and_the_process_s_own_wins(
    allow: list[str], own: dict[str, str], file: dict[str, str]
) -> None:
    chosen = environment_for(allow, own, file)
    assert all(value == (own if name in own else file)[name] for name, value in chosen.items())
    assert not chosen.keys() & set(WITHHELD)
    assert chosen.keys() <= {*allow, *ORDINARY}
    assert chosen.keys() >= ({*allow} - {*WITHHELD}) & (own.keys() | file.keys())
