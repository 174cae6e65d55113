"""The server's own parser on command lines: `parse.py < argvs.jsonl`, the errors as JSON lines. Engine's Python."""

import contextlib
import io
import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
for line in sys.stdin:
    said, problem = io.StringIO(), ""
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(json.loads(line))
    except SystemExit:
        problem = said.getvalue().strip().splitlines()[-1]
    sys.stdout.write(json.dumps(problem) + "\n")
