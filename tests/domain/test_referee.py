"""Who may launch what, and which child is taken for the one that was approved."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import count, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmur.domain import referee as module
from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.door_tokens import DoorKeys, TokenKey
from murmur.domain.referee import Referee
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Approved, Cause, Child, Refusal, Registered, SessionStatus, SpawnLimits

RAW_KEY = bytes(range(32))
KEY = TokenKey(RAW_KEY.hex())
NOW = 1_700_000_000_000
WORKER = CapsuleReference("worker", "1.0.0")
HELPER = CapsuleReference("helper", "1.0.0")
ROOT = "ses_" + "0" * 32


def ses(number: int) -> str:
    return f"ses_{number:032x}"


class Ledger:
    """A referee, one root session, and short ways to ask."""

    def __init__(self, allow: frozenset[str] | None = None, limits: SpawnLimits | None = None) -> None:
        numbers = count()
        self.referee = Referee(KEY, lambda: f"nonce-{next(numbers)}", limits)
        self.root = self.referee.enrol_root(ROOT, allow)
        self._sessions = count(1)

    def approval(self, credential: SpawnCredential | None = None, now: int = NOW) -> SpawnApproval:
        approved = self.referee.approve(credential or self.root, WORKER, "digest", now)
        assert isinstance(approved, Approved), approved
        return approved.approval

    def refusal(self, credential: SpawnCredential | None = None, now: int = NOW, name: str = "worker") -> Cause | None:
        """Ask for an approval; return why it was refused."""
        credential = credential or self.root
        before = self.referee.refusal_to_approve(credential, name, now)
        approved = self.referee.approve(credential, CapsuleReference(name, "1.0.0"), "digest", now)
        if isinstance(approved, Approved):
            assert before is None
            return None
        assert approved == before
        return approved.cause

    def child(self, **changed: object) -> Child:
        session = ses(next(self._sessions))
        return Child(session, WORKER, "digest", frozenset[str]()).replaced(**changed)

    def registered(
        self, approval: SpawnApproval, child: Child | None = None, now: int = NOW
    ) -> SpawnCredential | Cause:
        found = self.referee.register(approval, child or self.child(), now)
        return found.credential if isinstance(found, Registered) else found.cause

    def launch(self, credential: SpawnCredential | None = None, allow: frozenset[str] | None = None) -> SpawnCredential:
        """Have one child launched and registered."""
        child = self.child(allow=frozenset({"worker"}) if allow is None else allow)
        found = self.registered(self.approval(credential), child)
        assert isinstance(found, SpawnCredential), found
        return found


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def payload_of(token: SpawnApproval | SpawnCredential) -> dict[str, object]:
    payload = token.expose().split(".")[1]
    document = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert isinstance(document, dict)
    return document


def token_of(kind: str, domain: str, payload: dict[str, object], owner: str = "nonce-0", key: bytes = RAW_KEY) -> str:
    """Make a token from the documented bytes, with nothing of the source."""
    text = urlsafe_b64encode(json.dumps(payload, separators=(",", ":")).encode()).decode().rstrip("=")
    mac = hmac.new(key, b"\x1f".join(part.encode() for part in (domain, text, owner)), hashlib.sha256).digest()
    return f"{kind}.{text}.{urlsafe_b64encode(mac).decode().rstrip('=')}"


def test_a_child_s_way_from_approval_to_its_end(ledger: Ledger) -> None:
    approved = ledger.referee.approve(ledger.root, WORKER, "digest", NOW)
    assert isinstance(approved, Approved)
    assert approved.expires_at_ms == NOW + 60_000
    child = ledger.child()
    credential = ledger.registered(approved.approval, child)
    assert isinstance(credential, SpawnCredential)
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 1)
    assert ledger.referee.status(child.session_id) == SessionStatus("running", 2, 0)
    assert ledger.referee.deregister(credential, "complete") is None
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 0)
    assert ledger.referee.status(child.session_id) == SessionStatus("complete", 2, 0)


@pytest.mark.spec("I4")
def test_both_tokens_have_a_door_token_s_shape_bound_to_the_referee(ledger: Ledger) -> None:
    approval = ledger.approval()
    assert payload_of(approval) == {"approval": "nonce-1", "expires_at_ms": NOW + 60_000}
    assert approval.expose() == token_of("msa1", "murmur-spawn-approval-v1", payload_of(approval))
    assert payload_of(ledger.root) == {"session_id": ROOT}
    assert ledger.root.expose() == token_of("msc1", "murmur-spawn-credential-v1", payload_of(ledger.root))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "msc1",
        "msc1..",
        "x" * 10_000,
        "\ud800.\ud800.\ud800",
        token_of("msc1", "murmur-spawn-credential-v1", {"session_id": ROOT}, owner="nonce-9"),
        token_of("msc1", "murmur-spawn-credential-v1", {"session_id": ROOT}, key=RAW_KEY[::-1]),
        token_of("msc1", "murmur-spawn-approval-v1", {"session_id": ROOT}),
        token_of("msc1", "murmur-door-token-v1", {"session_id": ROOT}),
        token_of("msa1", "murmur-spawn-credential-v1", {"session_id": ROOT}),
        token_of("mdt1", "murmur-spawn-credential-v1", {"session_id": ROOT}),
        DoorKeys(KEY, "nonce-0").mint("operator", []).expose(),
    ],
    ids=range(12),
)
@pytest.mark.spec("I4")
def test_a_token_that_is_no_credential_of_this_referee_does_nothing(ledger: Ledger, token: str) -> None:
    credential = SpawnCredential(token)
    assert ledger.refusal(credential) is Cause.UNKNOWN_CREDENTIAL
    refusal = ledger.referee.deregister(credential, "failed")
    assert refusal is not None
    assert refusal.cause is Cause.UNKNOWN_CREDENTIAL
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 0)


@pytest.mark.spec("I4")
def test_every_single_changed_character_of_an_approval_is_refused(ledger: Ledger) -> None:
    text = ledger.approval().expose()
    for index, character in enumerate(text):
        changed = text[:index] + ("x" if character != "x" else "y") + text[index + 1 :]
        assert ledger.registered(SpawnApproval(changed)) is Cause.UNKNOWN_APPROVAL
    assert isinstance(ledger.registered(SpawnApproval(text)), SpawnCredential)


@pytest.mark.spec("I4")
def test_a_token_is_compared_in_constant_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    ledger.referee.refusal_to_approve(ledger.root, "worker", NOW)
    mac = ledger.root.expose().split(".")[2].encode()
    assert compared == [(mac, mac)]


ALLOWS = [
    (None, "worker", None),
    (None, "local/worker", None),
    (frozenset[str](), "worker", Cause.NOT_ALLOWED),
    (frozenset({"worker"}), "worker", None),
    (frozenset({"worker"}), "helper", Cause.NOT_ALLOWED),
    (frozenset({"worker"}), "local/worker", Cause.NOT_ALLOWED),
    (frozenset({"local/worker"}), "worker", Cause.NOT_ALLOWED),
    (frozenset({"work"}), "worker", Cause.NOT_ALLOWED),
]


@pytest.mark.parametrize(("allow", "name", "refused"), ALLOWS)
def test_a_session_launches_what_its_allow_list_names(
    allow: frozenset[str] | None, name: str, refused: Cause | None
) -> None:
    assert Ledger(allow).refusal(name=name) is refused


@pytest.mark.parametrize(("allow", "name", "refused"), [row for row in ALLOWS if row[0] is not None])
def test_a_child_launches_what_its_own_allow_list_names(
    ledger: Ledger, allow: frozenset[str], name: str, refused: Cause | None
) -> None:
    assert ledger.refusal(ledger.launch(allow=allow), name=name) is refused


def test_the_refusal_says_who_may_launch_what() -> None:
    refusal = Ledger(frozenset({"b", "a"})).referee.refusal_to_approve(Ledger().root, "worker", NOW)
    assert refusal == Refusal(Cause.NOT_ALLOWED, f"session {ROOT} may not launch worker: its allow-list names a, b")
    refusal = Ledger(frozenset()).referee.refusal_to_approve(Ledger().root, "worker", NOW)
    assert refusal is not None
    assert refusal.reason.endswith("its allow-list names no capsule")
    refusal = Ledger(frozenset({f"w{number}" for number in range(9999)})).referee.refusal_to_approve(
        Ledger().root, "worker", NOW
    )
    assert refusal is not None
    assert len(refusal.reason) < 400


def test_the_fourth_launch_from_one_to_the_next_is_too_deep(ledger: Ledger) -> None:
    first = ledger.launch()
    second = ledger.launch(first)
    third = ledger.launch(second)
    assert ledger.refusal(third) is Cause.TOO_DEEP
    assert ledger.refusal(second) is None
    refusal = ledger.referee.refusal_to_approve(third, "worker", NOW)
    assert refusal is not None
    assert refusal.reason == f"session {ses(3)} may launch nothing: it is 3 launches deep, the limit"


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_depth_is_a_limit_that_is_given(depth: int) -> None:
    ledger = Ledger(limits=SpawnLimits(depth=depth))
    credential = ledger.root
    for _ in range(depth):
        credential = ledger.launch(credential)
    assert ledger.refusal(credential) is Cause.TOO_DEEP


def test_an_approval_that_is_out_counts_as_a_child(ledger: Ledger) -> None:
    approvals = [ledger.approval() for _ in range(4)]
    assert ledger.refusal() is Cause.TOO_MANY
    credentials = [ledger.registered(approval) for approval in approvals]
    assert ledger.refusal() is Cause.TOO_MANY
    assert isinstance(credentials[0], SpawnCredential)
    ledger.referee.deregister(credentials[0], "failed")
    assert ledger.refusal() is None
    assert ledger.refusal() is Cause.TOO_MANY


def test_an_approval_that_expires_or_is_withdrawn_counts_no_longer(ledger: Ledger) -> None:
    approvals = [ledger.approval() for _ in range(4)]
    assert ledger.refusal(now=NOW + 59_999) is Cause.TOO_MANY
    ledger.referee.withdraw(approvals[0])
    assert ledger.refusal(now=NOW + 59_999) is None
    assert ledger.registered(approvals[0]) is Cause.SPENT
    assert [ledger.refusal(now=NOW + 60_000) for _ in range(4)] == [None, None, None, Cause.TOO_MANY]


def test_with_its_approval_a_child_is_withdrawn_that_ended_without_a_word_however_long_it_ran(ledger: Ledger) -> None:
    spent, other = ledger.approval(), ledger.approval()
    child = ledger.child()
    ledger.registered(spent, child)
    ledger.registered(other)
    ledger.refusal(now=NOW + 10**9)  # What has expired is forgotten by that.
    ledger.referee.withdraw(spent)
    assert ledger.referee.status(child.session_id) == SessionStatus("failed", 2, 0)
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 1)


def test_a_child_that_said_how_it_ended_is_not_said_to_have_failed_by_a_withdrawal(ledger: Ledger) -> None:
    approval, child = ledger.approval(), ledger.child()
    credential = ledger.registered(approval, child)
    assert isinstance(credential, SpawnCredential)
    ledger.referee.deregister(credential, "complete")
    ledger.referee.withdraw(approval)
    assert ledger.referee.status(child.session_id) == SessionStatus("complete", 2, 0)


def test_withdrawing_anything_else_changes_nothing(ledger: Ledger) -> None:
    ledger.launch()
    for approval in (SpawnApproval("msa1.x.y"), SpawnApproval(ledger.root.expose())):
        ledger.referee.withdraw(approval)
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 1)


def test_each_parent_has_its_own_four_children(ledger: Ledger) -> None:
    child = ledger.launch()
    assert [ledger.refusal(child) for _ in range(5)] == [None, None, None, None, Cause.TOO_MANY]
    assert [ledger.refusal() for _ in range(4)] == [None, None, None, Cause.TOO_MANY]


def test_an_approval_is_spent_by_its_first_use_for_good(ledger: Ledger) -> None:
    approval = ledger.approval()
    credential = ledger.registered(approval)
    assert isinstance(credential, SpawnCredential)
    for _ in range(2):
        assert ledger.registered(approval) is Cause.SPENT
    ledger.referee.deregister(credential, "complete")
    assert ledger.registered(approval) is Cause.SPENT
    assert ledger.registered(approval, now=NOW + 60_000) is Cause.EXPIRED


@pytest.mark.parametrize(
    ("age", "refused"), [(0, None), (59_999, None), (60_000, Cause.EXPIRED), (10**9, Cause.EXPIRED)]
)
def test_an_approval_is_good_for_sixty_seconds(ledger: Ledger, age: int, refused: Cause | None) -> None:
    found = ledger.registered(ledger.approval(), now=NOW + age)
    assert (found if isinstance(found, Cause) else None) is refused


def test_an_approval_made_after_one_that_expires_later_expires_all_the_same(ledger: Ledger) -> None:
    ledger.approval(now=NOW + 1_000_000)
    early = ledger.approval(now=NOW)
    assert ledger.registered(early, now=NOW + 60_000) is Cause.EXPIRED


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"reference": CapsuleReference("helper", "1.0.0")}, Cause.OTHER_CAPSULE),
        ({"reference": CapsuleReference("worker", "1.0.1")}, Cause.OTHER_CAPSULE),
        ({"reference": CapsuleReference("local/worker", "1.0.0")}, Cause.OTHER_CAPSULE),
        ({"digest": "other"}, Cause.CHANGED),
        ({"session_id": ROOT}, Cause.SESSION_TAKEN),
    ],
)
def test_a_child_that_is_not_what_was_approved_is_refused_and_spends_nothing(
    ledger: Ledger, changed: dict[str, object], refused: Cause
) -> None:
    approval = ledger.approval()
    assert ledger.registered(approval, ledger.child(**changed)) is refused
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 0)
    assert isinstance(ledger.registered(approval), SpawnCredential)


def test_the_session_of_a_child_that_is_over_is_not_taken_again(ledger: Ledger) -> None:
    child = ledger.child()
    credential = ledger.registered(ledger.approval(), child)
    assert isinstance(credential, SpawnCredential)
    ledger.referee.deregister(credential, "complete")
    assert ledger.registered(ledger.approval(), child) is Cause.SESSION_TAKEN


def test_what_would_be_refused_is_known_before_the_store_is_looked_into(ledger: Ledger) -> None:
    approval, child = ledger.approval(), ledger.child()
    ask = ledger.referee.refusal_to_register
    assert ask(approval, child.session_id, WORKER, NOW) is None
    rows = [(HELPER, child.session_id, NOW), (WORKER, ROOT, NOW), (WORKER, child.session_id, NOW + 60_000)]
    causes = [getattr(ask(approval, session, reference, now), "cause", None) for reference, session, now in rows]
    assert causes == [Cause.OTHER_CAPSULE, Cause.SESSION_TAKEN, Cause.EXPIRED]


def test_who_is_over_asks_for_nothing_and_its_approvals_go_with_it(ledger: Ledger) -> None:
    parent = ledger.launch()
    approval = ledger.approval(parent)
    ledger.referee.ended(ses(1), "failed")
    assert ledger.refusal(parent) is Cause.SESSION_OVER
    assert ledger.registered(approval) is Cause.SESSION_OVER
    assert ledger.referee.status(ROOT) == SessionStatus("running", 3, 0)


def test_the_children_of_who_is_over_go_on(ledger: Ledger) -> None:
    parent = ledger.launch()
    child = ledger.launch(parent)
    ledger.referee.deregister(parent, "complete")
    assert ledger.referee.status(ses(1)) == SessionStatus("complete", 2, 1)
    assert ledger.refusal(child) is None
    ledger.referee.deregister(child, "failed")
    assert ledger.referee.status(ses(1)) == SessionStatus("complete", 2, 0)
    assert ledger.referee.status(ses(2)) == SessionStatus("failed", 1, 0)


def test_the_first_outcome_stands_and_saying_it_again_is_no_fault(ledger: Ledger) -> None:
    child = ledger.launch()
    assert ledger.referee.deregister(child, "failed") is None
    assert ledger.referee.deregister(child, "complete") is None
    ledger.referee.ended(ses(1), "complete")
    ledger.referee.ended(ses(99), "complete")
    assert ledger.referee.status(ses(1)) == SessionStatus("failed", 2, 0)
    assert ledger.referee.status(ses(99)) is None


def test_a_session_is_enrolled_once(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="enrolled already"):
        ledger.referee.enrol_root(ROOT, None)
    other = ledger.referee.enrol_root(ses(77), frozenset())
    assert ledger.refusal(other) is Cause.NOT_ALLOWED


def test_what_is_over_is_forgotten_in_the_end(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_KEPT", 10)
    referee, now = ledger.referee, NOW
    last = ledger.root
    for _ in range(500):
        now += 1000
        credential = ledger.registered(ledger.approval(now=now), now=now)
        assert isinstance(credential, SpawnCredential)
        referee.deregister(credential, "complete")
        last = credential
    assert len(referee._sessions) == 11
    assert len(referee._ended) == 10
    assert len(referee._approvals) <= 61
    assert referee.status(ses(490)) is None
    assert referee.status(ses(500)) == SessionStatus("complete", 2, 0)
    assert ledger.refusal(last, now) is Cause.SESSION_OVER


def test_nothing_secret_shows_in_a_repr_or_a_refusal(ledger: Ledger) -> None:
    approved = ledger.referee.approve(ledger.root, WORKER, "digest", NOW)
    assert isinstance(approved, Approved)
    child = ledger.child()
    registered = ledger.referee.register(approved.approval, child, NOW)
    refusals = [
        ledger.referee.register(approved.approval, child, NOW),
        ledger.referee.register(SpawnApproval("msa1.swordfish.x"), child, NOW),
        ledger.referee.deregister(SpawnCredential("msc1.swordfish.x"), "failed"),
    ]
    shown = f"{approved!r} {registered!r} {refusals!r} {child!r} {ledger.referee!r}"
    assert isinstance(registered, Registered)
    for secret in (approved.approval.expose(), registered.credential.expose(), "swordfish", RAW_KEY.hex()):
        assert secret not in shown


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(steps=st.lists(st.tuples(st.sampled_from("arde"), st.integers(0, 30), st.integers(0, 30_000)), max_size=60))
def test_no_order_of_events_lets_a_session_have_more_children_or_spends_twice(
    steps: list[tuple[str, int, int]],
) -> None:
    ledger, now = Ledger(), NOW
    credentials, approvals, spent = [ledger.root], [], set[int]()
    alive = {ROOT}
    for step, pick, pause in steps:
        now += pause
        if step == "a":
            asked = ledger.referee.approve(credentials[pick % len(credentials)], WORKER, "digest", now)
            approvals += [asked] if isinstance(asked, Approved) else []
        elif step == "r" and approvals:
            index = pick % len(approvals)
            child = ledger.child(allow=frozenset({"worker"}))
            found = ledger.referee.register(approvals[index].approval, child, now)
            if isinstance(found, Registered):
                assert index not in spent
                assert now < approvals[index].expires_at_ms
                spent.add(index)
                alive.add(child.session_id)
                credentials.append(found.credential)
        elif step == "d":
            ledger.referee.deregister(credentials[pick % len(credentials)], "complete")
        elif step == "e":
            ledger.referee.ended(ses(pick), "failed")
        for session in alive:
            status = ledger.referee.status(session)
            assert status is not None
            assert 0 <= status.live_children <= 4
            assert 0 <= status.depth_remaining <= 3


def unnamed_ledger(limits: SpawnLimits | None = None) -> Ledger:
    """A ledger whose root stands for all who have no credential."""
    ledger = Ledger(limits=limits)
    ledger.root = ledger.referee.enrol_unnamed(ses(1000), frozenset({"worker"}))
    return ledger


def test_who_has_no_credential_is_told_what_to_do_about_it() -> None:
    referee, root = (ledger := unnamed_ledger()).referee, ledger.root
    refusal = referee.refusal_to_approve(root, "helper", NOW)
    assert refusal == Refusal(
        Cause.NOT_ALLOWED,
        "callers without a credential may not launch helper: the roost allows worker; "
        "start it with --spawn-allow helper for that",
    )
    for _ in range(4):
        ledger.launch(root)
    refusal = referee.refusal_to_approve(root, "worker", NOW)
    assert refusal == Refusal(
        Cause.TOO_MANY,
        "callers without a credential have 4 children at once already, running or about to start: the limit; "
        "let one end, or start the roost with a higher --max-concurrent",
    )


def test_a_session_that_is_seen_running_counts_for_its_spawner_and_may_launch_nothing(ledger: Ledger) -> None:
    parent = ledger.launch()
    for number in range(50, 54):
        ledger.referee.adopt(ses(number), ses(1))
        ledger.referee.adopt(ses(number), ses(1))
    assert ledger.referee.status(ses(1)) == SessionStatus("running", 2, 4)
    assert ledger.referee.status(ses(50)) == SessionStatus("running", 1, 0)
    assert ledger.refusal(parent) is Cause.TOO_MANY
    ledger.referee.ended(ses(50), "failed")
    assert ledger.referee.status(ses(50)) == SessionStatus("failed", 1, 0)
    assert ledger.refusal(parent) is None


def test_the_spawner_of_a_session_that_is_seen_is_taken_in_with_it(ledger: Ledger) -> None:
    ledger.referee.adopt(ses(51), ses(50))
    assert ledger.referee.status(ses(50)) == SessionStatus("running", 3, 1)
    assert ledger.referee.status(ses(51)) == SessionStatus("running", 2, 0)
    ledger.referee.ended(ses(50), "failed")
    assert ledger.referee.status(ses(50)) == SessionStatus("failed", 3, 1)
    assert ledger.referee.runs(ses(51))
    assert not ledger.referee.runs(ses(50))
    assert not ledger.referee.runs(ses(52))


def test_a_session_counts_for_who_had_it_approved_and_for_who_spawned_it() -> None:
    ledger = unnamed_ledger()
    child = ledger.launch(ledger.root)
    ledger.referee.adopt(ses(1), ses(50))
    assert ledger.referee.status(ses(50)) == SessionStatus("running", 3, 1)
    assert ledger.referee.status(ses(1000)) == SessionStatus("running", 3, 1)
    ledger.referee.deregister(child, "complete")
    assert ledger.referee.status(ses(50)) == SessionStatus("running", 3, 0)
    assert ledger.referee.status(ses(1000)) == SessionStatus("running", 3, 0)
    ledger.referee.adopt(ses(1), ses(50))  # Seen before it ended.
    assert ledger.referee.status(ses(1)) == SessionStatus("complete", 2, 0)
    assert ledger.referee.status(ses(50)) == SessionStatus("running", 3, 0)


def test_children_of_sessions_that_nobody_launched_count_for_all_who_have_no_credential() -> None:
    ledger = unnamed_ledger()
    for number in range(4):
        ledger.referee.adopt(ses(60 + number), ses(50 + number))
    assert ledger.referee.status(ses(1000)) == SessionStatus("running", 3, 4)
    assert ledger.refusal(ledger.root) is Cause.TOO_MANY
    ledger.referee.adopt(ses(70), ses(60))  # A grandchild is its own parent's.
    assert ledger.referee.status(ses(1000)) == SessionStatus("running", 3, 4)
    ledger.referee.ended(ses(50), "failed")  # The child of who is dead goes on.
    assert ledger.refusal(ledger.root) is Cause.TOO_MANY
    ledger.referee.ended(ses(60), "failed")
    assert ledger.refusal(ledger.root) is None


def test_a_family_that_is_seen_in_any_order_counts_the_same() -> None:
    for pairs in permutations([(ses(61), ses(60)), (ses(62), ses(61)), (ses(63), ses(62))]):
        ledger = unnamed_ledger()
        for child, spawner in pairs:
            ledger.referee.adopt(child, spawner)
        live = [ledger.referee.status(ses(number)) for number in (60, 61, 62, 63, 1000)]
        assert [each and each.live_children for each in live] == [1, 1, 1, 0, 1]


def test_sessions_that_say_they_spawned_themselves_or_one_another_do_no_harm() -> None:
    ledger = unnamed_ledger()
    ledger.referee.adopt(ses(60), ses(60))
    assert ledger.referee.status(ses(60)) is None
    ledger.referee.adopt(ses(60), ses(61))
    ledger.referee.adopt(ses(61), ses(60))
    assert ledger.referee.status(ses(60)) == SessionStatus("running", 2, 1)


def test_only_a_session_that_is_known_as_a_spawner_alone_can_be_lost(ledger: Ledger) -> None:
    ledger.launch()
    ledger.referee.adopt(ses(51), ses(50))
    for number in (1, 50, 51, 99):
        ledger.referee.lost(ses(number))
    assert ledger.referee.status(ses(50)) == SessionStatus("failed", 3, 1)
    assert ledger.referee.runs(ses(1))
    assert ledger.referee.runs(ses(51))


def test_what_happens_is_told_without_anything_secret() -> None:
    told: list[tuple[str, str]] = []
    numbers = count()
    referee = Referee(KEY, lambda: f"nonce-{next(numbers)}", tell=lambda event, detail: told.append((event, detail)))
    root = referee.enrol_unnamed(ROOT, frozenset({"worker"}))
    approved = referee.approve(root, WORKER, "digest", NOW)
    assert isinstance(approved, Approved)
    referee.register(approved.approval, Child(ses(1), WORKER, "digest", frozenset()), NOW)
    referee.adopt(ses(2), ses(1))
    referee.ended(ses(2), "failed", "no process holds \x1b")
    assert told == [
        ("approved", "worker@1.0.0 for callers without a credential"),
        ("registered", f"{ses(1)}, worker@1.0.0 for callers without a credential"),
        ("found", f"{ses(2)}, spawned by {ses(1)}"),
        ("ended", f"{ses(2)}, failed: no process holds \\x1b"),
    ]
