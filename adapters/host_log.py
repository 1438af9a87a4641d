"""What did a session's host do, for whoever looks into `logs/host.log` later?"""

from typing import TextIO


class HostLog:
    """Writes one JSON line an event. structlog is imported at the first one: after the readiness line."""

    def __init__(self, file: TextIO, session_id: str) -> None:
        self._file = file
        self._session_id = session_id

    def __call__(self, event: str, detail: str) -> None:
        """Write one event. A disk that is full loses the line, never the session."""
        import structlog  # noqa: PLC0415 - as the class says

        log = structlog.wrap_logger(
            structlog.WriteLogger(self._file),
            processors=[
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(),
            ],
        )
        try:
            log.info(event, session_id=self._session_id, detail=detail)
        except OSError:
            return
