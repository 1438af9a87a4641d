"""A session's door takes in how its delegations ended, by one kind of request, which can do nothing else (W6)."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmur.domain.cards import ServedSession
from murmur.domain.completion_calls import TEXT_LIMIT
from murmur.domain.door import Answered
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.door_tokens import DoorKeys, TokenKey
from murmur.domain.ids import IdPrefix
from murmur.domain.launch.completion import DelegationOutcome, completion_ask, delivery_of, summary_text
from murmur.domain.launch.handle import SpawnerHandle
from murmur.domain.served_door import Door
from murmur.domain.task_board import TaskBoard

SES = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4051"
OTHER = "ses_0198a7b3c4d57e6f8a9b0c1d2e3f4052"
DLG = "dlg_0198a7b3c4d57e6f8a9b0c1d2e3f4053"
HANDLE = SpawnerHandle(SES, "ctx_1", DLG, "http://localhost:40123")
OUTCOME = DelegationOutcome(
    delegation_id=DLG,
    capsule_name="worker",
    capsule_version="1.0",
    session_id=OTHER,
    status="ok",
    workdir="/w",
    duration_ms=1,
    reported_by="child",
)
KEYS = DoorKeys(TokenKey(bytes(range(32)).hex()), SES)


class Session:
    """A door that waits for one delegation, and what it was told."""

    def __init__(self, *, authenticated: bool = False, acceptance: str = "queue") -> None:
        self.outstanding = {DLG}
        self.told: list[tuple[str, str]] = []
        self.board = TaskBoard("queue" if acceptance == "queue" else "none", "sleep", 3)
        served = ServedSession(
            SES, "boss", "1.0", "localhost:40123", accepts_tasks=acceptance == "queue", authenticated=authenticated
        )
        self._numbers = count()
        self.operator = KEYS.mint("operator", served.methods)
        self.door = Door(served, self.board, self.mint, KEYS if authenticated else None, completed=self.completed)

    def mint(self, prefix: IdPrefix) -> str:
        return f"{prefix}{next(self._numbers):032x}"

    def completed(self, delegation_id: str, text: str) -> bool:
        if delegation_id not in self.outstanding:
            return False
        self.outstanding.remove(delegation_id)
        self.told.append((delegation_id, text))
        return True

    def answer(self, request: DoorRequest) -> DoorResponse:
        answer = self.door.answer(request)
        assert isinstance(answer, DoorResponse)
        return answer

    @property
    def is_untouched(self) -> bool:
        """Whether the delegation is as outstanding as it was, and nothing was done to the tasks."""
        return self.outstanding == {DLG} and self.told == [] and self.board.running is None and self.board.waiting == 0


def post(
    *,
    body: object = None,
    authorization: str | None = None,
    headers: dict[str, str | None] | None = None,
    host: str = "localhost:40123",
    **fields: Any,
) -> DoorRequest:
    """Make the request that a child makes, but for what is given."""
    ask = completion_ask(HANDLE, OUTCOME, "msg_1")
    sent = {name.lower(): value for name, value in ask.headers if name.startswith("x-murmur-")} | (headers or {})
    content = ask.body if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = DoorRequest(
        ask.method,
        ask.target,
        content,
        host,
        authorization,
        headers={name: value for name, value in sent.items() if value is not None},
    )
    return request._replace(**fields)


def call(**changes: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(completion_ask(HANDLE, OUTCOME, "msg_1").body)
    return document | changes


def message(**changes: object) -> dict[str, Any]:
    document = call()
    document["params"]["message"] |= changes
    return document


@pytest.mark.spec("W6")
@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parametrize("acceptance", ["queue", "none"])
@pytest.mark.parametrize("token", [None, "Bearer wrong", "operator"])
def test_what_a_child_posts_is_taken_in_once_with_a_token_or_without(
    authenticated: bool, acceptance: str, token: str | None
) -> None:
    session = Session(authenticated=authenticated, acceptance=acceptance)
    authorization = f"Bearer {session.operator.expose()}" if token == "operator" else token
    answer = session.answer(post(authorization=authorization))
    assert delivery_of(Answered(answer.status, answer.body)) is None
    assert session.told == [(DLG, summary_text(OUTCOME))]
    document = json.loads(answer.body)
    assert document["id"] == 1
    assert document["result"]["contextId"] == "ctx_1"
    assert document["result"]["status"] == {"state": "completed"}
    again = session.answer(post(authorization=authorization))
    assert again.status == 403
    assert json.loads(again.body)["error"] == "not_outstanding"
    assert delivery_of(Answered(again.status, again.body)) is not None
    assert len(session.told) == 1
    assert session.board.running is None


@pytest.mark.spec("W6")
@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"x-murmur-completion-session": OTHER}, "foreign_completion"),
        ({"x-murmur-completion-session": None}, "foreign_completion"),
        ({"x-murmur-completion-session": ""}, "foreign_completion"),
        ({"x-murmur-completion-session": SES.upper()}, "foreign_completion"),
        ({"x-murmur-completion-session": f"{SES}, {SES}"}, "foreign_completion"),
        ({"x-murmur-delegation-id": f"{DLG[:-1]}4"}, "not_outstanding"),
        ({"x-murmur-delegation-id": None}, "not_outstanding"),
        ({"x-murmur-delegation-id": ""}, "not_outstanding"),
        ({"x-murmur-delegation-id": f"../delegations/{DLG}"}, "not_outstanding"),
    ],
)
def test_a_foreign_or_forged_completion_is_refused_and_the_delegation_stays_outstanding(
    headers: dict[str, str | None], error: str, authenticated: bool
) -> None:
    session = Session(authenticated=authenticated)
    answer = session.answer(post(headers=headers))
    assert (answer.status, json.loads(answer.body)["error"]) == (403, error)
    assert session.is_untouched


@pytest.mark.spec("W6")
@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        ([], -32600),
        ([call()], -32600),
        (call(jsonrpc="1.0"), -32600),
        (call(id=[1]), -32600),
        (call(id=True), -32600),
        (call(method=None), -32600),
        (call(params=[]), -32602),
        (call(params=None), -32602),
        (call(params={}), -32602),
        (call(params={"message": None}), -32602),
        (call(method="session/stop", params={}), -32601),
        (call(method="session/stop"), -32601),
        (call(method="tasks/cancel"), -32601),
        (call(method="message/stream"), -32601),
        (call(method="Message/Send"), -32601),
        (call(method="agent/getAuthenticatedExtendedCard"), -32601),
        (message(role="agent"), -32602),
        (message(role=None), -32602),
        (message(parts=[]), -32602),
        (message(parts="text"), -32602),
        (message(parts=[{"text": "a"}, {"text": "b"}]), -32602),
        (message(parts=[{"text": 1}]), -32602),
        (message(parts=[{"data": {}}]), -32602),
        (message(contextId=1), -32602),
        (message(contextId="c" * 257), -32602),
    ],
)
def test_a_malformed_completion_is_an_error_and_the_delegation_stays_outstanding(
    body: object, code: int, authenticated: bool
) -> None:
    session = Session(authenticated=authenticated)
    answer = session.answer(post(body=body))
    assert json.loads(answer.body)["error"]["code"] == code
    assert delivery_of(Answered(answer.status, answer.body)) is not None
    assert session.is_untouched


@pytest.mark.spec("W6")
@pytest.mark.parametrize(
    "request_",
    [
        post(host="evil.example:40123"),
        post(origin="http://evil.example"),
        post(method="PUT"),
        post(target="/control"),
        post(target="/elsewhere"),
    ],
)
def test_a_completion_is_held_to_the_same_host_page_and_path_as_every_request(request_: DoorRequest) -> None:
    session = Session()
    assert session.answer(request_).status in (403, 404, 405)
    assert session.is_untouched


@pytest.mark.spec("W6")
@pytest.mark.parametrize("origin", ["Completion", "completion ", "task", ""])
def test_another_origin_is_no_completion_and_needs_its_token(origin: str) -> None:
    session = Session(authenticated=True)
    assert session.answer(post(headers={"x-murmur-task-origin": origin})).status == 401
    assert session.is_untouched


@pytest.mark.spec("W6")
def test_a_door_that_takes_no_completions_refuses_one() -> None:
    served = ServedSession(SES, "boss", "1.0", "localhost:40123", accepts_tasks=True, authenticated=False)
    answer = Door(served, TaskBoard("queue"), Session().mint).answer(post())
    assert isinstance(answer, DoorResponse)
    assert answer.status == 403


@pytest.mark.spec("W6")
def test_the_words_that_are_kept_are_bounded() -> None:
    session = Session()
    session.answer(post(body=message(parts=[{"text": "x" * 100_000}])))
    assert session.told == [(DLG, "x" * TEXT_LIMIT)]


@pytest.mark.spec("W6")
def test_a_completion_may_leave_the_context_out() -> None:
    session = Session()
    answer = session.answer(post(body=message(contextId=None)))
    assert json.loads(answer.body)["result"]["contextId"].startswith("ctx_")
    assert len(session.told) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.spec("W6")
@given(
    body=st.one_of(
        JSON,
        JSON.map(lambda params: call(params=params)),
        JSON.map(lambda each: call(params={"message": each})),
        st.dictionaries(st.sampled_from(["role", "parts", "contextId"]), JSON, min_size=1).map(lambda m: message(**m)),
    ),
    name=st.sampled_from(["x-murmur-delegation-id", "x-murmur-completion-session", "x-other"]),
    value=st.text(max_size=40),
)
def test_whatever_is_posted_gets_an_answer_and_ends_at_most_the_one_delegation(
    body: object, name: str, value: str
) -> None:
    session = Session(authenticated=True)
    answer = session.answer(post(body=body, headers={name: value}))
    delivered = delivery_of(Answered(answer.status, answer.body)) is None
    assert delivered == (not session.is_untouched)
    assert session.board.running is None
