"""What has a session's command written last on its standard error?"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from murmur.adapters.records_directory import read_tail

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LastWords:
    """The log of one session, looked into now and then."""

    def __init__(self, records: Path) -> None:
        """Look into the log of the session with that records directory."""
        self._path = records / "logs" / "stderr.log"
        self._size = 0

    def news(self) -> str | None:
        """Return the last line, if anything was written since this was asked before, and it can be read."""
        with suppress(OSError):
            descriptor = os.open(self._path, _OPEN)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_size != self._size:
                    self._size = status.st_size
                    return next(iter(read_tail(descriptor, 1)), None)
            finally:
                os.close(descriptor)
        return None
