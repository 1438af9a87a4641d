"""Uptimes, and the moment a record says a session started (O1, R1)."""

import time
from collections.abc import Iterator

import pytest
from freezegun import freeze_time

from murmur.domain.uptime import started_at_text, uptime_seconds, uptime_text

NOON = 1772366400.0  # 2026-03-01T12:00:00Z
STARTED = "2026-03-01T12:00:00Z"


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.999, "0s"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (61, "1m 1s"),
        (3599, "59m 59s"),
        (3600, "1h 0m"),
        (3661, "1h 1m"),
        (86399, "23h 59m"),
        (86400, "1d 0h"),
        (90000, "1d 1h"),
        (400 * 86400 + 23 * 3600, "400d 23h"),
    ],
)
def test_an_uptime_is_its_two_largest_units(seconds: float, text: str) -> None:
    assert uptime_text(STARTED, NOON + seconds) == text


@pytest.mark.spec("O1")
@pytest.mark.parametrize("early", [0.001, 1, 59, 59.9])
def test_a_start_within_a_clocks_jitter_of_the_future_is_now(early: float) -> None:
    assert uptime_seconds(STARTED, NOON - early) == 0
    assert uptime_text(STARTED, NOON - early) == "0s"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("early", [60, 3600, 86400 * 365, NOON])
def test_a_start_in_the_future_has_no_uptime(early: float) -> None:
    assert uptime_seconds(STARTED, NOON - early) is None
    assert uptime_text(STARTED, NOON - early) == "-"


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01T12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-03-01T25:00:00Z",
        "12:00:00Z",
        "1772366400",
        STARTED + "x",
        " " + STARTED,
        STARTED + "\n",
        "٢٠٢٦-03-01T12:00:00Z",
        "\0",
        "2026-03-01T12:00:00+99:00",
        "-2026-03-01T12:00:00Z",
        "9" * 10_000,
        "\ud800",
    ],
)
def test_a_text_that_is_no_time_has_no_uptime(text: str) -> None:
    assert uptime_seconds(text, NOON) is None
    assert uptime_text(text, NOON) == "-"


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "text",
    [
        STARTED,
        "2026-03-01T12:00:00+00:00",
        "2026-03-01T13:30:00+01:30",
        "2026-03-01T04:00:00-08:00",
        "2026-03-01T12:00:00.000Z",
        "2026-03-01T12:00:00.000000000Z",
        "2026-03-01 12:00:00Z",
    ],
)
def test_the_same_moment_written_otherwise_gives_the_same_uptime(text: str) -> None:
    assert uptime_seconds(text, NOON + 90) == 90


@pytest.mark.spec("O1")
def test_a_fraction_of_nine_digits_as_other_runtimes_write_it_is_read() -> None:
    assert uptime_seconds("2026-03-01T12:00:00.987654321Z", NOON + 2) == 1


@pytest.mark.spec("O1")
@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_the_first_and_the_last_moment_of_the_calendar_are_no_error(text: str) -> None:
    uptime_text(text, NOON)


@pytest.mark.spec("R1")
@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.999999])
def test_a_start_is_written_in_utc_with_whole_seconds_and_a_z(fraction: float) -> None:
    assert started_at_text(NOON + fraction) == STARTED


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XXX-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.spec("O1", "R1")
@pytest.mark.usefixtures("far_from_utc")
def test_the_time_zone_of_the_machine_does_not_matter() -> None:
    assert time.localtime(NOON).tm_hour == 21
    assert started_at_text(NOON) == STARTED
    assert uptime_seconds(STARTED, NOON + 90) == 90
    assert uptime_seconds("2026-03-01T12:00:00", NOON + 90) == 90


@pytest.mark.spec("R1", "O1")
def test_a_start_written_now_reads_as_no_time_ago() -> None:
    with freeze_time("2026-03-01 12:00:00.75"):
        now = time.time()
    assert started_at_text(now) == STARTED
    assert uptime_seconds(started_at_text(now), now) == 0
