"""``python -m plimsoll.gate``: the built-in quality gate, as a Job's container runs it (docs/tuning.md).

Asks a baseline and a candidate through the OpenAI API and says what came of it, as JSON, in the file that Kubernetes
reads at a container's end. Exit code 0: passed; 1: not passed; 2: there is no result. What is compared, and how:
``core/answers.py``.
"""

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from plimsoll.core.answers import (
    LIKELIEST,
    THRESHOLD,
    Compared,
    Token,
    UnreadableAnswerError,
    compare,
    prompts,
    read_completion,
    score,
)

TOKENS: Final = 16
"""Tokens of each continuation."""
TRIES: Final = 5
PAUSE_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 300.0
MESSAGE_FILE: Final = "/dev/termination-log"
PASSED, FAILED, NO_RESULT = 0, 1, 2


class GateError(Exception):
    """There is no result; the message says why."""


@dataclass(frozen=True)
class Side:
    """One of the two engines."""

    session: aiohttp.ClientSession
    url: str
    pause_seconds: float

    async def model(self) -> tuple[str, int | None]:
        """The name of the model it serves, and its longest request in tokens where it says so."""
        found = await self._ask("GET", "/v1/models")
        try:
            first = found["data"][0]
            longest = first.get("max_model_len")
            return str(first["id"]), longest if isinstance(longest, int) else None
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise GateError(f"{self.url}/v1/models names no model: {error!r}") from None

    async def continuation(self, model: str, prompt: str) -> list[Token]:
        """What it says after a prompt."""
        body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": LIKELIEST}
        try:
            return read_completion(await self._ask("POST", "/v1/completions", body))
        except UnreadableAnswerError as error:
            raise GateError(f"{self.url}/v1/completions: {error}") from None

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """An answer; an engine that is busy, or not reachable yet, is asked again."""
        why = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(self.pause_seconds)
            try:
                async with self.session.request(method, f"{self.url}{path}", json=body) as answer:
                    if answer.status == 200:  # noqa: PLR2004 - HTTP
                        return await answer.json(content_type=None)
                    why = f"HTTP {answer.status}: {(await answer.text())[:200]}"
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                why = f"{type(error).__name__} {error}"
        raise GateError(f"{self.url}{path} did not answer {TRIES} times: {why}")


async def compared(baseline: Side, candidate: Side, own: Sequence[str]) -> list[Compared]:
    """All prompts, one after the other: so no batch makes a difference that is none of the candidate's."""
    (model, longest), (other, _) = await baseline.model(), await candidate.model()
    found = []
    for prompt in own or prompts(longest):
        ours, theirs = await baseline.continuation(model, prompt), await candidate.continuation(other, prompt)
        found.append(compare(ours, theirs))
    return found


def result(found: Sequence[Compared], threshold: float) -> dict[str, Any]:
    """What is said at the end."""
    reached = score(found)
    away = f"{reached.distance:.4f} nats" if math.isfinite(reached.distance) else "without end"
    message = f"{reached.prompts} prompts, {reached.answers:.1%} with the same answer, log-probabilities {away} apart"
    return {"score": round(reached.value, 6), "threshold": threshold, "message": message}


def read_prompts(path: str) -> list[str]:
    """A user's own prompts: a text file with one a line, or JSON texts one a line; empty: the built-in ones."""
    if not path:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        found = [str(json.loads(line)) if line.startswith('"') else line for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise GateError(f"PLIMSOLL_PROMPTS: {path} cannot be read: {error}") from None
    if not found:
        raise GateError(f"PLIMSOLL_PROMPTS: {path} holds no prompt")
    return found


async def run(env: Mapping[str, str], pause_seconds: float) -> dict[str, Any]:
    """The result of a gate whose variables are given.

    Raises:
        GateError: there is none.
    """
    urls = [env.get(f"PLIMSOLL_{side}_URL", "").rstrip("/") for side in ("BASELINE", "CANDIDATE")]
    if not all(urls):
        raise GateError("PLIMSOLL_BASELINE_URL and PLIMSOLL_CANDIDATE_URL must be set")
    threshold, own = _threshold(env.get("PLIMSOLL_THRESHOLD", "")), read_prompts(env.get("PLIMSOLL_PROMPTS", ""))
    key = env.get("OPENAI_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        baseline, candidate = (Side(session, url, pause_seconds) for url in urls)
        return result(await compared(baseline, candidate, own), threshold)


def _threshold(text: str) -> float:
    try:
        found = float(text) if text else THRESHOLD
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise GateError(f"PLIMSOLL_THRESHOLD: {text!r} is not a number between 0 and 1")
    return found


def main(env: Mapping[str, str], message_file: Path, pause_seconds: float = PAUSE_SECONDS) -> int:
    """Run the gate and leave its result; the exit code."""
    try:
        found = asyncio.run(run(env, pause_seconds))
    except GateError as error:
        sys.stderr.write(f"no result: {error}\n")
        message_file.write_text(f"no result: {error}"[:2000], encoding="utf-8")
        return NO_RESULT
    text = json.dumps(found)
    sys.stdout.write(f"{text}\n")
    message_file.write_text(text, encoding="utf-8")
    return PASSED if found["score"] >= found["threshold"] else FAILED


if __name__ == "__main__":
    sys.exit(main(os.environ, Path(MESSAGE_FILE)))
