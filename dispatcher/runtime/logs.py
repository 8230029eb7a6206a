"""Structured logs: JSON lines, text on a terminal. Lines carry the ids of tasks and Jobs, and never values of env."""

import logging
import sys
from typing import Any, Final

import msgspec
import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from dispatcher.runtime.clock import Clock, elapsed


def configure_logs(level: str) -> None:
    """Configures logs, once at start. Libraries log from WARNING on, because some print whole bodies at DEBUG."""
    added: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Plain tracebacks, because pretty ones print local variables, and these hold secrets of rows.
    finish: list[Any] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if sys.stderr.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=to_json)]
    )
    structlog.configure(
        processors=[*added, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    theirs = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=theirs, foreign_pre_chain=added))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("aiohttp.server").addFilter(BadRequests())


BETWEEN_SECONDS: Final = 1
"""Seconds between two lines about requests that cannot be parsed. Whoever reaches a port may send any number."""


class BadRequests:
    """Filters the log lines of aiohttp's server. It quotes what it cannot parse, maybe a part of a body.

    The quotations are removed. Of many such lines, one in BETWEEN_SECONDS stays: they would push all others out of a
    log that is rotated by its size.
    """

    def __init__(self, clock: Clock = elapsed) -> None:
        self._clock = clock
        self._said_at = float("-inf")

    def __call__(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        if not isinstance(fault, HttpProcessingError | RequestPayloadError):
            return True
        record.msg, record.args, record.exc_info = f"{record.getMessage()}: {type(fault).__name__}", (), None
        if (now := self._clock()) - self._said_at < BETWEEN_SECONDS:
            return False
        self._said_at = now
        return True


AGAIN_SECONDS: Final = 300
"""Seconds between two lines about one lasting fault. Whoever is called looks at the last minutes of a log."""


class LastingFault:
    """Tells when a fault is logged: as it begins or changes its words, and then each AGAIN_SECONDS while it lasts."""

    def __init__(self, clock: Clock = elapsed) -> None:
        self._clock = clock
        self._words = ""
        self._said_at = float("-inf")

    def is_due(self, words: str) -> bool:
        now = self._clock()
        if words == self._words and now - self._said_at < AGAIN_SECONDS:
            return False
        self._words, self._said_at = words, now
        return True

    def end(self) -> None:
        """The fault is past. The next one is logged, whatever its words are."""
        self._words = ""


def to_json(event: Any, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
