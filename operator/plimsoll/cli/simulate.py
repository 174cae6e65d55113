"""``plimsoll simulate``: replay a trace against a policy, on the simulated fleet."""

import csv
import math
import re
import time
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic.alias_generators import to_camel

from plimsoll.api.units import duration_seconds
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.cli.output import BAD_INPUT, DONE, NO, Output, complain, emit, write_file
from plimsoll.cli.planning import ModelConfigOption, Planned, given_config, plan_files
from plimsoll.cli.report.timeline import timeline_page
from plimsoll.core.plan.result import Plan
from plimsoll.core.scale import Limits
from plimsoll.sim.figures import Figures, Slo
from plimsoll.sim.fleet import FleetSettings, History
from plimsoll.sim.models import EngineModel, engine_model, model_names
from plimsoll.sim.planned import NoEngineError, engine_of
from plimsoll.sim.requests import Request
from plimsoll.sim.router import ROUTERS
from plimsoll.sim.traces import MADE, TraceError, read_trace
from plimsoll.sim.trial import Trial, UnknownPolicyError

OURS: Final = "plimsoll"
DEFAULT_SLO: Final = "ttft=2s+0.25ms/token,tpot=60ms"
MOST_REPLICAS: Final = 64
_TIME: Final = r"(\d+(?:\.\d+)?(?:ms|s|m))"
_SLO: Final = re.compile(rf"ttft={_TIME}(?:\+{_TIME}/token)?,tpot={_TIME}")


class _BadError(ValueError):
    """An option that cannot be used: the message names it, its value and what is allowed."""


def simulate(  # noqa: PLR0917 - a command has as many options as it has
    trace: Annotated[str, typer.Option(help="A trace file (CSV, may be gzipped), or a built-in name.")],
    policy: Annotated[str, typer.Option(help="Who sets the replicas; NAME:KNOB for its one knob, static:N.")] = OURS,
    service: Annotated[Path | None, typer.Option(help="A VLLMService: its plan's engine, limits and SLO.")] = None,
    engine: Annotated[str | None, typer.Option(help="A named engine model instead of a service.")] = None,
    model_config: ModelConfigOption = None,
    router: Annotated[str, typer.Option(help=" | ".join(ROUTERS))] = "least-outstanding",
    cold_start: Annotated[float, typer.Option(min=0, help="Seconds until a new replica serves.")] = 180.0,
    scrape: Annotated[float, typer.Option(min=1, help="Seconds between two scrapes.")] = 15.0,
    slo: Annotated[str | None, typer.Option(help=f"What a request must meet, as in {DEFAULT_SLO}.")] = None,
    start: Annotated[float, typer.Option(min=0, help="Begin of the part of the trace, in seconds.")] = 0.0,
    end: Annotated[float | None, typer.Option(min=0, help="Its end.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 0,
    timeline: Annotated[Path | None, typer.Option(help="Write replicas, KV use and queue a scrape to a CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Draw the same as a page of its own.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Replay a trace: what a policy would have cost, and what users would have seen.

    The policy plimsoll is the very code the operator runs. Others by their own published rules, to compare.

    \b
      plimsoll simulate --service service.yaml --trace burst
      plimsoll simulate --service service.yaml --trace monday.csv.gz --policy hpa-kv:0.5 --cold-start 300
      plimsoll simulate --engine rtx4090-llama-3.1-8b --trace diurnal --policy static:4 -o json
    """
    try:
        model, spec = _engine(service, engine, model_config)
        requests = _trace(trace, seed, start, math.inf if end is None else end)
        wanted = _slo(slo, spec)
        limits = _limits(spec, model)
        settings = FleetSettings(cold_start_seconds=cold_start, scrape_seconds=scrape, seed=seed)
        trial = Trial(requests, model, wanted, limits, settings, _router(router))
        began = time.perf_counter()
        history, found = trial.run(policy)
    except (_BadError, TraceError, NoEngineError) as error:
        complain(str(error))
        raise typer.Exit(BAD_INPUT) from None
    except UnknownPolicyError as error:
        complain(f"--policy: {error}")
        raise typer.Exit(BAD_INPUT) from None
    wall = time.perf_counter() - began
    result = {"policy": policy, "trace": trace, "router": router, **result_of(found), **_speed(len(requests), wall)}
    if timeline is not None:
        write_file("--timeline", timeline, _rows(history))
    if html is not None:
        write_file("--html", html, timeline_page(result, history.timeline))
    if output is Output.TABLE:
        typer.echo(
            "\n".join(
                f"{key:22} {value:,.4g}" if isinstance(value, float) else f"{key:22} {value}"
                for key, value in result.items()
            )
        )
    else:
        emit(result, output)
    raise typer.Exit(DONE)


def result_of(found: Figures) -> dict[str, Any]:
    """The contract's names; a figure that is not known is null."""
    return {to_camel(key): value for key, value in asdict(found).items()}


def _speed(requests: int, wall_seconds: float) -> dict[str, float]:
    return {
        "wallSeconds": round(wall_seconds, 3),
        "requestsPerWallSecond": round(requests / max(wall_seconds, 1e-9), 1),
    }


def _engine(
    service: Path | None, engine: str | None, model_config: Path | None
) -> tuple[EngineModel, VLLMServiceSpec | None]:
    if (service is None) == (engine is None):
        raise _BadError(f"name a --service or an --engine (one of {', '.join(model_names())}): exactly one of the two")
    if engine is not None:
        if engine not in model_names():
            raise _BadError(f"--engine: {engine!r} is not one of {', '.join(model_names())}")
        return engine_model(engine), None
    planned = _one(service, model_config)
    if not isinstance(planned.outcome, Plan):
        complain(f"{planned.full_name}: not feasible ({planned.outcome.reason}): {planned.outcome.message}")
        raise typer.Exit(NO)
    if planned.config is None:
        raise _BadError(f"{service}: nothing is known about {planned.spec.model.id}")
    return engine_of(planned.outcome, planned.config), planned.spec


def _one(service: Path | None, model_config: Path | None) -> Planned:
    batch = plan_files([str(service)], given_config(model_config))
    for bad in batch.bad:
        raise _BadError(bad.message)
    if len(batch.planned) != 1:
        raise _BadError(f"--service: {service}: {len(batch.planned)} VLLMServices, one is needed")
    return batch.planned[0]


def _trace(name: str, seed: int, start: float, end: float) -> list[Request]:
    path = Path(name)
    if name in MADE and not path.exists():
        requests = [request for request in MADE[name](seed) if start <= request.arrival_seconds < end]
        for request in requests:
            request.arrival_seconds -= start
    else:
        if not path.exists():
            raise _BadError(f"--trace: {name} is no file, and no built-in trace ({', '.join(MADE)})")
        requests = read_trace(path, seed, start, end)
    if not requests:
        raise _BadError(f"--trace: {name} has no request between --start {start:g} and --end {end:g}")
    return requests


def _slo(text: str | None, spec: VLLMServiceSpec | None) -> Slo:
    if text is None and spec is not None and spec.slo is not None and spec.slo.ttft and spec.slo.itl:
        return Slo(duration_seconds(spec.slo.ttft), duration_seconds(spec.slo.itl))
    return parse_slo(text or DEFAULT_SLO)


def parse_slo(text: str) -> Slo:
    """``ttft=2s+0.25ms/token,tpot=60ms``; raises ValueError with what is allowed."""
    found = _SLO.fullmatch(text.replace(" ", ""))
    if not found:
        raise _BadError(f"--slo: {text!r} is not like {DEFAULT_SLO}")
    base, slope, tpot = found.groups()
    return Slo(duration_seconds(base), duration_seconds(tpot), duration_seconds(slope) if slope else 0.0)


def _limits(spec: VLLMServiceSpec | None, model: EngineModel) -> Limits:
    if spec is None:
        return Limits(1, MOST_REPLICAS)
    most = spec.hardware.max_gpus // model.gpus
    if spec.scaling.max_replicas is not None:
        most = min(most, spec.scaling.max_replicas)
    return Limits(spec.scaling.min_replicas, max(1, most))


def _router(name: str) -> str:
    if name not in ROUTERS:
        raise _BadError(f"--router: {name!r} is not one of {', '.join(ROUTERS)}")
    return name


def _rows(history: History) -> str:
    text = StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["seconds", "replicas", "ready", "wanted", "kv_use", "running", "waiting"])
    rows.writerows(asdict(moment).values() for moment in history.timeline)
    return text.getvalue()
