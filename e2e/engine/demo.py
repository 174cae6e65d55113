"""`make demo ENGINE=real`: the demo's story with real engines, two tiny models as pods of a lab."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from e2e.engine import install, models
from e2e.engine.pods import Story, real_lab
from e2e.engine.preloaded import preloaded

NAMESPACE: Final = "plimsoll-demo"


def main() -> int:
    """Exit code 0 when all was shown, 1 where there is no real engine."""
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - began:5.1f} s] {text}\n")
        sys.stdout.flush()

    try:
        engine = install.ensure(tell)
    except install.NoEngineError as error:
        tell(f"there is no real engine here: {error}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "models")
        models.write(written)
        tell("importing vLLM once, for all the servers to come")
        with preloaded(engine, written, Path(folder)) as vllm, real_lab(engine, vllm, tell) as lab:
            lab.plane.kubectl("create", "namespace", NAMESPACE)
            story = Story(lab, NAMESPACE, written / "llama", tell)
            for chapter in (story.begins, story.answers, story.is_pressed, story.is_rolled):
                chapter()
    tell("done, and nothing is left of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
