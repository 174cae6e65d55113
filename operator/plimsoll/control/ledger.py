"""Entries of the ledger as log lines: one a line, after what they tell stands in the status."""

import logging
from collections.abc import Iterable
from typing import Final

from plimsoll.control.cache import Key
from plimsoll.core import ledger
from plimsoll.core.ledger import Entry

log: Final = logging.getLogger("plimsoll.ledger")


def record(key: Key, entries: Iterable[Entry], now: str) -> None:
    """``event`` is always ``ledger``; ``entry`` is as in the status, with the grounds it was decided on."""
    for entry in entries:
        fields = {"service": str(key), "event": ledger.EVENT, "entry": ledger.logged(entry, now)}
        log.info("%s", entry.sentence, extra=fields)
