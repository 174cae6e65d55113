"""Reasons about the number of replicas: what limits it, and who else sets it."""

from typing import Final

from plimsoll.api.names import CONTESTED, SCALING_LIMITED, STALLED
from plimsoll.api.reason import Reason, table

MAX_REPLICAS: Final = Reason(
    "MaxReplicas",
    (SCALING_LIMITED,),
    "Demand asks for more replicas than scaling.maxReplicas.",
    "Raise spec.scaling.maxReplicas if the latency matters more than the GPUs; nothing restarts.",
)
GPU_BUDGET: Final = Reason(
    "GPUBudget",
    (SCALING_LIMITED, STALLED),
    "Demand asks for more GPUs than the budget that several services share leaves to this one.",
    "Ask the operator's owner to raise sharedGPUs of the product, or the priority of this service (docs/inventory.md).",
)
NO_ROOM: Final = Reason(
    "NoRoom",
    (SCALING_LIMITED,),
    "Replicas that demand asks for wait for a node with free GPUs.",
    "Free GPUs or add nodes; the pods start by themselves. `kubectl describe` a pending pod names what is missing.",
)
UNKNOWN_ACTIVATION: Final = Reason(
    "UnknownActivation",
    (STALLED,),
    "scaling.activation.query names a query that the operator does not have: the last replica stays.",
    "Use one of the names in the message, ask the operator's owner to add it (docs/scaling.md), or set minReplicas 1.",
)
OTHER_AUTOSCALER: Final = Reason(
    "OtherAutoscaler",
    (CONTESTED,),
    "A HorizontalPodAutoscaler (or a KEDA ScaledObject) sets the replicas of the service's Deployment: Plimsoll leaves "
    "them to it.",
    "Delete that autoscaler to let Plimsoll scale, or point it at the VLLMService with scaling.mode External: then "
    "hardware.maxGPUs counts and roll-outs and scaling do not meet.",
)
REASONS: Final = table(globals())
