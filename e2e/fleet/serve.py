"""A fake vLLM as a container's only process: ``python -m e2e.fleet.serve MODEL --flags``, the argv that vLLM gets.

What a real engine finds in its container (GPUs, its own version) comes from ``FLEET_*`` variables of the image.
SIGTERM is vLLM's; two more let a test do to the engine what nobody can do from outside: SIGUSR1 ends the engine
process under the API server, SIGUSR2 takes memory until the kernel objects.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from e2e.fleet import gpus, vllm_args
from e2e.fleet.process import Exit, Launch, Log
from e2e.fleet.vllm import FakeVllm, VllmOptions

ADDRESS = "0.0.0.0"
HOG_BYTES = 16 << 20


class _Output(Log):
    """A log whose reader is the container runtime; a following reader would read it from there."""

    def write(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


async def serve(argv: list[str]) -> Exit:
    """Until the engine ends."""
    env = os.environ
    version = env.get("FLEET_VLLM_VERSION", vllm_args.NEWEST)
    launch = Launch(
        image=f"vllm/vllm-openai:v{version}",
        command=(),
        args=tuple(argv),
        env=env,
        address=ADDRESS,
        gpu=gpus.find(env["FLEET_GPU"]) if "FLEET_GPU" in env else None,
        visible_gpus=int(env.get("FLEET_VISIBLE_GPUS", "0")),
        log=_Output(),
    )
    engine = FakeVllm(launch, VllmOptions(float(env.get("FLEET_LOAD_SECONDS", "5"))))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, engine.terminate)
    loop.add_signal_handler(signal.SIGUSR1, engine.crash)
    loop.add_signal_handler(signal.SIGUSR2, _take_memory)
    return await engine.wait()


def _take_memory() -> None:
    taken = []
    while True:
        taken.append(bytearray(os.urandom(1)) * HOG_BYTES)


if __name__ == "__main__":
    ended = asyncio.run(serve(sys.argv[1:]))
    sys.exit(f"{ended.message}" if ended.message else ended.code)
