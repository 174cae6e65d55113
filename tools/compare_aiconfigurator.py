"""The same question to Plimsoll's planner and to NVIDIA's AIConfigurator: both answers, and how long each took.

Only on request: `pip install 'plimsoll-operator[slo]'` (about 850 MB), then `python tools/compare_aiconfigurator.py`.
Neither `make bench` nor `make test` runs it. AIConfigurator gets the very `config.json` the planner reads, so it needs
no hub. It plans a vLLM of its own database (0.24) and knows no context to be served: only the typical load.
"""

import argparse
import contextlib
import io
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plimsoll.api.parse import parse_service
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan

SYSTEMS: Final[Mapping[str, str]] = {
    "NVIDIA-A100-SXM4-80GB": "a100_sxm",
    "NVIDIA-B200": "b200_sxm",
    "NVIDIA-H100-80GB-HBM3": "h100_sxm",
    "NVIDIA-H200": "h200_sxm",
    "NVIDIA-L40S": "l40s",
}
"""AIConfigurator's name of a product."""
MODELS: Final = ("Qwen/Qwen3-32B", "Qwen/Qwen3-8B", "openai/gpt-oss-120b")
NOT_INSTALLED: Final = 3


@dataclass(frozen=True)
class Question:
    """What both are asked."""

    model: str
    gpu: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    ttft_ms: float
    itl_ms: float

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.gpu}: {self.concurrency} requests at once of {self.prompt_tokens} + "
            f"{self.output_tokens} tokens, TTFT {self.ttft_ms:g} ms, ITL {self.itl_ms:g} ms"
        )


def main() -> int:
    """Exit code 3 without AIConfigurator, 2 for a model or GPU that nobody knows."""
    asked = _arguments()
    try:
        with _quiet():
            from aiconfigurator.cli import cli_recommend  # noqa: PLC0415 - only on request
    except ImportError:
        print("AIConfigurator is not installed: pip install 'plimsoll-operator[slo]'", file=sys.stderr)
        return NOT_INSTALLED
    for question in _questions(asked):
        config = bundled_config(question.model)
        if config is None or question.gpu not in SYSTEMS:
            print(f"{question.model} or {question.gpu} is not known; GPUs: {', '.join(SYSTEMS)}", file=sys.stderr)
            return 2
        print(question)
        print(f"  Plimsoll       {_timed(lambda c=config, q=question: _ours(q, c))}")
        print(f"  AIConfigurator {_timed(lambda c=config, q=question: _theirs(cli_recommend, q, c))}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help=f"default: {', '.join(MODELS)}")
    parser.add_argument("--gpu", action="append", help="default: NVIDIA-H100-80GB-HBM3")
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=3000)
    parser.add_argument("--output", type=int, default=400)
    parser.add_argument("--ttft-ms", type=float, default=2000)
    parser.add_argument("--itl-ms", type=float, default=50)
    return parser.parse_args()


def _questions(asked: argparse.Namespace) -> Iterator[Question]:
    for model in asked.model or MODELS:
        for gpu in asked.gpu or ("NVIDIA-H100-80GB-HBM3",):
            yield Question(model, gpu, asked.concurrency, asked.prompt, asked.output, asked.ttft_ms, asked.itl_ms)


def _timed(answer: Any) -> str:  # noqa: ANN401 - a function without arguments
    start = time.perf_counter()
    said = answer()
    return f"{time.perf_counter() - start:9.3f} s  {said}"


def _ours(question: Question, config: ModelConfig) -> str:
    spec = parse_service(
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "VLLMService",
            "metadata": {"name": "same-question"},
            "spec": {
                "model": {"id": question.model},
                "hardware": {"gpu": question.gpu, "maxGPUs": 64},
                "contextTokens": question.prompt_tokens + question.output_tokens,
                "load": {
                    "concurrency": question.concurrency,
                    "promptTokens": question.prompt_tokens,
                    "outputTokens": question.output_tokens,
                },
                "slo": {"ttft": f"{question.ttft_ms:g}ms", "itl": f"{question.itl_ms:g}ms"},
            },
        }
    ).spec
    found = plan_service(spec, 1, config)
    if not isinstance(found, Plan):
        return f"{found.reason}: {found.message}"
    choice, latency = found.choice, found.latency
    speeds = ", ".join(
        f"{name} {span.mid:.1f} ms (up to {span.high:.1f})"
        for name, span in (("TTFT", latency["ttftMs"]), ("ITL", latency["itlMs"]))
    )
    gpus = choice.replicas * choice.gpus_per_replica
    return f"{gpus} GPUs: {choice.replicas} x TP{choice.tensor_parallel}; {speeds}; SLO met: {found.slo_met}"


def _theirs(recommend: Any, question: Question, config: ModelConfig) -> str:  # noqa: ANN401 - an untyped library
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config.config))
        try:
            with _quiet():
                found = recommend(
                    model_path=folder,
                    system=SYSTEMS[question.gpu],
                    backend="vllm",
                    target_concurrency=question.concurrency,
                    isl=question.prompt_tokens,
                    osl=question.output_tokens,
                    ttft=question.ttft_ms,
                    tpot=question.itl_ms,
                )
        except Exception as error:  # noqa: BLE001 - whatever it cannot answer is its answer
            return f"no answer: {type(error).__name__}: {str(error)[:200]}"
    best = found.best_configs[found.chosen_exp]
    if not len(best):
        return "no configuration meets the targets"
    row = best.iloc[0]
    tensor = f"TP{row['tp']}" if "tp" in row else f"prefill TP{row['(p)tp']}, decode TP{row['(d)tp']}"
    return (
        f"{row['total_gpus_needed']} GPUs: {row['replicas_needed']} x {tensor} ({found.chosen_exp}); "
        f"TTFT {row['ttft']:.1f} ms, ITL {row['tpot']:.1f} ms"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """It prints reports and logs of its own."""
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
    logging.disable(logging.NOTSET)


if __name__ == "__main__":
    sys.exit(main())
