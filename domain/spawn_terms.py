"""By which limits may sessions launch others, and in which terms is that approved or refused?"""

from enum import Enum
from typing import Literal, NamedTuple

from murmur.domain.capsule_store import CapsuleReference
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.value import Value

Outcome = Literal["complete", "failed"]
"""How a session ended, as its referee knows it."""


class SpawnLimits(NamedTuple):
    """What sessions may launch, and how long they may take over it."""

    depth: int = 3
    """How many launches may follow from one another, beneath a session that nobody launched."""
    children: int = 4
    """How many children one session may have at once, those about to start included."""
    approval_ms: int = 60_000
    """How long an approval is good for."""


class Cause(Enum):
    """Why something was refused."""

    UNKNOWN_CREDENTIAL = "unknown credential"
    SESSION_OVER = "session over"
    NOT_ALLOWED = "not allowed"
    TOO_DEEP = "too deep"
    TOO_MANY = "too many"
    UNKNOWN_APPROVAL = "unknown approval"
    SPENT = "spent"
    EXPIRED = "expired"
    OTHER_CAPSULE = "other capsule"
    CHANGED = "changed"
    SESSION_TAKEN = "session taken"


class Refusal(Value):
    """No, and why not, for a person to read. It holds no secret."""

    cause: Cause
    reason: str


class Approved(Value):
    """A launch that may begin."""

    approval: SpawnApproval
    expires_at_ms: int


class Child(Value):
    """A session that was launched with an approval, and its capsule as the store holds it now."""

    session_id: str
    reference: CapsuleReference
    digest: str
    allow: frozenset[str]
    """The capsules that it may launch itself."""


class Registered(Value):
    """A child that is what was approved, and what it asks for children of its own with."""

    credential: SpawnCredential
    depth_remaining: int
    """How many launches may follow from one another beneath it."""


class SessionStatus(Value):
    """What is known of a session."""

    status: Literal["running", "complete", "failed"]
    depth_remaining: int
    live_children: int
