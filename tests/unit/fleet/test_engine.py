"""The simulated engine in real time: blocks are held and freed, a full pool preempts, every token is counted."""

import asyncio
from collections import Counter
from contextlib import aclosing

from e2e.fleet import gpus, layouts, vllm_args
from e2e.fleet.engine import SimulatedEngine, Speed
from e2e.fleet.layouts import Layout
from e2e.fleet.pool import Pool

FAST = Speed(prefill_tokens_per_second=1e6, step_seconds=1e-3, step_seconds_per_request=0)


class Recorder:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.observed: Counter[str] = Counter()

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self.counts[name + "".join(labels.values())] += int(amount)

    def observe(self, name: str, value: float) -> None:
        assert value >= 0
        self.observed[name] += 1


def engine(blocks: int, recorder: Recorder, *, seqs: int = 256) -> SimulatedEngine:
    """An engine over ``blocks`` usable blocks of 16 tokens."""
    layout = layouts.find(vllm_args.parse(["Qwen/Qwen3-8B"]), gpus.find("NVIDIA-H100-80GB-HBM3"))
    assert isinstance(layout, Layout)
    return SimulatedEngine(Pool(layout, 40_960, seqs, 8192, (blocks + 1) * layout.bytes_per_block), recorder, FAST)


async def ask(target: SimulatedEngine, prompt: int, output: int) -> tuple[int, str]:
    produced, reason = 0, ""
    async with aclosing(target.generate(prompt, output)) as tokens:
        async for token in tokens:
            produced, reason = (produced + 1, reason) if token is None else (produced, token)
    return produced, reason


async def test_an_answer_has_the_tokens_asked_for() -> None:
    recorder = Recorder()
    target = engine(100, recorder)
    assert await ask(target, 40, 7) == (7, "length")
    assert recorder.counts["generation_tokens"] == 7
    assert recorder.counts["prompt_tokens"] == 40
    assert recorder.counts["request_successlength"] == 1
    assert recorder.observed["time_to_first_token_seconds"] == 1
    assert recorder.observed["inter_token_latency_seconds"] == 6
    assert target.usage == 0
    await target.close()


async def test_a_full_pool_preempts_and_everybody_is_served() -> None:
    recorder = Recorder()
    target = engine(20, recorder)
    answers = await asyncio.gather(*(ask(target, 60, 100) for _ in range(6)))
    assert answers == [(100, "length")] * 6
    assert recorder.counts["num_preemptions"] > 0
    assert target.usage == 0
    await target.close()


async def test_no_more_run_than_the_cap_and_the_pool_allow() -> None:
    target = engine(20, Recorder(), seqs=2)

    async def watched() -> list[tuple[int, float]]:
        async with aclosing(target.generate(16, 30)) as tokens:
            return [(target.running, target.usage) async for _ in tokens]

    seen = [moment for moments in await asyncio.gather(*(watched() for _ in range(5))) for moment in moments]
    assert max(running for running, _ in seen) == 2
    assert all(usage <= 1 for _, usage in seen)
    await target.close()


async def test_a_client_that_leaves_frees_its_blocks() -> None:
    recorder = Recorder()
    target = engine(50, recorder)
    tokens = target.generate(100, 1000)
    assert await anext(tokens) is None
    assert 7 / 50 <= target.usage < 1
    await tokens.aclose()
    await ask(target, 10, 1)  # the client's request ends with the step under way
    assert (target.running, target.usage) == (0, 0)
    assert recorder.counts["request_successabort"] == 1
    await target.close()


async def test_abort_ends_every_stream() -> None:
    recorder = Recorder()
    target = engine(50, recorder)
    first_tokens = [target.generate(10, 100_000) for _ in range(3)]
    assert [await anext(tokens) for tokens in first_tokens] == [None] * 3
    target.abort_all()
    assert [[token async for token in tokens][-1] for tokens in first_tokens] == ["abort"] * 3
    assert recorder.counts["request_successabort"] == 3
    await target.close()
