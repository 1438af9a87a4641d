"""Which environment does a child get? Nothing of its parent's but what it declared, and what the runtime owns (C5)."""

from collections.abc import Mapping

from murmur.domain.launch.handle import SPAWNER_ENV, SpawnerHandle, render_handle
from murmur.domain.launch.request import ChildLaunchRequest

ROOST_URL_ENV = "MURMUR_ROOST_URL"
SPAWNER_LIFELINE_ENV = "MURMUR_SPAWNER_LIFELINE"
FORMATION_ID_ENV = "MURMUR_FORMATION_ID"
HOST_WARNINGS_REPORTED_ENV = "MURMUR_HOST_WARNINGS_REPORTED"

MEMBER_GRANTS = ("MURMUR_FORMATION_LIFELINE", "MURMUR_FORMATION_CHANNEL", "MURMUR_FORMATION_PEERS")
"""What only a formation's launcher hands to a member. Inheriting the formation is no grant (C7)."""

_HOST = ("PATH", "HOME", "LOGNAME", "USER")
"""With the parent's values, so that the child runs as the same account; in the order they are written."""

_NEVER_COPIED = frozenset((
    *_HOST,
    ROOST_URL_ENV,
    SPAWNER_ENV,
    SPAWNER_LIFELINE_ENV,
    FORMATION_ID_ENV,
    HOST_WARNINGS_REPORTED_ENV,
    *MEMBER_GRANTS,
))  # fmt: skip


def child_environment(
    parent_env: Mapping[str, str],
    request: ChildLaunchRequest,
    handle: SpawnerHandle | None,
    lifeline: tuple[str, str] | None,
) -> list[tuple[str, str]]:
    """Compose the child's whole environment, as pairs in order.

    `handle` is this launch's own, `None` without a spawner; `lifeline` the pair that names the child's own lifeline.
    What the runtime owns comes last and cannot be displaced by a declaration. A name declared twice is there twice,
    with one value.
    """
    environment = [
        (name, parent_env[name]) for name in request.env_allow if name in parent_env and name not in _NEVER_COPIED
    ]
    environment += [(name, parent_env[name]) for name in _HOST if name in parent_env]
    environment.append((ROOST_URL_ENV, request.roost_url))
    # The process that a person started has printed them: a child does not repeat them.
    environment.append((HOST_WARNINGS_REPORTED_ENV, "1"))
    if lifeline is not None:
        environment.append(lifeline)
    if handle is not None:
        environment.append((SPAWNER_ENV, render_handle(handle)))
    if request.formation_id is not None:
        environment.append((FORMATION_ID_ENV, str(request.formation_id)))
    return environment
