"""Which user is at the other end of a connection within this machine? (Linux: the kernel's tables of TCP sockets)."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9
"""Columns of `/proc/net/tcp`: two addresses, each with its port, the owner's number, and that of the socket."""


def is_from_own_user(connection: socket.socket) -> bool:
    """Whether this process's own user, or root, is at the other end.

    Where macOS does not tell, everybody on this machine is taken for it.
    """
    user = peer_user(connection)
    if user is not None:
        return user in (os.getuid(), 0)
    try:
        return sys.platform == "darwin" and ip_address(_endpoint(connection.getpeername())[0]).is_loopback
    except (OSError, ValueError):
        return False


def peer_user(connection: socket.socket) -> int | None:
    """Return the number of the user whose socket is connected to this one; `None` where that cannot be told.

    It cannot be told of another machine, of another network namespace, and on macOS.
    """
    try:
        theirs, ours = _endpoint(connection.getpeername()), _endpoint(connection.getsockname())
    except (OSError, ValueError):
        return None
    for local, remote, user in _sockets():
        if local == theirs and remote == ours:
            return user
    return None


def _endpoint(name: tuple[str, int]) -> tuple[str, int]:
    address = ip_address(name[0].partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped), name[1]
    return str(address), name[1]


def _sockets() -> Iterator[tuple[tuple[str, int], tuple[str, int], int]]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/self/net/{table}").open(encoding="ascii") as lines:
            next(lines, None)
            for line in lines:
                fields = line.split()
                if fields[_INODE] == "0":
                    continue  # Nobody has it any more, and what the kernel still holds of it says that it is root's.
                yield _decoded(fields[_LOCAL]), _decoded(fields[_REMOTE]), int(fields[_USER])


def _decoded(field: str) -> tuple[str, int]:
    """Read an address as the kernel prints it: words of four bytes in this machine's order, in hexadecimal."""
    words, _, port = field.partition(":")
    packed = b"".join(int(words[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(words), 8))
    return _endpoint((str(ip_address(packed)), int(port, 16)))
