"""Where was a session started, and does a pid recorded there mean anything here? (L8).

A pid and a start token are numbers of one boot, one pid namespace and one time namespace. The origin file
says which. Read from anywhere else they prove nothing, and the lock that the session holds on this file for
as long as it lives is the only evidence.
"""

import json
from enum import Enum
from typing import NamedTuple, TypeVar

from murmur.domain.json_text import NotJson, read_json
from murmur.domain.value import Value


class LockReading(Enum):
    """What trying for a shared lock on an origin file told."""

    FREE = "free"
    HELD = "held"
    UNREADABLE = "unreadable"


class Here(NamedTuple):
    """The reader's own place; `None` where it could not be read."""

    machine_id: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    time_namespace: str | None = None


class Origin(Value):
    """One origin file's content. Field order is the order on disk; what could not be read is `None`."""

    pid: int | None = None
    process_start: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    time_namespace: str | None = None
    pidfd_inode: int | None = None

    def names_another(self, pid: int, process_start: str) -> bool:
        """Whether this origin was written by a process other than the one of that pid and start token."""
        return (self.pid is not None and self.pid != pid) or (
            self.process_start is not None and self.process_start != process_start
        )


class UnreadOrigin(Value):
    """There is an origin file, and it could not be read."""

    reason: str


OriginReading = Origin | UnreadOrigin | None
"""`None`: there is no origin file, or what it holds is no origin. Layers 1 and 2 then stand alone."""


class Elsewhere(NamedTuple):
    """How a session's place differs from the reader's."""

    where: str
    lock_speaks: bool
    """Whether a lock taken there is one that this reader's kernel, or an earlier boot of it, held."""


_Field = TypeVar("_Field", int, str)


def parse_origin(content: bytes) -> Origin | None:
    """Read an origin file's bytes; `None` for anything that is not one."""
    try:
        document = read_json(content)
    except NotJson:
        return None
    if not isinstance(document, dict):
        return None
    try:
        return Origin(
            _nullable(document.get("pid"), int),
            _nullable(document.get("process_start"), str),
            _nullable(document.get("machine_id"), str),
            _nullable(document.get("boot_id"), str),
            _nullable(document.get("pid_namespace"), str),
            _nullable(document.get("time_namespace"), str),
            _nullable(document.get("pidfd_inode"), int),
        )
    except TypeError:
        return None


def _nullable(value: object, kind: type[_Field]) -> _Field | None:
    if value is None:
        return None
    if type(value) is not kind:
        raise TypeError
    return value


def render_origin(origin: Origin) -> bytes:
    """Write an origin as its file holds it: one line of JSON."""
    document = {name: getattr(origin, name) for name in Origin.__match_args__}
    return json.dumps(document).encode()


def elsewhere(origin: Origin, here: Here) -> Elsewhere | None:
    """Say how the origin's place differs from the reader's; `None` when pids and tokens mean the same in both.

    An id that could not be read is never equal, except that a namespace neither side could read is one the
    platform does not have: where `/proc` is missing altogether, the boot id is missing as well.
    """
    same_boot = origin.boot_id is not None and origin.boot_id == here.boot_id
    same_machine = origin.machine_id is not None and origin.machine_id == here.machine_id
    if not same_boot:
        return Elsewhere("in another boot" if same_machine else "on another machine", same_machine)
    if origin.pid_namespace != here.pid_namespace:
        return Elsewhere("in another pid namespace", lock_speaks=True)
    if origin.time_namespace != here.time_namespace:
        return Elsewhere("in another time namespace", lock_speaks=True)
    return None
