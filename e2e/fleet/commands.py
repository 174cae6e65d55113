"""``fault pod|engines|metrics|node|prometheus`` and ``load`` as commands of a lab, over the control socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from e2e.fleet import control
from plimsoll.api import names

SOCKET_NAME = "fleet.sock"
Namespace = Annotated[str, typer.Option("--namespace", "-n")]


def add_to(app: typer.Typer, socket: Path) -> None:
    """Register the commands; ``socket`` is where the running lab's fleet listens."""
    fault = typer.Typer(no_args_is_help=True, help="Break something.")
    app.add_typer(fault, name="fault")

    @fault.command()
    def pod(name: str, kind: str, namespace: Namespace = "default") -> None:
        """Break a pod: crash, oom, image, hang or slow-load."""
        _call(socket, "fault_pod", namespace=namespace, name=name, kind=kind)

    @fault.command()
    def engines(missing_gib: float = 0.0, taken_gib: float = 0.0) -> None:
        """Take memory from engines that start from now on: --missing-gib of their pool, --taken-gib of the GPU."""
        _call(socket, "fault_engines", missing_gib=missing_gib, taken_gib=taken_gib)

    @fault.command()
    def metrics(name: str, kind: str, namespace: Namespace = "default") -> None:
        """Spoil a pod's metrics: absent, stale, nan, old-names, duplicate; none makes them well again."""
        _call(socket, "fault_metrics", namespace=namespace, name=name, kind=kind)

    @fault.command()
    def prometheus(kind: str) -> None:
        """Spoil Prometheus: down, hang, html, error, rejected, auth, busy, empty, nan, inf, old, half, partial, differ.

        none makes it well again.
        """
        _call(socket, "fault_prometheus", kind=kind)

    @fault.command()
    def node(name: str, kind: str) -> None:
        """Break a node: down, no-gpu; up makes it well again."""
        _call(socket, "fault_node", name=name, kind=kind)

    @app.command()
    def load(
        service: str,
        rate: Annotated[float, typer.Option(help="requests a second")] = 1.0,
        prompt: Annotated[int, typer.Option(help="tokens")] = 500,
        output: Annotated[int, typer.Option(help="tokens")] = 100,
        seconds: float = 30.0,
        namespace: Namespace = "default",
    ) -> None:
        """Send requests to a service's Ready pods and report what their clients saw."""
        amount = {"rate": rate, "prompt_tokens": prompt, "output_tokens": output, "seconds": seconds}
        report = _call(socket, "load", namespace=namespace, selector={names.LABEL_SERVICE: service}, **amount)
        typer.echo(json.dumps(report, indent=2))


def _call(socket: Path, command: str, **arguments: Any) -> Any:
    try:
        return control.call(socket, command, **arguments)
    except control.ControlError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
