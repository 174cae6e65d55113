"""``docs/audit-rules.md``: every rule of ``plimsoll audit``, from the rules themselves."""

from collections.abc import Iterator

from plimsoll.core.audit.judge import RULES
from plimsoll.core.audit.rule import Group, Rule

_SEVERITIES = (
    "An **error** will not start or serve as written, a **warning** breaks under load, costs money or opens a door, "
    "a **note** is worth knowing. A rule may be milder or stricter in a case than it is in general: what a pinned "
    "release already refuses is an error, what the next one will refuse a warning."
)


def page(by: str) -> str:
    """The whole page."""
    return "\n".join(_lines(by))


def _lines(by: str) -> Iterator[str]:
    yield f"<!-- {by} -->\n# Rules of `plimsoll audit`\n"
    yield f"{len(RULES)} rules; `plimsoll audit --ignore RULE` leaves one out, a baseline accepts what is there now."
    yield f"How to run it: [audit.md](audit.md).\n\n{_SEVERITIES}\n"
    for group in Group:
        yield f"## {group.value[0].upper()}{group.value[1:]}\n"
        for rule in (each for each in RULES.values() if each.group is group):
            yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f'### <a id="{rule.id}"></a>`{rule.id}`: {rule.title} ({rule.severity.value})\n'
    yield f"{rule.why}\n"
    yield f"**Fix:** {rule.fix}\n"
