"""Plimsoll: the load line for GPUs. Plans, rolls out and watches vLLM fleets on Kubernetes."""
