"""Which referee approves what this process launches? The one of the environment, else one of our own."""

import secrets
from collections.abc import Callable, Mapping

from murmur.adapters.delegating_file import Delegating
from murmur.adapters.identifiers import fresh_hex
from murmur.adapters.referee_server import RefereeServer
from murmur.adapters.serving import ServingThread
from murmur.cli.from_store import ROOST_VARIABLE
from murmur.cli.stores import stored_capsule
from murmur.domain.door_tokens import TokenKey
from murmur.domain.errors import SpawnRefused
from murmur.domain.referee import Referee
from murmur.domain.secret import SpawnApproval, SpawnCredential
from murmur.domain.spawn_terms import SpawnLimits
from murmur.domain.value import Value


class AskedReferee(Value):
    """The referee that approves what this process launches."""

    url: str
    credential: SpawnCredential | None
    """Ours, where we have one."""
    gone: Callable[[SpawnApproval], None]
    """Takes an approval whose child is no more. A roost sees that for itself."""


def embedded_referee(delegating: Delegating, serving: ServingThread, environment: Mapping[str, str]) -> AskedReferee:
    """Return the referee of the environment, else one of our own.

    That lets the delegating session launch what its manifest names, for as long as this process lives.
    Raises `SpawnRefused`.
    """
    roost = environment.get(ROOST_VARIABLE)
    if roost:
        if "@" in roost:  # It would be refused later, by a message that quotes all of it.
            raise SpawnRefused(
                f"{ROOST_VARIABLE} names a user or a password, which a referee does not take",
                hint="such as http://127.0.0.1:7700",
            )
        return AskedReferee(roost, None, lambda _: None)
    referee = Referee(TokenKey(secrets.token_hex(32)), fresh_hex, limits_of(delegating))
    allow = None if delegating.spawn_allow is None else frozenset(delegating.spawn_allow)
    credential = referee.enrol_root(delegating.session_id, allow, delegating.depth_remaining)
    server = RefereeServer(referee, stored_capsule)
    url = serving.do(server.serve)
    serving.closes(server.close)

    def gone(approval: SpawnApproval) -> None:
        async def withdraw() -> None:
            referee.withdraw(approval)

        serving.do(withdraw)

    return AskedReferee(url, credential, gone)


def children_at_once(environment: Mapping[str, str]) -> tuple[int, bool]:
    """Return how many children one session has at once, and whether that is for our own referee to say."""
    return SpawnLimits().children, not environment.get(ROOST_VARIABLE)


def limits_of(delegating: Delegating) -> SpawnLimits:
    """Return our limits: the depth is that of the referee which the session around us was registered with."""
    ordinary = SpawnLimits()
    depth = delegating.depth_limit
    if depth is None:
        depth = max(ordinary.depth, delegating.depth_remaining or 0)
    return ordinary._replace(depth=max(0, depth))
