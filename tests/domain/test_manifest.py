"""What a document must say to be a manifest, and where it does not."""

from copy import deepcopy
from typing import get_args

import pytest
from pydantic import ValidationError

from murmur.domain.cards import EXTENDED_CARD, STOP, TASK_METHODS
from murmur.domain.manifest import (
    SCOPES,
    Capabilities,
    Control,
    Fault,
    InvalidManifest,
    Lifecycle,
    Manifest,
    Network,
    Place,
    Scope,
    key_text,
    manifest_from,
    unknown_keys,
)

SMALLEST: dict[str, object] = {"name": "worker", "version": "1", "process": {"command": ["cat"]}}


def faults(**changes: object) -> list[Fault]:
    with pytest.raises(InvalidManifest) as invalid:
        manifest_from({**SMALLEST, **changes})
    return list(invalid.value.faults)


def test_what_is_left_out_has_its_default() -> None:
    manifest = manifest_from(SMALLEST)
    assert (manifest.process.command, manifest.process.kind) == (("cat",), "agent")
    assert manifest.capabilities == Capabilities()
    assert (manifest.capabilities.env.allow, manifest.capabilities.spawn.allow) == ((), ())
    assert manifest.network == Network(internal_port=0)
    assert manifest.network.authentication is None
    assert manifest.control is None
    assert manifest.lifecycle == Lifecycle(
        task_acceptance="single", after_task="exit", queue_depth=1, conversation="none"
    )


def test_authentication_without_credentials_has_none() -> None:
    manifest = manifest_from({**SMALLEST, "network": {"authentication": {"scheme": "bearer"}}})
    assert manifest.network.authentication is not None
    assert manifest.network.authentication.credentials == {}


@pytest.mark.parametrize("control", [None, {}, {"later": 1}])
def test_control_counts_as_soon_as_its_key_is_there(control: object) -> None:
    assert manifest_from({**SMALLEST, "control": control}).control == Control()


def test_nothing_of_a_manifest_can_be_changed() -> None:
    manifest = manifest_from({**SMALLEST, "network": {"authentication": {"scheme": "bearer"}}, "control": {}})
    sections = (manifest, manifest.process, manifest.capabilities.env, manifest.network, manifest.lifecycle)
    for section in sections:
        for name in type(section).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(section, name, None)


def test_the_scopes_are_the_methods_that_a_door_can_have() -> None:
    assert get_args(Scope) == SCOPES
    assert {*TASK_METHODS, STOP, EXTENDED_CARD} <= set(SCOPES)
    credentials = {"all": {"scopes": list(SCOPES)}}
    manifest = manifest_from(
        {**SMALLEST, "network": {"authentication": {"scheme": "bearer", "credentials": credentials}}}
    )
    assert manifest.network.authentication is not None
    assert manifest.network.authentication.credentials["all"].scopes == SCOPES


@pytest.mark.parametrize("name", ["a", "0", "-", "a-b", "scope/name", "0/-"])
def test_a_name_may_have_a_scope(name: str) -> None:
    assert manifest_from({**SMALLEST, "name": name}).name == name


@pytest.mark.parametrize("name", ["", "A", "a_b", "a b", "/", "a/", "/a", "a/b/c", "a\n", "ä", "..", "٣"])
def test_a_name_of_other_characters_is_a_fault(name: str) -> None:
    assert [fault.place for fault in faults(name=name)] == [("name",)]


@pytest.mark.parametrize("value", [1, 0.1, True, b"x", object()])
def test_text_is_wanted_where_something_else_could_be_quoted(value: object) -> None:
    assert faults(version=value) == [Fault(("version",), "give it as text", wants_text=True)]


@pytest.mark.parametrize("value", [None, [], {}])
def test_quoting_is_no_cure_for_nothing_a_list_or_a_mapping(value: object) -> None:
    assert [fault.wants_text for fault in faults(version=value)] == [False]


@pytest.mark.parametrize(
    ("key", "least", "most"), [("network.internal_port", 0, 65_535), ("lifecycle.queue_depth", 1, 10_000)]
)
def test_a_number_has_its_limits(key: str, least: int, most: int) -> None:
    section, name = key.split(".")
    for number in (least, most):
        manifest_from({**SMALLEST, section: {name: number}})
    for wrong in (least - 1, most + 1, float(least), True, str(least), None, 10**400):
        assert [fault.place for fault in faults(**{section: {name: wrong}})] == [(section, name)]


@pytest.mark.parametrize("value", ["", "Threaded", True, None, []])
def test_a_conversation_is_threaded_or_none_at_all(value: object) -> None:
    threaded = manifest_from({**SMALLEST, "lifecycle": {"conversation": "threaded"}})
    assert threaded.lifecycle.conversation == "threaded"
    assert faults(lifecycle={"conversation": value}) == [
        Fault(("lifecycle", "conversation"), "it is one of none, threaded")
    ]


@pytest.mark.parametrize("section", ["process", "capabilities", "network", "lifecycle"])
def test_a_section_with_nothing_beneath_is_a_fault(section: str) -> None:
    assert faults(**{section: None}) == [Fault((section,), "give it as a mapping of keys")]


def test_an_authentication_with_nothing_beneath_does_not_leave_the_door_open() -> None:
    place: Place = ("network", "authentication")
    assert faults(network={"authentication": None}) == [Fault(place, "give it as a mapping of keys")]


@pytest.mark.parametrize("name", ["operator", ""])
def test_a_credential_name_that_cannot_be_is_a_fault_of_its_key(name: str) -> None:
    network = {"authentication": {"scheme": "bearer", "credentials": {name: {"scopes": []}}}}
    assert [fault.place for fault in faults(network=network)] == [("network", "authentication", "credentials", name)]


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800"])
def test_a_command_s_words_can_be_handed_to_a_process(text: str) -> None:
    assert [fault.place for fault in faults(process={"command": ["cat", text]})] == [("process", "command", 1)]


def test_every_fault_is_found() -> None:
    found = faults(name=1, version="", lifecycle={"after_task": "stay"})
    assert [key_text(fault.place) for fault in found] == ["name", "version", "lifecycle.after_task"]


def test_no_fault_repeats_a_value() -> None:
    secret = "hunter2"
    found = faults(
        process={"command": secret, "kind": secret},
        capabilities={"env": {"allow": [secret + "="]}},
        network={"internal_port": secret, "authentication": {"scheme": secret}},
        control=secret,
    )
    assert len(found) == 6
    assert secret not in str(InvalidManifest(tuple(found)))
    with pytest.raises(ValidationError) as invalid:
        Manifest.model_validate({**SMALLEST, "control": secret})
    assert secret not in str(invalid.value)


def test_unknown_keys_are_found_wherever_they_are_in_the_order_of_the_document() -> None:
    document: dict[str, object] = {
        "z": 1,
        **SMALLEST,
        "network": {
            "authentication": {"a": {}, "scheme": "bearer", "credentials": {"w": {"scopes": [], "until": {"x": 1}}}},
            "host": None,
        },
        "control": {"b": 1},
        "lifecycle": {},
    }
    before = deepcopy(document)
    assert [key_text(place) for place in unknown_keys(document, manifest_from(document))] == [
        "z",
        "network.authentication.a",
        "network.authentication.credentials.w.until",
        "network.host",
        "control.b",
    ]
    assert document == before


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("a", 0), "a[0]"),
        (("a", 1, "b", 2), "a[1].b[2]"),
        ((0,), "[0]"),
        (("", "a", ""), '"".a.""'),
    ],
)
def test_a_place_is_written_as_a_path(place: Place, text: str) -> None:
    assert key_text(place) == text
