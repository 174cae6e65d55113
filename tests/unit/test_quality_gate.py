"""The built-in quality gate against two engines that answer over HTTP."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiohttp import web

from plimsoll import gate
from plimsoll.core.answers import prompts


class FakeEngine:
    """Continues every prompt with the same words; ``off`` is how far its log-probabilities are from the truth."""

    def __init__(self, off: float = 0.0, refuse: int = 0, answers: bool = True) -> None:
        self.off, self.refuse, self.answers = off, refuse, answers
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("Authorization", ""))
        return web.json_response({"object": "list", "data": [{"id": "served", "max_model_len": 2048}]})

    async def _complete(self, request: web.Request) -> web.Response:
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=503, text="busy")
        body = await request.json()
        self.asked.append(body)
        word = " yes" if self.answers else f" {len(self.asked)}"
        row = {"tokens": [word, "."], "token_logprobs": [-0.1 - self.off] * 2}
        row |= {"top_logprobs": [{word: -0.1 - self.off, " yes": -0.1 - self.off}] * 2}
        return web.json_response({"choices": [{"text": f"{word}.", "logprobs": row}]})


@contextmanager
def listening(engine: FakeEngine) -> Iterator[str]:
    """In a loop of its own, as an engine is in a process of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def wait(what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, loop).result(10)

    runner = web.AppRunner(engine.application())
    wait(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    wait(site.start())
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        wait(runner.cleanup())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ran(baseline: FakeEngine, candidate: FakeEngine, tmp_path: Path, **env: str) -> tuple[int, str]:
    """Exit code and message of a gate that compares the two."""
    message = tmp_path / "termination-log"
    with listening(baseline) as one, listening(candidate) as other:
        sides = {"PLIMSOLL_BASELINE_URL": one, "PLIMSOLL_CANDIDATE_URL": f"{other}/"}
        code = gate.main({**sides, **env}, message, pause_seconds=0.0)
    return code, message.read_text()


@pytest.mark.parametrize(
    ("candidate", "env", "code"),
    [
        pytest.param(FakeEngine(), {}, gate.PASSED, id="the same"),
        pytest.param(FakeEngine(off=0.02), {}, gate.PASSED, id="near"),
        pytest.param(FakeEngine(off=0.02), {"PLIMSOLL_THRESHOLD": "0.99"}, gate.FAILED, id="near, and asked for more"),
        pytest.param(FakeEngine(off=0.5), {}, gate.FAILED, id="far"),
        pytest.param(FakeEngine(answers=False), {}, gate.FAILED, id="other answers"),
    ],
)
def test_what_it_says(candidate: FakeEngine, env: dict[str, str], code: int, tmp_path: Path) -> None:
    found, message = ran(FakeEngine(), candidate, tmp_path, **env)
    told = json.loads(message)
    assert found == code
    assert (told["score"] >= told["threshold"]) is (code == gate.PASSED)
    assert f"{len(prompts(2048))} prompts" in told["message"]


def test_both_are_asked_the_same_with_the_key(tmp_path: Path) -> None:
    one, other = FakeEngine(), FakeEngine()
    ran(one, other, tmp_path, OPENAI_API_KEY="secret")
    assert one.asked == other.asked
    assert {each["temperature"] for each in one.asked} == {0}
    assert one.keys == other.keys == {"Bearer secret"}


def test_own_prompts_take_the_place_of_ours(tmp_path: Path) -> None:
    own = tmp_path / "prompts"
    own.write_text('Who wrote Faust?\n\n"two\\nlines"\n')
    engine = FakeEngine()
    ran(engine, FakeEngine(), tmp_path, PLIMSOLL_PROMPTS=str(own))
    assert [each["prompt"] for each in engine.asked] == ["Who wrote Faust?", "two\nlines"]


def test_who_is_busy_is_asked_again(tmp_path: Path) -> None:
    assert ran(FakeEngine(), FakeEngine(refuse=3), tmp_path)[0] == gate.PASSED
    code, message = ran(FakeEngine(), FakeEngine(refuse=99), tmp_path)
    assert (code, "HTTP 503: busy" in message) == (gate.NO_RESULT, True)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        pytest.param({}, "must be set", id="no engine"),
        pytest.param({"PLIMSOLL_THRESHOLD": "much"}, "between 0 and 1", id="a word"),
        pytest.param({"PLIMSOLL_THRESHOLD": "nan"}, "between 0 and 1", id="NaN"),
        pytest.param({"PLIMSOLL_PROMPTS": "/nowhere"}, "cannot be read", id="no file"),
    ],
)
def test_without_a_result_it_says_why(env: dict[str, str], why: str, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    urls = {"PLIMSOLL_BASELINE_URL": "http://a", "PLIMSOLL_CANDIDATE_URL": "http://b"} if env else {}
    assert gate.main({**urls, **env}, message) == gate.NO_RESULT
    assert why in message.read_text()
