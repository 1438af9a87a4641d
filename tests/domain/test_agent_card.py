"""Which session an agent card names (P2)."""

import json
from pathlib import Path

import pytest

from murmur.domain.agent_card import CAPSULE_EXTENSION, session_id_from_card

CARDS = Path(__file__).parents[2] / "fixtures" / "agent_cards"
EXPECTED = json.loads((CARDS / "expected.json").read_text())


@pytest.mark.spec("P2")
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_the_session_is_the_string_in_the_capsule_extension_and_nowhere_else(case: str) -> None:
    assert session_id_from_card(json.loads((CARDS / f"{case}.json").read_bytes())) == EXPECTED[case]


@pytest.mark.spec("P2")
def test_every_card_has_an_expectation_and_every_expectation_a_card() -> None:
    assert {path.stem for path in CARDS.glob("*.json")} - {"expected"} == set(EXPECTED)


@pytest.mark.spec("P2")
def test_the_capsule_extension_has_its_published_address() -> None:
    assert CAPSULE_EXTENSION == "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"


@pytest.mark.spec("P2")
@pytest.mark.parametrize("card", [None, 5, 5.5, True, "x", b"x", [], (), {}, {1: 2}, object()])
def test_no_value_of_any_type_is_an_error(card: object) -> None:
    assert session_id_from_card(card) is None
