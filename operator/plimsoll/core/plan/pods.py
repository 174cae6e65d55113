"""What a chosen candidate's pods need: time to start, time to end, a part of their host."""

from collections.abc import Iterator

from plimsoll.api.units import duration_seconds, quantity_bytes
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.lifecycle.drain import Generation, drain
from plimsoll.core.lifecycle.figures import Drain, Host, Startup
from plimsoll.core.lifecycle.host import GIB, IMAGE_CACHE_BYTES, HostLoad, host
from plimsoll.core.lifecycle.startup import Load, fetches, source_kind, startup
from plimsoll.core.manifests.container import CONTAINER
from plimsoll.core.memory.loaded import adapter_bytes
from plimsoll.core.memory.step import captured_sizes
from plimsoll.core.plan.claims import claim_names, exclusive
from plimsoll.core.plan.fit import Engine
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.result import Range, RefusedError
from plimsoll.core.plan.serving import EngineService
from plimsoll.core.plan.wish import Wish
from plimsoll.core.podtemplate.check import refusals
from plimsoll.core.podtemplate.words import plain
from plimsoll.facts.engine_env import is_outside_arithmetic
from plimsoll.facts.engine_flags import surely_knows

DRAIN_FLAG = "--shutdown-timeout"
_CREDENTIALS = ("api_key", "hf_token")


def check_pods(spec: VLLMServiceSpec, inventory: Inventory) -> None:
    """Refuse pods that the service may not have.

    Raises:
        RefusedError: with everything that is wrong, in the words of the contract.
    """
    for reason, found in refusals(spec, inventory.policy.allow):
        if found:
            raise RefusedError(reason.name, "; ".join(found))


def startup_of(wish: Wish, engine: Engine) -> Startup:
    """How long a pod loads; ``spec.startup.timeout`` replaces the probe's budget."""
    shape, start, model = engine.shape, engine.start, wish.spec.model
    checkpoint = (
        wish.config.weights_bytes or engine.memory.weights_bytes * shape.tensor_parallel * shape.pipeline_parallel
    )
    asked = wish.spec.startup and wish.spec.startup.timeout
    load = Load(
        source=source_kind(model.source, model.id),
        read_bytes=engine.memory.weights_bytes * shape.gpus // shape.nodes,
        ranks=shape.gpus // shape.nodes,
        layers=wish.facts.dims.layers,
        captured_sizes=captured_sizes(start.flags, engine.knobs.sequences, start.options),
        experts=wish.facts.dims.experts > 0,
        eager=start.flags.enforce_eager,
        fetched_bytes=checkpoint if fetches(model.source, model.id) else 0,
        pulled_bytes=checkpoint if model.source and model.source.image else 0,
        bytes_per_second=wish.inventory.policy.bytes_per_second,
    )
    return startup(load, duration_seconds(asked) if asked else None)


def drain_of(wish: Wish, service: EngineService) -> Drain:
    """How a pod ends; the user's own ``--shutdown-timeout`` or ``spec.drain`` where one is given.

    Tokens come as from a full engine: the figures must not move with the number of replicas.
    """
    asked, policy = wish.spec.drain, wish.inventory.policy
    own_flag = wish.overrides.values.get("shutdown_timeout")
    timeout = float(own_flag) if own_flag is not None else None
    if timeout is None and asked and asked.timeout:
        timeout = duration_seconds(asked.timeout)
    delay = duration_seconds(asked.endpoint_delay) if asked and asked.endpoint_delay else policy.endpoint_seconds
    spoken = wish.demand.output_tokens if wish.spec.load and wish.spec.load.output_tokens else None
    first, each = service.alone(max(1, wish.context_tokens - 1)), service.slowest()
    generation = Generation(wish.context_tokens, spoken, _slow(first), _slow(each))
    return drain(
        generation,
        knows_timeout=surely_knows(DRAIN_FLAG, wish.version),
        timeout_seconds=timeout,
        endpoint_seconds=delay,
    )


def _slow(span: Range | None) -> float | None:
    return None if span is None else span.high / 1e3


def host_of(wish: Wish, engine: Engine) -> Host:
    """Memory, cores and shared memory of one pod: what the user's flags move into host memory included."""
    shape, resolved, asked = engine.shape, engine.layout.resolved, wish.overrides
    ranks, shared = shape.gpus // shape.nodes, wish.spec.engine.shared_memory
    engines = max(1, shape.data_parallel // shape.nodes)
    # The second tier is one engine's over all its ranks, on however many nodes.
    tier = asked.gibibytes("kv_offloading_size") * engines / (shape.nodes if shape.data_parallel == 1 else 1)
    offloaded = tier + asked.gibibytes("cpu_offload_gb") * ranks + _adapters_gib(engine) * ranks
    cache = asked.values.get("mm_processor_cache_gb")
    return host(
        HostLoad(
            ranks=ranks,
            engines=engines,
            sequences=resolved.max_num_seqs,
            context_tokens=resolved.max_model_len,
            images=wish.facts.multimodal and not engine.start.options.text_only,
            offloaded_bytes=int(min(offloaded, 1 << 20) * GIB),
            image_cache_bytes=IMAGE_CACHE_BYTES
            if cache is None
            else int(asked.gibibytes("mm_processor_cache_gb") * GIB),
            shared_memory_bytes=quantity_bytes(shared) if shared else None,
            exclusive_volume=bool(exclusive(wish.inventory.claims)),
        )
    )


def _adapters_gib(engine: Engine) -> float:
    """LoRA adapters are kept in host memory too, as many as there are slots (``--max-cpu-loras``)."""
    return adapter_bytes(engine.start.facts, engine.start.options, engine.start.flags) / GIB


def about_pods(wish: Wish, end: Drain) -> Iterator[str]:
    """What the plan says about its pods beside the figures."""
    if not surely_knows(DRAIN_FLAG, wish.version):
        yield (
            f"drain: vLLM {wish.version} has no {DRAIN_FLAG}: an ending pod goes on to serve for "
            f"{end.pre_stop_seconds} s, busy or not, and then aborts"
        )
    unread = [name for name in claim_names(wish.spec) if name not in wish.inventory.claims]
    if unread:
        yield f"claims: {', '.join(unread)} could not be looked at: taken to be shareable between nodes"
    written = [f"--{name.replace('_', '-')}" for name in _CREDENTIALS if name in wish.overrides.values]
    if written:
        yield (
            f"engine.extraArgs: {', '.join(written)} can be read by all who may read the service; better a variable "
            "(VLLM_API_KEY, HF_TOKEN) from a Secret (docs/security.md)"
        )
    yield from _about_variables(wish)


def _about_variables(wish: Wish) -> Iterator[str]:
    """Variables of the engine that no plan can count on."""
    template = wish.spec.pod_template
    containers = plain(template).get("spec", {}).get("containers", ()) if template else ()
    for container in (each for each in containers if each["name"] == CONTAINER):
        odd = [each["name"] for each in container.get("env", ()) if is_outside_arithmetic(each["name"])]
        if odd:
            yield f"variables: {', '.join(odd)} may move memory or speed: the arithmetic does not know how"
        if container.get("envFrom"):
            yield "variables: what envFrom brings is not checked and not counted"
