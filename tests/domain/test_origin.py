"""What an origin file holds, and where it says that a session was started (L8)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.origin import Elsewhere, Here, Origin, elsewhere, parse_origin, render_origin
from tests.fakes.processes import HERE

KEYS = ["pid", "process_start", "machine_id", "boot_id", "pid_namespace", "time_namespace", "pidfd_inode"]
FULL = Origin(77, "123", "m", "b", "pid:[1]", "time:[1]", 9)

texts = st.one_of(st.none(), st.text())
numbers = st.one_of(st.none(), st.integers(0, 2**64 - 1))


@pytest.mark.spec("L8")
@given(st.builds(Origin, numbers, texts, texts, texts, texts, texts, numbers))
def test_what_is_written_reads_back_the_same(origin: Origin) -> None:
    assert parse_origin(render_origin(origin)) == origin


@pytest.mark.spec("L8")
def test_an_origin_is_written_with_its_seven_keys_in_order_and_null_for_the_unread() -> None:
    assert list(json.loads(render_origin(FULL)).items()) == list(zip(KEYS, [77, "123", *FULL_PLACE, 9], strict=True))
    assert json.loads(render_origin(Origin(pid=77))) == {key: 77 if key == "pid" else None for key in KEYS}


FULL_PLACE = ["m", "b", "pid:[1]", "time:[1]"]


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff",
        b'{"pid": "77"}',
        b'{"pid": true}',
        b'{"pid": 77.0}',
        b'{"pid": NaN}',
        b'{"process_start": 123}',
        b'{"machine_id": []}',
        b'{"boot_id": {}}',
        b'{"pid_namespace": 1}',
        b'{"time_namespace": false}',
        b'{"pidfd_inode": "9"}',
        b'{"pid": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
    ids=lambda content: content[:24].decode(errors="replace"),
)
def test_what_is_no_origin_reads_as_none(content: bytes) -> None:
    assert parse_origin(content) is None


@pytest.mark.spec("L8")
def test_a_key_that_is_missing_or_unknown_is_no_reason_to_refuse() -> None:
    assert parse_origin(b'{"pid": 77, "later": {"a": [1]}}') == Origin(pid=77)


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("origin", "another"),
    [
        (Origin(77, "123"), False),
        (Origin(78, "123"), True),
        (Origin(77, "124"), True),
        (Origin(None, "123"), False),
        (Origin(77, None), False),
        (Origin(), False),
    ],
)
def test_an_origin_names_another_process_only_by_what_it_could_read(origin: Origin, another: bool) -> None:
    assert origin.names_another(77, "123") is another


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("here", "found"),
    [
        (HERE, None),
        (HERE._replace(machine_id="else"), None),
        (HERE._replace(pid_namespace="else"), Elsewhere("in another pid namespace", True)),
        (HERE._replace(pid_namespace=None), Elsewhere("in another pid namespace", True)),
        (HERE._replace(pid_namespace="else", time_namespace="else"), Elsewhere("in another pid namespace", True)),
        (HERE._replace(time_namespace="else"), Elsewhere("in another time namespace", True)),
        (HERE._replace(time_namespace=None), Elsewhere("in another time namespace", True)),
        (HERE._replace(boot_id="else"), Elsewhere("in another boot", True)),
        (HERE._replace(boot_id=None), Elsewhere("in another boot", True)),
        (HERE._replace(boot_id="else", pid_namespace="else"), Elsewhere("in another boot", True)),
        (HERE._replace(boot_id="else", machine_id="else"), Elsewhere("on another machine", False)),
        (HERE._replace(boot_id=None, machine_id=None), Elsewhere("on another machine", False)),
        (Here(), Elsewhere("on another machine", False)),
    ],
)
def test_a_place_differs_by_boot_then_pid_namespace_then_time_namespace(here: Here, found: Elsewhere | None) -> None:
    assert elsewhere(Origin(77, "123", *HERE), here) == found


@pytest.mark.spec("L8")
def test_a_namespace_that_neither_side_has_is_the_same_one() -> None:
    assert elsewhere(Origin(77, "123", "m", "b"), Here("m", "b")) is None


@pytest.mark.spec("L8")
def test_two_unread_boots_are_not_one_boot() -> None:
    assert elsewhere(Origin(77, "123"), Here()) == Elsewhere("on another machine", False)
    assert elsewhere(Origin(77, "123", "m"), Here("m")) == Elsewhere("in another boot", True)
