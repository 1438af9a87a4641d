"""Which user is at the other end of a connection within this machine? Linux is asked for that one socket."""

import errno
import os
import socket
import struct
import sys
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

_SOCK_DIAG = 4
"""The netlink family (`linux/netlink.h`)."""
_BY_FAMILY, _ERROR = 20, 2
"""Types of netlink messages: the question and its answer, and what is answered instead."""
_REQUEST = 1
_ANY = 0xFFFFFFFF
"""Every state of a socket; every cookie."""
_HEAD = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBBI")
_ANSWER = struct.Struct("=BBBB48sIIIII")
_INSTEAD = struct.Struct("=i")


class _End(NamedTuple):
    """One end of a connection within this machine; an IPv4 address that is written as IPv6 is IPv4."""

    address: str
    port: int

    @property
    def packed(self) -> bytes:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        return socket.inet_pton(family, self.address).ljust(16, b"\0")


def is_from_own_user(connection: socket.socket) -> bool:
    """Whether this process's own user, or root, is at the other end. Raises `OSError` where no look can be taken.

    Where macOS does not tell, everybody on this machine is taken for it.
    """
    try:
        theirs, ours = _end(connection.getpeername()), _end(connection.getsockname())
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.EBADF):
            return False  # It has gone.
        raise
    return _is_own(theirs, ours)


def peer_user(connection: socket.socket) -> int | None:
    """Return the number of the user whose socket is connected to this one; `None` where there is none on this machine.

    That is one of another machine or network namespace, and one that nobody has any more. Raises `OSError`.
    """
    return _owner(_end(connection.getpeername()), _end(connection.getsockname()))


def _end(name: tuple[str, int]) -> _End:
    address = ip_address(name[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return _End(str(mapped or address), name[1])


if sys.platform == "darwin":

    def _is_own(theirs: _End, _ours: _End) -> bool:
        return ip_address(theirs.address).is_loopback

    def _owner(_theirs: _End, _ours: _End) -> int | None:
        return None

else:

    def _is_own(theirs: _End, ours: _End) -> bool:
        return _owner(theirs, ours) in (os.getuid(), 0)

    def _owner(theirs: _End, ours: _End) -> int | None:
        family = socket.AF_INET6 if ":" in theirs.address else socket.AF_INET
        question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY)
        ports = struct.pack("!HH", theirs.port, ours.port)
        body = question + ports + theirs.packed + ours.packed + struct.pack("=III", 0, _ANY, _ANY)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
            answer = kernel.recv(8192)
        _, kind, *_ = _HEAD.unpack_from(answer)
        if kind == _ERROR:
            (number,) = _INSTEAD.unpack_from(answer, _HEAD.size)
            if number == -errno.ENOENT:
                return None
            raise OSError(-number, os.strerror(-number))
        *_, user, inode = _ANSWER.unpack_from(answer, _HEAD.size)
        # What nobody has any more has no inode, and what the kernel still holds of it says that it is root's.
        return int(user) if inode else None
