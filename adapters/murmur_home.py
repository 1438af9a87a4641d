"""Where is the Murmur home, and is it ours and private? (H1-H3)."""

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from murmur.domain.errors import RegistryUnusable

PRIVATE_DIRECTORY = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def murmur_home(environment: Mapping[str, str]) -> Path:
    """Return `$HOME/.murmur` without touching it; raise `RegistryUnusable` when HOME does not say where (H1)."""
    home = environment.get("HOME")
    hint = "set HOME to your home directory's absolute path"
    if home is None:
        raise RegistryUnusable("HOME is not set, so there is no ~/.murmur", hint=hint)
    if not home:
        raise RegistryUnusable("HOME is empty, so there is no ~/.murmur", hint=hint)
    if not home.startswith("/"):
        raise RegistryUnusable(f"HOME is not an absolute path: {home}", hint=hint)
    return Path(home) / ".murmur"


def running_location(environment: Mapping[str, str]) -> Path:
    """Return where the running directory is, without touching it (H3)."""
    return murmur_home(environment) / "running"


def open_running(environment: Mapping[str, str], *, create: bool) -> int | None:
    """Open the running directory and return its descriptor, which the caller closes (H2, H3).

    With `create`, `~/.murmur` and `running` are made where missing, the first loses its group and other bits and
    the second is held at exactly 0700. Without, nothing is created or changed, and `None` is an empty machine.
    Raises `RegistryUnusable` naming the path, with nothing changed that was there.
    """
    location = running_location(environment)
    with ExitStack() as opened:
        home = _open_directory(location.parent, None, create=create)
        if home is None:
            return None
        opened.callback(os.close, home)
        running = _open_directory(location, home, create=create)
        if running is None:
            return None
        try:
            # Both are looked at before either is changed: an error leaves everything as it was.
            _insist_on_ours(location.parent, home, exactly=False)
            _insist_on_ours(location, running, exactly=True)
            if create:
                _hold_private(location.parent, home, exactly=False)
                _hold_private(location, running, exactly=True)
        except RegistryUnusable:
            os.close(running)
            raise
        return running


def open_home(environment: Mapping[str, str]) -> int:
    """Open `~/.murmur` for writing beneath it, made where missing; the caller closes the descriptor (H2)."""
    location = murmur_home(environment)
    home = _open_directory(location, None, create=True)
    assert home is not None
    try:
        _hold_private(location, home, exactly=False)
    except RegistryUnusable:
        os.close(home)
        raise
    return home


def _open_directory(path: Path, parent: int | None, *, create: bool) -> int | None:
    name: str | Path = path if parent is None else path.name
    try:
        return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            return None
    except OSError as error:
        return _open_own_link(path, parent, error)
    try:
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=parent)
        os.chmod(name, PRIVATE_DIRECTORY, dir_fd=parent)  # Whatever the umask made of it.
    except FileExistsError:
        pass  # Another session was first.
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        raise _unusable(path, error) from error


def _open_own_link(path: Path, parent: int | None, refused: OSError) -> int:
    """Follow a symbolic link that is our own; refuse everything else that is no directory."""
    name: str | Path = path if parent is None else path.name
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            raise _unusable(path, refused)
        if found.st_uid != os.geteuid():
            raise RegistryUnusable(
                f"{path}: it is a symbolic link of another user",
                hint="remove the link, or have it belong to you, then try again",
            )
        return os.open(name, _OPEN, dir_fd=parent)
    except OSError as error:
        raise _unusable(path, error) from error


def _private_mode(found: os.stat_result, *, exactly: bool) -> int | None:
    """Return the mode the directory is to get; `None` when it has it."""
    mode = stat.S_IMODE(found.st_mode)
    wanted = PRIVATE_DIRECTORY if exactly else mode & 0o7700
    return None if mode == wanted else wanted


def _insist_on_ours(path: Path, descriptor: int, *, exactly: bool) -> None:
    found = os.fstat(descriptor)
    if _private_mode(found, exactly=exactly) is not None and os.geteuid() not in (0, found.st_uid):
        raise _unusable(path, PermissionError(errno.EPERM, os.strerror(errno.EPERM)))


def _hold_private(path: Path, descriptor: int, *, exactly: bool) -> None:
    wanted = _private_mode(os.fstat(descriptor), exactly=exactly)
    if wanted is not None:
        try:
            os.fchmod(descriptor, wanted)
        except OSError as error:
            raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> RegistryUnusable:
    hints = {
        "NotADirectoryError": "move what is there out of the way: a directory belongs at this path",
        "FileNotFoundError": "HOME names a directory that does not exist",
        "PermissionError": "the directory must be yours, with mode 0700",
    }
    return RegistryUnusable(f"{path}: {error.strerror}", hint=hints.get(type(error).__name__))
