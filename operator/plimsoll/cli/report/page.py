"""The HTML report: one file with everything in it, for whoever signs for the GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.planning import Planned
from plimsoll.cli.report.bars import colour_of, latency_ranges, memory_bar
from plimsoll.cli.report.figures import capacity_of, gpu_memory_bytes, latencies
from plimsoll.cli.report.plots import capacity_plot, fleet_plot
from plimsoll.core.plan.result import Plan
from plimsoll.core.plan.words import SURENESS, Section, headline, sections
from plimsoll.core.quantity import gib

_STYLE: Final = Path(__file__).with_name("report.css")
_IN_PICTURES: Final = "Memory of the fullest GPU"


def report(planned: Sequence[Planned]) -> str:
    """The whole page."""
    title = f"Plan of {_count(len(planned))}"
    body = "".join(_service(each, f"s{at}") for at, each in enumerate(planned))
    return whole(title, "plimsoll plan --html", _STRIPES, _overview(planned), body, _LEGEND)


def whole(title: str, generator: str, defs: str, overview: str, body: str, footer: str) -> str:
    """A page that needs nothing beside itself; all but ``title`` and ``footer`` is markup."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta name="generator" content="{escape(generator)}">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body>{defs}<header><h1>{escape(title)}</h1>{overview}</header>"
        f"<main>{body}</main><footer>{escape(footer)}</footer></body></html>\n"
    )


_STRIPES: Final = (
    '<svg class="defs" aria-hidden="true"><defs>'
    '<pattern id="fitted" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1" height="7" class="stripe"/></pattern>'
    '<pattern id="assumed" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.6" height="4" class="stripe"/></pattern></defs></svg>'
)
_LEGEND: Final = (
    "Solid: arithmetic. Striped: fitted to measurements or a cautious guess, as the table says. What a plan promises "
    "holds at the low end of every range. Made by plimsoll plan --html; the same figures: plimsoll plan -o json."
)


def _count(number: int) -> str:
    return "1 service" if number == 1 else f"{number:,} services"


def _overview(planned: Sequence[Planned]) -> str:
    rows = "".join(
        f'<tr><td><a href="#s{at}">{escape(each.full_name)}</a></td><td>{escape(_verdict(each))}</td></tr>'
        for at, each in enumerate(planned)
    )
    plans = [each.outcome for each in planned if isinstance(each.outcome, Plan)]
    total = sum(plan.choice.replicas * plan.choice.gpus_per_replica for plan in plans)
    refused = len(planned) - len(plans)
    tail = f", {refused} not feasible" if refused else ""
    return f'<p class="total">{total:,} GPUs in all{tail}</p><div class="wide"><table>{rows}</table></div>'


def _verdict(planned: Planned) -> str:
    result = planned.result()
    return headline(result) if result["feasible"] else f"not feasible: {result['reason']}"


def _service(planned: Planned, key: str) -> str:
    result = planned.result()
    head = f'<h2 id="{key}">{escape(planned.full_name)}</h2><p class="model">{escape(planned.spec.model.id)}</p>'
    if not isinstance(planned.outcome, Plan):
        said = f'<p class="verdict no">Not feasible: {escape(result["reason"])}</p><p>{escape(result["message"])}</p>'
        return f"<section>{head}{said}{_sections(result)}</section>"
    verdict = f'<p class="verdict">{escape(headline(result))}</p>'
    pictures = "".join(f"<figure>{picture}</figure>" for picture in _pictures(planned, planned.outcome, key))
    return f'<section>{head}{verdict}<div class="pictures">{pictures}</div>{_sections(result)}</section>'


def _pictures(planned: Planned, plan: Plan, key: str) -> Iterator[str]:
    bar = memory_bar(plan.memory, plan.available_kv_bytes, gpu_memory_bytes(plan), f"{key}-memory")
    yield f"<h3>Memory of the fullest GPU</h3>{bar}{_memory_table(plan)}"
    yield from _capacity_pictures(planned, plan, key)
    known = latencies(plan, planned.spec.slo)
    if known:
        yield f"<h3>Expected latency</h3>{latency_ranges(known, f'{key}-latency')}{_slo_note(plan)}"
    else:
        yield "<h3>Expected latency</h3><p>Not known for this load, model or GPU.</p>"


def _capacity_pictures(planned: Planned, plan: Plan, key: str) -> Iterator[str]:
    found = capacity_of(planned, plan)
    if found is None:
        return
    plot = capacity_plot(found.curve, found.sequence_cap, found.marks, f"{key}-capacity")
    yield f"<h3>Capacity against context</h3>{plot}"
    total = plan.choice.replicas * plan.choice.gpus_per_replica
    most = planned.spec.hardware.max_gpus
    fleet = fleet_plot(found.fleet, found.load_requests, total, most, f"{key}-fleet")
    tokens = f"{found.fleet.request_tokens:,}"
    note = f"Requests of {tokens} tokens, by memory and --max-num-seqs alone; latency may ask for more."
    yield f"<h3>GPUs against load</h3>{fleet}<figcaption>{note}</figcaption>"


def _slo_note(plan: Plan) -> str:
    words = {"yes": "SLO met at the cautious end", "no": "SLO not met: this is the best effort"}
    return f"<figcaption>{words.get(plan.slo_met, 'Whether the SLO is met is not known')}</figcaption>"


def _memory_table(plan: Plan) -> str:
    rows = [
        (
            f"{colour_of(at)} {item.basis}",
            item.item.replace("_", " "),
            gib(item.bytes),
            SURENESS[item.basis],
            item.source,
        )
        for at, item in enumerate(plan.memory)
    ]
    left = plan.available_kv_bytes
    rows.append(("kv", "KV cache, at least", gib(left.low), "", f"likely {gib(left.mid)}, at most {gib(left.high)}"))
    cells = "".join(
        f'<tr><td><i class="swatch {css}"></i>{escape(name)}</td><td class="figure">{size}</td>'
        f"<td>{escape(sure)}<small>{escape(source)}</small></td></tr>"
        for css, name, size, sure, source in rows
    )
    return f"<table>{cells}</table>"


def _sections(result: Mapping[str, Any]) -> str:
    shown = (s for s in sections(result, result["model"]) if s.title != _IN_PICTURES)
    return "".join(map(_section, shown))


def _section(section: Section) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in section.rows)
    return f"<h3>{escape(section.title)}</h3><div class='wide'><table>{rows}</table></div>"
