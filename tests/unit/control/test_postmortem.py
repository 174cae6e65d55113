"""Why an engine ended: from its exit and last words where they say it, else from its log, once a restart."""

import pytest

from plimsoll.adapters.ports import ClusterError, ForbiddenError, NotFoundError, UnreachableError
from plimsoll.control.postmortem import LIMIT_BYTES, TAIL_LINES, Postmortem
from plimsoll.core.pods import Ended, PodState

ECHO = "RuntimeError: Engine core initialization failed. See root cause above."
CAUSE = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614)."


class Cluster:
    """Answers every request for a log with ``text``, or raises ``wrong``."""

    def __init__(self, text: str = "", wrong: ClusterError | None = None) -> None:
        self.text, self.wrong = text, wrong
        self.asked: list[tuple[str, bool]] = []

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str:
        assert (namespace, container, tail_lines, limit_bytes) == ("ns", "vllm", TAIL_LINES, LIMIT_BYTES)
        self.asked.append((pod, previous))
        if self.wrong:
            raise self.wrong
        return self.text


def _pod(words: str = "", *, name: str = "p", restarts: int = 1, reason: str = "Error", code: int = 1) -> PodState:
    ended = Ended(code, reason, words, restarts, previous=restarts > 0)
    return PodState("failing", name, uid=name, ended=ended)


async def _word(cluster: Cluster, *pods: PodState) -> str | None:
    found = await Postmortem(cluster).of("ns", pods)  # type: ignore[arg-type]
    return found.failure.cause.word if found else None


async def test_the_cause_stands_in_the_middle_of_the_log() -> None:
    cluster = Cluster(f"{CAUSE}\n{ECHO}\n")
    assert await _word(cluster, _pod(ECHO)) == "max_num_seqs_above_state_blocks"
    assert cluster.asked == [("p", True)]


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (_pod("vllm: error: unrecognized arguments: --x", code=2), "bad_flag"),
        (_pod("", reason="OOMKilled", code=137), "host_out_of_memory"),
    ],
)
async def test_no_log_is_read_where_exit_and_last_words_say_it(pod: PodState, word: str) -> None:
    cluster = Cluster()
    assert await _word(cluster, pod) == word
    assert cluster.asked == []


async def test_a_log_is_read_once_a_restart() -> None:
    cluster = Cluster(CAUSE)
    postmortem = Postmortem(cluster)  # type: ignore[arg-type]
    for restarts in (1, 1, 2, 2):
        await postmortem.of("ns", [_pod(ECHO, restarts=restarts)])
    assert len(cluster.asked) == 2


async def test_an_engine_that_ended_the_first_time_still_has_its_log_as_the_present_one() -> None:
    cluster = Cluster(CAUSE)
    await _word(cluster, _pod(ECHO, restarts=0))
    assert cluster.asked == [("p", False)]


@pytest.mark.parametrize("wrong", [ForbiddenError("pods/log"), NotFoundError("gone"), UnreachableError("kubelet")])
async def test_without_the_log_the_last_words_count(wrong: ClusterError) -> None:
    assert await _word(Cluster(wrong=wrong), _pod(CAUSE)) == "max_num_seqs_above_state_blocks"
    assert await _word(Cluster(wrong=wrong), _pod("Killed")) == "engine_died"


async def test_a_kubelet_that_did_not_answer_is_asked_again() -> None:
    cluster = Cluster(wrong=UnreachableError("kubelet"))
    postmortem = Postmortem(cluster)  # type: ignore[arg-type]
    await postmortem.of("ns", [_pod(ECHO)])
    cluster.text, cluster.wrong = CAUSE, None
    found = await postmortem.of("ns", [_pod(ECHO)])
    assert found is not None
    assert found.failure.cause.word == "max_num_seqs_above_state_blocks"


async def test_the_pod_that_ended_most_often_is_looked_at() -> None:
    cluster = Cluster(CAUSE)
    await _word(cluster, _pod(ECHO, name="a"), _pod(ECHO, name="b", restarts=5), PodState("ready", "c"))
    assert cluster.asked == [("b", True)]
    assert await _word(cluster, PodState("ready")) is None
