"""The command line: results to stdout, messages to stderr, no network unless asked.

Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 something needed was unreachable.
"""

import typer

from plimsoll.cli.crd import crd
from plimsoll.cli.plan import plan
from plimsoll.cli.predict import predict

app = typer.Typer(
    name="plimsoll",
    help="Plan, explain and check vLLM fleets before they cost anything. Nothing here needs a cluster or a GPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(plan)
app.command()(predict)
app.command()(crd)


@app.callback()
def _root() -> None:
    """Keep sub-commands even while there is only one."""
