"""Which environment a child gets (C5, C7)."""

from collections.abc import Mapping
from itertools import product
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.launch.environment import child_environment
from murmur.domain.launch.handle import SpawnerHandle, handle_for, parse_handle
from murmur.domain.launch.request import ChildLaunchRequest, Spawner
from murmur.domain.secret import SpawnApproval

COPIED = ("PATH", "HOME", "LOGNAME", "USER")
RESERVED = (
    *COPIED,
    "MURMUR_ROOST_URL",
    "MURMUR_SPAWNER",
    "MURMUR_SPAWNER_LIFELINE",
    "MURMUR_FORMATION_ID",
    "MURMUR_HOST_WARNINGS_REPORTED",
    "MURMUR_FORMATION_LIFELINE",
    "MURMUR_FORMATION_CHANNEL",
    "MURMUR_FORMATION_PEERS",
)
LIFELINE = ("MURMUR_SPAWNER_LIFELINE", "17")
FORMATION = "frm_" + "0a" * 16
SPAWNER = Spawner("ses_parent", "ctx_parent", "http://127.0.0.1:7000")
HANDLE = handle_for(SPAWNER, "dlg_0001")
HANDLE_TEXT = (
    '{"session_id":"ses_parent","context_id":"ctx_parent","delegation_id":"dlg_0001","url":"http://127.0.0.1:7000"}'
)


def request(*env_allow: str, formation_id: str | None = None) -> ChildLaunchRequest:
    return ChildLaunchRequest(
        parent_records_dir=PurePosixPath("/r/ses_parent"),
        capsule_name="worker",
        capsule_version="0.1.0",
        grant=SpawnApproval("msa1.swordfish.mac"),
        env_allow=env_allow,
        roost_url="http://127.0.0.1:7700",
        formation_id=formation_id,
    )


def expected(
    allow: tuple[str, ...],
    parent: Mapping[str, str],
    handle: SpawnerHandle | None,
    formation: str | None,
    lifeline: tuple[str, str] | None,
) -> list[tuple[str, str]]:
    """The rule, written the long way."""
    pairs = [(name, parent[name]) for name in allow if name in parent]
    pairs = [(name, value) for name, value in pairs if name not in RESERVED]
    for name in COPIED:
        if name in parent:
            pairs.append((name, parent[name]))
    pairs.append(("MURMUR_ROOST_URL", "http://127.0.0.1:7700"))
    pairs.append(("MURMUR_HOST_WARNINGS_REPORTED", "1"))
    if lifeline:
        pairs.append(lifeline)
    if handle:
        pairs.append(("MURMUR_SPAWNER", HANDLE_TEXT))
    if formation:
        pairs.append(("MURMUR_FORMATION_ID", formation))
    return pairs


@pytest.mark.spec("C5", "C7")
@pytest.mark.parametrize("name", [*RESERVED, "ORDINARY"])
def test_the_table_of_every_name_by_everything_that_bears_on_it(name: str) -> None:
    rows = product(
        (False, True), (False, True), (None, HANDLE), (None, FORMATION), (None, LIFELINE), (False, True), (False, True)
    )
    for allowed, held, handle, formation, lifeline, others_allowed, others_held in rows:
        allow = (*(("Z",) if others_allowed else ()), *((name,) if allowed else ()), "A")
        parent = {"A": "a", "B": "b"}
        if others_held:
            parent |= {"Z": "z"} | {other: f"parent's {other}" for other in RESERVED if other != name}
        if held:
            parent[name] = f"parent's {name}"
        environment = child_environment(parent, request(*allow, formation_id=formation), handle, lifeline)
        assert environment == expected(allow, parent, handle, formation, lifeline), (allow, parent)


@pytest.mark.spec("C5")
def test_a_full_environment_is_in_exactly_this_order() -> None:
    parent = {name: f"parent's {name}" for name in RESERVED} | {"A": "a", "B": "b", "C": "c"}
    environment = child_environment(
        parent, request("C", *RESERVED, "A", "missing", formation_id=FORMATION), HANDLE, LIFELINE
    )
    assert environment == [
        ("C", "c"),
        ("A", "a"),
        ("PATH", "parent's PATH"),
        ("HOME", "parent's HOME"),
        ("LOGNAME", "parent's LOGNAME"),
        ("USER", "parent's USER"),
        ("MURMUR_ROOST_URL", "http://127.0.0.1:7700"),
        ("MURMUR_HOST_WARNINGS_REPORTED", "1"),
        ("MURMUR_SPAWNER_LIFELINE", "17"),
        ("MURMUR_SPAWNER", HANDLE_TEXT),
        ("MURMUR_FORMATION_ID", FORMATION),
    ]


@pytest.mark.spec("C5")
def test_a_parent_that_holds_nothing_hands_on_nothing_and_makes_up_no_account() -> None:
    assert child_environment({}, request(*RESERVED, "A"), None, None) == [
        ("MURMUR_ROOST_URL", "http://127.0.0.1:7700"),
        ("MURMUR_HOST_WARNINGS_REPORTED", "1"),
    ]


@pytest.mark.spec("C5")
def test_an_empty_value_is_held_and_handed_on() -> None:
    environment = child_environment({"A": "", "PATH": "", "USER": ""}, request("A"), None, None)
    assert environment[:3] == [("A", ""), ("PATH", ""), ("USER", "")]


@pytest.mark.spec("C5")
def test_a_name_declared_twice_is_there_twice_as_in_rust() -> None:
    environment = child_environment({"A": "a", "B": "b"}, request("A", "B", "A"), None, None)
    assert environment[:3] == [("A", "a"), ("B", "b"), ("A", "a")]


@pytest.mark.spec("C5")
@pytest.mark.parametrize("name", ["path", "Path", "MURMUR_SPAWNER_", "MURMUR_FORMATION", "MURMUR_HOME", "XPATH"])
def test_a_name_that_only_looks_reserved_is_handed_on(name: str) -> None:
    assert child_environment({name: "x"}, request(name), None, None)[0] == (name, "x")


@pytest.mark.spec("C5", "C6")
def test_the_injected_handle_is_the_launchs_own_and_is_read_by_the_child() -> None:
    decoy = '{"session_id":"ses_decoy","context_id":"ctx_decoy","delegation_id":"dlg_decoy"}'
    environment = child_environment({"MURMUR_SPAWNER": decoy}, request("MURMUR_SPAWNER"), HANDLE, None)
    assert environment[-1][0] == "MURMUR_SPAWNER"
    assert [parse_handle(value) for name, value in environment if name == "MURMUR_SPAWNER"] == [HANDLE]


NAMES = st.sampled_from([*RESERVED, "A", "B", "path", "MURMUR_HOME"])


@pytest.mark.spec("C5", "C7", "I3")
@settings(max_examples=80, derandomize=True, deadline=None, database=None)
@given(
    allow=st.lists(NAMES).map(tuple),
    parent=st.dictionaries(NAMES, st.text(max_size=3)),
    handle=st.sampled_from([None, HANDLE]),
    formation=st.sampled_from([None, FORMATION]),
    lifeline=st.sampled_from([None, LIFELINE]),
)
def test_whatever_is_declared_and_held_the_rule_is_the_same_and_nothing_is_changed(
    allow: tuple[str, ...],
    parent: dict[str, str],
    handle: SpawnerHandle | None,
    formation: str | None,
    lifeline: tuple[str, str] | None,
) -> None:
    before = dict(parent)
    environment = child_environment(parent, request(*allow, formation_id=formation), handle, lifeline)
    assert environment == expected(allow, parent, handle, formation, lifeline)
    assert parent == before
    assert not any("swordfish" in value for _, value in environment)
