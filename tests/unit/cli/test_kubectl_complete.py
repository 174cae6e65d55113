"""``kubectl vllm`` completes: kubectl asks ``kubectl_complete-vllm`` and reads Cobra's lines."""

import os
import sys

import pytest

from plimsoll.cli.kubectl_complete import complete


@pytest.mark.parametrize(
    ("words", "offered", "directive"),
    [
        pytest.param(["pl"], {"plan"}, ":4", id="a command"),
        pytest.param([""], {"plan", "diff", "explain"}, ":4", id="every command"),
        pytest.param(["plan", "--ht"], {"--html"}, ":4", id="an option"),
        pytest.param(["diff", "-o", ""], {"table", "json", "yaml", "markdown"}, ":4", id="its values"),
        pytest.param(["plan", "my file.yaml", ""], set(), ":0", id="files"),
        pytest.param(["explain", ""], set(), ":4", id="a name is no file"),
    ],
)
def test_candidates_and_what_the_shell_may_add(
    words: list[str],
    offered: set[str],
    directive: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-vllm", *words])
    complete()
    *lines, last = capsys.readouterr().out.splitlines()
    assert (offered <= set(lines)) if offered else not lines
    assert last == directive
    assert not any(name.startswith("_KUBECTL") for name in os.environ)
