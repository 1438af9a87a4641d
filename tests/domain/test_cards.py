"""How a session describes itself, to anybody and to a caller with a token (M1, P2, and the wire facts of the door)."""

import json

import pytest
from a2a.compat.v0_3.types import AgentCard

from murmur.domain.agent_card import session_id_from_card
from murmur.domain.cards import ServedSession, extended_card, public_card

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
CAPSULE = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"
DOOR = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"
STREAM = "https://docs.murmur.nexus/reference/streaming-protocol/#murmur-stream-v1"
TASKS = ["message/send", "message/stream", "stream/watch", "tasks/get", "tasks/cancel"]
EXTENDED = "agent/getAuthenticatedExtendedCard"
SKILL = {"id": "task", "name": "Run a task", "description": "Give weaver a task", "tags": ["task"]}


def session(*, tasks: bool = False, authenticated: bool = False, name: str = "weaver") -> ServedSession:
    return ServedSession(SES, name, "2.4.0", "localhost:40123", accepts_tasks=tasks, authenticated=authenticated)


def extensions(card: dict[str, object]) -> dict[str, object]:
    """Return the params of each extension by its address, having held what all have."""
    capabilities = card["capabilities"]
    assert isinstance(capabilities, dict)
    found = {}
    for extension in capabilities["extensions"]:
        assert set(extension) == {"uri", "required", "description", "params"}
        assert extension["required"] is False
        assert extension["description"]
        found[extension["uri"]] = extension["params"]
    assert len(found) == len(capabilities["extensions"])
    return found


@pytest.mark.spec("M1")
@pytest.mark.parametrize(
    ("tasks", "authenticated", "methods"),
    [
        (False, False, ["stream/watch", "session/stop"]),
        (True, False, [*TASKS, "session/stop"]),
        (False, True, ["stream/watch", "session/stop", EXTENDED]),
        (True, True, [*TASKS, "session/stop", EXTENDED]),
    ],
)
def test_the_door_extension_lists_what_is_served_in_order(tasks: bool, authenticated: bool, methods: list[str]) -> None:
    served = session(tasks=tasks, authenticated=authenticated)
    assert list(served.methods) == methods
    for card in (public_card(served), extended_card(served)):
        assert extensions(card)[DOOR] == {"methods": methods, "peerTasks": False}


@pytest.mark.spec("M1")
@pytest.mark.parametrize("authenticated", [False, True])
def test_a_session_that_accepts_tasks_has_the_one_skill_and_another_none(authenticated: bool) -> None:
    for card in (public_card, extended_card):
        assert card(session(tasks=True, authenticated=authenticated))["skills"] == [SKILL]
        assert card(session(authenticated=authenticated))["skills"] == []


@pytest.mark.spec("M1")
def test_a_public_card_of_a_public_door_asks_for_nothing_and_names_its_session() -> None:
    card = public_card(session(tasks=True))
    assert (card["securitySchemes"], card["securityRequirements"]) == ({}, [])
    assert session_id_from_card(card) == SES
    assert list(extensions(card)) == [DOOR, CAPSULE, STREAM]


@pytest.mark.spec("M1", "P2")
def test_a_public_card_of_an_authenticated_door_does_not_say_which_session_it_is() -> None:
    card = public_card(session(tasks=True, authenticated=True))
    assert list(extensions(card)) == [DOOR, STREAM]
    assert session_id_from_card(card) is None
    assert SES not in json.dumps(card)


@pytest.mark.spec("M1")
def test_a_public_card_of_an_authenticated_door_asks_for_a_bearer_token() -> None:
    card = public_card(session(tasks=True, authenticated=True))
    schemes = card["securitySchemes"]
    assert isinstance(schemes, dict)
    bearer = schemes["bearer"]["httpAuthSecurityScheme"]
    assert list(schemes) == ["bearer"]
    assert list(schemes["bearer"]) == ["httpAuthSecurityScheme"]
    assert set(bearer) == {"scheme", "description"}
    assert bearer["scheme"] == "Bearer"
    assert card["securityRequirements"] == [{"schemes": {"bearer": {"list": []}}}]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("authenticated", [False, True])
def test_the_public_card_has_the_fields_of_its_shape_and_no_others(authenticated: bool) -> None:
    card = public_card(session(tasks=True, authenticated=authenticated))
    capabilities = card["capabilities"]
    assert isinstance(capabilities, dict)
    assert {name: value for name, value in card.items() if not name.startswith("security")} == {
        "name": "weaver",
        "description": "Murmur capsule weaver 2.4.0",
        "version": "2.4.0",
        "supportedInterfaces": [
            {"url": "http://localhost:40123", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": authenticated,
            "extensions": capabilities["extensions"],
        },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [SKILL],
    }


@pytest.mark.spec("P1", "P2")
def test_the_extended_card_has_the_fields_of_its_shape_and_no_others() -> None:
    card = extended_card(session(tasks=True, authenticated=True))
    capabilities = card["capabilities"]
    assert isinstance(capabilities, dict)
    assert card == {
        "protocolVersion": "0.3.0",
        "name": "weaver",
        "description": "Murmur capsule weaver 2.4.0",
        "version": "2.4.0",
        "url": "http://localhost:40123",
        "preferredTransport": "JSONRPC",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extensions": capabilities["extensions"],
        },
        "securitySchemes": {"bearer": {"type": "http", "scheme": "Bearer"}},
        "security": [{"bearer": []}],
        "supportsAuthenticatedExtendedCard": True,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [SKILL],
    }


@pytest.mark.spec("P2")
def test_the_extended_card_names_the_session_and_what_it_may_do() -> None:
    card = extended_card(session(authenticated=True))
    assert session_id_from_card(card) == SES
    assert extensions(card)[CAPSULE] == {"sessionId": SES, "tools": [], "shell": True, "network": True, "planes": []}


@pytest.mark.spec("P1")
def test_the_official_client_reads_the_extended_card() -> None:
    read = AgentCard.model_validate(extended_card(session(tasks=True, authenticated=True)))
    assert (read.name, read.url, read.protocol_version) == ("weaver", "http://localhost:40123", "0.3.0")
    assert read.supports_authenticated_extended_card is True
    assert read.security == [{"bearer": []}]


@pytest.mark.spec("M1")
def test_two_cards_share_nothing_that_could_be_changed() -> None:
    changed = public_card(session())
    capabilities = changed["capabilities"]
    assert isinstance(capabilities, dict)
    capabilities["extensions"].clear()
    assert list(extensions(public_card(session()))) == [DOOR, CAPSULE, STREAM]


@pytest.mark.spec("M1")
@pytest.mark.parametrize("tasks", [False, True])
def test_a_card_says_which_events_its_streams_have_and_whether_a_task_can_be_streamed(tasks: bool) -> None:
    for card in (public_card(session(tasks=tasks)), extended_card(session(tasks=tasks, authenticated=True))):
        frames = ["status", "artifact", "gap", "connection-ack", "capsule-closed", "error"]
        assert extensions(card)[STREAM] == {"frames": [*frames, "task"] if tasks else frames}
        capabilities = card["capabilities"]
        assert isinstance(capabilities, dict)
        assert capabilities["streaming"] is tasks
