"""What does a door take and give, as HTTP, and is a request meant for it? (wire facts of the door)."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from murmur.domain.json_text import json_bytes

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?", re.ASCII)
_ZONE = re.compile(r"%[^\]]*")


class DoorRequest(NamedTuple):
    """One HTTP request: method, path, body, the headers that matter, and whether its answer may come later."""

    method: str
    target: str
    body: bytes
    host: str | None = None
    authorization: str | None = None
    origin: str | None = None
    crowd: int | None = None
    """How many callers wait for tasks, when that is as many as may; `None` while there is room for another."""
    headers: Mapping[str, str] = MappingProxyType({})
    """The headers whose names start with `x-murmur-`, the names in lower case."""
    last_event_id: str | None = None
    """Behind which event a caller that was cut off wants to go on."""
    watched: int | None = None
    """How many streams are open, when that is as many as may; `None` while there is room for another."""
    from_own_user: Callable[[], bool] = lambda: True
    """Whether the caller is the user whose session it is, or root. Asked only where it matters: it takes a look."""

    def __repr__(self) -> str:
        """Leave the headers and the body out: they may hold secrets."""
        return f"DoorRequest({self.method} {self.target})"


class DoorResponse(NamedTuple):
    """One HTTP response: status, JSON body, further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Leave the body out: it may hold secrets."""
        return f"DoorResponse({self.status})"


def refused(status: int, error: str, message: str, *headers: tuple[str, str]) -> DoorResponse:
    """Make the answer that refuses a request by HTTP."""
    return document(status, {"error": error, "message": message}, headers)


def document(status: int, content: object, headers: tuple[tuple[str, str], ...] = ()) -> DoorResponse:
    """Make an answer of a JSON document."""
    return DoorResponse(status, json_bytes(content), headers)


def is_addressed(host: str | None, authority: str, *, wildcard: bool = False) -> bool:
    """Whether the caller named this machine, or the address that the door is bound to, with whatever port.

    A page in a browser that had its own name resolve to this machine names itself here: that is refused.
    """
    name, authority = (host or "").lower(), authority.lower()
    if name == authority:
        return True
    bare = _without_port(name)
    # The zone of a link-local address is this machine's affair: callers do not send it.
    bound = _without_port(_ZONE.sub("", authority))
    return bare == "localhost" or _is_ours(bare, bound, wildcard)


def _without_port(authority: str) -> str:
    """Return the host of a `host:port`, or nothing where it is none."""
    match = _HOST.fullmatch(authority)
    return (match[1] or match[2]) if match else ""


def _is_ours(name: str, bound: str, wildcard: bool) -> bool:  # noqa: FBT001
    """Whether a name is a loopback address, the bound one, or any address at all for a door on all of them."""
    from ipaddress import ip_address  # noqa: PLC0415 - hosts other than localhost are rare

    try:
        address = ip_address(name)
    except ValueError:
        return False
    if wildcard or address.is_loopback:
        return True
    try:
        return address == ip_address(bound)
    except ValueError:  # The bound one is `localhost`.
        return False
