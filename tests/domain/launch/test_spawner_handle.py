"""Whose delegation a child is (C6)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain.launch.handle import HandleRefused, SpawnerHandle, handle_for, parse_handle, render_handle
from murmur.domain.launch.request import Spawner

BARE = '{"session_id":"ses_parent","context_id":"ctx_parent","delegation_id":"dlg_0001"}'
FULL = BARE[:-1] + ',"url":"http://127.0.0.1:7000"}'


@pytest.mark.spec("C6")
def test_a_handle_joins_the_spawner_and_this_launchs_own_id() -> None:
    spawner = Spawner("ses_parent", "ctx_parent", "http://127.0.0.1:7000")
    first, second = handle_for(spawner, "dlg_0001"), handle_for(spawner, "dlg_0002")
    assert first == SpawnerHandle("ses_parent", "ctx_parent", "dlg_0001", "http://127.0.0.1:7000")
    assert second == first.replaced(delegation_id="dlg_0002")


@pytest.mark.spec("C6")
@pytest.mark.parametrize(("url", "text"), [(None, BARE), ("http://127.0.0.1:7000", FULL)])
def test_a_handle_is_compact_json_with_a_url_only_when_a_completion_is_wanted(url: str | None, text: str) -> None:
    handle = SpawnerHandle("ses_parent", "ctx_parent", "dlg_0001", url)
    assert render_handle(handle) == text
    assert parse_handle(text) == handle


@pytest.mark.spec("C6")
def test_text_is_written_as_serde_writes_it() -> None:
    handle = SpawnerHandle("s", "c", "d", 'http://\u00e9\U0001f600/"\\\b\f\n\r\t\x1f\x7f')
    assert render_handle(handle) == (
        '{"session_id":"s","context_id":"c","delegation_id":"d",'
        '"url":"http://\u00e9\U0001f600/\\"\\\\\\b\\f\\n\\r\\t\\u001f\x7f"}'
    )


@pytest.mark.spec("C6")
@pytest.mark.parametrize("text", [None, "", " ", "\t\r\n\v\f ", "\u00a0\u0085\u2003\u3000"])
def test_absent_or_blank_is_no_handle(text: str | None) -> None:
    assert parse_handle(text) is None


TAKEN = [
    f" \t\r\n{BARE}\n",
    json.dumps(json.loads(BARE), indent=2),
    BARE[:-1] + ',"url":null}',
    BARE[:-1] + ',"trust":"full"}',
    BARE[:-1] + ',"trust":{"session_id":5,"\\ud800":["\\udfff"]}}',
    BARE[:-1] + ',"trust":1,"trust":2,"trust":[]}',
    BARE[:-1] + ',"trust":1e999,"more":' + "9" * 5000 + "}",
    BARE[:-1] + ',"trust":' + "[" * 300 + "]" * 300 + "}",
    BARE[:-1] + ',"Url":5,"URL":[],"report_to":null}',
    BARE.replace("session_id", "session\\u005fid").replace("ses_parent", "\\u0073es_parent"),
    '{"delegation_id":"dlg_0001","trust":false,"context_id":"ctx_parent","session_id":"ses_parent"}',
]


@pytest.mark.spec("C6")
@pytest.mark.parametrize("text", TAKEN, ids=range(len(TAKEN)))
def test_order_blanks_and_names_that_a_handle_does_not_have_are_ignored(text: str) -> None:
    assert parse_handle(text) == SpawnerHandle("ses_parent", "ctx_parent", "dlg_0001", None)


def without(name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(FULL).items() if key != name})


def with_value(name: str, value: object) -> str:
    return json.dumps(json.loads(FULL) | {name: value})


IDS = ("session_id", "context_id", "delegation_id")
NO_TEXTS: list[object] = [None, 5, 5.0, True, [], ["swordfish"], {}]
NO_IDS = (
    "", " ", "swordfish ", " swordfish", "sword fish", "swordfish\n", "sword\0fish", "sword\r\nfish: x",
    "swordfish\x7f", "swordf\u00efsh", "swordfish\ud800",
)  # fmt: skip
REFUSED = [
    *(("it is not JSON", text) for text in (
        "x", "{", FULL[:-1], FULL + "x", FULL + FULL, FULL[:-1] + ",}", "\ufeff" + FULL, "\u00a0" + FULL, "\x1c",
        "{'session_id':'a'}", FULL[:-1] + ',"trust":NaN}', FULL[:-1] + ',"trust":-Infinity}', "\0", FULL + "\0",
        FULL[:-1] + ',"trust":"a\nb"}', "[" * 100_000, FULL[:-1] + ',"trust":' + "[" * 100_000 + "]" * 100_000 + "}",
    )),
    *(("it is no JSON object", text) for text in (
        "null", "true", "1", '"x"', "[]", "[[]]", json.dumps(FULL), f"[{FULL}]",
        '["ses_parent","ctx_parent","dlg_0001","http://127.0.0.1:7000"]',
    )),
    *((f"it has no `{name}`", without(name)) for name in IDS),
    ("it has no `session_id`", "{}"),
    ("it has no `session_id`", FULL.replace("session_id", "Session_id")),
    *((f"its `{name}` is no id", with_value(name, value)) for name in IDS for value in (*NO_TEXTS, *NO_IDS)),
    *(("its `url` is no text", with_value("url", value)) for value in (*NO_TEXTS, "\udfff") if value is not None),
    *((f"it has `{name}` twice", FULL[:-1] + f',"{name}":"swordfish"}}') for name in (*IDS, "url")),
    ("it has `url` twice", BARE[:-1] + ',"url":null,"url":null}'),
    ("it has `session_id` twice", FULL[:-1] + ',"session\\u005fid":"swordfish"}'),
    ("a name in it holds a lone surrogate", FULL[:-1] + ',"\\ud800":1}'),
    ("it is not UTF-8", FULL[:-1] + ',"trust":"\udcff"}'),
]  # fmt: skip


@pytest.mark.spec("C6", "M2")
@pytest.mark.parametrize(("why", "text"), REFUSED, ids=range(len(REFUSED)))
def test_anything_else_refuses_and_is_not_repeated(why: str, text: str) -> None:
    with pytest.raises(HandleRefused) as refused:
        parse_handle(text)
    assert str(refused.value).startswith(f"MURMUR_SPAWNER is no spawner handle: {why}")
    assert "swordfish" not in str(refused.value)
    assert "7000" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__


ID = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)


@pytest.mark.spec("C6")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(handle=st.builds(SpawnerHandle, ID, ID, ID, st.none() | st.text(max_size=40)))
def test_a_handle_that_was_written_is_read_again(handle: SpawnerHandle) -> None:
    assert parse_handle(render_handle(handle)) == handle


@pytest.mark.spec("C6")
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(text=st.text(max_size=30) | st.text('[]{}":,session_idurl \\', max_size=30))
def test_any_text_is_a_handle_none_or_refused(text: str) -> None:
    try:
        parse_handle(text)
    except HandleRefused:
        return
    assert not text.strip()
