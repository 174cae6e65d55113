"""What may be said to limit a service: ``status.observed.bottleneck``, events and the metric ``plimsoll_finding``.

Names never change, since alerts match on them. When each is given stands in ``core/diagnose.py``.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class FindingKind:
    """One word for what limits a service. ``runbook`` says what to do, or that there is nothing to do."""

    name: str
    meaning: str
    runbook: str
    bad: bool = False
    """Users notice it, or will."""

    def __str__(self) -> str:
        return self.name


LOADING: Final = FindingKind("Loading", "Replicas load; none serves yet.", "Wait; status.plan.startup says how long.")
NOTHING_RUNS: Final = FindingKind("NothingRuns", "There is no replica.", "Nothing to do when none is wanted.")
UNKNOWN: Final = FindingKind(
    "Unknown", "Too little is known to say.", "Read the condition MetricsAvailable: it says what is missing and why."
)
STUCK_ENGINE: Final = FindingKind(
    "StuckEngine",
    "An engine has requests and has not made a token for minutes.",
    "Look at the pod's log (`plimsoll check-log`) and its node's GPU; delete the pod when it does not recover.",
    bad=True,
)
ADMISSION_LIMITED: Final = FindingKind(
    "AdmissionLimited",
    "Engines turn requests away before they queue (--max-num-queued-reqs, --max-num-queued-tokens): demand is larger "
    "than the queue shows.",
    "More replicas, or higher limits in spec.engine.extraArgs when waiting is better than an error.",
    bad=True,
)
IMBALANCED: Final = FindingKind(
    "Imbalanced",
    "Few engines are full while the others have room: requests are spread badly.",
    "Not replicas but routing: use a router that knows the load (InferencePool, a gateway with least requests), since "
    "a Service spreads connections, not requests.",
    bad=True,
)
KV_BOUND: Final = FindingKind(
    "KVBound",
    "The KV cache is full, and requests wait for blocks of it or are preempted.",
    "More replicas, or more KV cache a replica: fp8 KV, a larger GPU, a higher GPU memory utilisation.",
    bad=True,
)
SEQUENCE_CAP_BOUND: Final = FindingKind(
    "SequenceCapBound",
    "Requests wait although the KV cache has room: max-num-seqs requests run already.",
    "Raise --max-num-seqs (spec.tuning may do it); more replicas would only spread the same limit.",
    bad=True,
)
COMPUTE_BOUND: Final = FindingKind(
    "ComputeBound",
    "First tokens and tokens are both late while the KV cache has room: the GPU computes too slowly for this traffic.",
    "More replicas, or faster ones (a higher tensor-parallel size, a faster GPU).",
    bad=True,
)
PREFILL_BOUND: Final = FindingKind(
    "PrefillBound",
    "Requests wait for their first token while the KV cache has room: prompts are computed too slowly.",
    "More replicas; for a few very long prompts a service of their own; a higher --max-num-batched-tokens when tokens "
    "have time.",
    bad=True,
)
DECODE_BOUND: Final = FindingKind(
    "DecodeBound",
    "Tokens come too slowly while the KV cache has room: steps take too long.",
    "More replicas, a higher tensor-parallel size, or a lower --max-num-batched-tokens or --max-num-seqs.",
    bad=True,
)
IDLE: Final = FindingKind("Idle", "No request runs or waits.", "Nothing to do; minReplicas: 0 would free the GPUs.")
OVER_PROVISIONED: Final = FindingKind(
    "OverProvisioned",
    "Fewer replicas would carry the traffic.",
    "Nothing to do in mode Auto, which shrinks slowly; else lower minReplicas or spec.replicas.",
)
HEALTHY: Final = FindingKind("Healthy", "Nothing limits the service.", "Nothing to do.")

FINDINGS: Final = {found.name: found for found in tuple(globals().values()) if isinstance(found, FindingKind)}
