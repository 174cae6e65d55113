"""What a model's name tells where no configuration is at hand: its size, and since when vLLM knows its family."""

import re
from typing import Final

_EXPERTS: Final = re.compile(r"(?<![\w.])(\d+)x(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
_BILLIONS: Final = re.compile(r"(?<![\w.])e?(\d+(?:\.\d+)?)\s?b(?![a-z])", re.IGNORECASE)
_MILLIONS: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)m(?![a-z])", re.IGNORECASE)
_TRILLIONS: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)t(?![a-z])", re.IGNORECASE)
# Families whose names carry no size, or another one than that of all weights.
_NAMED: Final = (
    (r"deepseek-?(r1|v3|v3\.\d)(?!.*distill)", 671.0),
    (r"llama-4-maverick", 400.0),
    (r"llama-4-scout", 109.0),
    (r"kimi-k2", 1000.0),
    (r"deepseek-v2(?!-lite)|deepseek-coder-v2-instruct", 236.0),
    (r"glm-4\.[56](?!.*air)", 355.0),
    (r"minimax-m2", 230.0),
    (r"phi-2", 2.7),
    (r"phi-3(\.5)?-mini", 3.8),
    (r"phi-4(?!-mini)", 14.7),
    (r"qwen3-coder-next", 80.0),
    (r"dialogpt-large", 0.8),
    (r"mistral-nemo", 12.2),
    (r"mistral-large", 123.0),
)
_BYTES: Final = (
    (r"awq|gptq|int4|w4a16|4bit|bnb|nvfp4|mxfp4|fp4|q4_|iq4|gpt-oss", 0.6),
    (r"q5_", 0.7),
    (r"q6_", 0.85),
    (r"fp8|int8|w8a8|w8a16|8bit|q8_0|deepseek-?(r1|v3)(?!.*distill)", 1.05),
    (r"q3_|q2_", 0.45),
    (r"fp32|float32", 4.0),
)
"""Bytes a parameter, scales included, of the formats that names tell."""
_QUANTIZED: Final = {
    "awq": 0.6,
    "gptq": 0.6,
    "awq_marlin": 0.6,
    "gptq_marlin": 0.6,
    "bitsandbytes": 0.6,
    "fp8": 1.05,
    "mxfp4": 0.6,
}
_HALF_BYTES: Final = 2.0
BILLION: Final = 1_000_000_000


def billions_of(model: str) -> float | None:
    """Billions of parameters that a name tells; None when it tells none."""
    name = model.rstrip("/").rsplit("/", 1)[-1].replace("_", "-")
    lowered = name.lower()
    named = next((size for pattern, size in _NAMED if re.search(pattern, lowered)), None)
    if named is not None:
        return named
    experts = _EXPERTS.search(name)
    if experts:
        return int(experts[1]) * float(experts[2])
    for pattern, unit in ((_BILLIONS, 1.0), (_TRILLIONS, 1000.0), (_MILLIONS, 0.001)):
        found = [float(each) for each in pattern.findall(name)]
        if found:
            return max(found) * unit
    return None


def weight_bytes_of(model: str, quantization: str | None) -> int | None:
    """Bytes of the weights of a model by its name, and by how the engine is told to load it."""
    billions = billions_of(model)
    if billions is None:
        return None
    lowered = model.lower()
    each = next((size for pattern, size in _BYTES if re.search(pattern, lowered)), None)
    each = each if each is not None else _QUANTIZED.get(quantization or "", _HALF_BYTES)
    return int(billions * each * BILLION)


_FIRST: Final = (
    (r"qwen3\.[5-9]", (0, 14, 0)),
    (r"qwen3-next|qwen3-coder-next", (0, 10, 2)),
    (r"qwen3-vl", (0, 11, 0)),
    (r"qwen3", (0, 8, 4)),
    (r"qwen2\.5-vl", (0, 7, 2)),
    (r"gemma-4", (0, 18, 0)),
    (r"gemma-3n", (0, 10, 0)),
    (r"gemma-3", (0, 8, 0)),
    (r"gpt-oss", (0, 10, 1)),
    (r"llama-4", (0, 8, 3)),
    (r"deepseek-v4", (0, 20, 0)),
    (r"deepseek-v3\.2", (0, 11, 0)),
    (r"deepseek-(r1|v3)(?!.*distill)", (0, 6, 6)),
    (r"nemotron-3", (0, 12, 0)),
    (r"kimi-k2", (0, 9, 2)),
    (r"glm-4\.[5-9]", (0, 10, 0)),
    (r"glm-5", (0, 16, 0)),
    (r"mistral-small-3\.[1-9]", (0, 8, 0)),
    (r"minimax-m2", (0, 11, 1)),
    (r"granite-4", (0, 10, 2)),
    (r"llama-?3\.[1-3]", (0, 5, 3)),
)
"""First release that knows a family, by the model's name: vLLM's release notes, rounded down where they are vague."""


def first_release_of(model: str) -> tuple[int, int, int] | None:
    """The first release that knows a model's family; None for families that are not listed."""
    name = model.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    return next((release for pattern, release in _FIRST if re.search(pattern, name)), None)
