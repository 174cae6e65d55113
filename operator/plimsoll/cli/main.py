"""The command line: results to stdout, messages to stderr, no network unless asked.

Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 something needed was unreachable.
"""

from typing import Final

from plimsoll.cli.lazy import lazy_app

COMMANDS: Final = {
    "plan": "plimsoll.cli.plan:plan",
    "predict": "plimsoll.cli.predict:predict",
    "diff": "plimsoll.cli.diff:diff",
    "explain": "plimsoll.cli.explain:explain",
    "simulate": "plimsoll.cli.simulate:simulate",
    "audit": "plimsoll.cli.audit:audit",
    "import": "plimsoll.cli.adopt:import_",
    "check-log": "plimsoll.cli.check_log:check_log",
    "hold": "plimsoll.cli.verbs:hold",
    "accept": "plimsoll.cli.verbs:accept",
    "restart": "plimsoll.cli.verbs:restart",
    "approve": "plimsoll.cli.verbs:approve",
    "reject": "plimsoll.cli.verbs:reject",
    "revert": "plimsoll.cli.verbs:revert",
    "crd": "plimsoll.cli.crd:crd",
}

ABOUT: Final = """Plan, explain and check vLLM fleets before they cost anything.

Only explain and the verbs (hold, accept, restart, approve, reject, revert) need a cluster; audit reads one when asked.
Nothing needs a GPU.
Start here:

\b
  plimsoll audit k8s/                      what is wrong with the vLLM manifests you have
  plimsoll import k8s/                     the VLLMService that would replace each of them
  plimsoll plan service.yaml               GPUs, flags and the arithmetic behind them
  plimsoll plan deploy/ --html plans.html  the same with pictures, for who signs for the GPUs
  plimsoll diff old.yaml new.yaml          what a change costs, and which pods restart
  plimsoll explain NAME -n NAMESPACE       what a live service does, and why
  plimsoll simulate --service service.yaml --trace burst   who would have been served, at what cost
  plimsoll check-log start.log             why an engine did not start, and what to change
"""

EPILOG: Final = (
    "Results go to stdout, messages to stderr. Exit codes: 0 done, 1 the answer is no (not feasible, differs, faults "
    "found), 2 bad input, 3 something needed was unreachable. Shell completion: plimsoll --install-completion."
)

app = lazy_app("plimsoll", ABOUT, COMMANDS, EPILOG)
