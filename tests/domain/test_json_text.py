"""What is JSON by RFC 8259, and what is not (P1)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.json_text import NotJson, json_bytes, read_json


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"null", None),
        (b" \t\r\n[1, 2.5, true, false]\n", [1, 2.5, True, False]),
        (b'{"a": {"b": "c"}}', {"a": {"b": "c"}}),
        ('"\u00e9\u4e2d\U0001f600"'.encode(), "\u00e9\u4e2d\U0001f600"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\u0000"', "\0"),
        (b"-0.0", -0.0),
        (b'{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_a_json_document_is_read_as_its_value(content: bytes, value: object) -> None:
    assert read_json(content) == value


NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b'{"a":1,}',
    b"{a:1}",
    b"'a'",
    b"nul",
    b"True",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"0x1",
    b"1_000",
    b"1 2",
    b"[] []",
    b'"\x01"',
    b'"a\nb"',
    b'"\\x41"',
    b"\x0b1",
    b"\xc2\xa01",
    b"\xff",
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b"// a\n1",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"[NaN]",
    b'{"a":-Infinity}',
    b"\xef\xbb\xbf1",
    "1".encode("utf-16"),
    "[]".encode("utf-32-le"),
    b"9" * 5000,
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
]


@pytest.mark.spec("P1")
@pytest.mark.parametrize("content", NOT_JSON, ids=range(len(NOT_JSON)))
def test_what_is_not_json_or_beyond_holding_is_refused(content: bytes) -> None:
    with pytest.raises(NotJson):
        read_json(content)


@pytest.mark.spec("I3", "P1")
@pytest.mark.parametrize("content", [b"swordfish", b'{"a": swordfish}', b"\xffswordfish", b'["swordfish", NaN]'])
def test_a_refusal_quotes_nothing_of_what_was_read(content: bytes) -> None:
    with pytest.raises(NotJson) as refusal:
        read_json(content)
    assert str(refusal.value) == ""
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


@pytest.mark.spec("P1")
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(content=st.binary(max_size=40) | st.text('[]{}":,0123456789eE.+-truefalsn \\u', max_size=20).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        value = read_json(content)
    except NotJson:
        return
    assert json.loads(content) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.spec("P1")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(value=JSON)
def test_what_was_written_is_read_again(value: object) -> None:
    assert read_json(json.dumps(value, allow_nan=False).encode()) == value
    assert read_json(json_bytes(value)) == value


@pytest.mark.spec("P1")
def test_a_document_is_written_in_utf_8_and_not_in_escapes_twice_as_long() -> None:
    assert json_bytes({"\u4e2d": "\u00e9\U0001f600\n"}) == '{"\u4e2d": "\u00e9\U0001f600\\n"}'.encode()


@pytest.mark.spec("P1")
@pytest.mark.parametrize("text", ["\ud800", "\u4e2d\udfff", "\udc80x"])
def test_what_has_no_utf_8_is_written_as_an_escape(text: str) -> None:
    for document in (text, {text: 1}):
        written = json_bytes(document)
        assert written.isascii()
        assert read_json(written) == document


@pytest.mark.spec("P1")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_not_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_bytes([number])
