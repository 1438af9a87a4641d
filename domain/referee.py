"""May this session launch that capsule, and is this child the one that was approved?

A ledger of sessions and of approvals. Clock readings, randomness and digests are given; nothing here looks at a
store. An approval is for one capsule, as it was when it was asked for, and is spent by the child that registers
with it. Of what is over, only as much is kept as there is to answer for.

What others see is taken in as well: a session that ended without a word (`ended`), and one that runs although it was
launched without this referee, or before it was there (`adopt`).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.door_tokens import TokenKey, TokenKind
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import Approved, Cause, Child, Outcome, Refusal, Registered, SessionStatus, SpawnLimits
from murmur.domain.visible_text import visible, visible_start

ENDED_KEPT = 1000
"""How many sessions that have ended can still be asked about."""

_LIST_SHOWN = 200
_UNNAMED = "callers without a credential"
_ADVICE = "; let one end, or start the roost with a higher --max-concurrent"

_APPROVAL = TokenKind("msa1", "murmur-spawn-approval-v1")
_CREDENTIAL = TokenKind("msc1", "murmur-spawn-credential-v1")

Tell = Callable[[str, str], None]
"""Takes an event and its detail, for a log. Nothing secret is told, and nothing that is not visible."""


class _Session:
    """One session that is, or was."""

    def __init__(self, session_id: str, parents: Iterable[str], allow: frozenset[str] | None, depth: int) -> None:
        self.id = session_id
        self.parents = set(parents)
        """Whose child it is: of who had it approved, and of who it says it was spawned by."""
        self.allow = allow
        self.depth_remaining = depth
        self.children: set[str] = set()
        """Those that are running."""
        self.outstanding: set[str] = set()
        """Its approvals that were not spent."""
        self.approval: str | None = None
        """The one that it registered with."""
        self.outcome: Outcome | None = None
        self.heard_of = False
        """Known as a spawner alone: nobody enrolled it, and it is nobody's child as far as anyone has seen."""


class _Approval(NamedTuple):
    """One approval, spent or not, until it expires."""

    session: str
    reference: CapsuleReference
    digest: str
    expires_at_ms: int


class Referee:
    """The ledger of one referee.

    Both kinds of tokens have the three parts of a door's (`TokenKey.sealed`). Where a door's token is bound to its
    session, these are bound to this referee, by an id that it mints for itself: an approval has no session yet. The
    payloads say which approval, or whose credential, it is.
    """

    def __init__(
        self,
        key: TokenKey,
        mint: Callable[[], str],
        limits: SpawnLimits | None = None,
        tell: Tell | None = None,
    ) -> None:
        """Begin with no session. `mint` returns a text unlike any other; what nobody can guess is the key."""
        self.limits = limits or SpawnLimits()
        self.tell: Tell = tell or (lambda _event, _detail: None)
        self._key = key
        self._mint = mint
        self._id = mint()
        self._sessions: dict[str, _Session] = {}
        self._unnamed: str | None = None
        self._ended: dict[str, None] = {}
        self._approvals: dict[str, _Approval] = {}

    def enrol_root(
        self, session_id: str, allow: frozenset[str] | None, depth_remaining: int | None = None
    ) -> SpawnCredential:
        """Take in a session that nobody here launched; return its credential. `allow` of `None` is every capsule.

        `depth_remaining` is what another referee left it; `None` is all that the limits allow.
        Raises `ValueError` for one that is known already.
        """
        if session_id in self._sessions:
            raise ValueError(f"session {session_id} is enrolled already")
        depth = self.limits.depth if depth_remaining is None else max(0, min(depth_remaining, self.limits.depth))
        return self._enter(_Session(session_id, (), allow, depth))

    def enrol_unnamed(self, session_id: str, allow: frozenset[str]) -> SpawnCredential:
        """Take in the session that stands for all who have no credential; return its own.

        Its children are also those of sessions that nobody launched, as far as they are seen (`adopt`): whoever
        approved those, they were asked for without a credential. Raises `ValueError` as `enrol_root` does.
        """
        credential = self.enrol_root(session_id, allow)
        self._unnamed = session_id
        return credential

    def refusal_to_approve(self, credential: SpawnCredential, name: str, now: int) -> Refusal | None:
        """Say why `approve` would refuse, whatever a store holds; `None` when it would not. `now` is in Unix ms."""
        session = self._holder(credential)
        if isinstance(session, Refusal):
            return session
        self._sweep(now)
        unnamed, who = session.id == self._unnamed, self._called(session)
        if session.allow is not None and name not in session.allow:
            named = visible_start(", ".join(sorted(session.allow)) or "no capsule", _LIST_SHOWN)
            shown = visible(name)
            return Refusal(
                Cause.NOT_ALLOWED,
                f"{who} may not launch {shown}: the roost allows {named}; start it with --spawn-allow {shown} for that"
                if unnamed
                else f"{who} may not launch {shown}: its allow-list names {named}",
            )
        if session.depth_remaining == 0:
            return Refusal(
                Cause.TOO_DEEP,
                f"{who} may launch nothing: it is {_times(self.limits.depth, 'launch', 'launches')} deep, the limit",
            )
        if self._live_children(session) + len(session.outstanding) >= self.limits.children:
            most = _times(self.limits.children, "child", "children")
            have, advice = ("have", _ADVICE) if unnamed else ("has", "")
            return Refusal(
                Cause.TOO_MANY,
                f"{who} {have} {most} at once already, running or about to start: the limit{advice}",
            )
        return None

    def approve(
        self, credential: SpawnCredential, reference: CapsuleReference, digest: str, now: int
    ) -> Approved | Refusal:
        """Approve the launch of a capsule with that digest. `now` is in Unix ms."""
        refusal = self.refusal_to_approve(credential, reference.name, now)
        if refusal is not None:
            return refusal
        session = self._holder(credential)
        assert isinstance(session, _Session)
        approval, expires = self._mint(), now + self.limits.approval_ms
        self._approvals[approval] = _Approval(session.id, reference, digest, expires)
        session.outstanding.add(approval)
        self.tell("approved", f"{reference} for {self._called(session)}")
        payload = {"approval": approval, "expires_at_ms": expires}
        return Approved(SpawnApproval(self._key.sealed(_APPROVAL, payload, self._id)), expires)

    def refusal_to_register(
        self, approval: SpawnApproval, session_id: str, reference: CapsuleReference, now: int
    ) -> Refusal | None:
        """Say why `register` would refuse, whatever a store holds; `None` when it would not. `now` is in Unix ms."""
        found = self._outstanding(approval, now)
        if isinstance(found, Refusal):
            return found
        _, given = found
        if given.reference != reference:
            return Refusal(Cause.OTHER_CAPSULE, f"the approval is for {given.reference}, not for {reference}")
        if session_id in self._sessions:
            return Refusal(Cause.SESSION_TAKEN, f"session {visible(session_id)} is registered already")
        return None

    def register(self, approval: SpawnApproval, child: Child, now: int) -> Registered | Refusal:
        """Take in the child that was started with an approval, which is spent by that and by nothing else.

        `now` is in Unix ms.
        """
        refusal = self.refusal_to_register(approval, child.session_id, child.reference, now)
        if refusal is not None:
            return refusal
        found = self._outstanding(approval, now)
        assert not isinstance(found, Refusal)
        id_, given = found
        if given.digest != child.digest:
            return Refusal(Cause.CHANGED, f"the files of {child.reference} have changed since its launch was approved")
        parent = self._sessions[given.session]
        parent.outstanding.discard(id_)
        parent.children.add(child.session_id)
        session = _Session(child.session_id, [parent.id], child.allow, parent.depth_remaining - 1)
        session.approval = id_
        self.tell("registered", f"{visible(child.session_id)}, {child.reference} for {self._called(parent)}")
        return Registered(self._enter(session), session.depth_remaining)

    def deregister(self, credential: SpawnCredential, outcome: Outcome) -> Refusal | None:
        """Note that the holder's session has ended. Said again it changes nothing: the first outcome stands."""
        session = self._holder(credential)
        if isinstance(session, Refusal):
            return None if session.cause is Cause.SESSION_OVER else session
        self.ended(session.id, outcome)
        return None

    def adopt(self, session_id: str, spawner: str) -> None:
        """Count a session that is seen to run for the one that it was spawned by.

        What was not known is taken in: it may launch nothing here, since nobody has a credential for it. What is
        known to be over stays over.
        """
        if session_id == spawner:
            return
        above, session = self._heard_of(spawner), self._heard_of(session_id)
        if session.outcome is not None:
            return
        if session.heard_of:
            session.heard_of, session.depth_remaining = False, max(0, above.depth_remaining - 1)
            self.tell("found", f"{visible(session_id)}, spawned by {visible(spawner)}")
        session.parents.add(spawner)
        above.children.add(session_id)

    def runs(self, session_id: str) -> bool:
        """Whether a session is known and, as far as is known, not over."""
        session = self._sessions.get(session_id)
        return session is not None and session.outcome is None

    def ended(self, session_id: str, outcome: Outcome, why: str | None = None) -> None:
        """Note that a session has ended, as somebody saw, and how: one that was killed tells nobody."""
        session = self._sessions.get(session_id)
        if session is None or session.outcome is not None:
            return
        session.outcome = outcome
        session.outstanding.clear()
        for parent in session.parents & self._sessions.keys():
            self._sessions[parent].children.discard(session_id)
        self.tell("ended", f"{visible(session_id)}, {outcome}" + ("" if why is None else f": {visible(why)}"))
        self._ended[session_id] = None
        if len(self._ended) > ENDED_KEPT:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._sessions[oldest]

    def lost(self, session_id: str) -> None:
        """Note that a session, known as a spawner alone, is nowhere to be seen: for all that anyone knows it failed."""
        session = self._sessions.get(session_id)
        if session is not None and session.heard_of:
            self.ended(session_id, "failed", "it is not recorded")

    def withdraw(self, approval: SpawnApproval) -> None:
        """Forget an approval whose child is gone, so that neither counts for a child any longer.

        The child may never have registered; it may have ended without a word, and then it failed.
        """
        payload = self._key.opened(_APPROVAL, approval.expose(), self._id) or {}
        id_ = str(payload.get("approval"))
        given = self._approvals.get(id_)
        parent = None if given is None else self._sessions.get(given.session)
        if parent is not None:
            parent.outstanding.discard(id_)
        for session in [each for each in self._sessions.values() if each.approval == id_]:
            self.ended(session.id, "failed", "it ended without a word")

    def status(self, session_id: str) -> SessionStatus | None:
        """Say what is known of a session; `None` when nothing is."""
        session = self._sessions.get(session_id)
        if session is None:
            return None
        return SessionStatus(session.outcome or "running", session.depth_remaining, self._live_children(session))

    def _live_children(self, session: _Session) -> int:
        if session.id != self._unnamed:
            return len(session.children)
        return len(session.children.union(*(each.children for each in self._sessions.values() if each.heard_of)))

    def _heard_of(self, session_id: str) -> _Session:
        """Return a session, taken in as one that somebody spoke of where it was not known."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(session_id, (), frozenset(), self.limits.depth)
            session.heard_of = True
        return session

    def _called(self, session: _Session) -> str:
        return _UNNAMED if session.id == self._unnamed else f"session {visible(session.id)}"

    def _enter(self, session: _Session) -> SpawnCredential:
        self._sessions[session.id] = session
        return SpawnCredential(self._key.sealed(_CREDENTIAL, {"session_id": session.id}, self._id))

    def _holder(self, credential: SpawnCredential) -> _Session | Refusal:
        """Return the running session that a credential belongs to."""
        payload = self._key.opened(_CREDENTIAL, credential.expose(), self._id)
        if payload is None:
            return Refusal(Cause.UNKNOWN_CREDENTIAL, "the spawn credential is none of this referee's")
        session_id = str(payload.get("session_id"))
        session = self._sessions.get(session_id)
        if session is None or session.outcome is not None:
            return Refusal(Cause.SESSION_OVER, f"session {visible(session_id)} is over")
        return session

    def _outstanding(self, approval: SpawnApproval, now: int) -> tuple[str, _Approval] | Refusal:
        """Return the id of an approval that can be spent, and what it is for."""
        payload = self._key.opened(_APPROVAL, approval.expose(), self._id)
        if payload is None:
            return Refusal(Cause.UNKNOWN_APPROVAL, "the spawn approval is none of this referee's")
        self._sweep(now)
        id_ = str(payload.get("approval"))
        given = self._approvals.get(id_)
        if given is None or now >= given.expires_at_ms:
            # Not there but ours, it was swept. Whether it had been spent before is not kept.
            seconds = self.limits.approval_ms // 1000
            return Refusal(Cause.EXPIRED, f"the spawn approval has expired: it is good for {seconds} seconds")
        parent = self._sessions.get(given.session)
        if parent is None or parent.outcome is not None:
            return Refusal(
                Cause.SESSION_OVER, f"session {visible(given.session)}, which the approval was given to, is over"
            )
        if id_ not in parent.outstanding:
            return Refusal(Cause.SPENT, "the spawn approval was used already, or withdrawn: it is good for one launch")
        return id_, given

    def _sweep(self, now: int) -> None:
        """Forget the approvals that have expired. They stand in the order they were given in."""
        while self._approvals:
            id_, given = next(iter(self._approvals.items()))
            if now < given.expires_at_ms:
                return
            del self._approvals[id_]
            parent = self._sessions.get(given.session)
            if parent is not None:
                parent.outstanding.discard(id_)


def _times(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
