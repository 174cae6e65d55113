"""The options of the server's own parser: `flags.py > flags.json`. Engine's Python."""

import argparse
import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def kind_of(action):
    if not action.option_strings:
        return "positional"
    if isinstance(action, argparse.BooleanOptionalAction):
        return "bool_pair"
    if isinstance(action, argparse._StoreTrueAction):
        return "store_true"
    return "append" if "Append" in type(action).__name__ else "value"


def type_of(action):
    """The name of what reads a value; of a reader made of another, both names."""
    reader = action.type
    if reader is None:
        return None
    name = getattr(reader, "__name__", type(reader).__name__)
    within = [cell.cell_contents for cell in getattr(reader, "__closure__", None) or ()]
    inner = next((each.__name__ for each in within if callable(each) and hasattr(each, "__name__")), None)
    if inner is None:
        return name.strip("<>")
    return f"{reader.__qualname__.split('.<locals>')[0]}({inner})"


def main():
    parser = make_arg_parser(FlexibleArgumentParser())
    rows = [
        {
            "flags": action.option_strings or [action.dest],
            "dest": action.dest,
            "kind": kind_of(action),
            "type": type_of(action),
            "nargs": action.nargs,
            "choices": None if action.choices is None else [str(choice) for choice in action.choices],
            "default": action.default,
        }
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and action.option_strings != ["--model"]  # it refuses this one
    ]
    json.dump(rows, sys.stdout, default=repr)


if __name__ == "__main__":
    main()
