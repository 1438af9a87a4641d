"""What is a child started as, and in which folder? (C2, C3)"""

from typing import NamedTuple

from murmur.domain.launch.request import ChildLaunchRequest

CHILDREN = "children"
"""Every child's work folder sits directly beneath this one, in the parent's records directory."""
WORKDIR_IDENTITY_FLAG = "--workdir-identity"

_U64_MAX = 2**64 - 1


class WorkdirIdentity(NamedTuple):
    """Which directory a work folder is, whatever its path leads to by now."""

    device: int
    inode: int


def format_identity(identity: WorkdirIdentity) -> str:
    """Write `<st_dev>:<st_ino>`."""
    return f"{identity.device}:{identity.inode}"


def parse_identity(value: str) -> WorkdirIdentity:
    """Read `<st_dev>:<st_ino>`; raise `ValueError`, naming the flag, for anything but two unsigned 64-bit numbers."""
    device, _, inode = value.partition(":")
    try:
        return WorkdirIdentity(_u64(device), _u64(inode))
    except ValueError:
        raise ValueError(f"{WORKDIR_IDENTITY_FLAG} takes <dev>:<ino>, not {value!r}") from None


def _u64(digits: str) -> int:
    # `int` also takes blanks, signs, `_` and other scripts' digits, and refuses more than 4,300 digits, zeros or not.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError
    number = int(digits.lstrip("0") or "0")
    if number > _U64_MAX:
        raise ValueError
    return number


def child_directory_name(capsule_name: str, hex16: str) -> str:
    """Name a child's work folder: one path segment whatever the capsule's scope, `local/worker` → `worker-<hex16>`.

    `hex16` is 16 hex digits, fresh for each launch.
    """
    return f"{capsule_name.rpartition('/')[2]}-{hex16}"


def child_argv(mur: str, request: ChildLaunchRequest, workdir: str, identity: WorkdirIdentity) -> list[str]:
    """Compose the argument vector, from the program's own name on. It holds no secret: any process may read it."""
    argv = [
        mur,
        "run",
        "--capsule",
        request.capsule_name,
        "--capsule-version",
        request.capsule_version,
        "--workdir",
        workdir,
        WORKDIR_IDENTITY_FLAG,
        format_identity(identity),
        "--json",
        "--readiness-tokens",
        "--no-env-file",
        "--spawn-grant-stdin",
    ]
    if request.deadline_unix_ms is not None:
        argv += ["--inherited-deadline", str(request.deadline_unix_ms)]
    return argv
