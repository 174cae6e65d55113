"""``kubectl vllm …``: the commands that belong beside kubectl, found by it as the program ``kubectl-vllm``."""

from typing import Final

from plimsoll.cli.lazy import lazy_app
from plimsoll.cli.main import COMMANDS

SHOWN: Final = (
    "audit", "import", "plan", "diff", "explain", "hold", "accept", "restart", "approve", "reject", "revert",
)  # fmt: skip

ABOUT: Final = """Audit, plan, compare, explain and direct vLLM fleets.

\b
  kubectl vllm audit --cluster -n llm
  kubectl vllm plan service.yaml
  kubectl get vllm qwen-docs -o yaml | kubectl vllm diff - service.yaml
  kubectl vllm explain qwen-docs -n llm
  kubectl vllm hold qwen-docs -n llm
"""

app = lazy_app("kubectl vllm", ABOUT, {name: COMMANDS[name] for name in SHOWN})
