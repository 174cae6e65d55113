"""Whether what decisions need is there, and if not: what is missing, on which pods, and probably why. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from plimsoll.api import metrics_reasons as reasons
from plimsoll.api.reason import Reason
from plimsoll.api.reasons import NO_OBSERVATION
from plimsoll.core.sampling import Fault, FaultKind, Sampling
from plimsoll.core.signals import MISSING, NEEDED, FleetView, NotANumber, PodView, Sample, Stale
from plimsoll.core.steady import Verdict

FALSE_AFTER_TICKS: Final = 2
"""One answer that did not come is no outage."""

_OF_FAULTS: Final[Mapping[FaultKind, Reason]] = {
    "unreachable": reasons.PROMETHEUS_UNREACHABLE,
    "auth": reasons.PROMETHEUS_REFUSES,
    "rejected": reasons.QUERY_REJECTED,
    "invalid": reasons.ANSWER_INVALID,
}
_CAUSES: Final[Mapping[Reason, str]] = {
    reasons.NO_SCRAPE_TARGET: "Prometheus has no scrape target for {pods}: no PodMonitor or scrape job selects it, or "
    "not at the port named http",
    reasons.SCRAPE_FAILS: "Prometheus' scrapes of {pods} fail (up is 0)",
    reasons.METRICS_MISSING: "{pods} is scraped, and its page does not have it",
    reasons.METRICS_STALE: "the newest scrape of {pods} is too old",
    reasons.METRICS_INVALID: "{pods} reports what cannot be",
}
"""In the order in which the first that concerns most pods is the reason."""


def judge(view: FleetView, sampling: Sampling, namespace: str) -> Verdict:
    """What MetricsAvailable is, by one tick."""
    if sampling.error:
        return _fault(sampling.error)
    if not view.serving:
        return _nothing_serves(view)
    if view.partial:
        return _false(reasons.PARTIAL_ANSWER, f"Prometheus warns: {view.partial}")
    if sampling.faults:
        return _fault(next(iter(sampling.faults.values())))
    reporting = replace(view, pods=tuple(pod for pod in view.pods if not pod.new))
    if not reporting.serving:
        return _say(NO_OBSERVATION, "Unknown", "replicas have just become ready; nothing was scraped of them yet")
    gaps = reporting.gaps()
    if gaps:
        return _gaps(reporting, gaps, sampling, namespace)
    return _say(reasons.METRICS_COMPLETE, "True", "every replica that serves reports all that decisions need")


def without_prometheus() -> Verdict:
    """What MetricsAvailable is when there is nobody to ask."""
    text = "no Prometheus is configured (settings.prometheusURL): the number of replicas stays as planned"
    return _say(reasons.NO_PROMETHEUS, "Unknown", text)


def _nothing_serves(view: FleetView) -> Verdict:
    if view.count("loading"):
        return _say(NO_OBSERVATION, "Unknown", "no replica serves yet")
    return _say(reasons.NOTHING_SERVES, "True", "no replica serves: there is nothing to measure")


def _fault(fault: Fault) -> Verdict:
    return _false(_OF_FAULTS[fault.kind], f"{fault.message}; replicas stay as they are")


def _gaps(view: FleetView, gaps: list[str], sampling: Sampling, namespace: str) -> Verdict:
    causes = {pod.name: _cause(view, pod, sampling, namespace) for pod in view.serving}
    lacking = {name: cause for name, cause in causes.items() if cause is not None}
    counts = Counter(lacking.values())
    order = list(_CAUSES)
    reason = min(counts, key=lambda cause: (-counts[cause], order.index(cause)))
    told = [
        text.format(pods=", ".join(sorted(name for name, found in lacking.items() if found is cause)[:3]))
        for cause, text in _CAUSES.items()
        if cause in counts
    ]
    return _false(reason, f"{'; '.join(gaps)}. {'; '.join(told)}")


def _cause(view: FleetView, pod: PodView, sampling: Sampling, namespace: str) -> Reason | None:
    """Why something is not known of a pod; None when all is."""
    ranks = [engine.get(signal, MISSING) for engine in pod.engines.values() for signal in NEEDED]
    unknown = [reading for reading in ranks if not isinstance(reading, Sample)]
    if len(pod.engines) < view.engines_per_pod:
        unknown.append(MISSING)
    if not unknown:
        return None
    if any(isinstance(reading, NotANumber) for reading in unknown):
        return reasons.METRICS_INVALID
    if any(isinstance(reading, Stale) for reading in unknown):
        return reasons.METRICS_STALE  # what is missing beside it are rates, for want of new samples
    if sampling.scraped is None or (namespace, pod.name) not in sampling.asked_about:
        return reasons.METRICS_MISSING
    up = sampling.scraped.get((namespace, pod.name))
    if up is None:
        return reasons.NO_SCRAPE_TARGET
    return reasons.METRICS_MISSING if up else reasons.SCRAPE_FAILS


def _false(reason: Reason, message: str) -> Verdict:
    return Verdict(reason.name, "False", message, patience=FALSE_AFTER_TICKS)


def _say(reason: Reason, status: str, message: str) -> Verdict:
    return Verdict(reason.name, status, message)
