"""Whose socket is at the other end of a connection, by the kernel's own word (I4)."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from murmur.adapters.peer import is_from_own_user, peer_user

NOBODY = 65534


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def connected(
    opened: ExitStack, address: str, via: str, user: int | None = None
) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection: that of a caller, and that of a door which listens on `address`."""
    listening = socket.create_server((address, 0), family=family_of(address), dualstack_ipv6=address == "::")
    door = opened.enter_context(listening)
    before = os.geteuid()
    os.seteuid(before if user is None else user)  # A socket belongs to who makes it, and not to who connects it.
    try:
        caller = opened.enter_context(socket.socket(family_of(via)))
    finally:
        os.seteuid(before)
    caller.connect((via, door.getsockname()[1]))
    return caller, opened.enter_context(door.accept()[0])


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("address", "via"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")]
)
def test_the_own_user_is_recognised_over_every_kind_of_loopback(opened: ExitStack, address: str, via: str) -> None:
    _, accepted = connected(opened, address, via)
    assert peer_user(accepted) == os.getuid()
    assert is_from_own_user(accepted)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("via", ["127.0.0.1", "::1"])
def test_another_user_is_another_also_for_root(opened: ExitStack, via: str) -> None:
    _, accepted = connected(opened, "::", via, NOBODY)
    assert peer_user(accepted) == NOBODY
    assert not is_from_own_user(accepted)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_root_may_see_what_it_can_read_anyway(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    _, accepted = connected(opened, "127.0.0.1", "127.0.0.1")
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    assert is_from_own_user(accepted)


def test_a_caller_that_has_gone_is_nobody(opened: ExitStack) -> None:
    caller, accepted = connected(opened, "127.0.0.1", "127.0.0.1")
    caller.close()
    assert peer_user(accepted) is None  # Also by what the kernel still holds of it, and ascribes to root.
    assert not is_from_own_user(accepted)
    accepted.close()
    assert not is_from_own_user(accepted)


def test_who_cannot_be_looked_at_is_an_error_and_nobody(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    _, accepted = connected(opened, "127.0.0.1", "127.0.0.1")

    def full(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("murmur.adapters.peer.socket.socket", full)
    with pytest.raises(OSError, match="too many"):
        is_from_own_user(accepted)
