"""The engine of a plan, read back from the plan's own argv: what is drawn or simulated is what will run."""

from dataclasses import dataclass

from plimsoll.core.kv import EngineOptions, KVLayout, plan_layout
from plimsoll.core.kv import Refusal as EngineRefusal
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.plan.asked import draft_facts, facts_of
from plimsoll.core.plan.extra_args import BadFlagError, Overrides, argv_flags
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.result import Plan, RefusedError
from plimsoll.core.serve_flags import read_serve_flags
from plimsoll.core.speculation import read_speculation
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts


@dataclass(frozen=True)
class PlannedEngine:
    """One engine of a plan: its model, its options, its cache layout and the flags of its memory."""

    facts: ModelFacts
    options: EngineOptions
    layout: KVLayout
    flags: MemoryFlags


def planned_engine(plan: Plan, config: ModelConfig) -> PlannedEngine | None:
    """None when the argv cannot be read back, or its layout is not the one that the plan was made with."""
    gpu = gpus.find(plan.choice.gpu)
    if gpu is None:
        return None
    try:
        version = EngineVersion.parse(plan.choice.engine_version)
        read = read_serve_flags(argv_flags(plan.choice.args, version), version)
        facts = facts_of(config, Overrides(hf_overrides=read.hf_overrides))
        drafting = read_speculation(read.speculative, lambda name: draft_facts(name, config.draft))
        options = EngineOptions(device=gpu, version=version, speculation=drafting.speculation, **read.options)
        layout = plan_layout(facts, options)
    except (EngineRefusal, BadFlagError, RefusedError, ValueError):
        return None
    if layout.bytes_per_block != plan.kv.bytes_per_block:
        return None
    return PlannedEngine(facts, options, layout, MemoryFlags(**read.memory))
