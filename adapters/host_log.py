"""What did a session's host do, for whoever looks into `logs/host.log` later?"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from murmur.adapters.records_directory import append_line

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class HostLog:
    """Writes one JSON line an event. structlog is imported at the first one: after the readiness line."""

    def __init__(self, descriptor: int, session_id: str) -> None:
        self._lines = _Lines(descriptor)
        self._session_id = session_id
        self._log: FilteringBoundLogger | None = None

    def __call__(self, event: str, detail: str) -> None:
        """Write one event. What cannot be written is lost, never the session."""
        try:
            if self._log is None:
                with _without_rich():
                    import structlog  # noqa: PLC0415 - as the class says

                self._log = structlog.wrap_logger(
                    self._lines,
                    processors=[
                        structlog.processors.TimeStamper(fmt="iso", utc=True),
                        structlog.processors.JSONRenderer(),
                    ],
                )
            self._log.info(event, session_id=self._session_id, detail=detail)
        except (OSError, ImportError):  # A full disk, or no descriptor to import with.
            return


class _Lines:
    """Where structlog's lines go: straight to a descriptor, with nothing left to flush at the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def info(self, line: str) -> None:
        """Write one line."""
        append_line(self._descriptor, f"{line}\n".encode())


@contextmanager
def _without_rich() -> Iterator[None]:
    """Have rich not found: structlog would draw tracebacks by it, and it costs several times what structlog does."""
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # how an import is made to fail
    try:
        yield
    finally:
        del sys.modules["rich"]
