"""Which delegations of a session are outstanding? Those with a marker in its records directory (W6, E6).

The launcher makes the marker and the session's door takes it; the two may be different processes. Taking is an unlink,
which succeeds once: whoever it succeeds for has the completion that counts.
"""

import os
import stat
import threading
from contextlib import ExitStack
from pathlib import Path

from murmur.adapters.beneath import NotReached, make_private, open_beneath
from murmur.adapters.descriptors import is_exhaustion
from murmur.domain.ids import is_delegation_id

DELEGATIONS = "delegations"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE_FILE = 0o600


class Delegations:
    """The outstanding delegations of the session whose records directory that descriptor is."""

    def __init__(self, records: int, path: Path) -> None:
        self._records = records
        self._path = path / DELEGATIONS

    def put(self, delegation_id: str) -> None:
        """Let a delegation be outstanding. Raises `NotReached` or `OSError`."""
        with ExitStack() as opened:
            directory = make_private(self._records, DELEGATIONS, self._path, fresh=False)
            opened.callback(os.close, directory)
            marker = os.open(delegation_id, _CREATE, _PRIVATE_FILE, dir_fd=directory)
            os.close(marker)

    def take(self, delegation_id: str) -> bool:
        """End a delegation's being outstanding; say whether it was. Of several who ask, one is told so."""
        if not is_delegation_id(delegation_id):
            return False
        with ExitStack() as opened:
            try:
                directory = open_beneath(self._records, [DELEGATIONS], self._path)
                opened.callback(os.close, directory)
                os.unlink(delegation_id, dir_fd=directory)
            except (NotReached, OSError) as error:  # Nothing there to take, or nothing that can be.
                cause = error if isinstance(error, OSError) else error.__cause__
                return isinstance(cause, OSError) and is_exhaustion(cause) and self._take_unopened(delegation_id)
            return True

    def _take_unopened(self, delegation_id: str) -> bool:
        """Take a delegation with no descriptor left to do it by: it must not stay outstanding for that."""
        try:
            if not stat.S_ISDIR(os.stat(DELEGATIONS, dir_fd=self._records, follow_symlinks=False).st_mode):
                return False
            os.unlink(f"{DELEGATIONS}/{delegation_id}", dir_fd=self._records)
        except OSError:
            return False
        return True


class Marker:
    """One delegation's being outstanding, as its launcher deals with it."""

    def __init__(self, delegations: Delegations, delegation_id: str) -> None:
        self._delegations = delegations
        self._delegation_id = delegation_id
        self._lock = threading.Lock()
        self._was_outstanding: bool | None = None

    def put(self) -> None:
        """Let the delegation be outstanding, again if need be. Raises `NotReached` or `OSError`."""
        self._delegations.put(self._delegation_id)

    def withdraw(self) -> bool:
        """End its being outstanding; say whether it was: else the door has taken the child's word.

        Asked again it answers the same: this is decided once.
        """
        with self._lock:
            if self._was_outstanding is None:
                self._was_outstanding = self._delegations.take(self._delegation_id)
            return self._was_outstanding

    def remove(self) -> bool:
        """Leave nothing of it; say whether it was there."""
        return self._delegations.take(self._delegation_id)
