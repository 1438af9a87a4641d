"""What a completion says, how it is posted, and what a door's answer makes of it (W5, W6)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.door import Answered, AskLimits, DoorReading, NoAnswer, NoSuchAddress
from murmur.domain.launch.completion import (
    COMPLETION_LIMIT,
    DETAIL_LIMIT,
    POST_LIMITS,
    DelegationOutcome,
    completion_ask,
    cut_detail,
    delivery_of,
    parse_completion,
    render_completion,
    summary_text,
)
from murmur.domain.launch.handle import SpawnerHandle

DELEGATION = "dlg_0198c0de0000700080000000000000d1"
HANDLE = SpawnerHandle("ses_parent", "ctx_parent", DELEGATION, "http://127.0.0.1:7000")
OUTCOME = DelegationOutcome(
    delegation_id=DELEGATION,
    capsule_name="worker",
    capsule_version="0.1.0",
    session_id="ses_child",
    status="ok",
    workdir="/data/child",
    duration_ms=1234,
    reported_by="child",
)
CUT = " […]"

any_text = st.text(st.characters(exclude_categories=()), max_size=40)
outcomes = st.builds(
    DelegationOutcome,
    delegation_id=any_text,
    capsule_name=any_text,
    capsule_version=any_text,
    session_id=any_text,
    status=st.sampled_from(["ok", "error", "crashed", "terminated"]),
    workdir=any_text,
    duration_ms=st.integers(0, 2**64 - 1),
    reported_by=st.sampled_from(["child", "launcher"]),
    result_path=st.none() | any_text,
    detail=st.none() | any_text,
    delivered=st.booleans(),
    delivery_error=st.none() | any_text,
)


@pytest.mark.spec("W5")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(outcome=outcomes)
def test_every_outcome_can_be_written_and_reads_back_as_written(outcome: DelegationOutcome) -> None:
    written = render_completion(outcome)
    read = parse_completion(written)
    assert read is not None
    assert render_completion(read) == written
    if all(not "\ud800" <= each <= "\udfff" for value in outcome._compared() for each in str(value)):
        assert read == outcome


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/data/\udcff\udcfe", "/data/\ufffd\ufffd"),
        ("\ud800", "\ufffd"),
        ("\ud800x", "\ufffdx"),
        ("\ud83c\udf89", "🎉"),
    ],
    ids=["bytes", "half at the end", "half within", "both halves"],
)
def test_a_path_that_is_not_utf8_is_written_with_replacement_characters(path: str, written: str) -> None:
    read = parse_completion(render_completion(OUTCOME.replaced(workdir=path)))
    assert read == OUTCOME.replaced(workdir=written)


@pytest.mark.spec("W5")
def test_a_document_of_1_mib_is_read_and_one_byte_more_is_no_completion() -> None:
    content = render_completion(OUTCOME)
    full = content + b" " * (COMPLETION_LIMIT - len(content))
    assert parse_completion(full) == OUTCOME
    assert parse_completion(full + b" ") is None


@pytest.mark.spec("W5")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_completion_are_read_without_an_error(content: bytes) -> None:
    assert parse_completion(content) is None


@pytest.mark.spec("W5")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(pad=st.integers(DETAIL_LIMIT - 8, DETAIL_LIMIT + 2), rest=st.text(min_size=1, max_size=8))
def test_a_detail_is_cut_at_the_last_whole_character_and_only_once(pad: int, rest: str) -> None:
    text = "x" * pad + rest
    cut = cut_detail(text)
    if len(text.encode()) <= DETAIL_LIMIT:
        assert cut == text
        return
    kept = cut.removesuffix(CUT)
    assert cut == kept + CUT
    assert text.startswith(kept)
    assert len(kept.encode()) <= DETAIL_LIMIT < len(text[: len(kept) + 1].encode())
    assert cut_detail(cut) == cut


@pytest.mark.spec("W5")
def test_a_long_detail_that_only_looks_cut_is_cut() -> None:
    assert cut_detail("x" * (DETAIL_LIMIT + 1) + CUT) == "x" * DETAIL_LIMIT + CUT


@pytest.mark.spec("W6")
def test_the_post_is_exactly_this_request() -> None:
    ask = completion_ask(HANDLE, OUTCOME, "msg_1")
    assert (ask.method, ask.target, ask.token) == ("POST", "/", None)
    assert (ask.address.hosts, ask.address.port) == (("127.0.0.1",), 7000)
    assert ask.headers == (
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("x-murmur-task-origin", "completion"),
        ("x-murmur-delegation-id", DELEGATION),
        ("x-murmur-completion-session", "ses_parent"),
    )
    assert json.loads(ask.body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {
            "message": {
                "messageId": "msg_1",
                "contextId": "ctx_parent",
                "role": "user",
                "parts": [{"text": f"delegation {DELEGATION} (worker@0.1.0) ended: ok"}],
            }
        },
    }


@pytest.mark.spec("W6")
def test_a_post_is_granted_30_seconds_also_when_the_door_is_silent_all_along() -> None:
    assert POST_LIMITS[:3] == AskLimits(connect=2.0, read=30.0, total=30.0)[:3]


@pytest.mark.spec("W6")
def test_a_post_is_about_the_handles_delegation_whatever_the_child_recorded() -> None:
    ask = completion_ask(HANDLE, OUTCOME.replaced(delegation_id="dlg_of_another", session_id="ses_x"), "msg_1")
    assert b"dlg_of_another" not in ask.body
    assert dict(ask.headers)["x-murmur-delegation-id"] == DELEGATION
    assert dict(ask.headers)["x-murmur-completion-session"] == "ses_parent"


@pytest.mark.spec("W6", "P4")
@pytest.mark.parametrize("url", [None, "", "http://", "http://example.com:80", "http://127.0.0.1", "ftp://127.0.0.1:1"])
def test_a_url_that_names_no_address_is_not_asked(url: str | None) -> None:
    with pytest.raises(NoSuchAddress):
        completion_ask(HANDLE.replaced(url=url), OUTCOME, "msg_1")


def answered(document: object, status: int = 200) -> Answered:
    return Answered(status, json.dumps(document).encode())


def task(state: object, **more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"id": "tsk_1", "status": {"state": state, **more}}}


WORDS = {"parts": [{"kind": "text", "text": "the queue\nis full"}]}


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    "reading",
    [
        *(answered(task(state)) for state in ("submitted", "working", "completed", "failed", "canceled", "Rejected")),
        answered(task(None)),
        answered(task(["rejected"])),
        answered({"result": {"state": "rejected"}}),
        answered({"result": {"status": "rejected"}}),
        answered({"result": {"status": {}}}),
        answered({"result": {}}),
        answered({"result": None}),
        answered({"result": "rejected"}),
        answered({}),
        *(answered(task("working"), status) for status in (201, 202, 299)),
    ],
)
def test_an_answer_of_2xx_without_an_error_or_a_rejected_task_means_delivered(reading: DoorReading) -> None:
    assert delivery_of(reading) is None


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (NoAnswer("connection refused"), "connection refused"),
        (NoAnswer("timed out after 30s without an answer"), "timed out after 30s without an answer"),
        (answered(task("completed"), 199), "the door answered with HTTP status 199"),
        (answered(task("completed"), 300), "the door answered with HTTP status 300"),
        (answered({}, 401), "the door answered with HTTP status 401"),
        (answered({}, 500), "the door answered with HTTP status 500"),
        (Answered(200, b""), "the door answered with a body that is not JSON"),
        (Answered(204, b""), "the door answered with a body that is not JSON"),
        (Answered(200, b"<html>"), "the door answered with a body that is not JSON"),
        (Answered(200, b"\xff"), "the door answered with a body that is not JSON"),
        (answered([task("completed")]), "the door answered with something that is no JSON-RPC answer"),
        (answered("ok"), "the door answered with something that is no JSON-RPC answer"),
        (answered(None), "the door answered with something that is no JSON-RPC answer"),
        (answered({"error": {"code": -1, "message": "no such delegation"}}), "the door refused: no such delegation"),
        (answered({"error": {"message": "a\x1b[2Jb\nc"}}), "the door refused: a\\x1b[2Jb\\x0ac"),
        (answered({"error": {"message": "x" * 300}}), "the door refused: " + "x" * 300),
        (answered({"error": {"message": "x" * 301}}), "the door refused: " + "x" * 300 + CUT),
        (answered({"error": {"message": "\x00" * 100}}), "the door refused: " + "\\x00" * 75 + CUT),
        (answered({"error": {"code": -1}}), "the door refused"),
        (answered({"error": {"message": 7}}), "the door refused"),
        (answered({"error": "no"}), "the door refused"),
        (answered({"error": None}), "the door refused"),
        (answered({**task("completed"), "error": {}}), "the door refused"),
        (answered(task("rejected")), "the door rejected it"),
        (answered(task("rejected", message=WORDS)), "the door rejected it: the queue\\x0ais full"),
        (answered({"result": {"status": {"state": "rejected", "message": WORDS}}}), "the door rejected it"),
    ],
)
def test_anything_else_is_undelivered_and_says_why_on_one_line(reading: DoorReading, reason: str) -> None:
    assert delivery_of(reading) == reason


@pytest.mark.spec("W6")
def test_the_summary_says_what_became_of_it_and_where_the_result_is_and_the_detail() -> None:
    outcome = OUTCOME.replaced(status="error", result_path="/r/out/result.md", detail="first\nsecond\n\nfourth\ttab")
    assert summary_text(outcome).split("\n") == [
        f"delegation {DELEGATION} (worker@0.1.0) ended: error",
        "result: /r/out/result.md",
        "detail: first",
        "  second",
        "  ",
        "  fourth\\x09tab",
    ]


@pytest.mark.spec("W6")
def test_an_empty_detail_takes_no_line_of_the_summary() -> None:
    assert summary_text(OUTCOME.replaced(detail="")) == summary_text(OUTCOME)
    assert "\n" not in summary_text(OUTCOME)


@pytest.mark.spec("W6")
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(outcome=outcomes)
def test_nothing_that_a_child_wrote_begins_a_line_of_the_summary_like_another(outcome: DelegationOutcome) -> None:
    lines = summary_text(outcome).splitlines()
    assert lines[0].startswith("delegation ")
    assert lines[0].endswith(f" ended: {outcome.status}")
    wanted = ["result: "] * (outcome.result_path is not None) + ["detail: "] * bool(outcome.detail)
    assert [line[:8] for line in lines[1:] if not line.startswith("  ")] == wanted


@pytest.mark.spec("W6")
def test_a_summary_is_bounded_whatever_a_child_wrote() -> None:
    long = "\U000e0001" * 100_000
    outcome = OUTCOME.replaced(
        delegation_id=long, capsule_name=long, capsule_version=long, result_path=long, detail="\x00" * 100_000
    )
    assert len(summary_text(outcome)) < 20_000
