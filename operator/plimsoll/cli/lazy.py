"""A command group that imports a command only when it is called: ``plimsoll plan`` must not wait for the others."""

import gc
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


def lazy_app(name: str, about: str, commands: Mapping[str, str], epilog: str = "") -> typer.Typer:
    """An application whose ``commands`` map a name to ``module:function``."""

    class Group(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's own context
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - typer's own context
            # All of them for a misspelt name: typer offers the nearest of those it has.
            for wanted in (cmd_name,) if cmd_name in commands else commands:
                if wanted not in self.commands:
                    self.add_command(_load(wanted, commands[wanted]), wanted)
            return self.commands.get(cmd_name)

    app = typer.Typer(
        name=name,
        cls=Group,
        help=about,
        epilog=epilog,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _root() -> None:
    return


def _load(name: str, where: str) -> Any:  # noqa: ANN401 - typer's own command class
    module, _, function = where.partition(":")
    single = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    single.command(name)(getattr(_imported(module), function))
    return get_command(single)


def _imported(module: str) -> ModuleType:
    """The module; importing makes thousands of objects that live on, and looking through them takes a tenth longer."""
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.enable()
