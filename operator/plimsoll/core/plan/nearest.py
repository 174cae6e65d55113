"""The smallest changes to a request that would make it feasible, each verified by planning it: single ones first, then
pairs when no single one helps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Final

from plimsoll.core.plan.demand import read_demand
from plimsoll.core.plan.extra_args import BadFlagError, read_overrides
from plimsoll.core.plan.fit import Engine, Failed, fit
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Nearest, RefusedError
from plimsoll.core.plan.rope import yarn_problem
from plimsoll.core.plan.search import anything_starts, search
from plimsoll.core.plan.wish import Wish, resolve_wish
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.gpus import GPU

MOST_SHOWN: Final = 6
MOST_PAIRS: Final = 2
MOST_GPUS: Final = 1024
OTHER_GPUS_TRIED: Final = 6
OTHER_CHECKPOINTS_TRIED: Final = 3
FP8_KV: Final = "--kv-cache-dtype=fp8"


@dataclass(frozen=True)
class _Change:
    """A changed request and what was changed; ``engine`` is there when it has been planned already."""

    text: str
    wish: Wish
    engine: Engine | None = None


def nearest_changes(wish: Wish, failed: Sequence[Failed]) -> tuple[Nearest, ...]:
    """Changes that help, smallest first; empty when neither one nor two of them do."""
    singles = tuple(islice(_verified_ones(_singles(wish, failed)), MOST_SHOWN))
    return singles or tuple(islice(_verified_ones(_pairs(wish, failed)), MOST_PAIRS))


def within_the_model(wish: Wish, tokens: int) -> tuple[Nearest, ...]:
    """Ways to serve a context above the model's limit of ``tokens``: a shorter one, or positions stretched."""
    changes = (_with_context(wish, tokens), _with_yarn(wish))
    return tuple(_verified_ones(change for change in changes if change))


def _with_yarn(wish: Wish) -> _Change | None:
    """YaRN, where the model's positions allow it."""
    if wish.spec.model.rope_scaling == "YaRN" or yarn_problem(wish.facts, wish.version):
        return None
    model = wish.spec.model.model_copy(update={"rope_scaling": "YaRN"})
    try:
        changed = resolve_wish(
            wish.spec.model_copy(update={"model": model}), wish.replicas, wish.config, wish.inventory
        )
    except RefusedError:
        return None
    return _Change("model.ropeScaling: None -> YaRN", changed)


def _verified_ones(changes: Iterator[_Change]) -> Iterator[Nearest]:
    return (verified for change in changes if (verified := _verified(change)))


def _verified(change: _Change) -> Nearest | None:
    engine = change.engine or anything_starts(change.wish)
    if engine is None:
        return None
    shape = engine.shape
    return Nearest(change.text, f"{shape.gpus} x {shape.label} a replica, {str(shape).split(' on ')[0]}")


def _singles(wish: Wish, failed: Sequence[Failed]) -> Iterator[_Change]:
    yield from _shorter(wish, failed)
    yield from _fewer_sequences(wish)
    fp8 = _with_fp8(wish)
    if fp8:
        yield fp8
    yield from _without_towers(wish)
    yield from _more_gpus(wish, failed)
    yield from _fewer_replicas(wish, failed)
    yield from _other_gpu(wish)
    yield from _quantised(wish)


def _pairs(wish: Wish, failed: Sequence[Failed]) -> Iterator[_Change]:
    """Two changes at once, only where the second depends on what the first leaves over."""
    fp8 = _with_fp8(wish)
    firsts = [change for change in (fp8, *_next_gpus(wish)) if change]
    for first in firsts:
        after = _failures(first.wish)
        for second in (*_shorter(first.wish, after), *_more_gpus(first.wish, after)):
            yield _Change(f"{first.text} and {second.text}", second.wish, second.engine)
    for size in _needed(failed):
        larger = _with_max_gpus(wish, size)
        for second in _shorter(larger.wish, _failures(larger.wish)):
            yield _Change(f"{larger.text} and {second.text}", second.wish)


def _shorter(wish: Wish, failed: Sequence[Failed]) -> Iterator[_Change]:
    fits = max((each.context_that_fits for each in failed), default=0)
    change = _with_context(wish, fits)
    if change:
        yield change


def _with_context(wish: Wish, tokens: int) -> _Change | None:
    """The request with a shorter context, when the typical request still fits into it."""
    load = wish.spec.load
    typical = (load.prompt_tokens or 0) + (load.output_tokens or 0) if load else 0
    if not max(1, typical) <= tokens < wish.context_tokens or "max_model_len" in wish.overrides.options:
        return None
    spec = wish.spec.model_copy(update={"context_tokens": tokens})
    changed = replace(wish, spec=spec, demand=read_demand(spec, wish.inventory.load))
    return _Change(f"contextTokens: {wish.spec.context_tokens} -> {tokens}", changed)


def _fewer_sequences(wish: Wish) -> Iterator[_Change]:
    """Less than the user's own ``--max-num-seqs``, halved until it helps."""
    given = wish.overrides.options.get("max_num_seqs")
    size = (given or 0) // 2
    while given and size:
        options = {**wish.overrides.options, "max_num_seqs": size}
        changed = replace(wish, overrides=replace(wish.overrides, options=options))
        engine = anything_starts(changed)
        if engine:
            yield _Change(f"engine.extraArgs: --max-num-seqs {given} -> {size}", changed, engine)
            return
        size //= 2


def _with_fp8(wish: Wish) -> _Change | None:
    if "kv_cache_dtype" in wish.overrides.options:
        return None
    args = (*wish.spec.engine.extra_args, FP8_KV)
    try:
        overrides = read_overrides((*wish.features, *args), wish.version, wish.spec.context_tokens)
    except BadFlagError:
        return None
    engine = wish.spec.engine.model_copy(update={"extra_args": args})
    spec = wish.spec.model_copy(update={"engine": engine})
    return _Change(f"engine.extraArgs: + {FP8_KV}", replace(wish, spec=spec, overrides=overrides))


def _without_towers(wish: Wish) -> Iterator[_Change]:
    """Text only, where there are towers to leave out."""
    if wish.facts.multimodal and not wish.spec.model.text_only:
        model = wish.spec.model.model_copy(update={"text_only": True})
        changed = replace(wish, spec=wish.spec.model_copy(update={"model": model}))
        yield _Change("model.textOnly: false -> true", changed)


def _more_gpus(wish: Wish, failed: Sequence[Failed]) -> Iterator[_Change]:
    """The smallest limit that helps."""
    for size in _needed(failed):
        change = _with_max_gpus(wish, size)
        engine = anything_starts(change.wish)
        if engine:
            yield replace(change, engine=engine)
            return


def _needed(failed: Sequence[Failed]) -> list[int]:
    return sorted({each.gpus_needed for each in failed if 0 < each.gpus_needed <= MOST_GPUS})


def _with_max_gpus(wish: Wish, size: int) -> _Change:
    hardware = wish.spec.hardware.model_copy(update={"max_gpus": max(size, wish.spec.hardware.max_gpus)})
    changed = replace(wish, spec=wish.spec.model_copy(update={"hardware": hardware}))
    return _Change(f"maxGPUs: {wish.spec.hardware.max_gpus} -> {size}", changed)


def _fewer_replicas(wish: Wish, failed: Sequence[Failed]) -> Iterator[_Change]:
    """A lower floor, when a shape serves and only their number is too high."""
    for each in failed:
        most = wish.most_replicas(each.shape)
        if each.gpus_needed and 1 <= most < wish.replicas:
            changed = _with_floor(wish, most)
            engine = fit(changed, each.shape)
            if isinstance(engine, Engine):
                yield _Change(f"scaling.minReplicas: {wish.replicas} -> {most}", changed, engine)
                return


def _with_floor(wish: Wish, replicas: int) -> Wish:
    scaling = wish.spec.scaling.model_copy(update={"min_replicas": replicas})
    return replace(wish, replicas=replicas, spec=wish.spec.model_copy(update={"scaling": scaling}))


def _other_gpu(wish: Wish) -> Iterator[_Change]:
    """The smallest other product that helps under the same limits."""
    for change in _next_gpus(wish):
        engine = anything_starts(change.wish)
        if engine:
            yield replace(change, engine=engine)
            return


def _next_gpus(wish: Wish) -> list[_Change]:
    """Larger products than those asked for, smallest first, one of each size."""
    asked = max(gpu.torch_total_bytes for gpu, _ in wish.products)
    here = (wish.inventory.seen(gpu, gpu.label) for gpu in _servers() if not wish.inventory.of(gpu.label).mixed)
    larger = [gpu for gpu in here if gpu.torch_total_bytes > asked * 1.05]
    before = " or ".join(label for _, label in wish.products[:3])
    return [
        _Change(f"hardware.gpu: {before} -> {gpu.label}", replace(wish, products=((gpu, gpu.label),)))
        for gpu in larger[:OTHER_GPUS_TRIED]
    ]


@cache
def _servers() -> tuple[GPU, ...]:
    """Server parts with CUDA, by memory; of one size the first named."""
    known = [gpu for name in gpus.names() if (gpu := gpus.find(name)) and gpu.at_least(8, 0) and gpu.gpus_per_node]
    by_size: dict[int, GPU] = {}
    for gpu in known:
        by_size.setdefault(gpu.torch_total_bytes >> 30, gpu)
    return tuple(by_size[size] for size in sorted(by_size))


def _quantised(wish: Wish) -> Iterator[_Change]:
    """A bundled checkpoint of the same model with smaller weights."""
    if wish.facts.quantisation.method is not None:
        return
    for name in _relatives(wish.spec.model.id)[:OTHER_CHECKPOINTS_TRIED]:
        change = _with_model(wish, name)
        engine = anything_starts(change.wish) if change and change.wish.facts.quantisation.method else None
        if change and engine:
            yield replace(change, engine=engine)
            return


def _relatives(model_id: str) -> list[str]:
    """Bundled names that continue this model's name."""
    stem = model_id.rsplit("/", 1)[-1].lower()
    names = (name for name in catalogue.names() if "(" not in name)
    return [name for name in names if name.rsplit("/", 1)[-1].lower().startswith(f"{stem}-")]


def _with_model(wish: Wish, name: str) -> _Change | None:
    model = wish.spec.model.model_copy(update={"id": name, "config_ref": None})
    spec = wish.spec.model_copy(update={"model": model})
    try:
        changed = resolve_wish(spec, wish.replicas, bundled_config(name), wish.inventory)
    except RefusedError:
        return None
    return _Change(f"model.id: {wish.spec.model.id} -> {name}", changed)


def _failures(wish: Wish) -> list[Failed]:
    """What fails of a changed request, to learn from it."""
    return list(search(wish).failed)
