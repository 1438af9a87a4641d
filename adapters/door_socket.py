"""Where does a door listen, and how is that written into a record? (R1, M1)."""

import errno
import os
import socket
from ipaddress import ip_address

from murmur.domain.errors import DoorNotOpened

BACKLOG = 64
"""Connections that may wait to be accepted."""


def bind_door(address: str, port: int) -> tuple[socket.socket, str]:
    """Listen on that address and port (0 picks one); return the socket and the `host:port` to record (R1, M1).

    Raises `DoorNotOpened`.
    """
    try:
        ip = ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        raise DoorNotOpened(
            f"cannot bind the door to {address}: it is no IP address",
            hint="give an address such as 127.0.0.1 or ::1",
        ) from None
    if ip.is_multicast or str(ip) == "255.255.255.255":
        # The kernel would let it be, and no connection would ever come.
        raise DoorNotOpened(
            f"cannot bind the door to {address}: it is the address of many machines",
            hint=_BIND_HINTS[errno.EADDRNOTAVAIL],
        )
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    both = family is socket.AF_INET6 and ip.is_unspecified and socket.has_dualstack_ipv6()
    try:
        door = socket.create_server((str(ip), port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
    except OSError as error:
        # Not the error's own text, which goes on about the address; and a resolver's errors have another numbering.
        number = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else error.errno or errno.EIO
        raise DoorNotOpened(
            f"cannot bind the door to {address} port {port}: {os.strerror(number).lower()}",
            hint=_BIND_HINTS.get(number),
        ) from error
    door.setblocking(False)
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Accepted sockets inherit it.
    # `localhost` only where it surely leads here: on another address it could be somebody else's port.
    name = "localhost" if ip.is_unspecified or str(ip) == "127.0.0.1" else f"[{ip}]" if ip.version == 6 else str(ip)
    return door, f"{name}:{door.getsockname()[1]}"


_BIND_HINTS = {
    errno.EADDRINUSE: "choose another --port, or leave it out to get a free one",
    errno.EACCES: "choose a --port above 1023",
    errno.EADDRNOTAVAIL: "--bind takes an address of this machine",
    errno.EINVAL: "--bind takes an address of this machine, such as 127.0.0.1 or ::1",
    errno.EAFNOSUPPORT: "this machine has no addresses of that kind: give one such as 127.0.0.1",
}
