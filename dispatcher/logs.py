"""Structured logs: JSON lines, text on a terminal. Ids are bound where a thing is worked on; env values never come."""

import logging
import sys
from typing import Any

import msgspec
import structlog


def configure_logs(level: str, *, as_text: bool | None = None) -> None:
    """Once, at start. Third-party loggers speak from WARNING on: at DEBUG some of them print whole bodies."""
    is_text = sys.stderr.isatty() if as_text is None else as_text
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    finish: list[Any] = [
        structlog.dev.ConsoleRenderer() if is_text else structlog.processors.JSONRenderer(serializer=to_json)
    ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if is_text else [structlog.processors.format_exc_info]),
            *finish,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def to_json(event: Any, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
