"""Structured logs: one JSON object a line, with the service's name when there is one."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

QUIET: Final = {
    "kopf": logging.WARNING,
    "kopf._core.reactor.running": logging.ERROR,  # that signals are left to us, at each of its starts
    "aiohttp": logging.WARNING,
    "asyncio": logging.WARNING,
}
"""Libraries whose everyday lines say nothing to the operator's owner, and from which level on they are heard."""


class JSONFormatter(logging.Formatter):
    """``time``, ``level``, ``logger``, ``message``, ``service`` and, for faults of ours, ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        service = getattr(record, "service", None)
        if service:
            entry["service"] = service
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, a traceback after it when there is one."""
        service = getattr(record, "service", "")
        where = f" [{service}]" if service else ""
        clock = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        text = f"{clock} {record.levelname.lower()}{where} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure_logging(log_format: str, level: str) -> None:
    """Send all logs to stderr in the given format (json or text)."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, heard in QUIET.items():
        logging.getLogger(name).setLevel(max(heard, root.level))
