"""Structured logs: JSON lines, text on a terminal. Lines carry the ids of tasks and Jobs, and never values of env."""

import logging
import sys
from typing import Any

import msgspec
import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError


def configure_logs(level: str, *, as_text: bool | None = None) -> None:
    """Configures logs, once at start. Libraries log from WARNING on, because some print whole bodies at DEBUG."""
    is_text = sys.stderr.isatty() if as_text is None else as_text
    added: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Plain tracebacks, because pretty ones print local variables, and these hold secrets of rows.
    finish: list[Any] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if is_text
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
    logging.getLogger("aiohttp.server").addFilter(without_quotation)


def without_quotation(record: logging.LogRecord) -> bool:
    """Removes quoted requests from log lines. aiohttp's server quotes what it cannot parse, maybe a part of a body."""
    fault = record.exc_info[1] if record.exc_info else None
    if isinstance(fault, HttpProcessingError | RequestPayloadError):
        record.msg, record.args, record.exc_info = f"{record.getMessage()}: {type(fault).__name__}", (), None
    return True


def to_json(event: Any, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
