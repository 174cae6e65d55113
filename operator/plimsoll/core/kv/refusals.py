"""Why vLLM would not start: the reasons, as ``predict`` prints them and conditions carry them, and the refusal."""

from typing import Final

KV_CACHE_TOO_SMALL: Final = "kv_cache_too_small"
NO_MEMORY_FOR_KV: Final = "no_memory_for_kv"
HEADS_NOT_DIVISIBLE: Final = "heads_not_divisible"
KV_DTYPE_UNSUPPORTED: Final = "kv_dtype_unsupported"
NO_ATTENTION_BACKEND: Final = "no_attention_backend"
MAX_NUM_SEQS_ABOVE_STATE_BLOCKS: Final = "max_num_seqs_above_state_blocks"
MAX_MODEL_LEN_ABOVE_MODEL: Final = "max_model_len_above_model"
BAD_FLAG: Final = "bad_flag"


class Refusal(Exception):  # noqa: N818 # an answer of the engine, not a fault of ours
    """vLLM would not start: why, in whose numbers, and the longest context that would fit where one would.

    ``needed_bytes`` and ``estimated_max_model_len`` are set for ``kv_cache_too_small`` only.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        needed_bytes: int | None = None,
        available_bytes: int | None = None,
        estimated_max_model_len: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.estimated_max_model_len = estimated_max_model_len
