"""What is recorded and posted about an ended child: every row of the table, and the exact words (W1-W4, E3)."""

from itertools import product

import pytest

from murmur.domain.launch.completion import DelegationOutcome
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.launch.watcher import (
    PARENT_ENDED_DETAIL,
    ChildEnd,
    Deliberate,
    Exited,
    LeaveAlone,
    PostCrashed,
    PostTerminated,
    RecordTerminated,
    RetryOnce,
    WatchedChild,
    WatcherAction,
    crashed_outcome,
    decide,
    duration_ms,
    expired_outcome,
    expiry,
    is_watched,
    terminated_outcome,
)

ENDED = "the child process ended without recording a completion"
CHILD = WatchedChild("dlg_1", "worker", "0.1.0", "ses_child", "/data/child")
DELEGATION = DelegationOutcome(
    delegation_id="dlg_1",
    capsule_name="worker",
    capsule_version="0.1.0",
    session_id="ses_child",
    status="ok",
    workdir="/data/child",
    duration_ms=1,
    reported_by="child",
    result_path="/r/out/result.md",
)
UNDELIVERED = DELEGATION.replaced(delivered=False, delivery_error="connection refused")
DELIVERED = DELEGATION.replaced(delivered=True)

ENDINGS: list[ChildEnd] = [
    Exited("exit status: 0"),
    Exited("exit status: 1"),
    Exited("signal: 9 (SIGKILL)"),
    Exited(None),
    Deliberate(),
]
RECORDED = {"none": None, "undelivered": UNDELIVERED, "delivered": DELIVERED}
TABLE: dict[tuple[str, str, bool], WatcherAction] = {
    ("exited", "none", False): PostCrashed(),
    ("exited", "undelivered", False): RetryOnce(),
    ("exited", "delivered", False): LeaveAlone(),
    # Past the deadline, but gone before anything was sent to it: it ended on its own (E3).
    ("exited", "none", True): PostCrashed(),
    ("exited", "undelivered", True): RetryOnce(),
    ("exited", "delivered", True): LeaveAlone(),
    ("deliberate", "none", False): RecordTerminated(),
    ("deliberate", "undelivered", False): RecordTerminated(),
    ("deliberate", "delivered", False): RecordTerminated(),
    ("deliberate", "none", True): PostTerminated(),
    ("deliberate", "undelivered", True): PostTerminated(),
    ("deliberate", "delivered", True): PostTerminated(),
}


@pytest.mark.spec("W1", "W2", "E3")
@pytest.mark.parametrize(("ending", "recorded", "expired"), list(product(ENDINGS, RECORDED, [False, True])))
def test_every_ending_with_every_record_has_its_one_consequence(ending: ChildEnd, recorded: str, expired: bool) -> None:
    kind = "deliberate" if isinstance(ending, Deliberate) else "exited"
    assert decide(ending, RECORDED[recorded], expired) == TABLE[kind, recorded, expired]


@pytest.mark.spec("W1", "W2")
@pytest.mark.parametrize("status", ["ok", "error", "crashed", "terminated"])
@pytest.mark.parametrize("reporter", ["child", "launcher"])
@pytest.mark.parametrize("delivered", [False, True])
def test_what_a_completion_says_besides_its_delivery_decides_nothing(
    status: str, reporter: str, delivered: bool
) -> None:
    recorded = DELEGATION.replaced(status=status, reported_by=reporter, delivered=delivered)
    assert decide(Exited("exit status: 1"), recorded, expired=False) == (LeaveAlone() if delivered else RetryOnce())


def from_launcher(status: str, detail: str) -> DelegationOutcome:
    return DELEGATION.replaced(
        status=status, detail=detail, reported_by="launcher", duration_ms=77, result_path=None, delivered=False
    )


@pytest.mark.spec("W2")
@pytest.mark.parametrize(
    ("status", "tail", "detail"),
    [
        ("exit status: 3", [], f"{ENDED} (exit status: 3)"),
        (None, [], f"{ENDED} (unknown exit status)"),
        ("exit status: 3", [""], f"{ENDED} (exit status: 3)"),
        (
            "signal: 9 (SIGKILL)",
            ["one", "", "three ✓"],
            f"{ENDED} (signal: 9 (SIGKILL)); its last stderr lines were:\none\n\nthree ✓",
        ),
        (
            None,
            ["only"],
            f"{ENDED} (unknown exit status); its last stderr lines were:\nonly",
        ),
    ],
)
def test_a_crash_is_told_with_its_status_and_its_last_lines(status: str | None, tail: list[str], detail: str) -> None:
    assert crashed_outcome(CHILD, 77, status, tail) == from_launcher("crashed", detail)


@pytest.mark.spec("W2", "W5")
def test_a_crash_with_a_long_tail_has_a_detail_of_bounded_length() -> None:
    detail = crashed_outcome(CHILD, 77, "exit status: 3", ["ö" * 5000] * 20).detail
    assert detail is not None
    assert detail.endswith("öö […]")
    assert 1990 < len(detail.removesuffix(" […]").encode()) <= 2000


@pytest.mark.spec("W2")
def test_an_ending_by_the_parent_is_told_in_these_words() -> None:
    assert PARENT_ENDED_DETAIL == "the parent ended this delegation"
    assert terminated_outcome(CHILD, 77) == from_launcher("terminated", "the parent ended this delegation")


@pytest.mark.spec("W2")
@pytest.mark.parametrize(("bound", "seconds"), [(600.0, 600), (600, 600), (1.999, 1), (0.25, 0), (0.0, 0)])
def test_an_ending_at_the_deadline_is_told_with_the_bound_in_whole_seconds(bound: float, seconds: int) -> None:
    assert expired_outcome(CHILD, 77, bound) == from_launcher(
        "terminated", f"the capsule was still running after {seconds}s and was ended at the delegation deadline"
    )


@pytest.mark.spec("W3")
def test_the_deadline_runs_from_readiness_and_the_duration_from_the_spawn() -> None:
    spawned, ready, ended = 100.0, 130.0, 190.5
    assert expiry(ready, 60.0) == 190.0
    assert expiry(ready, 0.0) == ready
    assert expiry(ready, None) is None
    assert duration_ms(spawned, ended) == 90_500
    assert duration_ms(spawned, spawned) == 0
    assert duration_ms(spawned, spawned + 0.0009) == 0
    assert duration_ms(spawned, spawned - 1) == 0


@pytest.mark.spec("W4")
def test_only_a_spawner_with_a_url_has_a_watcher() -> None:
    handle = SpawnerHandle("ses_parent", "ctx_parent", "dlg_1", "http://127.0.0.1:7000")
    assert is_watched(handle)
    assert not is_watched(handle.replaced(url=None))
    assert not is_watched(None)
