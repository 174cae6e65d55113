"""Who teaches whom: services of one model, by the images they run."""

import pytest

from plimsoll.control.cache import Key
from plimsoll.control.pools import Pools
from plimsoll.core.pools import Pool

A, B = Key("one", "a"), Key("two", "b")
OFFICIAL = "vllm/vllm-openai:v0.32.0"


def test_services_of_one_model_learn_from_each_other() -> None:
    known = Pools(["vllm/vllm-openai"])
    known.note(A, "m", OFFICIAL, Pool("k", 1000))
    assert known.of("m") == {"k": 1000}
    assert known.of("another") == {}
    known.note(B, "m", OFFICIAL, Pool("k", 1001))
    assert known.of("m") == {"k": 1000}
    known.note(B, "m", OFFICIAL, Pool("k", 1100))
    assert known.of("m") == {}
    known.forget(A)
    assert known.of("m") == {"k": 1100}
    known.note(B, "m", OFFICIAL, None)
    assert known.of("m") == {}


@pytest.mark.parametrize(
    ("image", "teaches"),
    [
        (OFFICIAL, True),
        ("docker.io/vllm/vllm-openai@sha256:0", True),
        ("registry:5000/mirror/vllm-openai:v1", True),
        ("vllm/vllm-openai-rocm:v0.32.0", False),
        ("evil/vllm/vllm-openai:v0.32.0", False),
    ],
)
def test_only_images_on_the_list_teach(image: str, teaches: bool) -> None:
    known = Pools(["vllm/vllm-openai", "registry:5000/mirror/vllm-openai"])
    known.note(A, "m", image, Pool("k", 1000))
    assert bool(known.of("m")) is teaches
