"""What was said before in a conversation, and how much of it is remembered (M1)."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain import conversation
from murmur.domain.conversation import (
    CONVERSATION_LIMIT,
    CONVERSATIONS_KEPT,
    MEMORY,
    TEXT_LIMIT,
    TURNS_KEPT,
    Conversations,
    conversation_name,
)

CUT = " […]"


def turns(content: bytes) -> list[tuple[str, str, str]]:
    return [(turn["role"], turn["text"], turn["task_id"]) for turn in map(json.loads, content.decode().splitlines())]


def handed_on(text: str) -> str:
    """What a command reads of such a text."""
    said = Conversations()
    said.add("ctx", "tsk", asked=text, answered="")
    return turns(said.earlier("ctx"))[0][1]


@pytest.mark.spec("M1")
def test_nothing_was_said_before_the_first_task() -> None:
    assert Conversations().earlier("ctx") == b""


@pytest.mark.spec("M1")
def test_each_conversation_has_its_turns_in_order_and_no_other_s() -> None:
    said = Conversations()
    said.add("one", "tsk_1", asked="a", answered="A")
    said.add("two", "tsk_2", asked="b", answered="B")
    said.add("one", "tsk_3", asked="c", answered="")
    assert turns(said.earlier("one")) == [
        ("user", "a", "tsk_1"),
        ("agent", "A", "tsk_1"),
        ("user", "c", "tsk_3"),
        ("agent", "", "tsk_3"),
    ]
    assert turns(said.earlier("two")) == [("user", "b", "tsk_2"), ("agent", "B", "tsk_2")]
    assert said.earlier("three") == b""


@pytest.mark.spec("M1")
def test_a_turn_is_one_line_of_three_keys_in_utf_8() -> None:
    said = Conversations()
    said.add("ctx", "tsk_1", asked='é "x"\n\t\\', answered="\x85\u2028\u2029\udc80")
    assert said.earlier("ctx") == (
        b'{"role": "user", "text": "\xc3\xa9 \\"x\\"\\n\\t\\\\", "task_id": "tsk_1"}\n'
        b'{"role": "agent", "text": "\\u0085\\u2028\\u2029?", "task_id": "tsk_1"}\n'
    )


@pytest.mark.spec("M1")
def test_the_last_hundred_turns_are_handed_on() -> None:
    assert TURNS_KEPT == 100
    said = Conversations()
    for number in range(60):
        said.add("ctx", f"tsk_{number}", asked=str(number), answered=str(number))
    told = turns(said.earlier("ctx"))
    assert [text for _, text, _ in told] == [str(number) for number in range(10, 60) for _ in range(2)]
    assert told[0][0] == "user"


@pytest.mark.spec("M1")
def test_of_long_turns_those_are_handed_on_that_fit_the_last_at_least() -> None:
    said = Conversations()
    for number in range(20):
        said.add("ctx", f"tsk_{number}", asked="x" * 100_000, answered="y" * 100_000)
        assert len(said.earlier("ctx")) <= CONVERSATION_LIMIT == 1024 * 1024
    assert [task for _, _, task in turns(said.earlier("ctx"))] == [f"tsk_{n}" for n in range(15, 20) for _ in range(2)]
    said.add("ctx", "tsk_last", asked="\0" * 10**6, answered="\0" * 10**6)
    assert turns(said.earlier("ctx"))[-1][2] == "tsk_last"
    assert len(said.earlier("ctx")) <= CONVERSATION_LIMIT


@pytest.mark.spec("M1")
@pytest.mark.parametrize("unit", ["x", "é", "漢", "😀", "\0", '"', "\\", "\n", "\u2028", "x\0", "\\\0é"])
def test_a_text_that_is_too_long_is_cut_between_two_characters(unit: str) -> None:
    size = len(conversation._written(unit)) - 2
    whole = unit * (TEXT_LIMIT // size)
    assert handed_on(whole) == whole
    told = handed_on(whole + unit)
    assert told.endswith(CUT)
    assert (whole + unit).startswith(told.removesuffix(CUT))
    assert TEXT_LIMIT - 16 < len(conversation._written(told)) - 2 <= TEXT_LIMIT


@pytest.mark.spec("M1")
@given(st.text(st.sampled_from('a"\\\0\x85\u2028é漢😀\udc80'), max_size=60))
@settings(deadline=None, max_examples=200)
def test_what_is_kept_of_any_text_is_its_beginning(text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conversation, "TEXT_LIMIT", 40)
        told = handed_on(text)
    readable = text.replace("\udc80", "?")
    assert len(conversation._written(told)) - 2 <= 40
    assert told == readable or readable.startswith(told.removesuffix(CUT))


@pytest.mark.spec("M1")
def test_those_conversations_are_forgotten_in_which_nothing_was_said_for_longest() -> None:
    said = Conversations()
    for number in range(CONVERSATIONS_KEPT):
        said.add(f"ctx_{number}", "tsk", asked="x", answered="y")
    said.add("ctx_0", "tsk", asked="again", answered="y")
    said.add("another", "tsk", asked="x", answered="y")
    assert said.earlier("ctx_1") == b""
    assert len(turns(said.earlier("ctx_0"))) == 4
    assert all(said.earlier(f"ctx_{number}") for number in range(2, CONVERSATIONS_KEPT))


@pytest.mark.spec("M1")
def test_no_more_is_remembered_than_memory_may_hold() -> None:
    said = Conversations()
    for number in range(100):
        said.add(f"ctx_{number}", "tsk", asked="x" * TEXT_LIMIT, answered="y" * TEXT_LIMIT)
    kept = [len(said.earlier(f"ctx_{number}")) for number in range(100)]
    assert sum(kept) <= MEMORY
    assert kept[:69] == [0] * 69
    assert all(kept[69:])


@pytest.mark.spec("M1")
@given(st.text(max_size=300))
@settings(deadline=None, max_examples=50)
def test_no_context_id_names_a_path(context_id: str) -> None:
    assert re.fullmatch("[0-9a-f]{64}", conversation_name(context_id))


@pytest.mark.spec("M1")
def test_two_context_ids_have_two_names() -> None:
    alike = ["", "a", "A", "a ", "../a", "a/", "\udc80", "\udc81", "?", "é", "e\u0301"]
    assert len({conversation_name(each) for each in alike}) == len(alike)
