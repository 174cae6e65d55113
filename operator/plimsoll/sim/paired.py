"""A canary and its control, simulated: two engines under the same traffic, and what a minute of each says.

Both start together, idle and with cold caches. Each request goes to one of the two, as a Service's random choice or a
router of least outstanding requests would send it; the rest of the fleet is left out, since it takes its own share.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from plimsoll.core.judge import Pair, Window
from plimsoll.sim.counters import quantile
from plimsoll.sim.engine import NEVER, Engine
from plimsoll.sim.models import EngineModel
from plimsoll.sim.observe import PodSample, sample
from plimsoll.sim.requests import Request

Split = Literal["random", "least"]
TAIL: Final = 0.95
LOOKS: Final = 6
"""Gauges are looked at so often in a window."""


@dataclass(frozen=True)
class Trouble:
    """What becomes of the canary whatever its flags are. Seconds from the start of the experiment."""

    crashes_seconds: float = NEVER
    """It ends; nothing is heard of it any more."""
    hangs_seconds: float = NEVER
    """It answers scrapes and makes no token any more."""
    crashes_above: float = NEVER
    """It ends as soon as more blocks of its cache are in use: what a utilisation too high does under load."""


NO_TROUBLE: Final = Trouble()


@dataclass
class _Pod:
    engine: Engine
    outstanding: int = 0
    done: list[Request] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    """Counts of the histogram of inter-token latencies at the last window's end."""
    looks: list[PodSample] = field(default_factory=list)
    last: PodSample | None = None
    dead: bool = False
    hung: bool = False

    @property
    def next_seconds(self) -> float:
        return NEVER if self.dead or self.hung else self.engine.next_seconds

    @property
    def blocks(self) -> float:
        return self.looks[-1].usage * self.looks[-1].usable_blocks

    def advance(self) -> None:
        done = self.engine.advance()
        self.outstanding -= len(done)
        self.done += done

    def take(self, request: Request, now: float) -> None:
        """A request comes; one that the pool could never hold is refused."""
        if self.engine.holds(request):
            self.outstanding += 1
            self.engine.submit(request, now)


def paired(
    control: EngineModel,
    canary: EngineModel,
    requests: Iterable[Request],
    *,
    windows: int,
    window_seconds: float = 60.0,
    warm_up_seconds: float = 180.0,
    split: Split = "random",
    seed: int = 0,
    trouble: Trouble = NO_TROUBLE,
) -> Iterator[Pair]:
    """The pairs of an experiment, one after the other, warm-up left out."""
    pods = (_Pod(control.engine()), _Pod(canary.engine()))
    choose = _chooser(split, seed)
    arrivals = iter(requests)
    request = next(arrivals, None)
    look_every = window_seconds / LOOKS
    look = 1
    while look <= (warm_up_seconds + windows * window_seconds) / look_every + 0.5:
        until = look * look_every
        while request is not None and request.arrival_seconds < until:
            _run(pods, request.arrival_seconds)
            choose(pods).take(request, request.arrival_seconds)
            request = next(arrivals, None)
        _run(pods, until)
        for pod in pods:
            pod.looks.append(sample(pod.engine, until))
        _befall(pods[1], until, trouble)
        if look % LOOKS == 0:
            pair = Pair(*(_window(pod, window_seconds) for pod in pods))
            if until > warm_up_seconds:
                yield pair
        look += 1


def _run(pods: tuple[_Pod, _Pod], until: float) -> None:
    for pod in pods:
        while pod.next_seconds < until:
            pod.advance()


def _chooser(split: Split, seed: int) -> Callable[[tuple[_Pod, _Pod]], _Pod]:
    random = Random(seed)  # noqa: S311 - a simulation

    def choose(pods: tuple[_Pod, _Pod]) -> _Pod:
        alive = [pod for pod in pods if not pod.dead]
        if split == "least":
            return min(alive, key=lambda pod: (pod.outstanding, random.random()))
        return random.choice(alive)

    return choose


def _befall(canary: _Pod, now: float, trouble: Trouble) -> None:
    if now >= trouble.crashes_seconds or canary.blocks > trouble.crashes_above:
        canary.dead = True
    canary.hung = canary.hung or now >= trouble.hangs_seconds


def _window(pod: _Pod, seconds: float) -> Window | None:
    """What Prometheus would say of the pod's last window; None of a pod that is gone."""
    last, looks = pod.last, pod.looks
    newest = looks[-1]
    pod.last, pod.looks = newest, []
    done, pod.done = pod.done, []
    if pod.dead:
        return None
    tail = _tail(pod)
    before = last or _nothing(newest)
    first, tokens = newest.ttft_count - before.ttft_count, newest.itl_count - before.itl_count
    return Window(
        ttft_seconds=(newest.ttft_seconds - before.ttft_seconds) / first if first else None,
        token_seconds=(newest.itl_seconds - before.itl_seconds) / tokens if tokens else None,
        token_tail_seconds=tail,
        request_seconds=sum(r.finish_seconds - r.arrival_seconds for r in done) / len(done) if done else None,
        tokens=(newest.generation_tokens - before.generation_tokens) / seconds,
        finished=float(newest.finished - before.finished),
        waiting=sum(each.waiting for each in looks) / len(looks),
        usage=max(each.usage for each in looks),
        preemptions=float(newest.preemptions - before.preemptions),
        failed=0.0,
    )


def _tail(pod: _Pod) -> float | None:
    """The 95th percentile of the window's inter-token latencies."""
    histogram = pod.engine.counters.itl
    before, pod.observed = pod.observed or [0] * len(histogram.counts), list(histogram.counts)
    more = [now - then for now, then in zip(histogram.counts, before, strict=True)]
    return quantile(histogram.bounds, more, TAIL) if any(more) else None


def _nothing(sampled: PodSample) -> PodSample:
    """The counters of an engine that has just started."""
    gauges = {"seconds", "usage", "running", "waiting", "usable_blocks"}
    return PodSample(**{name: getattr(sampled, name) if name in gauges else 0 for name in PodSample.__slots__})
