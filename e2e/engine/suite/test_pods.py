"""Two real engines as pods of a real control plane: they serve, are pressed, are joined by a third, are rolled."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.engine.install import Engine
from e2e.engine.pods import Story, real_lab

pytestmark = pytest.mark.timeout(900)


def test_real_engines_are_pods(engine: Engine, vllm: Sequence[str], tiny_models: Path) -> None:
    with real_lab(engine, vllm) as lab:
        lab.plane.kubectl("create", "namespace", "engines")
        story = Story(lab, "engines", tiny_models / "llama", print)
        story.begins()
        story.answers()
        story.is_pressed()
        story.is_rolled()
