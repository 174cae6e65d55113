"""What a pod template may not hold, and what is said about it: field, value, what is allowed, who can change it.

Two kinds of refusal. What belongs to Plimsoll (labels of selectors, probes, arguments, the GPUs) nobody can give away:
the message names the field of the spec that decides. What the operator's owner has not allowed (``PodPolicy.allow``),
the owner can. Checks are small and independent; all of them run, so that one answer names everything.
"""
