"""The comparison of the built-in quality gate: what is the same, what is near, what is another answer."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core.answers import (
    LINES,
    THRESHOLD,
    Token,
    UnreadableAnswerError,
    compare,
    prompts,
    read_completion,
    score,
)
from tests.property.amount import examples


def said(*words: str, logprob: float = -0.1, **others: float) -> list[Token]:
    return [Token(word, logprob, {word: logprob, **others}) for word in words]


def test_an_engine_is_as_good_as_itself() -> None:
    found = score([compare(said(" Paris", "."), said(" Paris", "."))] * 5)
    assert (found.value, found.answers, found.distance) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("candidate", "passes"),
    [
        pytest.param(said(" Paris", ".", logprob=-0.12), True, id="a little less sure"),
        pytest.param(said(" Paris", ".", logprob=-0.3), False, id="much less sure"),
        pytest.param(said(" paris", " is", logprob=-0.1, **{" Paris": -0.13, ".": -0.1}), True, id="the same answer"),
        pytest.param(said(" Lyon", ".", logprob=-0.1, **{" Paris": -0.1}), False, id="another answer"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_what_counts_as_near_enough(candidate: list[Token], passes: bool) -> None:
    found = score([compare(said(" Paris", "."), candidate)])
    assert (found.value >= THRESHOLD) is passes


def test_one_other_answer_among_many_is_let_pass_and_two_are_not() -> None:
    count = len(prompts(None))
    same, other = compare(said(" 4"), said(" 4")), compare(said(" 4"), said(" 5", **{" 4": -0.1}))
    assert score([same] * (count - 1) + [other]).value >= THRESHOLD
    assert score([same] * (count - 2) + [other] * 2).value < THRESHOLD


def test_what_is_not_among_the_likeliest_is_as_unlikely_as_the_least_of_them() -> None:
    theirs = [Token(" b", -0.5, {" b": -0.5, " c": -4.0})]
    assert compare([Token(" a", -1.0, {})], theirs).distances == (3.0,)


def test_after_the_first_difference_nothing_is_compared() -> None:
    assert len(compare(said("a", "b", "c"), said("a", "x", "c")).distances) == 2


@given(st.lists(st.tuples(st.text("ab", min_size=1), st.floats(-50, 0)), max_size=8), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_score_is_a_share(rows: list[tuple[str, float]], data: st.DataObject) -> None:
    ours = [Token(text, logprob, {}) for text, logprob in rows]
    theirs = [Token(data.draw(st.text("ab", min_size=1)), data.draw(st.floats(-50, 0)), {}) for _ in rows]
    assert 0 <= score([compare(ours, theirs)]).value <= 1
    assert score([compare(ours, ours)]).value == (1.0 if rows else 0.0)


def test_without_prompts_nothing_is_the_same() -> None:
    assert score([]).value == 0
    assert math.isinf(score([]).distance)


def test_lists_are_as_long_as_the_context_allows() -> None:
    assert len(prompts(512)) < len(prompts(4096)) < len(prompts(None))
    assert max(map(len, prompts(2000))) < 4 * 2000
    assert sum("code of" in prompt for prompt in prompts(None)) == 3 * len(LINES)
    assert len(set(prompts(None))) == len(prompts(None))


@pytest.mark.parametrize(
    ("context_tokens", "lists"),
    [
        pytest.param(2 * 40 * 14 - 1, [], id="a token less than twice the shortest"),
        pytest.param(2 * 40 * 14, [40], id="twice the shortest, at 14 tokens a line"),
        pytest.param(2 * 120 * 14, [40, 120], id="the second"),
        pytest.param(None, [40, 120, 240], id="nobody says how much fits"),
    ],
)
def test_a_list_is_asked_about_where_it_fits_twice(context_tokens: int | None, lists: list[int]) -> None:
    asked = [prompt for prompt in prompts(context_tokens) if "Question:" in prompt]
    assert [prompt.count("\n") - 2 for prompt in asked] == [count for count in lists for _ in range(3)]
    assert len(prompts(context_tokens)) - len(asked) == len(prompts(0)), "questions without a list always are"


def test_a_list_is_asked_about_at_its_beginning_its_middle_and_its_end() -> None:
    """The names of a list are its own, its codes have four digits, and no two lists have the same ones."""
    for count, asked in zip((40, 120, 240), zip(*[iter(prompts(None)[-9:])] * 3, strict=True), strict=True):
        lines = [line for line in asked[0].splitlines() if line.endswith(".")]
        codes = dict(line.removeprefix("The code of ").removesuffix(".").split(" is ") for line in lines)
        assert len(codes) == count
        assert len({*codes.values()}) == count, "each name has a code of its own"
        assert all(1000 <= int(code) <= 9999 for code in codes.values())
        names = [prompt.rpartition("The code of ")[2].removesuffix(" is") for prompt in asked]
        assert [[*codes].index(name) for name in names] == [1, count // 2, count - 2]
    firsts = [prompt.splitlines()[0] for prompt in prompts(None)[-9::3]]
    assert len({*firsts}) == len(firsts), "an engine that remembers another list is wrong"


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        pytest.param(" Paris.", "**PARIS**", True, id="the first word, however it is written"),
        pytest.param(" Paris is", " Paris was", True, id="what follows is another matter"),
        pytest.param(" Paris", " Parisian", False, id="a longer word is another one"),
        pytest.param(" ...", "... ", True, id="no word at all: what is there"),
        pytest.param(" ...", " !", False, id="other signs"),
    ],
)
def test_an_answer_is_its_first_word(ours: str, theirs: str, same: bool) -> None:
    assert compare(said(ours), said(theirs)).same_answer is same


def test_the_worse_of_answers_and_distances_counts() -> None:
    """Half of the answers differ, log-probabilities by 0.2 nats in the mean: neither makes up for the other."""
    near = compare(said(" 4", logprob=-0.1), said(" 4", logprob=-0.3))
    far = compare(said(" 4", logprob=-0.1), said(" 5", logprob=-0.1, **{" 4": -0.3}))
    found = score([near, far])
    assert (found.prompts, found.answers) == (2, 0.5)
    assert found.distance == pytest.approx(0.2)
    assert found.value == 0.5
    assert score([near]).value == pytest.approx(math.exp(-0.2))


def test_an_answer_without_alternatives_is_read() -> None:
    found = read_completion({"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1, -2]}}]})
    assert found == [Token("a", -1.0, {}), Token("b", -2.0, {})]


def test_an_answer_is_read() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1, -2.5], "top_logprobs": [{"a": -1, "c": -2}, None]}
    found = read_completion({"choices": [{"text": "ab", "logprobs": logprobs}]})
    assert found == [Token("a", -1.0, {"a": -1, "c": -2}), Token("b", -2.5, {})]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{"text": "a", "logprobs": None}]},
        {"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [None]}}]},
        {"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1]}}]},
    ],
)
def test_what_is_no_answer_says_so(answer: dict[str, object]) -> None:
    with pytest.raises(UnreadableAnswerError, match="no log-probabilities"):
        read_completion(answer)
