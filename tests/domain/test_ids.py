"""Formation ids, and the prefixes of all the others (I1, I2)."""

import pickle
import traceback
from typing import get_args

import pytest

from murmur.domain.ids import FormationId, IdPrefix, InvalidFormationId, is_session_id

DIGITS = "0198a7b3c4d57e6f8a9b0c1d2e3f4051"
VALID = f"frm_{DIGITS}"


@pytest.mark.spec("I1")
def test_there_are_seven_kinds_of_id() -> None:
    assert set(get_args(IdPrefix)) == {"ses_", "frm_", "dlg_", "tsk_", "ctx_", "msg_", "req_"}


@pytest.mark.spec("I2")
@pytest.mark.parametrize("value", [VALID, "frm_" + "0" * 32, "frm_" + "f" * 32, "frm_0123456789abcdef0123456789abcdef"])
def test_a_formation_id_is_the_text_it_was_made_of(value: str) -> None:
    formation = FormationId(value)
    assert formation == value
    assert str(formation) == value
    assert hash(formation) == hash(value)


@pytest.mark.spec("I2")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "frm_",
        DIGITS,
        f"frm_{DIGITS[:-1]}",
        f"frm_{DIGITS}0",
        f" {VALID}",
        f"{VALID} ",
        f"{VALID}\n",
        f"\n{VALID}",
        f"{VALID}\0",
        f"{VALID}\r",
        VALID.upper(),
        f"FRM_{DIGITS}",
        f"frm_{DIGITS[:-1]}F",
        f"frm_{DIGITS[:-1]}g",
        f"frm-{DIGITS}",
        f"ses_{DIGITS}",
        f"frm_frm_{DIGITS[:-4]}",
        "frm_" + "\u0663" * 32,
        "frm_" + "\uff13" * 32,
        "frm_" + "\uff41" * 32,
        "frm_" + "\u00b3" * 32,
        "frm_0198a7b3-c4d5-7e6f-8a9b-0c1d2e3f4051",
        f"frm_+{DIGITS[:-1]}",
        f"frm_{DIGITS[:16]}_{DIGITS[17:]}",
        "\ud800",
    ],
)
def test_anything_else_is_no_formation_id(value: str) -> None:
    with pytest.raises(InvalidFormationId):
        FormationId(value)


@pytest.mark.spec("I2")
def test_the_error_about_a_formation_id_never_repeats_the_value() -> None:
    with pytest.raises(InvalidFormationId) as refused:
        FormationId("frm_hunter2-hunter2")
    shown = "".join(traceback.format_exception_only(refused.value)) + repr(refused.value) + repr(refused.value.args)
    assert "hunter2" not in shown
    assert "frm_" in str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.spec("I2")
def test_a_formation_id_stays_valid_through_pickling() -> None:
    again = pickle.loads(pickle.dumps(FormationId(VALID)))
    assert type(again) is FormationId
    assert again == VALID


@pytest.mark.spec("I1")
@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (f"ses_{DIGITS}", True),
        (f"ses_{DIGITS}\n", False),
        (f"ses_{DIGITS[:-1]}", False),
        (f"ses_{DIGITS}0", False),
        (f"ses_{DIGITS.upper()}", False),
        (f"SES_{DIGITS}", False),
        (VALID, False),
        (DIGITS, False),
        ("ses_" + "\u0663" * 32, False),
        ("", False),
    ],
)
def test_a_session_id_is_its_prefix_and_32_digits(text: str, is_one: bool) -> None:
    assert is_session_id(text) is is_one
