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


EXPECTED: Final = ("kopf", "aiohttp")
"""Packages whose errors are the API server's, when Kopf logs them."""


FIELDS: Final = ("service", "event", "entry")
"""What a record may carry beside its message."""


class ExpectedFaults(logging.Filter):
    """Takes the traceback off what Kopf says of an API server that refuses, is away or serves no such kind any more.

    The supervisor says in a line how it goes on; a traceback is for faults of ours.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        error = record.exc_info[0] if record.exc_info else None
        if error is not None and record.name.startswith("kopf.") and error.__module__.partition(".")[0] in EXPECTED:
            record.exc_info = record.exc_text = None
        return True


class JSONFormatter(logging.Formatter):
    """``time``, ``level``, ``logger``, ``message``, ``service`` and, for faults of ours, ``error``.

    Lines of the ledger have ``event`` and ``entry`` too (docs/ledger.md).
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name in FIELDS if (value := getattr(record, name, None))}
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
        # One record, one line: what the message quotes must not look like a record of ours.
        said = " ".join(record.getMessage().split())
        text = f"{clock} {record.levelname.lower()}{where} {said}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure_logging(log_format: str, level: str) -> None:
    """Send all logs to stderr in the given format (json or text)."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(ExpectedFaults())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, heard in QUIET.items():
        logging.getLogger(name).setLevel(max(heard, root.level))
