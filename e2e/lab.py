"""`python -m e2e.lab`: a lab that stays, for people and for tests from outside. `make lab`, `make lab-down`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from e2e import labsupervisor
from e2e.controlplane.scratch import sweep
from e2e.fleet import commands
from e2e.labrun import CHECKOUT, DEFAULT_LOAD_SECONDS, DEFAULT_NODES, LabOptions
from e2e.labstate import ENV, FOLDER, State, taken

STOP_SECONDS: Final = 40.0
PAUSE_SECONDS: Final = 0.1

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

commands.add_to(app, FOLDER / commands.SOCKET_NAME)

Nodes = Annotated[str, typer.Option(envvar="NODES", help="COUNT*PRODUCT:GPUS, comma separated")]
LoadSeconds = Annotated[float, typer.Option(envvar="LOAD_SECONDS", help="how long an engine takes to load")]
WithOperator = Annotated[bool, typer.Option("--operator/--no-operator", envvar="OPERATOR")]


@app.command()
def up(
    nodes: Nodes = DEFAULT_NODES, load_seconds: LoadSeconds = DEFAULT_LOAD_SECONDS, operator: WithOperator = True
) -> None:
    """Start a lab in the background and return when it is ready."""
    _await_settled()
    if taken():
        typer.echo(f"a lab runs here already; use it with `. {_short(ENV)}`, stop it with `make lab-down`")
        return
    options = ["--nodes", nodes, "--load-seconds", str(load_seconds), "--operator" if operator else "--no-operator"]
    if not _start_supervisor(options):
        raise typer.Exit(1)
    typer.echo(f"lab ready. Use it:   . {_short(ENV)} && kubectl get nodes")
    typer.echo("A service:           kubectl apply -f examples/qwen3.5-9b.yaml && kubectl get vllm -w")
    typer.echo("Look at it, stop it: python -m e2e.lab status; make lab-down")


@app.command()
def down() -> None:
    """Stop the lab and remove `.lab`."""
    was_running = taken()
    give_up = time.monotonic() + STOP_SECONDS
    signalled = False
    while taken():
        state = State.read()
        too_late = time.monotonic() > give_up
        if state and (not signalled or too_late):
            with contextlib.suppress(ProcessLookupError):  # killed already; its janitor is at work
                os.kill(state.supervisor, signal.SIGKILL if too_late else signal.SIGTERM)
            signalled = True
        time.sleep(PAUSE_SECONDS)
    sweep(FOLDER)
    typer.echo("lab stopped" if was_running else "no lab runs here")


@app.command()
def status() -> None:
    """What runs: processes, addresses, nodes."""
    state = State.read()
    if state is None or not taken():
        typer.echo("no lab runs here")
        raise typer.Exit(1)
    typer.echo(f"{'ready' if state.ready else 'starting'}, supervisor {state.supervisor}, nodes {state.nodes}")
    for name, url in state.urls.items():
        typer.echo(f"  {name:24} {url}")
    for name, process in state.processes.items():
        restarts = f", {process['restarts']} restarts" if process["restarts"] else ""
        typer.echo(f"  {name:24} pid {process['pid'] or '-'}{restarts}, {_short(Path(process['log']))}")


@app.command(hidden=True)
def run(
    nodes: Nodes = DEFAULT_NODES,
    load_seconds: LoadSeconds = DEFAULT_LOAD_SECONDS,
    operator: WithOperator = True,
    report_to: Annotated[int, typer.Option(help="file descriptor that gets the progress until all is ready")] = 1,
) -> None:
    """The supervisor that `up` starts: runs until it is told to stop."""
    options = LabOptions(nodes=nodes, load_seconds=load_seconds, operator=operator)
    raise typer.Exit(labsupervisor.run(options, report_to))


def _await_settled() -> None:
    """Another start or stop of this checkout's lab is under way: let it finish."""
    told = False
    while taken() and not ((state := State.read()) and state.ready and _alive(state.supervisor)):
        if not told:
            typer.echo("a lab is being started or stopped here; waiting")
            told = True
        time.sleep(PAUSE_SECONDS)


def _start_supervisor(options: list[str]) -> bool:
    """Show its progress until it closes the pipe: ready, or gone after having said why."""
    report, write_end = os.pipe()
    command = [sys.executable, "-m", "e2e.lab", "run", *options, f"--report-to={write_end}"]
    supervisor = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[write_end],
        cwd=CHECKOUT,
    )
    os.close(write_end)
    try:
        with os.fdopen(report) as lines:
            for line in lines:
                typer.echo(line.rstrip("\n"))
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        typer.echo("stopped; nothing is left running")
        raise typer.Exit(130) from None
    state = State.read()
    return state is not None and state.ready and state.supervisor == supervisor.pid


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _short(path: Path) -> str:
    """Relative to where the user stands, when that is shorter."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    app()
