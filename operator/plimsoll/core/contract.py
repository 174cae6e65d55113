"""Whether the CRD that a cluster serves knows every field this operator reads or writes. Pure.

A field that the API server does not know it drops without a word: a status that never says what was written, a spec
whose half is missing. An operator newer than its CRD does not start acting.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

SHOWN: Final = 5


def missing_fields(served: Mapping[str, Any], needed: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of ``needed`` (a structural schema) that ``served`` (one as OpenAPI publishes it) does not have."""
    return tuple(_missing(served, needed, ""))


def _missing(served: Mapping[str, Any], needed: Mapping[str, Any], at: str) -> Iterator[str]:
    if served.get("x-kubernetes-preserve-unknown-fields"):
        return
    known: Mapping[str, Any] = served.get("properties") or {}
    for name, schema in (needed.get("properties") or {}).items():
        path = f"{at}.{name}" if at else name
        if name not in known:
            yield path
        else:
            yield from _missing(known[name], schema, path)
    if "items" in needed:
        yield from _missing(served.get("items") or {}, needed["items"], f"{at}[]")


def complaint(missing: tuple[str, ...]) -> str:
    """What to tell people, or empty when nothing is missing."""
    if not missing:
        return ""
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return (
        "the VLLMService CRD in this cluster is older than this operator: it does not know "
        f"{', '.join(missing[:SHOWN])}{more}; update it first (plimsoll crd | kubectl apply --server-side "
        "--force-conflicts -f -, or helm upgrade with crds.install)"
    )
