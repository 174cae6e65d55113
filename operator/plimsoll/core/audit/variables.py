"""Variables of the engine: those that nothing reads any more, and own ones under vLLM's name."""

from collections.abc import Iterator
from typing import Final

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.audit.rule import Group, Hit, Severity, rule
from plimsoll.core.workloads.server import Server
from plimsoll.facts import engine_flags, past_flags
from plimsoll.facts.engine_env import REFUSED


@rule(
    "removed-variable",
    Group.UPGRADE,
    Severity.WARNING,
    title="A variable that recent vLLM no longer reads",
    why="VLLM_USE_V1 went with the V0 engine; VLLM_ATTENTION_BACKEND was deprecated in 0.13 and is silently ignored "
    "after "
    "0.14: the engine then runs with another backend than the manifest says.",
    fix="Remove it; the backend is --attention-backend now.",
)
def removed_variable(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Silently ignored."""
    for name, instead in (("VLLM_USE_V1", ""), ("VLLM_ATTENTION_BACKEND", " (use --attention-backend)")):
        variable = server.variables.get(name)
        if variable is not None or name in (server.launch.variables or {}):
            path = server.field(variable.place) if variable else server.candidate.path
            yield Hit(f"env removed in recent vLLM: {name}{instead}", path)


@rule(
    "deprecated-variable",
    Group.UPGRADE,
    Severity.NOTE,
    title="A deprecated variable of the model hub's library",
    why="TRANSFORMERS_CACHE is deprecated since transformers 4 and gone in 5: weights are then fetched to another "
    "folder.",
    fix="Set HF_HOME.",
)
def deprecated_variable(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """Read no longer, or soon."""
    for name in ("TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE"):
        if name in server.variables:
            yield Hit(f"deprecated {name}: HF_HOME is read instead", server.field(server.variables[name].place))


@rule(
    "own-vllm-variables",
    Group.UPGRADE,
    Severity.NOTE,
    title="VLLM_* names that vLLM does not know",
    why="Since 0.20 vLLM warns of unknown VLLM_* variables at every start, and a later release may give one of them "
    "a meaning.",
    fix="Name variables of your own differently.",
)
def own_vllm_variables(server: Server, evidence: Evidence) -> Iterator[Hit]:
    """A manifest's own settings in vLLM's name space: a flag's name as a variable."""
    own = [name for name in server.variables if name.startswith("VLLM_") and _is_a_flag(name)]
    if own:
        shown = ", ".join(own[:4]) + (" …" if len(own) > 4 else "")  # noqa: PLR2004
        yield Hit(
            f"VLLM_* names of its own that vLLM does not know: {shown}", server.field(server.variables[own[0]].place)
        )


_REAL: Final = frozenset(
    {
        *REFUSED,
        "VLLM_PORT",
        "VLLM_API_KEY",
        "VLLM_PLUGINS",
        "VLLM_HOST_IP",
        "VLLM_LOGGING_LEVEL",
        "VLLM_ALL2ALL_BACKEND",
    }
)
"""Names that vLLM reads, or once read."""


def _is_a_flag(name: str) -> bool:
    rest = name.removeprefix("VLLM_").lower()
    return name not in _REAL and (
        engine_flags.find(rest) is not None or past_flags.find(rest) is not None or rest in {"model", "image"}
    )
