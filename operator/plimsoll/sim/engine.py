"""One vLLM engine, faithful where policy depends on it, and quick: stretches that only decode are jumped.

Source of the rules: vLLM 0.33 ``v1/core/sched/scheduler.py``, ``kv_cache_manager.py``, ``block_pool.py``; checked
against measured runs in ``tests/unit/sim/test_fidelity.py``. A step serves the running requests first (a token for
each that decodes, a chunk for each that prefills), then admits waiting ones in order while the token budget, the
sequence cap and the free blocks allow: a head of line that does not fit blocks everybody behind it. A step that finds
no block for a running request preempts the newest ones, which compute everything anew later, and admits nobody.

While nobody prefills and nobody can be admitted, every step is like the one before but for its context, so the engine
jumps to the next thing that happens: a last token, a block that is not there, an arrival. What an event costs does not
depend on how many run or how long their contexts are.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from plimsoll.sim.blocks import BlockPool, Phases
from plimsoll.sim.counters import Counters
from plimsoll.sim.prefix import Piece, PrefixCache
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import StepCost, steps_until, stretch_seconds

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Flags that the scheduler obeys: ``--max-num-seqs``, ``--max-num-batched-tokens``, prefix caching."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool = True


class Engine:
    """An engine in simulated time. ``next_seconds`` is when ``advance`` has something to do."""

    def __init__(self, pool: BlockPool, limits: EngineLimits, cost: StepCost) -> None:
        self.counters = Counters()
        self.next_seconds = NEVER
        self._pool, self._limits, self._cost = pool, limits, cost
        self._waiting: deque[Request] = deque()
        self._running: dict[Request, None] = {}
        """In the order of admission: the last one is preempted first."""
        self._prefilling: deque[Request] = deque()
        self._completing: list[Request] = []
        """Requests whose prefill the step under way completes."""
        self._finishing: list[tuple[int, int, Request]] = []
        self._capping: list[tuple[int, int, Request]] = []
        """Heaps of (step, order, request): when a last token comes, and when a sliding window is full."""
        self._order = 0
        self._lines: dict[int, tuple[float, float]] = {}
        """Costs of decode-only steps by their requests: they are asked for at every event."""
        self._phases = Phases(pool.block_size_tokens)
        self._cache = PrefixCache()
        self._free = pool.usable_blocks
        self._step = 0
        """Decode steps so far: whoever decodes has ``_step - base`` tokens in the cache."""
        self._decoding = 0
        self._context = 0
        """Tokens in the cache of all that decode, together."""
        self._began = 0.0
        self._stretch = 0
        """Decode-only steps under way; 0 while a step prefills."""

    @property
    def running(self) -> int:
        """Requests being served: ``num_requests_running``."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue, preempted ones included: ``num_requests_waiting``."""
        return len(self._waiting)

    @property
    def outstanding(self) -> int:
        """Requests sent here and not finished."""
        return len(self._running) + len(self._waiting)

    @property
    def usable_blocks(self) -> int:
        """Blocks of the pool that can hold something."""
        return self._pool.usable_blocks

    def usage(self, now_seconds: float) -> float:
        """``kv_cache_usage_perc`` at a moment not after ``next_seconds``: over the blocks without the null block."""
        used = self._pool.usable_blocks - self._free
        if self._stretch and now_seconds > self._began:
            used += self._phases.growth(self._step, self._steps_until(now_seconds))
        return used / self._pool.usable_blocks

    def holds(self, request: Request) -> bool:
        """Whether the pool could ever serve it; vLLM refuses such requests, since ``max_model_len`` fits the pool."""
        return self._pool.blocks(request.prompt_tokens + request.output_tokens) <= self._pool.usable_blocks

    def submit(self, request: Request, now_seconds: float) -> None:
        """A request that the pool ``holds`` arrives, not after ``next_seconds``."""
        request.pieces = self._pieces(request) if request.prefix and self._limits.prefix_caching else ()
        self._waiting.append(request)
        if self.next_seconds == NEVER:
            # Nothing is under way: the first step begins now, with whoever else arrives at this moment.
            self._began = self.next_seconds = now_seconds
        elif self._stretch > 1 and len(self._waiting) == 1 and self._fits(request):
            self._end_after(self._steps_until(now_seconds))

    def advance(self) -> list[Request]:
        """Finish what ends at ``next_seconds`` and begin what comes next; the requests that are done."""
        now, stretch = self.next_seconds, self._stretch
        if stretch:
            self._take(self._phases.growth(self._step, stretch))
        steps = stretch or 1
        done: list[Request] = []
        if self._decoding:
            self.counters.itl.add((now - self._began) / steps, steps * self._decoding)
            self.counters.generation_tokens += steps * self._decoding
            self._context += steps * self._decoding
            self._step += steps
            self._retire(now, done)
        for request in self._completing:
            self._first_token(request, now, done)
        self._began = now
        self._begin()
        return done

    def abandon(self) -> list[Request]:
        """The engine dies: the requests it leaves behind. It must not be used any more."""
        self.next_seconds = NEVER
        return [*self._running, *self._waiting]

    # What comes next.

    def _begin(self) -> None:
        """Compose the next step, or the next stretch of steps, from the state at ``_began``."""
        self._stretch = 0
        if self._completing:
            self._completing = []
        preempted = self._make_room()
        if self._prefilling or (self._waiting and not preempted and self._fits(self._waiting[0])):
            self._begin_mixed(admit=not preempted)
        elif self._decoding:
            self._begin_stretch(1 if preempted else self._steps_to_event())
        else:
            self.next_seconds = NEVER

    def _make_room(self) -> bool:
        """Preempt the newest until the next token of everybody else has its block; whether anybody had to go."""
        preempted = False
        while self._phases.due(self._step) > self._free:
            self._preempt(next(reversed(self._running)))
            preempted = True
        return preempted

    def _fits(self, request: Request) -> bool:
        """Admission: a sequence slot, and free blocks for the whole prompt less what others hold already."""
        if len(self._running) >= self._limits.max_num_seqs:
            return False
        blocks = self._pool.blocks(request.prompt_tokens + request.generated)
        if request.pieces:
            blocks -= self._cache.held_by_others(request.pieces)
        return blocks <= self._free

    def _begin_stretch(self, at_most: int) -> None:
        self._end_after(max(1, self._phases.steps_within(self._step, self._free, at_most)))

    def _end_after(self, steps: int) -> None:
        """The stretch that began at ``_began`` has so many steps."""
        self._stretch = steps
        line = self._line()
        self.next_seconds = self._began + stretch_seconds(line, self._decoding, self._context, steps)

    def _line(self) -> tuple[float, float]:
        line = self._lines.get(self._decoding)
        if line is None:
            line = self._lines[self._decoding] = self._cost.decode_line(self._decoding)
        return line

    def _steps_until(self, now_seconds: float) -> int:
        """Steps of the stretch under way that have begun by then."""
        line = self._line()
        return min(self._stretch, steps_until(line, self._decoding, self._context, now_seconds - self._began))

    def _steps_to_event(self) -> int:
        """Steps until somebody's last token, or until somebody's sliding window stops growing."""
        heap = self._finishing
        while heap[0][2].finish_step != heap[0][0]:
            heappop(heap)  # preempted since
        steps = heap[0][0] - self._step
        if self._capping:
            steps = min(steps, max(1, self._capping[0][0] - self._step))
        return steps

    def _begin_mixed(self, *, admit: bool) -> None:
        """A step that prefills: those under way first, then whoever may be admitted."""
        decoding, context = self._decoding, self._context
        budget = self._limits.max_num_batched_tokens - decoding
        self._take(self._phases.due(self._step))
        chunks: list[tuple[int, int]] = []
        for request in self._prefilling:
            if budget > 0:
                budget -= self._prefill(request, budget, chunks)
        waiting = self._waiting
        while admit and budget > 0 and waiting and self._fits(waiting[0]):
            request = waiting.popleft()
            self._admit(request)
            budget -= self._prefill(request, budget, chunks)
        for _ in self._completing:
            self._prefilling.popleft()
        self.next_seconds = self._began + self._cost.mixed_seconds(decoding, context, chunks)

    def _prefill(self, request: Request, budget: int, chunks: list[tuple[int, int]]) -> int:
        """Give a request its chunk of this step; the tokens of it."""
        chunk = min(budget, request.target - request.computed)
        chunks.append((chunk, request.computed))
        request.computed += chunk
        if request.computed >= request.target:
            self._completing.append(request)
        self.counters.prefilled_tokens += chunk
        return chunk

    # Blocks.

    def _take(self, blocks: int) -> None:
        self._free -= blocks
        if self._cache.idle_blocks > self._free:
            self._cache.shrink_to(self._free)

    def _pieces(self, request: Request) -> tuple[Piece, ...]:
        """Whole blocks of the pieces of a prompt, of all groups that keep every token."""
        size, groups = self._pool.block_size_tokens, self._pool.full_groups
        pieces: list[Piece] = []
        tokens = 0
        for identity, length in request.prefix:
            rows = (tokens + length) // size - tokens // size
            tokens += length
            pieces.append((identity, rows * groups))
        return tuple(pieces)

    def _admit(self, request: Request) -> None:
        """Give a request all blocks of its prompt, and what the prefix cache has of it."""
        request.target = request.prompt_tokens + request.generated
        request.computed = min(self._cached_tokens(request), request.target - 1)
        taken = self._pool.blocks(request.target)
        if request.pieces:
            taken += self._cache.acquire(request.pieces) - sum(blocks for _, blocks in request.pieces)
        self._take(taken)
        if not request.preemptions:
            request.scheduled_seconds = self._began
            self.counters.queue_seconds += self._began - request.arrival_seconds
            self.counters.prefix_queried_tokens += request.target
            self.counters.prefix_hit_tokens += request.computed
        self._running[request] = None
        self._prefilling.append(request)

    def _cached_tokens(self, request: Request) -> int:
        """Tokens from the front of the prompt that need not be computed."""
        if not request.pieces and not request.preemptions:
            return 0
        own = self._cache.take(request) if request.preemptions else 0
        hits = self._cache.hits(request.pieces)
        blocks = sum(count for _, count in request.pieces[:hits])
        if hits == len(request.pieces):
            blocks += own
        return blocks // self._pool.full_groups * self._pool.block_size_tokens

    def _leave(self, request: Request, tokens: int) -> None:
        """A request stops running with so many tokens in the cache; its blocks stay readable until they are needed."""
        del self._running[request]
        shared = sum(blocks for _, blocks in request.pieces) if request.pieces else 0
        self._free += self._pool.blocks(tokens) - shared
        if self._limits.prefix_caching:
            full = tokens // self._pool.block_size_tokens * self._pool.full_groups
            self._cache.keep(request, full - shared)
        if request.pieces:
            self._free += self._cache.release(request.pieces)

    # What has happened.

    def _first_token(self, request: Request, now: float, done: list[Request]) -> None:
        """A prefill is complete: it makes one token, and the request decodes from now on."""
        counters = self.counters
        counters.generation_tokens += 1
        if request.preemptions:
            counters.itl.add(now - request.last_token_seconds)
        if request.generated == 0:
            request.first_token_seconds = now
            counters.prompt_tokens += request.prompt_tokens
            counters.ttft.add(now - request.arrival_seconds)
        left = request.output_tokens - request.generated - 1
        if left <= 0:
            self._finish(request, request.target, now, done)
            return
        request.base = self._step - request.target
        request.finish_step = self._step + left
        self._order += 1
        heappush(self._finishing, (request.finish_step, self._order, request))
        self._decoding += 1
        self._context += request.target
        request.groups = self._pool.growing_groups(request.target)
        self._phases.add(request.base, request.groups)
        self._await_cap(request)

    def _await_cap(self, request: Request) -> None:
        cap = self._pool.next_cap_tokens(self._step - request.base)
        if cap is not None:
            heappush(self._capping, (request.base + cap, self._order, request))

    def _retire(self, now: float, done: list[Request]) -> None:
        """Everybody whose last token came with the step that just ended; windows that are full stop growing."""
        heap, step = self._finishing, self._step
        while heap and heap[0][0] <= step:
            at, _, request = heappop(heap)
            if request.finish_step == at:
                tokens = self._stop_decoding(request)
                self._finish(request, tokens, now, done)
        while self._capping and self._capping[0][0] <= step:
            _, _, request = heappop(self._capping)
            if request.finish_step >= 0:
                self._cap(request)

    def _cap(self, request: Request) -> None:
        groups = self._pool.growing_groups(self._step - request.base)
        if groups != request.groups:
            self._phases.add(request.base, groups - request.groups)
            request.groups = groups
            self._await_cap(request)

    def _stop_decoding(self, request: Request) -> int:
        """Take a request out of the batch; its tokens in the cache."""
        tokens = self._step - request.base
        request.finish_step = -1
        self._phases.add(request.base, -request.groups)
        self._decoding -= 1
        self._context -= tokens
        return tokens

    def _finish(self, request: Request, tokens: int, now: float, done: list[Request]) -> None:
        request.finish_seconds = now
        self.counters.finished += 1
        self._leave(request, tokens)
        done.append(request)

    def _preempt(self, request: Request) -> None:
        """All blocks of a request are freed, and it waits at the head of the line to be computed anew."""
        if request.finish_step >= 0:
            request.generated = request.output_tokens - (request.finish_step - self._step)
            request.last_token_seconds = self._began
            self._leave(request, self._stop_decoding(request))
        else:
            self._prefilling.remove(request)
            self._leave(request, request.target)
        request.preemptions += 1
        self.counters.preemptions += 1
        self._waiting.appendleft(request)
