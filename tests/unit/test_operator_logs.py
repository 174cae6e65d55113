"""What the operator's log shows: a traceback is a fault of ours, not an API server that is away."""

import json
import logging

import aiohttp
import kopf
import pytest

from plimsoll.logs import ExpectedFaults, JSONFormatter


@pytest.mark.parametrize(
    ("logger", "error", "traceback"),
    [
        pytest.param("kopf._core.reactor.running", aiohttp.ClientError("away"), False, id="Kopf: no API server"),
        pytest.param("kopf._core.reactor.running", kopf.PermanentError("gone"), False, id="Kopf: its own error"),
        pytest.param("kopf._core.reactor.running", KeyError("metadata"), True, id="Kopf: a fault in a handler of ours"),
        pytest.param("plimsoll.loop", aiohttp.ClientError("away"), True, id="ours, not caught"),
    ],
)
def test_tracebacks(logger: str, error: Exception, traceback: bool) -> None:
    record = logging.LogRecord(logger, logging.ERROR, "f", 1, "it failed", None, (type(error), error, None))
    assert ExpectedFaults().filter(record)
    line = json.loads(JSONFormatter().format(record))
    assert line["message"] == "it failed"
    assert ("error" in line) is traceback


def test_a_line_of_the_ledger_carries_its_entry() -> None:
    record = logging.LogRecord("plimsoll.ledger", logging.INFO, "f", 1, "Scale 1 -> 2: m", None, None)
    record.service, record.event, record.entry = "llm/svc", "ledger", {"kind": "Scale", "to": "2"}
    line = json.loads(JSONFormatter().format(record))
    assert (line["event"], line["service"], line["entry"]["to"]) == ("ledger", "llm/svc", "2")
    plain = json.loads(JSONFormatter().format(logging.LogRecord("plimsoll.loop", 20, "f", 1, "m", None, None)))
    assert "event" not in plain
