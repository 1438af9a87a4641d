"""How a duration is read from a command line or a manifest (O4)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.durations import seconds_of


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("30m", 1800.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("0.5", 0.5),
        ("0.001s", 0.001),
        ("007", 7.0),
        ("999999999d", 999999999 * 86400.0),
    ],
)
def test_a_number_with_or_without_a_unit_is_that_many_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.spec("O4")
@pytest.mark.parametrize("text", ["0", "0s", "0.0m", "00", "0.000"])
def test_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a time is longer than that"):
        seconds_of(text)


@pytest.mark.spec("O4")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "s30",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1\n",
        "1 m",
        "1M",
        "1S",
        "1ms",
        "1w",
        "1h30m",
        "1.m",
        ".5m",
        "1.0001s",
        "1,5m",
        "1e3",
        "1_0",
        "0x10",
        "nan",
        "inf",
        "infinity",
        "1234567890",
        "9" * 5000,
        "\u0661m",
        "\uff11m",
        "1\u00b5s",
    ],
)
def test_any_other_text_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="a time is a number") as refusal:
        seconds_of(text)
    assert str(refusal.value) == "a time is a number, and s, m, h or d, if it is not seconds: 90, 90s, 30m, 2h"


@pytest.mark.spec("O4")
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(text=st.text(max_size=12) | st.text("0123456789.smhd", max_size=12))
def test_whatever_is_read_is_a_finite_time_above_zero(text: str) -> None:
    try:
        seconds = seconds_of(text)
    except ValueError:
        return
    assert 0 < seconds < float("inf")
