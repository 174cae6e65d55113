"""An audit as SARIF 2.1.0, for code scanning on pull requests.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

import hashlib
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from plimsoll.cli.audit_result import Audited, Judged
from plimsoll.core.audit.rule import RULES, Finding, Rule

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_HOME: Final = "https://github.com/plimsoll-dev/plimsoll"


def sarif(audited: Audited) -> dict[str, Any]:
    """One run: every rule, and a result a finding."""
    index = {rule: at for at, rule in enumerate(RULES)}
    notifications = [{"level": "error", "message": {"text": line}} for line in audited.bad]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "plimsoll-audit",
                        "informationUri": _HOME,
                        "rules": [_rule(rule) for rule in RULES.values()],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "invocations": [{"executionSuccessful": not audited.bad, "toolExecutionNotifications": notifications}],
                "results": [_result(judged, finding, index) for judged, finding in audited.findings],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\nFix: {rule.fix}", "markdown": f"{rule.why}\n\n**Fix:** {rule.fix}"},
        "helpUri": f"{_HOME}/blob/main/docs/audit-rules.md#{rule.id}",
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": [rule.group.value]},
    }


def _result(judged: Judged, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    file, line = judged.where(finding)
    name = f"{judged.object_name}/{judged.server.container_name}"
    fingerprint = hashlib.sha256(f"{finding.rule.id}|{name}|{finding.path}".encode()).hexdigest()
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": index[finding.rule.id],
        "level": finding.severity.value,
        "message": {"text": f"{finding.message}. Fix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": max(1, line)}},
                "logicalLocations": [{"fullyQualifiedName": name, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"plimsoll/v1": fingerprint},
    }


def _uri(file: str) -> str:
    """Relative as written, absolute as a file URI; what is no file (stdin, a cluster) as a name."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
