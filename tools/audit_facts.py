"""How well ``plimsoll audit`` reads and judges manifests whose facts are known: ``tools/audit_facts.py FACTS.jsonl``.

Each row (kind, launch, argv, variables, probes, grace, strategy, what an expert criticised) becomes a manifest, and the
audit's findings are compared with the expert's list, kind by kind, for the kinds that the facts can show.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from plimsoll.cli.predict import Models
from plimsoll.core.audit.evidence import Planner
from plimsoll.core.audit.judge import judge
from plimsoll.core.workloads.neighbours import gathered
from plimsoll.core.workloads.read import servers_of
from plimsoll.core.workloads.server import Server
from tools.audit_manifests import Row, manifests


def servers(row: Row) -> list[Server]:
    """What the reader finds in the manifests of a row, by way of YAML."""
    objects = list(yaml.safe_load_all(yaml.safe_dump_all(manifests(row))))
    around = gathered(objects)
    return [server for each in objects for server in servers_of(each, around)]


def argv_differences(rows: Sequence[Row]) -> Iterator[str]:
    """Rows whose argv does not come back as it went in."""
    for row in rows:
        found = servers(row)
        read = [list(server.launch.argv or ()) for server in found]
        if row["args"] is not None and list(row["args"]) not in read:
            yield f"{row['id']} ({row['kind']}, {row['launch']}): {row['args']} came back as {read}"


KINDS: tuple[tuple[str, str], ...] = (
    (r"no startupProbe$", "no-startup-probe"),
    (r"no livenessProbe$", "no-liveness-probe"),
    (r"no readinessProbe$", "no-readiness-probe"),
    (r"liveness kills during load", "liveness-kills-during-load"),
    (r"startup budget too short", "startup-budget-too-short"),
    (r"liveness timeout 1 s", "liveness-timeout-one-second"),
    (r"liveness kills a busy server", "liveness-kills-busy-server"),
    (r"grace \d+ s( \(default, not set\))?$", "grace-too-short"),
    (r"(default )?RollingUpdate (with surge )?needs a spare GPU", "surge-needs-spare-gpu"),
    (r"progressDeadlineSeconds", "progress-deadline-too-short"),
    (r"no /dev/shm with TP>1", "no-shared-memory"),
    (r"no max-model-len", "no-max-model-len"),
    (r"floating image tag", "floating-image-tag"),
    (r"trust-remote-code", "trust-remote-code-unpinned"),
    (r"enforce-eager switches", "enforce-eager"),
    (r"flag removed or renamed", "removed-flag"),
    (r"abbreviated flag", "abbreviated-flag"),
    (r"env removed", "removed-variable"),
    (r"gpu-memory-utilization 0.9\d", "utilisation-too-high"),
    (r"API key in plain text", "api-key-in-plain-text"),
    (r"flag and value in one list element", "value-in-one-element"),
    (r"duplicate flags", "repeated-flag"),
    (r"TP \d+ but \d+ GPU", "fewer-gpus-than-ranks"),
    (r"time-sliced GPU", "gpus-unused"),
    (r"docker option", "unknown-flag"),
)
"""What an expert says → the rule that says the same. Only what a row's facts can show."""


def scores(rows: Sequence[Row], planner: Planner) -> tuple[dict[str, Counter[str]], list[str]]:
    """For each rule how often both, only we, only the expert say it; and every disagreement."""
    found: dict[str, Counter[str]] = {rule: Counter() for _, rule in KINDS}
    differences = []
    for row in rows:
        if any(problem.startswith("not valid YAML") for problem in row["problems"]):
            continue  # it cannot be written down as it was
        ours = {
            finding.rule.id: finding.message for server in servers(row) for finding in judge(server, planner).findings
        }
        theirs = {rule: p for pattern, rule in KINDS for p in row["problems"] if re.match(pattern, p) or pattern in p}
        for _, rule in KINDS:
            outcome = {(True, True): "both", (True, False): "ours", (False, True): "theirs"}.get(
                (rule in ours, rule in theirs)
            )
            if outcome:
                found[rule][outcome] += 1
            if outcome in {"ours", "theirs"}:
                said = ours.get(rule) or theirs.get(rule)
                differences.append(f"{rule}: {row['id']} ({row['kind']}, {row['scope']}): only {outcome}: {said}")
    return found, differences


def _share(part: int, rest: int) -> str:
    return f"{part / (part + rest):6.1%}" if part + rest else "     -"


def main() -> int:
    """Print the figures; exit code 1 when an argv did not come back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("facts", type=Path)
    rows = [json.loads(line) for line in parser.parse_args().facts.read_text(encoding="utf-8").splitlines()]
    differences = list(argv_differences(rows))
    known = sum(row["args"] is not None for row in rows)
    print(f"argv: {known - len(differences)} of {known} came back unchanged")
    print("\n".join(f"  {difference}" for difference in differences))
    found, disagreed = scores(rows, Planner(Models(Path.cwd())))
    total: Counter[str] = Counter()
    print(f"{'rule':30} precision  recall  both  only ours  only theirs")
    for rule, count in found.items():
        total.update(count)
        both, ours, theirs = count["both"], count["ours"], count["theirs"]
        print(f"{rule:30} {_share(both, ours)}  {_share(both, theirs)}  {both:4}  {ours:9}  {theirs:11}")
    both, ours, theirs = total["both"], total["ours"], total["theirs"]
    print(f"{'all':30} {_share(both, ours)}  {_share(both, theirs)}  {both:4}  {ours:9}  {theirs:11}")
    print("\n".join(sorted(disagreed)))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
