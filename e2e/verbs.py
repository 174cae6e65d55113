"""`python -m e2e.verbs FOLDER`: what the whole e2e run used of the operator's rights, against what the chart grants.

The last step of `make test`. Granted and never used fails, so that no right outlives its reason; used and not granted
fails too, although the operator copes, since a user's cluster would refuse the same.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from e2e.controlplane import audit
from e2e.controlplane.audit import Use
from e2e.operator_process import MANIFEST

RULES: Final = "charts/plimsoll/templates/_rules.tpl"

_PLUG_IN: Final = "asked for inside the server by OwnerReferencesPermissionEnforcement, which e2e switches on"
NOT_SEEN: Final[Mapping[Use, str]] = {
    Use("plimsoll", "plimsoll.dev/vllmservices/finalizers", "update"): _PLUG_IN,
    Use("plimsoll", "monitoring.coreos.com/podmonitors", "delete"): _PLUG_IN,
}
"""Rights that no request of an e2e run shows, each with the reason why it is granted all the same."""

BY_CHANCE: Final[Mapping[Use, str]] = {
    Use(
        "plimsoll", "plimsoll.dev/vllmservices", "get"
    ): "after a status write that came too late, which no test can order",
}
"""Rights that a run may use or not."""


def granted(manifest: Path = MANIFEST) -> set[Use]:
    """Every verb of every rule of the operator's roles. Namespaced mode grants the same rules, in Roles."""
    documents = yaml.safe_load_all(manifest.read_text())
    return {
        Use(document["metadata"]["name"], "/".join(part for part in (group, resource) if part), verb)
        for document in documents
        for rule in document.get("rules") or ()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def differences(rights: set[Use], used: set[Use], excused: Mapping[Use, str] = NOT_SEEN) -> Iterator[str]:
    """What is wrong, a line each."""
    for use in sorted(rights - used - set(excused) - set(BY_CHANCE)):
        yield f"{RULES}: role {use.role}: {use.verb} on {use.resource} is granted and no e2e test used it"
    for use in sorted(set(excused) & used):
        yield f"e2e/verbs.py: {use.verb} on {use.resource} is used by now; take it off NOT_SEEN"
    for use in sorted(set(excused) - rights):
        yield f"e2e/verbs.py: {use.verb} on {use.resource} is no longer granted; take it off NOT_SEEN"
    known = {(use.resource, use.verb) for use in rights}
    for use in sorted(used):
        if not use.role and (use.resource, use.verb) not in known:
            yield f"{RULES}: {use.verb} on {use.resource} was refused to the operator: grant it, or do not ask"


def main(folder: Path) -> int:
    """Exit code 1 when the two differ."""
    used, rights = audit.summaries(folder), granted()
    if not used:
        print("no control plane left a summary: was the operator run at all?", file=sys.stderr)
        return 1
    wrong = list(differences(rights, used))
    print("\n".join(wrong) or f"the operator's rights: {len(rights)} verbs granted, all of them used", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
