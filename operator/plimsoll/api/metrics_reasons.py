"""Reasons of MetricsAvailable and SLOMet: what is known of a fleet, and whether its users are served in time."""

from typing import Final

from plimsoll.api.names import METRICS_AVAILABLE, SLO_MET
from plimsoll.api.reason import Reason, table

_AVAILABLE: Final = (METRICS_AVAILABLE,)
_MET: Final = (SLO_MET,)

METRICS_COMPLETE: Final = Reason(
    "MetricsComplete", _AVAILABLE, "Every replica that serves reports all that decisions need.", "Nothing to do."
)
NOTHING_SERVES: Final = Reason(
    "NothingServes",
    (METRICS_AVAILABLE, SLO_MET),
    "No replica serves, so there is nothing to measure; that is known, not missing.",
    "Nothing to do.",
)
NO_PROMETHEUS: Final = Reason(
    "NoPrometheus",
    (METRICS_AVAILABLE, SLO_MET),
    "The operator was given no Prometheus: it sizes and rolls out, and leaves the number of replicas as planned.",
    "Set the chart's settings.prometheusURL (PLIMSOLL_PROMETHEUS_URL).",
)
PROMETHEUS_UNREACHABLE: Final = Reason(
    "PrometheusUnreachable",
    _AVAILABLE,
    "Prometheus cannot be reached, does not answer in time, or fails. Replicas stay as they are.",
    "Check settings.prometheusURL, the network policies between, and Prometheus itself; the message has its words.",
)
PROMETHEUS_REFUSES: Final = Reason(
    "PrometheusRefuses",
    _AVAILABLE,
    "Prometheus refuses the operator (401, 403), or a file of its credentials cannot be read.",
    "Check the chart's settings.prometheusTokenFile, or user and password, or the tenant among prometheusHeaders.",
)
QUERY_REJECTED: Final = Reason(
    "QueryRejected",
    _AVAILABLE,
    "Prometheus rejects one of the operator's queries.",
    "Try the query of docs/metrics.md by hand; a backend that only resembles Prometheus may lack a function, or limit "
    "how many series a query may read.",
)
ANSWER_INVALID: Final = Reason(
    "AnswerInvalid",
    _AVAILABLE,
    "What answers at the URL is no Prometheus query API: a login page, a proxy, a wrong path.",
    "Check settings.prometheusURL: `curl $URL/api/v1/query?query=up` must answer JSON with status success.",
)
PARTIAL_ANSWER: Final = Reason(
    "PartialAnswer",
    _AVAILABLE,
    "Prometheus warns that its answer may lack something, so nothing that is not in it counts as absent.",
    "Look at the stores behind it (Thanos, Mimir); the message has its words.",
)
NO_SCRAPE_TARGET: Final = Reason(
    "NoScrapeTarget",
    _AVAILABLE,
    "Prometheus does not scrape a replica: `up` has no series with its namespace and pod.",
    "Does a PodMonitor or scrape job select pods with app.kubernetes.io/managed-by=plimsoll, at the port named http, "
    "and keep the labels namespace and pod? A new pod may take a scrape interval or two.",
)
SCRAPE_FAILS: Final = Reason(
    "ScrapeFails",
    _AVAILABLE,
    "Prometheus knows a replica and cannot scrape it: `up` is 0.",
    "Prometheus' page /targets has the error: a network policy, TLS on the engine's port, an answer that takes longer "
    "than the scrape's timeout.",
)
METRICS_MISSING: Final = Reason(
    "MetricsMissing",
    _AVAILABLE,
    "A replica is scraped, and something that decisions need is not on its page.",
    "Compare the page with the names of docs/metrics.md: a release may have renamed some; --disable-log-stats and "
    "scrape rules that drop series leave them out.",
)
METRICS_STALE: Final = Reason(
    "MetricsStale",
    _AVAILABLE,
    "The newest scrape of a replica is too old to be believed.",
    "Is Prometheus overloaded, or its storage behind? settings.metricsStaleSeconds must be two scrape intervals at "
    "least.",
)
METRICS_INVALID: Final = Reason(
    "MetricsInvalid",
    _AVAILABLE,
    "A replica reports what cannot be: no number, a KV use outside 0 to 1, or of exactly 0 beside running requests.",
    "Look at the pod's own /metrics; a recording rule or a federation may spoil the figures between.",
)

TARGETS_MET: Final = Reason("TargetsMet", _MET, "The latencies of spec.slo are met.", "Nothing to do.")
TTFT_ABOVE_TARGET: Final = Reason(
    "TTFTAboveTarget",
    _MET,
    "First tokens take longer than spec.slo.ttft allows.",
    "status.observed.bottleneck says what limits the service.",
)
ITL_ABOVE_TARGET: Final = Reason(
    "ITLAboveTarget",
    _MET,
    "Tokens take longer than spec.slo.itl allows.",
    "status.observed.bottleneck says what limits the service.",
)
NO_TARGETS: Final = Reason("NoTargets", _MET, "spec.slo sets no target.", "Set spec.slo.ttft or spec.slo.itl.")
NO_REQUESTS: Final = Reason("NoRequests", _MET, "No request was served of late.", "Nothing to do.")

REASONS: Final = table(globals())
