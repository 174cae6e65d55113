"""What transformers and vLLM fill in when config.json leaves a key out → ``facts/spellings.json``.

Run on unpacked wheels (``python tools/read_spellings.py TRANSFORMERS_DIR VLLM_DIR``). Only names and default values are
taken, from class bodies and constructor signatures, by reading the syntax tree; nothing is imported or executed.
"""

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

# Keys our readers use. A default is kept only for these.
KEYS: Final = frozenset(
    """
    vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    v_head_dim max_position_embeddings sliding_window sliding_window_pattern use_sliding_window max_window_layers
    _sliding_window_pattern kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim full_attention_interval
    linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim
    global_head_dim num_global_key_value_heads num_kv_shared_layers attention_chunk_size no_rope_layer_interval
    mamba_d_conv mamba_d_state mamba_expand mamba_n_groups mamba_n_heads mamba_d_head mamba_d_ssm mamba_dt_rank
    mamba_num_heads mamba_head_dim mamba_ssm_dtype ssm_state_size conv_kernel n_groups expand state_size time_step_rank
    num_heads attn_layer_period attn_layer_offset conv_L_cache conv_dim hybrid_override_pattern
    index_head_dim index_topk index_n_heads index_topk_freq index_skip_topk_offset num_nextn_predict_layers
    tie_word_embeddings num_experts num_local_experts n_routed_experts num_experts_per_tok moe_intermediate_size
    n_shared_experts first_k_dense_replace multi_query new_decoder_architecture alibi num_kv_heads n_head_kv
    use_bidirectional_attention decoder_layers decoder_attention_heads max_source_positions max_target_positions
    d_model attention_head_dim swa_head_dim swa_num_key_value_heads max_seq_len num_ln_in_parallel_attn
    """.split()  # noqa: SIM905 # a page of words reads better than a column
)


@dataclass
class ConfigClass:
    """One configuration class as written."""

    name: str
    bases: list[str]
    model_type: str | None = None
    defaults: dict[str, object] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    text_class: str | None = None


def classes(folder: Path, pattern: str) -> Iterator[ConfigClass]:
    """Every class of every configuration file below ``folder``."""
    for path in sorted(folder.glob(pattern)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield read_class(node)


def read_class(node: ast.ClassDef) -> ConfigClass:
    """Defaults of the class body, then those of ``__init__``."""
    found = ConfigClass(node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases])
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign | ast.Assign):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            if isinstance(target, ast.Name) and statement.value is not None:
                read_assignment(found, target.id, statement.value)
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            read_signature(found, statement.args)
    return found


def read_assignment(found: ConfigClass, name: str, value: ast.expr) -> None:
    """One ``name = value`` of a class body."""
    if name == "model_type" and isinstance(value, ast.Constant) and isinstance(value.value, str):
        found.model_type = value.value
    elif name == "attribute_map":
        found.renamed = {str(k): str(v) for k, v in literal(value, {}).items()}  # type: ignore[attr-defined]
    elif name in {"sub_configs", "sub_configs_defaults"} and isinstance(value, ast.Dict):
        found.text_class = text_class(value)
    elif name in KEYS:
        found.defaults[name] = literal(value, None)


def read_signature(found: ConfigClass, arguments: ast.arguments) -> None:
    """Defaults of a constructor's parameters."""
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(named), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg in KEYS and default is not None:
            found.defaults[argument.arg] = literal(default, None)


def text_class(value: ast.Dict) -> str | None:
    """The class that ``sub_configs`` names for ``text_config``."""
    for key, entry in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "text_config":
            if isinstance(entry, ast.Call):
                for keyword in entry.keywords:
                    named = literal(keyword.value, None)
                    if keyword.arg == "model_type" and isinstance(named, str):
                        return f"={named}"
            return ast.unparse(entry).rpartition(".")[2]
    return None


def literal(value: ast.expr, otherwise: object) -> object:
    """A literal, or ``4096 * 32``; dataclass helpers carry theirs in ``default=``."""
    if isinstance(value, ast.Call):
        inner = next((k.value for k in value.keywords if k.arg == "default"), None)
        return literal(inner, otherwise) if inner is not None else otherwise
    try:
        return ast.literal_eval(value)
    except ValueError:
        pass
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        left, right = literal(value.left, None), literal(value.right, None)
        if isinstance(left, int) and isinstance(right, int):
            return left * right
    return otherwise


def inherited(name: str, known: dict[str, ConfigClass], attribute: Literal["defaults", "renamed"]) -> dict[str, object]:
    """A class' dictionary with those of its bases below it."""
    found = known.get(name)
    if found is None:
        return {}
    merged: dict[str, object] = {}
    for base in reversed(found.bases):
        merged |= inherited(base, known, attribute)
    return merged | (found.defaults if attribute == "defaults" else found.renamed)


def main(transformers: Path, vllm: Path) -> None:
    """Print the table, one model type a line; vLLM's own classes win over those of transformers."""
    known: dict[str, ConfigClass] = {}
    table: dict[str, dict[str, object]] = {}
    for folder, pattern in ((transformers, "models/*/configuration_*.py"), (vllm, "transformers_utils/configs/*.py")):
        for found in classes(folder, pattern):
            known[found.name] = found
    for found in known.values():
        if found.model_type is None:
            continue
        defaults = {k: v for k, v in inherited(found.name, known, "defaults").items() if v is not None}
        renamed = {k: v for k, v in inherited(found.name, known, "renamed").items() if k in KEYS}
        row: dict[str, object] = {}
        if defaults:
            row["defaults"] = dict(sorted(defaults.items()))
        if renamed:
            row["renamed"] = dict(sorted(renamed.items()))
        if found.text_class:
            inner = known.get(found.text_class)
            row["text"] = found.text_class.removeprefix("=") if inner is None else inner.model_type
        if row:
            table[found.model_type] = row
    lines = [f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in sorted(table.items())]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
