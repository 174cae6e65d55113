"""One request on its way through a simulated fleet."""

from plimsoll.sim.prefix import Piece


class Request:
    """What a client asked, and what became of it. Times in seconds of the simulation; ``inf`` until they happen."""

    __slots__ = (
        "arrival_seconds",
        "base",
        "computed",
        "finish_seconds",
        "finish_step",
        "first_token_seconds",
        "generated",
        "groups",
        "last_token_seconds",
        "output_tokens",
        "pieces",
        "preemptions",
        "prefix",
        "prompt_tokens",
        "scheduled_seconds",
        "target",
    )

    def __init__(
        self,
        arrival_seconds: float,
        prompt_tokens: int,
        output_tokens: int,
        prefix: tuple[tuple[object, int], ...] = (),
    ) -> None:
        """``prefix``: the pieces of the prompt that other requests may share, in order: (identity, tokens) each."""
        self.arrival_seconds = arrival_seconds
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.prefix = prefix
        self.scheduled_seconds = self.first_token_seconds = self.finish_seconds = float("inf")
        self.preemptions = 0
        self.generated = 0
        """Tokens made before the last preemption, which a restart computes anew with the prompt."""
        self.target = 0
        """Tokens that the running prefill has to compute."""
        self.computed = 0
        self.base = 0
        """Decoding: the engine's step counter minus the tokens in the cache."""
        self.finish_step = -1
        """Decoding: the step counter at which the last token is made."""
        """-1 while it does not decode."""
        self.groups = 0
        """Decoding: layer groups that take a further block with each row of tokens."""
        self.last_token_seconds = arrival_seconds
        self.pieces: tuple[Piece, ...] = ()
        """The prefix in whole blocks of the engine it was sent to."""

    @property
    def ttft_seconds(self) -> float:
        """Time to first token, queueing included."""
        return self.first_token_seconds - self.arrival_seconds

    @property
    def tpot_seconds(self) -> float:
        """Mean time between the tokens after the first; 0 for a single token."""
        gaps = self.output_tokens - 1
        return (self.finish_seconds - self.first_token_seconds) / gaps if gaps > 0 else 0.0
