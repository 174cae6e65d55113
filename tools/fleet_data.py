"""Makes the data files of ``e2e/fleet`` from the recordings: ``python tools/fleet_data.py RECORDINGS``.

RECORDINGS is a folder with the planner recordings, flag tables and GPU facts described in
``e2e/fleet/data/README.md``. Only needed when a recording changes; the results are committed.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "e2e" / "fleet" / "data"
ORACLES = ("kv-oracle.jsonl.gz", "kv-oracle-new-models.jsonl.gz")
FACTS = ("model", "device", "tp", "kv_cache_dtype", "extra_args")
ENGINE = (
    *("dtype", "cache_dtype", "quantization", "hf_max_model_len", "attention_backends", "block_size"),
    *("mamba_block_size", "mamba_page_size_padded", "mamba_cache_mode", "max_num_batched_tokens"),
    *("enable_prefix_caching", "weight_bytes_rank0"),
)
STATE_SPECS = ("MambaSpec", "CircularBufferSpec")
LONG_DEFAULT = 120


def write(name: str, text: str) -> None:
    (TARGET / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def attention_heads(config: dict[str, Any]) -> int | None:
    text = config.get("text_config") or config.get("llm_config") or config
    return text.get("num_attention_heads") or config.get("num_attention_heads")


def spec_facts(spec: dict[str, Any]) -> dict[str, Any]:
    """One layer kind of a group: what decides the blocks of a request, nothing else."""
    kind = spec["type"]
    if kind in STATE_SPECS:
        return {"kind": "state", "gdn": "GDN" in str(spec.get("mamba_type"))}
    facts = {"kind": "full", "block": spec["block_size"], "dtype": spec["dtype"], "quant": spec["kv_quant_mode"]}
    if kind.startswith("SlidingWindow"):
        return facts | {"kind": "sliding", "window": spec["sliding_window"]}
    if kind == "ChunkedLocalAttentionSpec":
        return facts | {"kind": "chunked", "window": spec["attention_chunk_size"]}
    return facts


def group_facts(group: dict[str, Any], recorded_blocks: int) -> dict[str, Any]:
    specs = [spec_facts(spec) for spec in group.get("uniform_type") or [group]]
    return {"specs": specs, "blocks": recorded_blocks}


def layout(row: dict[str, Any], configs: Path) -> dict[str, Any] | None:
    """The compact row, or None when the recording holds nothing an engine could start with."""
    base = {key: row[key] for key in FACTS}
    if "rejected" in row:
        return base | {"rejected": row["rejected"]}
    started = [result for result in row["results"] if "refused" not in result]
    if not started or "max_num_batched_tokens" in row["extra_args"]:
        return None
    config = json.loads((configs / row["config"]).read_text())
    longest = max(started, key=lambda result: (result["max_model_len"], result["available_bytes_per_gpu"]))
    refused = [r for r in row["results"] if "refused" in r and r["needed_gib"]]
    groups = zip(row["groups"], longest["blocks_per_request_by_group"], strict=True)
    return (
        base
        | {key: row[key] for key in ENGINE}
        | {
            "attention_heads": attention_heads(config),
            "bytes_per_block": longest["bytes_per_block"],
            "groups": [group_facts(group, blocks) for group, blocks in groups],
            "seen": [longest, *refused[:1]],
        }
    )


def layouts(source: Path) -> str:
    rows = [json.loads(line) for name in ORACLES for line in gzip.decompress((source / name).read_bytes()).splitlines()]
    compact = (layout(row, source / "configs") for row in rows)
    return "\n".join(json.dumps(row, separators=(",", ":")) for row in compact if row) + "\n"


def compact_flags(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Names, types, choices and short defaults; deep defaults of nested configurations are left out."""
    keys = ("flags", "dest", "kind", "type", "nargs", "choices", "default")
    rows = [{key: row[key] for key in keys} for row in table]
    return [row | {"default": None} if len(str(row["default"])) > LONG_DEFAULT else row for row in rows]


def gpus(source: Path) -> str:
    keys = ("memory_driver_mib", "torch_total_gib", "compute_capability", "arch", "product_labels")
    rows = [gpu for gpu in json.loads((source / "gpus.json").read_text())["gpus"] if gpu["vendor"] == "nvidia"]
    return json.dumps([{key: gpu[key] for key in keys} for gpu in rows], indent=1)


def main() -> None:
    source = Path(sys.argv[1])
    write("layouts.jsonl.gz", layouts(source))
    tables = {
        path.parent.name: compact_flags(json.loads(path.read_text())["flags"])
        for path in sorted(source.glob("engines/*/flags.json"))
    }
    write("flags.json.gz", json.dumps(tables, separators=(",", ":")))
    write("refusals-0.32.0.jsonl.gz", (source / "engines/0.32.0/refusals.jsonl").read_text())
    write("metrics-0.32.txt.gz", (source / "vllm-metrics-0.32.txt").read_text())
    (TARGET / "gpus.json").write_text(gpus(source) + "\n")


if __name__ == "__main__":
    main()
