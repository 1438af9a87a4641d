"""What a referee answers over HTTP, and to whom (wire facts of the door: Roost)."""

import json
from itertools import count
from typing import Any

import pytest

from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.door_http import DoorRequest, DoorResponse
from murmur.domain.door_tokens import TokenKey
from murmur.domain.origin import Origin, render_origin
from murmur.domain.referee import Referee
from murmur.domain.roost_door import (
    APPROVAL_HEADER,
    CREDENTIAL_HEADER,
    InStore,
    Looked,
    LookUp,
    NotInStore,
    RoostDoor,
    StoreUnusable,
)

NOW = 1_700_000_000_000
ROOT = "ses_" + "0" * 32
CHILD = "ses_" + "1" * 32
HELD = InStore("/store/worker/1.0.0", "ab" * 32, frozenset({"helper"}))
WORKER = {"name": "worker", "version": "1.0.0"}


class Roost:
    """A referee's door, a root session, and a store that holds what it is told to."""

    def __init__(self, allow: frozenset[str] | None = frozenset({"worker"}), *, unnamed: bool = False) -> None:
        numbers = count()
        self.referee = Referee(TokenKey("00" * 32), lambda: f"nonce-{next(numbers)}")
        self.root = self.referee.enrol_root(ROOT, allow)
        self.door = RoostDoor(self.referee, "localhost:7700", self.root if unnamed else None)
        self.looked: list[CapsuleReference] = []

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        store: Looked = HELD,
        host: str | None = "localhost:7700",
        origin: str | None = None,
        now: int = NOW,
        **headers: str,
    ) -> DoorResponse:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {f"x-murmur-spawn-{name}": value for name, value in headers.items()}
        answer = self.door.answer(DoorRequest(method, target, content, host, None, origin, headers=sent), now)
        if isinstance(answer, LookUp):
            self.looked.append(answer.reference)
            answer = answer.respond(store, now)
        return answer

    def spawn(self, body: object = WORKER, **more: Any) -> DoorResponse:
        return self.ask("POST", "/spawn", body, **{"credential": self.root.expose(), **more})

    def approval(self) -> str:
        return str(content(self.spawn())["approval"])

    def register(self, approval: str, session: object = CHILD, **more: Any) -> DoorResponse:
        return self.ask("POST", "/register", {"session_id": session, **WORKER}, approval=approval, **more)


def content(answer: DoorResponse) -> dict[str, Any]:
    document = json.loads(answer.body)
    assert isinstance(document, dict)
    return document


def refusal(answer: DoorResponse) -> tuple[int, str]:
    """Return the status and the words of a refusal, which is nothing but those."""
    document = content(answer)
    assert list(document) == ["error"]
    return answer.status, document["error"]


@pytest.fixture
def roost() -> Roost:
    return Roost()


def test_the_headers_are_called_as_the_wire_facts_say() -> None:
    assert (CREDENTIAL_HEADER, APPROVAL_HEADER) == ("x-murmur-spawn-credential", "x-murmur-spawn-approval")


def test_it_is_healthy(roost: Roost) -> None:
    answer = roost.ask("GET", "/health")
    assert (answer.status, content(answer)) == (200, {})


def test_a_launch_from_approval_to_its_end(roost: Roost) -> None:
    spawned = content(roost.spawn())
    approval = spawned.pop("approval")
    assert approval.startswith("msa1.")
    assert spawned == {**WORKER, "sha256": "ab" * 32, "expires_at_ms": NOW + 60_000}
    registered = content(roost.register(approval))
    credential = registered.pop("credential")
    assert credential.startswith("msc1.")
    folder = {"folder": "/store/worker/1.0.0", "sha256": "ab" * 32}
    assert registered == {**folder, "depth_remaining": 2, "depth_limit": 3}
    status = content(roost.ask("GET", f"/status/{ROOT}"))
    assert status == {"status": "running", "depth_remaining": 3, "live_children": 1}
    ended = roost.ask("POST", "/deregister", {"outcome": "failed"}, credential=credential)
    assert (ended.status, content(ended)) == (200, {})
    status = content(roost.ask("GET", f"/status/{CHILD}"))
    assert status == {"status": "failed", "depth_remaining": 2, "live_children": 0}
    assert roost.looked == [CapsuleReference("worker", "1.0.0")] * 2


def test_a_child_s_own_allow_list_is_that_of_what_was_digested(roost: Roost) -> None:
    credential = content(roost.register(roost.approval()))["credential"]
    assert roost.spawn({"name": "helper", "version": "1"}, credential=credential).status == 200
    assert refusal(roost.spawn(credential=credential))[0] == 403


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"name": NaN}',
        b"[" * 100_000,
        [],
        None,
        5,
        {},
        {"name": "worker"},
        {"version": "1.0.0"},
        {"name": None, "version": "1"},
        {"name": ["worker"], "version": "1"},
        {"name": "worker", "version": 1},
        {"name": "", "version": "1"},
        {"name": "../worker", "version": "1"},
        {"name": "worker/../../x", "version": "1"},
        {"name": "worker", "version": "../1"},
        {"name": "worker", "version": ""},
        {"name": "worker", "version": "\ud800"},
        {"name": "worker\u0000", "version": "1"},
    ],
    ids=range(21),
)
def test_a_body_that_names_no_capsule_is_refused_before_anything_is_read(roost: Roost, body: object) -> None:
    approval = roost.approval()
    roost.looked.clear()
    assert refusal(roost.spawn(body))[0] == 400
    assert refusal(roost.ask("POST", "/register", body, approval=approval))[0] == 400
    assert roost.looked == []
    assert roost.register(approval).status == 200


@pytest.mark.parametrize(
    "session", [None, 5, "", "ses_", "ses_" + "1" * 31, "ses_" + "A" * 32, CHILD + "\n", "frm_" + "1" * 32, "../x"]
)
def test_a_session_id_that_is_none_is_refused(roost: Roost, session: object) -> None:
    assert refusal(roost.register(roost.approval(), session))[0] == 400


@pytest.mark.parametrize("body", [b"", [], {}, {"outcome": None}, {"outcome": "running"}, {"outcome": ["failed"]}])
def test_an_outcome_that_is_none_is_refused(roost: Roost, body: object) -> None:
    assert refusal(roost.ask("POST", "/deregister", body, credential=roost.root.expose()))[0] == 400


def test_who_holds_nothing_has_nothing_read(roost: Roost) -> None:
    for answer in (
        roost.ask("POST", "/spawn", WORKER),
        roost.ask("POST", "/register", {"session_id": CHILD, **WORKER}),
        roost.ask("POST", "/deregister", {"outcome": "complete"}),
        roost.spawn(credential="msc1.x.y"),
        roost.spawn(credential=""),
        roost.register("msa1.x.y"),
        roost.register(roost.root.expose()),
        roost.ask("POST", "/deregister", {"outcome": "complete"}, credential="msc1.x.y"),
        roost.spawn({"name": "helper", "version": "1"}),
    ):
        assert refusal(answer)[0] == 403
    assert roost.looked == []


def test_without_a_credential_the_unnamed_one_asks_where_there_is_one() -> None:
    roost = Roost(unnamed=True)
    assert roost.ask("POST", "/spawn", WORKER).status == 200
    assert refusal(roost.ask("POST", "/spawn", {"name": "helper", "version": "1"}))[0] == 403
    assert refusal(roost.ask("POST", "/spawn", WORKER, credential="msc1.x.y"))[0] == 403
    assert refusal(roost.ask("POST", "/deregister", {"outcome": "complete"}))[0] == 403


@pytest.mark.parametrize(
    ("store", "status"), [(NotInStore("there is no capsule"), 404), (StoreUnusable("it is a link"), 500)]
)
def test_what_the_store_says_is_passed_on(roost: Roost, store: NotInStore | StoreUnusable, status: int) -> None:
    approval = roost.approval()
    assert refusal(roost.spawn(store=store)) == (status, store.reason)
    assert refusal(roost.register(approval, store=store)) == (status, store.reason)
    assert roost.register(approval).status == 200


def test_a_capsule_that_changed_after_its_approval_is_refused(roost: Roost) -> None:
    status, words = refusal(roost.register(roost.approval(), store=HELD.replaced(digest="cd" * 32)))
    assert status == 403
    assert words == "the files of worker@1.0.0 have changed since its launch was approved"


def test_an_approval_that_expires_while_the_store_is_looked_into_is_refused(roost: Roost) -> None:
    request = DoorRequest(
        "POST",
        "/register",
        json.dumps({"session_id": CHILD, **WORKER}).encode(),
        "localhost",
        headers={APPROVAL_HEADER: roost.approval()},
    )
    answer = roost.door.answer(request, NOW + 59_999)
    assert isinstance(answer, LookUp)
    assert refusal(answer.respond(HELD, NOW + 60_000))[0] == 403


def test_five_that_ask_at_once_get_four_approvals(roost: Roost) -> None:
    headers = {CREDENTIAL_HEADER: roost.root.expose()}
    request = DoorRequest("POST", "/spawn", json.dumps(WORKER).encode(), "localhost", headers=headers)
    answers = [roost.door.answer(request, NOW) for _ in range(5)]
    statuses = [answer.respond(HELD, NOW).status for answer in answers if isinstance(answer, LookUp)]
    assert statuses == [200, 200, 200, 200, 403]


def test_two_that_register_at_once_with_one_approval_are_one_child(roost: Roost) -> None:
    approval = roost.approval()
    answers = [
        roost.door.answer(
            DoorRequest(
                "POST",
                "/register",
                json.dumps({"session_id": session, **WORKER}).encode(),
                "localhost",
                headers={APPROVAL_HEADER: approval},
            ),
            NOW,
        )
        for session in (CHILD, "ses_" + "2" * 32)
    ]
    statuses = [answer.respond(HELD, NOW).status for answer in answers if isinstance(answer, LookUp)]
    assert statuses == [200, 403]


@pytest.mark.parametrize("session", ["", CHILD, "..", "x/y", "ses_" + "0" * 32 + "/"])
def test_the_status_of_a_session_that_is_not_known_is_not_found(roost: Roost, session: str) -> None:
    assert refusal(roost.ask("GET", f"/status/{session}"))[0] == 404


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/spawn"),
        ("POST", "/health"),
        ("PUT", "/spawn"),
        ("POST", "/spawn/"),
        ("POST", "//spawn"),
        ("POST", f"/status/{ROOT}"),
        ("GET", "/status"),
        ("OPTIONS", "*"),
    ],
)
def test_nothing_else_is_served(roost: Roost, method: str, target: str) -> None:
    assert refusal(roost.ask(method, target, WORKER, credential=roost.root.expose()))[0] == 404


@pytest.mark.parametrize("host", [None, "", "evil.example", "evil.example:7700", "localhost.evil.example", "10.0.0.1"])
@pytest.mark.parametrize("target", ["/health", "/spawn"])
def test_a_page_whose_name_leads_here_is_refused(roost: Roost, host: str | None, target: str) -> None:
    method = "GET" if target == "/health" else "POST"
    assert refusal(roost.ask(method, target, WORKER, host=host, credential=roost.root.expose()))[0] == 403
    assert roost.looked == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:7700", "[::1]:7700"])
def test_this_machine_s_names_are_taken(roost: Roost, host: str) -> None:
    assert roost.ask("GET", "/health", host=host).status == 200


def test_a_web_page_is_refused(roost: Roost) -> None:
    for origin in ("null", "http://localhost:7700", "https://evil.example"):
        assert refusal(roost.spawn(origin=origin))[0] == 403
        assert refusal(roost.ask("GET", "/health", origin=origin))[0] == 403


@pytest.mark.spec("I3")
def test_no_token_shows_in_the_repr_of_a_request_or_an_answer(roost: Roost) -> None:
    answer = roost.spawn()
    request = DoorRequest("POST", "/spawn", b"", "localhost", headers={CREDENTIAL_HEADER: roost.root.expose()})
    assert repr(answer) == "DoorResponse(200)"
    assert repr(request) == "DoorRequest(POST /spawn)"
    assert repr(roost.door.answer(request._replace(body=json.dumps(WORKER).encode()), NOW)).count("msc1.") == 0


@pytest.mark.parametrize(
    ("asked", "about"),
    [
        (DoorRequest("POST", "/spawn", b"", "localhost:7700", origin=None), True),
        (DoorRequest("POST", "/spawn?x=1", b"", "localhost:7700", origin=None), True),
        (DoorRequest("GET", f"/status/{ROOT}", b"", "localhost:7700", origin=None), True),
        (DoorRequest("POST", "/register", b"", "localhost:7700", origin=None), False),
        (DoorRequest("POST", "/deregister", b"", "localhost:7700", origin=None), False),
        (DoorRequest("GET", "/health", b"", "localhost:7700", origin=None), False),
        (DoorRequest("GET", "/spawn", b"", "localhost:7700", origin=None), False),
        (DoorRequest("POST", "/spawn", b"", "evil.example", origin=None), False),
        (DoorRequest("POST", "/spawn", b"", "localhost:7700", origin="http://localhost:7700"), False),
    ],
)
def test_what_runs_is_looked_at_for_approvals_and_for_a_status(roost: Roost, asked: DoorRequest, about: bool) -> None:
    assert roost.door.is_about_what_runs(asked) is about


PROCESS = Origin(7, "70", boot_id="boot")


@pytest.mark.parametrize(
    ("sent", "process"),
    [
        (render_origin(PROCESS).decode(), PROCESS),
        (None, None),
        ("", None),
        ("7", None),
        ("\udcff", None),
        ('{"pid": 7}', None),
        ('{"pid": 0, "process_start": "70"}', None),
        ('{"pid": 2147483648, "process_start": "70"}', None),
        ('{"pid": 7, "process_start": ""}', None),
        ('{"pid": "7", "process_start": "70"}', None),
    ],
)
def test_a_child_that_registers_says_which_process_it_is_or_is_taken_without(
    sent: str | None, process: Origin | None
) -> None:
    roost, told = Roost(), list[tuple[str, Origin]]()
    roost.door = RoostDoor(roost.referee, "localhost:7700", None, lambda *said: told.append(said))
    headers = {"x-murmur-spawn-approval": roost.approval()} | ({} if sent is None else {"x-murmur-process": sent})
    body = json.dumps({"session_id": CHILD, **WORKER}).encode()
    for status in (200, 403):  # Its approval is spent by then.
        asked = roost.door.answer(DoorRequest("POST", "/register", body, "localhost:7700", headers=headers), NOW)
        answer = asked.respond(HELD, NOW) if isinstance(asked, LookUp) else asked
        assert answer.status == status
    assert told == ([] if process is None else [(CHILD, process)])


def test_every_refusal_is_told_for_the_log() -> None:
    roost, told = Roost(frozenset()), list[tuple[str, str]]()
    roost.referee.tell = lambda *said: told.append(said)
    words = [refusal(roost.spawn())[1], refusal(roost.register("msa1.swordfish.x"))[1]]
    words.append(refusal(roost.ask("POST", "/deregister", {"outcome": "failed"}, credential="msc1.swordfish.x"))[1])
    assert told == [("refused", each) for each in words]
    assert "swordfish" not in str(told)
