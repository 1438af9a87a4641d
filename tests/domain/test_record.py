"""The running record: its size limit, its redaction, and what its errors may say (R1-R6, S3, I3)."""

import copy
import dataclasses
import json
import logging
import traceback
from collections.abc import Iterator

import pytest

from murmur.domain.errors import UnwritableRecord
from murmur.domain.ids import FormationId
from murmur.domain.process import ProcessIdentity
from murmur.domain.record import RECORD_LIMIT, RunningRecord, UnreadableRecord, parse_record, render_record
from murmur.domain.secret import DoorToken

OPERATOR = "mdt1.operator-Zq7Zq7.mac"
DECLARED = "mdt1.declared-Xk9Xk9.mac"
FORMATION = "frm_0198a7b3c4d57e6f8a9b0c1d2e3f4051"

DOCUMENT: dict[str, object] = {
    "session_id": "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
    "url": "localhost:40123",
    "pid": 7331,
    "process_start": "5550123",
    "capsule_name": "weaver",
    "capsule_version": "2.4.0",
    "workdir": "/srv/murmur/weaver",
    "outlives_launcher": False,
    "started_at": "2026-03-09T08:07:06Z",
    "door_token": OPERATOR,
    "credentials": {"reader": DECLARED},
    "formation_id": FORMATION,
    "formation_lifeline": True,
    "formation_launcher": {"pid": 99, "process_start": "77"},
    "spawned_by": "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4000",
}
BYTES = json.dumps(DOCUMENT).encode()
RECORD = RunningRecord(
    session_id="ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051",
    url="localhost:40123",
    pid=7331,
    process_start="5550123",
    capsule_name="weaver",
    capsule_version="2.4.0",
    workdir="/srv/murmur/weaver",
    outlives_launcher=False,
    started_at="2026-03-09T08:07:06Z",
    door_token=DoorToken(OPERATOR),
    credentials={"reader": DoorToken(DECLARED)},
    formation_id=FormationId(FORMATION),
    formation_lifeline=True,
    formation_launcher=ProcessIdentity(99, "77"),
    spawned_by="ses_0198a7b3c4d57e6f8a9b0c1d2e3f4000",
)


def changed(**values: object) -> bytes:
    return json.dumps({**DOCUMENT, **values}).encode()


def refusal(content: bytes) -> UnreadableRecord:
    with pytest.raises(UnreadableRecord) as refused:
        parse_record(content)
    return refused.value


@pytest.mark.spec("R1")
def test_every_field_of_a_full_record_is_read() -> None:
    assert parse_record(BYTES) == RECORD


@pytest.mark.spec("R1")
def test_what_is_omitted_does_not_apply() -> None:
    record = parse_record(json.dumps(dict(list(DOCUMENT.items())[:9])).encode())
    assert record.door_token is None
    assert record.credentials == {}
    assert record.formation_id is None
    assert record.formation_lifeline is False
    assert record.formation_launcher is None
    assert record.spawned_by is None


@pytest.mark.spec("R1")
def test_the_identity_of_a_record_is_its_pid_and_start_token() -> None:
    assert RECORD.identity == ProcessIdentity(7331, "5550123")


@pytest.mark.spec("R1", "R2")
def test_keys_are_written_in_their_order_with_two_blanks_and_no_newline_at_the_end() -> None:
    written = render_record(RECORD)
    assert list(json.loads(written)) == list(DOCUMENT)
    assert written.startswith(b'{\n  "session_id": "ses_')
    assert written.endswith(b'"\n}')


@pytest.mark.spec("R1")
@pytest.mark.parametrize(
    ("nothing", "key"),
    [
        ({"door_token": None}, "door_token"),
        ({"credentials": {}}, "credentials"),
        ({"formation_id": None}, "formation_id"),
        ({"formation_lifeline": False}, "formation_lifeline"),
        ({"formation_launcher": None}, "formation_launcher"),
        ({"spawned_by": None}, "spawned_by"),
    ],
)
def test_what_does_not_apply_is_omitted_and_never_null(nothing: dict[str, object], key: str) -> None:
    record = dataclasses.replace(RECORD, **nothing)  # type: ignore[arg-type]
    assert set(json.loads(render_record(record))) == set(DOCUMENT) - {key}


@pytest.mark.spec("R1")
def test_an_empty_door_token_applies_and_is_written() -> None:
    record = dataclasses.replace(RECORD, door_token=DoorToken(""))
    assert json.loads(render_record(record))["door_token"] == ""


@pytest.mark.spec("R1", "R2")
def test_credential_names_are_written_in_the_order_of_their_bytes() -> None:
    names = ["\U0001f600", "\uffee", "b", "a", "Z", "é", ""]
    record = dataclasses.replace(RECORD, credentials={name: DoorToken("t") for name in names})
    assert list(json.loads(render_record(record))["credentials"]) == sorted(names, key=str.encode)


@pytest.mark.spec("R2")
@pytest.mark.parametrize(
    "record",
    [
        dataclasses.replace(RECORD, workdir="/srv/caf\udce9"),
        dataclasses.replace(RECORD, capsule_name="\ud800"),
        dataclasses.replace(RECORD, credentials={"a\udcff": DoorToken(DECLARED)}),
        dataclasses.replace(RECORD, door_token=DoorToken(OPERATOR + "\udcff")),
    ],
    ids=["path", "name", "credential-name", "token"],
)
def test_a_record_whose_text_is_not_utf8_is_not_written_and_its_error_shows_no_token(record: RunningRecord) -> None:
    with pytest.raises(UnwritableRecord) as refused:
        render_record(record)
    assert_no_token(refused.value)


@pytest.mark.spec("R5")
def test_a_record_of_exactly_one_mebibyte_is_read() -> None:
    content = BYTES + b" " * (1024 * 1024 - len(BYTES))
    assert parse_record(content) == RECORD


@pytest.mark.spec("R5", "S3")
def test_a_record_of_one_byte_more_than_a_mebibyte_is_refused_and_kept() -> None:
    assert not refusal(BYTES + b" " * (RECORD_LIMIT + 1 - len(BYTES))).removable


@pytest.mark.spec("R5", "S3")
def test_rubbish_of_one_byte_more_than_a_mebibyte_is_kept_too_since_it_was_not_read() -> None:
    assert not refusal(b"\xff" * (RECORD_LIMIT + 1)).removable


@pytest.mark.spec("R3", "S3")
@pytest.mark.parametrize(
    "nested",
    [
        b"[" * 3000 + b"]" * 3000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'[{"a":' * 1500 + b"null" + b"}]" * 1500,
    ],
    ids=["lists", "objects", "both"],
)
def test_an_unknown_value_nested_3000_deep_reads_or_is_kept(nested: bytes) -> None:
    content = BYTES[:-1] + b',"later":' + nested + b"}"
    try:
        record = parse_record(content)
    except UnreadableRecord as refused:
        assert not refused.removable  # noqa: PT017
    else:
        assert record == RECORD


@pytest.mark.spec("R3", "S3")
def test_an_unknown_value_nested_60_deep_reads() -> None:
    assert parse_record(BYTES[:-1] + b',"later":' + b"[" * 60 + b"]" * 60 + b"}") == RECORD


@pytest.mark.spec("R3", "S3")
@pytest.mark.parametrize("content", [b"[" * 500_000, b'{"a":' * 100_000], ids=["lists", "objects"])
def test_a_file_of_nothing_but_opening_brackets_is_refused_like_any_other(content: bytes) -> None:
    refusal(content)


@pytest.mark.spec("S3")
@pytest.mark.parametrize("digits", [4301, 5000, 100_000])
def test_an_integer_too_long_for_this_reader_keeps_the_file(digits: int) -> None:
    assert not refusal(BYTES[:-1] + b',"later":' + b"9" * digits + b"}").removable


@pytest.mark.spec("R3")
def test_an_integer_of_any_length_is_no_pid() -> None:
    refusal(BYTES.replace(b"7331", b"1" + b"0" * 5000))


@pytest.mark.spec("S3")
def test_what_no_reader_takes_outweighs_a_positional_launcher() -> None:
    assert refusal(changed(formation_launcher=[1, "9"], outlives_launcher=1)).removable
    assert not refusal(changed(formation_launcher=[1, "9"])).removable


@pytest.mark.spec("R4")
@pytest.mark.parametrize("name", list(DOCUMENT)[:9])
def test_a_missing_required_key_is_named(name: str) -> None:
    document = {key: value for key, value in DOCUMENT.items() if key != name}
    assert f"`{name}`" in refusal(json.dumps(document).encode()).reason


@pytest.mark.spec("R6", "I3")
def test_the_repr_of_a_record_shows_no_token() -> None:
    for text in (repr(RECORD), str(RECORD), f"{RECORD}", "%s %r" % (RECORD, [RECORD])):  # noqa: UP031
        assert OPERATOR not in text
        assert DECLARED not in text
        assert "DoorToken(<redacted>)" in text


@pytest.mark.spec("R6", "I3")
def test_a_logged_record_shows_no_token(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("murmur").warning("kept %s %r", RECORD, {"record": RECORD})
    assert "weaver" in caplog.text
    assert "Zq7Zq7" not in caplog.text
    assert "Xk9Xk9" not in caplog.text


@pytest.mark.spec("I3")
def test_a_record_turned_into_a_dictionary_of_json_shows_no_token_by_default() -> None:
    shallow = {field.name: getattr(RECORD, field.name) for field in dataclasses.fields(RECORD)}
    text = json.dumps(shallow, default=str)
    assert "DoorToken(<redacted>)" in text
    assert "Zq7Zq7" not in text


@pytest.mark.spec("R6")
def test_a_record_cannot_be_changed_after_it_was_read() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECORD.pid = 1  # type: ignore[misc]


@pytest.mark.spec("I3")
def test_a_record_with_a_token_is_not_copied_deeply_by_accident() -> None:
    with pytest.raises(TypeError) as refused:
        copy.deepcopy(RECORD)
    assert "Zq7Zq7" not in str(refused.value)


def shown_chain(error: BaseException) -> Iterator[BaseException]:
    """Walk what a traceback of `error` would show: causes, and contexts that are not suppressed."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def assert_no_token(error: BaseException) -> None:
    shown = "".join(traceback.format_exception(error))
    for link in shown_chain(error):
        shown += f"{link} {link!r} {link.args!r} {getattr(link, 'reason', '')} {getattr(link, '__notes__', '')}"
    assert "Zq7Zq7" not in shown
    assert "Xk9Xk9" not in shown


@pytest.mark.spec("I3", "R6")
@pytest.mark.parametrize(
    "content",
    [
        BYTES[:-1],
        BYTES + b"x",
        BYTES + BYTES,
        BYTES.replace(b"7331", b"NaN"),
        BYTES.replace(b"7331", b"07331"),
        BYTES.replace(b"Zq7Zq7", b"Zq7Zq7\xff"),
        BYTES.replace(b"Zq7Zq7", b"Zq7Zq7\\ud800"),
        BYTES.replace(b"Zq7Zq7", b"Zq7Zq7\\x"),
        BYTES.replace(b"Zq7Zq7", b"Zq7Zq7\n"),
        BYTES.replace(b'"door_token": ', b'"door_token": 5, "door_token": '),
        BYTES.replace(b'"door_token": "', b'"door_token": ["').replace(b'mac", "cred', b'mac"], "cred'),
        BYTES.replace(b"7331", b'"' + OPERATOR.encode() + b'"'),
        BYTES[:-1] + b',"' + OPERATOR.encode() + b'\\ud800":1}',
        BYTES[:-1] + b',"later":' + b"9" * 5000 + b"}",
        BYTES[:-1] + b',"later":' + b"[" * 3000 + b"}",
        BYTES.decode().encode("utf-16"),
        BYTES + b" " * RECORD_LIMIT,
        b"[" + BYTES + b"]",
        json.dumps(OPERATOR).encode(),
        OPERATOR.encode(),
        changed(formation_id=OPERATOR),
        changed(formation_id=[OPERATOR]),
        changed(formation_launcher=OPERATOR),
        changed(formation_launcher=[1, OPERATOR]),
        changed(formation_launcher={"pid": OPERATOR, "process_start": "1"}),
        changed(formation_launcher={OPERATOR: 1}),
        changed(credentials=OPERATOR),
        changed(credentials=[OPERATOR]),
        changed(credentials={DECLARED: 5}),
        changed(credentials={"reader": [DECLARED]}),
        changed(credentials={OPERATOR + "\ud800": DECLARED}),
        changed(credentials={"reader": DECLARED + "\ud800"}),
        changed(door_token=[OPERATOR]),
        changed(outlives_launcher=OPERATOR),
        changed(pid=OPERATOR),
        changed(spawned_by=[OPERATOR]),
    ],
)
def test_no_error_about_a_record_shows_a_token(content: bytes) -> None:
    assert_no_token(refusal(content))
