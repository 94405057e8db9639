"""The log: one JSON object per line, about the service and never about those who use it.

There is no access log. An unexpected error is logged with its type and the lines where it happened,
but without its message, which might repeat what somebody sent.
"""

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

_LOGGER = logging.getLogger("whitelie.service")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; for a record of a library, the event is the library's name."""
        is_ours = record.name == _LOGGER.name
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.msg if is_ours else record.name.partition(".")[0],
        }
        if is_ours:
            line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["at"] = [
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return msgspec.json.encode(line).decode()


def event(name: str, **facts: Any) -> None:
    """Log an event by its name, with facts about it."""
    _LOGGER.info(name, extra={"facts": facts})


def failure(error: BaseException) -> None:
    """Log an unexpected error, without its message."""
    _LOGGER.error("internal_error", exc_info=(type(error), error, error.__traceback__))


def start(stream: Any = None) -> None:
    """Start to write the log, to stderr unless told otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _LOGGER.setLevel(logging.INFO)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # the writer logs it once
