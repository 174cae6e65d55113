"""Start the engine in this process, a fork a case: `starts.py MODELS < cases.jsonl > outcomes.jsonl`. Engine's Python.

A case is `{"id", "model", "argv", "env"}`. The argv goes through the server's own parser and an engine is built as the
server builds it. Importing takes most of a start, so it happens once: what one fork had to import, the parent imports
before the next.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.models import registry
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.llm_engine import LLMEngine

CASE_SECONDS = 240
# Looking at a model's class in a process of its own would cost a full import each time.
registry._run_in_subprocess = lambda work: work()
ALWAYS = ["--load-format", "dummy", "--enforce-eager", "--distributed-executor-backend", "uni"]


def start(case, models):
    """What the engine says of the case: its pool, or why it refuses."""
    parser = make_arg_parser(FlexibleArgumentParser())
    argv = ["--model", str(models / case["model"]), *ALWAYS, *case["argv"]]
    engine = LLMEngine.from_engine_args(
        EngineArgs.from_cli_args(parser.parse_args(argv)), usage_context=UsageContext.OPENAI_API_SERVER
    )
    return pool(engine.engine_core.engine_core)


def pool(core):
    """Figures as the engine holds them, and the bytes that its tensors really take."""
    config, cache = core.vllm_config, core.vllm_config.cache_config
    return {
        "num_blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "tokens": cache.kv_cache_size_tokens,
        "max_concurrency": cache.kv_cache_max_concurrency,
        "max_model_len": config.model_config.max_model_len,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "prefix_caching": cache.enable_prefix_caching,
        "allocated_bytes": allocated_bytes(core),
        "groups": [group(found) for found in core.scheduler.kv_cache_config.kv_cache_groups],
    }


def runner(core):
    worker = core.model_executor.driver_worker
    return getattr(worker, "worker", worker).model_runner


def group(found):
    spec = found.kv_cache_spec
    return {
        "layers": len(found.layer_names),
        "kind": type(spec).__name__,
        "block_size": spec.block_size,
        "page_bytes": spec.page_size_bytes,
    }


def allocated_bytes(core):
    """Storages counted once: layers of different kinds share tensors."""
    storages = {}
    waiting = [runner(core).kv_caches]
    while waiting:
        found = waiting.pop()
        if torch.is_tensor(found):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, list | tuple):
            waiting.extend(found)
    return sum(storages.values())


def in_child(case, models):
    """The case in a fork of its own, what it prints kept in a file; its outcome as a dict."""
    os.environ.update(case.get("env", {}))
    before = set(sys.modules)
    try:
        outcome = {"pool": start(case, models)}
    except SystemExit as exit_:
        outcome = {"error": "SystemExit", "exit_code": exit_.code}
    except BaseException as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
    return {**outcome, "imported": sorted(set(sys.modules) - before)}


def run(case, models):
    read, write = os.pipe()
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.close(read)
            signal.alarm(CASE_SECONDS)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            outcome = json.dumps(in_child(case, models), default=str).encode()
            with os.fdopen(write, "wb") as answer:
                answer.write(outcome)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as answer:
            found = answer.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        printed.seek(0)
        log = printed.read().decode(errors="replace")
    outcome = json.loads(found) if found else {"error": f"the child ended with {status}"}
    for module in outcome.pop("imported", ()):
        with contextlib.suppress(Exception):  # a module made at run time has no file to import
            importlib.import_module(module)
    return {"id": case["id"], **outcome, "log": log}


def main(models):
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line), models)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
