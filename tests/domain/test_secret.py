"""Secrets: nothing prints one, and comparing one takes constant time (I3, I4)."""

import copy
import hmac
import json
import logging
import pickle
import traceback
from collections.abc import Callable

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from murmur.domain.secret import ControlToken, DoorToken, Secret, SpawnApproval, SpawnCredential

VALUE = "mdt1.swordfish.mac"
KINDS = [DoorToken, SpawnApproval, SpawnCredential, ControlToken]


@pytest.mark.spec("I3")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shown",
    [
        repr,
        str,
        "{}".format,
        "{!r:>40}".format,
        "{:>40}".format,
        "{:s}".format,
        lambda secret: f"{secret}",
        lambda secret: f"{secret!s} {secret!a}",
        lambda secret: "%s %r %a" % (secret, secret, secret),  # noqa: UP031
        lambda secret: repr([secret, {"token": secret}]),
        lambda secret: str({secret}),
        lambda secret: json.dumps({"token": secret}, default=str),
        lambda secret: str(ValueError(secret)),
        lambda secret: "".join(traceback.format_exception_only(ValueError("no", secret))),
    ],
)
def test_a_secret_is_shown_by_its_kind_alone(kind: type[Secret], shown: Callable[[Secret], str]) -> None:
    text = shown(kind(VALUE))
    assert f"{kind.__name__}(<redacted>)" in text
    assert "swordfish" not in text


@pytest.mark.spec("I3")
@pytest.mark.parametrize("value", ["", "<redacted>", "x" * 10_000])
def test_the_shown_form_tells_nothing_of_the_value(value: str) -> None:
    assert repr(DoorToken(value)) == "DoorToken(<redacted>)"


@pytest.mark.spec("I3")
def test_a_format_width_applies_to_the_redacted_form() -> None:
    assert f"{DoorToken(VALUE):_>25}" == "____DoorToken(<redacted>)"


@pytest.mark.spec("I3")
def test_a_logged_secret_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("murmur").error("token %s in %r", DoorToken(VALUE), {"t": SpawnApproval(VALUE)})
    assert "DoorToken(<redacted>)" in caplog.text
    assert "SpawnApproval(<redacted>)" in caplog.text
    assert "swordfish" not in caplog.text


@pytest.mark.spec("I3")
def test_a_secret_is_no_json_value() -> None:
    with pytest.raises(TypeError) as refused:
        json.dumps({"token": DoorToken(VALUE)})
    assert "swordfish" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.spec("I3")
def test_a_pydantic_error_about_a_secret_does_not_show_it() -> None:
    class Holder(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        token: DoorToken
        port: int

    with pytest.raises(ValidationError) as refused:
        Holder.model_validate({"token": SpawnApproval(VALUE), "port": DoorToken(VALUE)})
    assert "swordfish" not in str(refused.value)
    assert "<redacted>" in str(refused.value)
    assert "swordfish" not in repr(Holder(token=DoorToken(VALUE), port=1))


@pytest.mark.spec("I3")
@pytest.mark.parametrize("value", [VALUE, "", "a\ud800", "ü\0"])
def test_exposing_a_secret_gives_the_exact_value(value: str) -> None:
    assert DoorToken(value).expose() == value


@pytest.mark.spec("I3")
@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied(taken: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as refused:
        taken(DoorToken(VALUE))
    assert "swordfish" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.spec("I3")
def test_a_secret_has_no_dictionary_of_attributes_to_dump() -> None:
    with pytest.raises(TypeError):
        vars(DoorToken(VALUE))


@pytest.mark.spec("I4")
@pytest.mark.parametrize("other", [VALUE, "mdt1.swordfish.mad", "Xdt1.swordfish.mac", "", "ä\ud800"])
def test_secrets_are_compared_in_constant_time(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def watched(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    assert (DoorToken(VALUE) == DoorToken(other)) is (other == VALUE)
    assert compared == [(VALUE.encode(), other.encode("utf-8", "surrogatepass"))]


@pytest.mark.spec("I4")
def test_equal_secrets_hash_alike() -> None:
    assert len({DoorToken(VALUE), DoorToken(VALUE), DoorToken("other")}) == 2


@pytest.mark.spec("I4")
def test_a_secret_equals_neither_its_text_nor_a_secret_of_another_kind() -> None:
    assert DoorToken(VALUE) != VALUE
    assert DoorToken(VALUE) != SpawnApproval(VALUE)
    assert SpawnApproval(VALUE) != ControlToken(VALUE)
    assert DoorToken(VALUE) not in {VALUE: 1}
