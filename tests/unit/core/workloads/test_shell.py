"""Scripts as people write them around vLLM, and the words that come out."""

import pytest

from plimsoll.core.workloads.shell import commands, words_of

KNOWN = {"MODEL": "Qwen/Qwen3-8B", "EMPTY": "", "FLAGS": "--a 1  --b"}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("vllm serve x --a 1", ["vllm serve x --a 1"], id="one line"),
        pytest.param("vllm serve x \\\n  --a \\\n  1\n", ["vllm serve x --a 1"], id="continued lines"),
        pytest.param("vllm serve x \\\r\n  --a 1\r\n", ["vllm serve x --a 1"], id="lines as Windows ends them"),
        pytest.param("# why\nvllm serve x # because\n", ["vllm serve x"], id="comments"),
        pytest.param("a && b || c; d & e\nf", ["a", "b", "c", "d", "e", "f"], id="lists of commands"),
        pytest.param("vllm serve $MODEL ${MODEL}", ["vllm serve Qwen/Qwen3-8B Qwen/Qwen3-8B"], id="known variables"),
        pytest.param("vllm $FLAGS \"$FLAGS\"", ["vllm --a 1 --b --a 1  --b"], id="quotes keep blanks together"),
        pytest.param("vllm $NOBODY \"${NOR_THIS}\"", ["vllm $NOBODY ${NOR_THIS}"], id="what nobody set stays"),
        pytest.param("vllm ${PORT:-8000} ${EMPTY:-7} ${EMPTY-7}", ["vllm 8000 7"], id="defaults"),
        pytest.param("A=1; export B=2\nvllm $A $B", ["export B=2", "vllm 1 2"], id="assignments on the way"),
        pytest.param("ARGS=(--a 1)\nARGS+=(--b 'x y')\nvllm \"${ARGS[@]}\"", ["vllm --a 1 --b x y"], id="arrays"),
        pytest.param("vllm $(nproc) `hostname`", ["vllm $(nproc) `hostname`"], id="what a command prints is not known"),
        pytest.param("vllm --j '{\"a\": [1, 2]}'", ['vllm --j {"a": [1, 2]}'], id="JSON in quotes"),
        pytest.param("vllm x > /l 2>&1", ["vllm x"], id="redirections"),
        pytest.param("cat <<EOF > f\nvllm not this\nEOF\nvllm x", ["cat", "vllm x"], id="here-documents"),
        pytest.param("if [ -n x ]; then\n  exec vllm x\nfi", ["[ -n x ]", "vllm x"], id="conditions"),
        pytest.param("vllm 'unfinished", ["vllm unfinished"], id="a quote that never ends"),
    ],
)  # fmt: skip
def test_words(script: str, words: list[str]) -> None:
    assert [" ".join(command.words) for command in commands(script, KNOWN)] == words


def test_how_a_command_runs() -> None:
    replacing, piped, _, behind = commands("exec vllm a\nvllm b | tee l\nB=1 vllm c &\n", {})
    assert replacing.replaces_shell
    assert piped.piped
    assert not piped.replaces_shell
    assert behind.background
    assert behind.variables == {"B": "1"}


def test_one_text_of_arguments_is_taken_apart() -> None:
    assert words_of("--a 1 --b 'x y'") == ["--a", "1", "--b", "x y"]
    assert words_of(["--a", 1, None]) == ["--a", "1"]
