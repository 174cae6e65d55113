"""The status of a VLLMService: what is planned, what is seen, what was decided and why. Written by the operator only.

Every list and text is bounded, so that one object stays small in etcd. Figures that are only estimated are ranges.
"""

from typing import Annotated, Literal

from pydantic import Field

from plimsoll.api.model import APIModel

Word = Annotated[str, Field(max_length=512)]
Text = Annotated[str, Field(max_length=32_768)]
Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]
MAX_DECISIONS = 10
NOT_OBSERVED = -1
"""``observedGeneration`` of an object that the operator has not looked at yet."""


class Condition(APIModel):
    """One aspect of the service's state, in the form all Kubernetes tools know."""

    type: str = Field(
        description="What this is about, in CamelCase.", pattern=r"^[A-Za-z][A-Za-z0-9]*$", min_length=1, max_length=316
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds. Unknown: it cannot be told.")
    reason: str = Field(
        description="Why, as one word that stays the same for the same cause; docs/reference.md says what to do.",
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        min_length=1,
        max_length=1024,
    )
    message: Text = Field(description="Why, in a sentence with figures.")
    last_transition_time: Time = Field(description="When status last changed.")
    observed_generation: Count | None = Field(default=None, description="The metadata.generation this was written for.")


class Range(APIModel):
    """A quantity that is not known exactly: the truth is meant to lie within in 90 % of cases."""

    low: float = Field(description="Low end; what the plan promises is judged here when less is worse.")
    mid: float = Field(description="Most likely.")
    high: float = Field(description="High end.")


class Choice(APIModel):
    """The configuration that was chosen."""

    gpu: Word = Field(description="GPU product of every replica.")
    replicas: Count = Field(description="Replicas the plan starts with; status.replicas says how many there are.")
    gpus_per_replica: Count = Field(description="GPUs of one replica, over all its nodes.")
    nodes_per_replica: Count = Field(description="Nodes that one replica spans.")
    engines_per_replica: Count = Field(description="Engines in one replica: data-parallel ranks.")
    tensor_parallel: Count = Field(description="--tensor-parallel-size.")
    pipeline_parallel: Count = Field(description="--pipeline-parallel-size.")
    data_parallel: Count = Field(description="--data-parallel-size.")
    decode_context_parallel: Count = Field(description="--decode-context-parallel-size.")
    expert_parallel: bool = Field(description="--enable-expert-parallel.")
    engine_version: Word = Field(description="vLLM version.")
    args: tuple[Annotated[str, Field(max_length=4096)], ...] = Field(
        default=(), description="Arguments of `vllm serve`, after the model.", max_length=256, strict=False
    )


class KVBudget(APIModel):
    """The KV cache of one engine (one data-parallel rank), on its worst GPU."""

    block_size: Count = Field(description="Tokens in a block.")
    bytes_per_block: Count = Field(description="Bytes of a block over all layers, on one GPU.")
    num_blocks: Count = Field(description="Blocks in the pool; one of them never holds a token.")
    tokens: Count = Field(description="Tokens the pool holds, as vLLM prints it at start.")
    bytes_per_token: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Bytes a further token of a long request costs, on one GPU."
    )
    max_concurrency: float = Field(description="Requests of contextTokens that fit at once.", ge=0)
    blocks_per_request_at_load: Count | None = Field(
        default=None, description="Blocks one request of the typical load takes."
    )
    concurrency_at_load: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Requests of the typical load that fit at once."
    )


class Typical(APIModel):
    """What a typical request is to one engine; the autoscaler counts with it."""

    prompt_tokens: Count = Field(description="Tokens of its prompt.")
    blocks: Count = Field(description="Blocks it holds when half of its output is made, shared prefixes left out.")
    prefill_ms_per_token: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Step time that each new token of its prompt takes, in milliseconds."
    )
    decode_step_ms: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="A step of a well filled engine without prompts, in milliseconds."
    )
    output_tokens: Count | None = Field(default=None, description="Tokens of its output.")
    shared_tokens: Count | None = Field(default=None, description="Tokens of its prompt that others share.")
    steps_ms: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        default=None,
        description="Predicted steps of 1, 2, 4, 8 … such requests, without prompts, in milliseconds.",
        max_length=24,
        strict=False,
    )


class MemoryItem(APIModel):
    """What a part of a GPU's memory is for."""

    item: Word = Field(description="What it is: weights, activations, graphs, KV cache, ...")
    bytes: int = Field(description="Bytes on the worst GPU.")
    basis: Literal["exact", "fitted", "assumed"] = Field(
        description="How sure it is. exact: arithmetic. fitted: from measurements. assumed: a cautious guess."
    )
    from_: Text | None = Field(default=None, alias="from", description="Where the figure comes from.")


class Latency(APIModel):
    """Expected latencies at the load of the spec, in milliseconds."""

    ttft_ms: Range | None = Field(default=None, description="Time to first token, milliseconds.")
    itl_ms: Range | None = Field(default=None, description="Inter-token latency, milliseconds.")


class Startup(APIModel):
    """From a container's start to its first request, estimated on the slow side, in seconds."""

    seconds: Count = Field(description="The sum of the parts.")
    fetch_seconds: Count = Field(description="Fetching from the hub; 0 when nothing is.")
    read_seconds: Count = Field(description="Reading the weights into the GPUs.")
    process_seconds: Count = Field(description="Processes, CUDA contexts and communicators.")
    compile_seconds: Count = Field(description="Compilation with a cold cache.")
    capture_seconds: Count = Field(description="CUDA graphs.")
    probe_seconds: Count = Field(description="The start-up probe's budget: then the container is restarted.")
    deadline_seconds: Count = Field(description="With pulls and scheduling: then the roll-out is called too slow.")
    basis: Text = Field(description="Bytes and speeds the estimate rests on.")


class Drain(APIModel):
    """How a pod ends, in seconds."""

    pre_stop_seconds: Count = Field(description="It goes on to take requests until routers have forgotten it.")
    timeout_seconds: Count = Field(description="Requests in flight may go on for so long.")
    grace_seconds: Count = Field(description="Then it is killed: longer than both.")
    basis: Text = Field(description="Where the timeout comes from.")


class Host(APIModel):
    """What a pod requests of its host beside GPUs."""

    memory_bytes: Count = Field(description="Memory, shared memory included.")
    cpu_cores: Count = Field(description="CPU cores.")
    shared_memory_bytes: Count = Field(description="Size of /dev/shm.")
    exclusive_volume: bool | None = Field(
        default=None, description="Whether it mounts a volume that no second pod may mount: then no surge."
    )


class Rejected(APIModel):
    """A candidate that was tried and not chosen."""

    choice: Word = Field(description="The candidate in short.", examples=["TP1 on NVIDIA-L40S"])
    reason: Word = Field(description="Why not, as a condition reason.")
    message: Text = Field(description="Why not, with figures.")


class Nearest(APIModel):
    """A change that would make the service feasible; it has been planned and fits."""

    change: Word = Field(description="The change.", examples=["contextTokens: 262144 -> 180224"])
    message: Text = Field(description="What it would give.")


class Plan(APIModel):
    """The plan in force, or, while none is feasible, why not."""

    revision: Word | None = Field(
        default=None, description="Name of the ControllerRevision that keeps this plan and its pod template."
    )
    choice: Choice | None = Field(default=None, description="The configuration chosen. Absent: none is feasible.")
    kv: KVBudget | None = Field(default=None, description="The KV cache of one engine.")
    step_key: Word | None = Field(default=None, description="What decides how long its steps take, as a hash.")
    step_factor: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Decode steps over those predicted, as was counted with. Absent: as predicted."
    )
    pool_key: Word | None = Field(
        default=None,
        description="What decides the size of that cache, as a hash.",
    )
    memory: tuple[MemoryItem, ...] = Field(
        default=(), description="Where the memory of the worst GPU goes.", max_length=32, strict=False
    )
    available_kv_bytes: Range | None = Field(
        default=None, alias="availableKVBytes", description="Bytes left for the KV cache on the worst GPU."
    )
    typical: Typical | None = Field(default=None, description="What a typical request is to one engine.")
    latency: Latency | None = Field(default=None, description="Expected latencies at the load of the spec.")
    startup: Startup | None = Field(default=None, description="How long a pod takes to start.")
    drain: Drain | None = Field(default=None, description="How a pod ends.")
    host: Host | None = Field(default=None, description="What a pod requests of its host beside GPUs.")
    slo_met: Literal["yes", "no", "unknown"] | None = Field(
        default=None, description="Whether the plan is expected to meet the SLO."
    )
    rejected: tuple[Rejected, ...] = Field(
        default=(), description="Candidates that were tried and not chosen.", max_length=64, strict=False
    )
    nearest: tuple[Nearest, ...] = Field(
        default=(), description="The smallest changes that would make it feasible.", max_length=16, strict=False
    )
    assumptions: tuple[Text, ...] = Field(
        default=(), description="What the plan takes for granted.", max_length=32, strict=False
    )


class ObservedPool(APIModel):
    """What pods of one plan teach about its KV cache."""

    key: Word = Field(description="Model, GPU, parallelism, engine version and memory flags, as a hash.")
    num_blocks: Count = Field(description="Blocks of one engine.")


class ObservedStepTimes(APIModel):
    """What pods of one plan teach about the time of their steps."""

    key: Word = Field(description="Model, GPU, parallelism, engine version and data types, as a hash.")
    factor: Annotated[float, Field(gt=0)] = Field(description="Decode steps over those predicted, in steps of 0.05.")


class Observed(APIModel):
    """What the running fleet shows. Absent figures are unknown, never 0."""

    kv_tokens_per_pod: Count | None = Field(
        default=None, description="Tokens the KV cache of one pod really holds, from the engine."
    )
    demand_tokens: Count | None = Field(
        default=None, description="Tokens of KV cache the traffic needs now, over the whole service."
    )
    kv_use_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Share of the KV cache in use, mean of all engines; follows in steps of 10."
    )
    bottleneck: Word | None = Field(
        default=None, description="What limits the service now; docs/reference.md explains."
    )
    evidence: Text | None = Field(
        default=None, description="Why that is so: values, windows, thresholds, when the bottleneck was last another."
    )
    since: Time | None = Field(default=None, description="When the bottleneck was last another.")
    pool: ObservedPool | None = Field(
        default=None, description="The KV cache that all engines of the running plan report: later plans start from it."
    )
    step_times: ObservedStepTimes | None = Field(
        default=None, description="How long decode steps take where that could be measured: later plans count with it."
    )


class LoadFigure(APIModel):
    """One figure of the load."""

    declared: Annotated[float, Field(ge=0)] | None = Field(default=None, description="What spec.load says.")
    observed: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="The most that a day of the last week has shown; of prefix hits the fewest."
    )
    counts: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="What the next plan and the autoscaler count with. Absent: it is not counted."
    )


class LoadFigures(APIModel):
    """What is declared and what was observed, side by side."""

    concurrency: LoadFigure | None = Field(default=None, description="Requests in flight at once at a busy time.")
    requests_per_second: LoadFigure | None = Field(default=None, description="Requests arriving at a busy time.")
    prompt_tokens: LoadFigure | None = Field(default=None, description="Tokens of a typical prompt.")
    output_tokens: LoadFigure | None = Field(default=None, description="Tokens a typical request generates.")
    prefix_hit_tokens: LoadFigure | None = Field(
        default=None,
        description=(
            "Tokens of a typical prompt that need no computing, beside spec.load.sharedPrefixTokens. Fewer than "
            "declared count for blocks too, more for computing only."
        ),
    )


class LoadDay(APIModel):
    """What one day (UTC) has shown; figures move in steps of a tenth."""

    date: Annotated[str, Field(max_length=10)] = Field(description="Which day.", examples=["2026-11-30"])
    requests: Count = Field(description="Requests that were served, at least.")
    hours: Annotated[int, Field(ge=0, le=24)] = Field(description="Hours it was watched, in steps of 3.")
    concurrency: Count | None = Field(default=None, description="Mean of the busiest five minutes.")
    requests_per_second: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Mean of the busiest five minutes."
    )
    prompt_tokens: Count | None = Field(default=None, description="Mean of all requests.")
    output_tokens: Count | None = Field(default=None, description="Mean of all requests.")
    prefix_hit_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Share of the prompts' tokens that the prefix cache had."
    )


class Load(APIModel):
    """The load as declared and as observed (docs/learning.md)."""

    figures: LoadFigures | None = Field(default=None, description="Declared, observed, and what counts.")
    days: tuple[LoadDay, ...] = Field(
        default=(), description="The last days with at least 100 requests, oldest first.", max_length=8, strict=False
    )


class Decision(APIModel):
    """Something that was decided, or deliberately left alone."""

    time: Time = Field(description="When.")
    kind: Word = Field(description="What about: Scale, Retune, Plan, ...")
    from_: Word | None = Field(default=None, alias="from", description="The value before, as text.")
    to: Word | None = Field(default=None, description="The value after, as text.")
    reason: Word = Field(description="Why, as one word.")
    message: Text = Field(description="Why, in a sentence with figures.")
    inputs: dict[str, Word] = Field(
        default={}, description="The figures it rests on, as they were then.", max_length=16
    )
    alternatives: tuple[Word, ...] = Field(
        default=(), description="What else could have been done, and what spoke against it.", max_length=8, strict=False
    )


class Scaling(APIModel):
    """Why the fleet has the size it has."""

    set_by: Word = Field(description="Who sets the number of replicas.", examples=["Plimsoll", "spec.replicas"])
    recommended_replicas: Count | None = Field(
        default=None, description="Replicas that demand asks for, within the limits. Absent: not known."
    )
    why: Text = Field(description="Why it has this size now.")
    grows_when: Text | None = Field(default=None, description="What would add a replica.")
    shrinks_when: Text | None = Field(default=None, description="What would take one away.")


class Recommendation(APIModel):
    """One engine flag that would help against what limits the service. Nobody turns it but you."""

    setting: Word = Field(description="What it is, as in spec.tuning.allow.", examples=["MaxNumSeqs"])
    flag: Word = Field(description="The flag of vllm serve.", examples=["--max-num-seqs"])
    from_: Word = Field(alias="from", description="Its value now.")
    to: Word = Field(description="The value to try.")
    why: Text = Field(description="The evidence, when it was first seen.")
    expected: Text = Field(description="What planning with it gives, against the plan that runs.")
    risk: Text = Field(description="What may become worse.")
    judged_by: Text | None = Field(default=None, description="By what it is told whether it was right.")
    undo: Text = Field(description="How to go back.")
    patch: Text = Field(description="The change as a JSON merge patch, for kubectl patch or for Git.")


class Experiment(APIModel):
    """One flag that is being tried on a canary. All that the operator needs to go on with it after a crash."""

    phase: Word = Field(
        description=(
            "Draining, Starting, Gating, Warming, Measuring, Returning, Keeping, Watching or Reverting; docs/tuning.md."
        )
    )
    setting: Word = Field(description="What it is, as in spec.tuning.allow.")
    flag: Word = Field(description="The flag of vllm serve.")
    from_: Word = Field(alias="from", description="Its value in the fleet when it began.")
    to: Word = Field(description="Its value in the canary.")
    aim: Word = Field(description="What is to fall: ttft or token.")
    finding: Word = Field(description="What limited the service when it began.")
    why: Word | None = Field(default=None, description="The evidence for that.")
    basis: Word = Field(description="Spec, engine and finding, as a hash: while it is the same no failure is repeated.")
    base: Word = Field(description="The revision that the canary is compared with.")
    started_at: Time = Field(description="When it began.")
    since: Time = Field(description="When the phase began.")
    gate: Word | None = Field(default=None, description="What the quality gate found, once it has passed.")
    verdict: Word | None = Field(default=None, description="Why it was kept, or is taken back.")
    late_before: Word | None = Field(
        default=None, description="yes: a latency target was missed with the old flags already."
    )


class PastExperiment(APIModel):
    """An experiment that is over."""

    time: Time = Field(description="When it ended.")
    flag: Word = Field(description="The flag.")
    from_: Word = Field(alias="from", description="Its value before.")
    to: Word = Field(description="The value that was tried.")
    outcome: Word = Field(description="kept, rolled back, inconclusive, abandoned, rejected or reverted.")
    why: Word = Field(description="Why, with figures.")
    basis: Word = Field(description="As in experiment.basis.")


class Loan(APIModel):
    """Replicas that the fleet does without, for an experiment without spare GPUs."""

    replicas: Count = Field(description="So many are lent.")
    of: Count = Field(description="The count that is to be again.")


class Tuning(APIModel):
    """Experiments: the one that runs, the last ones, what a person has said of them."""

    experiment: Experiment | None = Field(default=None, description="The one that runs; at most one a service.")
    past: tuple[PastExperiment, ...] = Field(
        default=(), description="The last ones, oldest first.", max_length=8, strict=False
    )
    answered: Word | None = Field(
        default=None, description="The value of the annotation plimsoll.dev/experiment that was acted on last."
    )
    lent: Loan | None = Field(default=None, description="What the fleet lends to it; there until they are back.")


class Summary(APIModel):
    """Texts for the columns of `kubectl get`."""

    replicas: Word | None = Field(default=None, description="Ready and wanted replicas.", examples=["2/3"])


class VLLMServiceStatus(APIModel):
    """What the operator plans, sees and decided."""

    observed_generation: Annotated[int, Field(ge=NOT_OBSERVED)] | None = Field(
        default=None, description="The metadata.generation this status was written for; -1 until the first is written."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description=(
            "Ready, Reconciling and Stalled as kstatus defines them, and further aspects; docs/reference.md lists "
            "every type and reason."
        ),
        max_length=32,
        strict=False,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    served_by: Word | None = Field(
        default=None,
        description=(
            "The Lease (namespace/name) of the Plimsoll install that acts on this service. Another install of the same "
            "class leaves it alone."
        ),
        examples=["plimsoll-system/plimsoll"],
    )
    summary: Summary | None = Field(default=None, description="Texts for the columns of `kubectl get`.")
    plan: Plan | None = Field(default=None, description="The plan in force, with its arithmetic.")
    replicas: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="Replicas that exist; the scale subresource shows it."
    )
    ready_replicas: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="Replicas that can serve."
    )
    selector: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Label selector of the main track's pods; the scale subresource shows it to an HPA."
    )
    scaling: Scaling | None = Field(default=None, description="Why the fleet has the size it has.")
    observed: Observed | None = Field(default=None, description="What the running fleet shows.")
    load: Load | None = Field(default=None, description="The load as declared and as observed.")
    recommendation: Recommendation | None = Field(
        default=None, description="What to turn next; absent while no flag would help. spec.tuning.mode Off: never."
    )
    tuning: Tuning | None = Field(default=None, description="Experiments with engine flags.")
    decisions: tuple[Decision, ...] = Field(
        default=(), description="The last decisions, oldest first.", max_length=MAX_DECISIONS, strict=False
    )
