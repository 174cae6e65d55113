"""The operator's own settings, from the environment: what its owner decides, never a tenant."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PREFIX = "PLIMSOLL_"
_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_LENGTH = 40
OPTIONAL_KINDS: Final = ("LeaderWorkerSet", "PodMonitor", "InferencePool")
_REPOSITORY: Final = r"([a-z0-9][-a-z0-9.]*(:[0-9]+)?/)?[a-z0-9][-a-z0-9._/]*"
_LABEL: Final = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


class SettingsError(ValueError):
    """A setting that cannot be used; the message names it, its value and what is allowed."""


@dataclass(frozen=True)
class PrometheusSettings:
    """Where the engines' metrics are read, and as whom. Files are read anew at every query: secrets rotate."""

    url: str = ""
    """Empty: none, and nothing scales. A path is kept: ``https://gateway/prometheus``."""
    token_file: str = ""
    """Wins over user name and password."""
    username_file: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every query: the tenant of a Thanos or Mimir."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that series of this cluster carry, where one Prometheus holds several clusters."""
    timeout_seconds: float = 5.0


@dataclass(frozen=True)
class Settings:
    """Everything that may differ between two installs. Times in seconds."""

    namespace: str = "plimsoll-system"
    """Where the operator lives: its catalogue ConfigMaps are read here."""
    namespaces: tuple[str, ...] = ()
    """Namespaces it serves; empty: the whole cluster."""
    class_: str = ""
    """The operator class it serves: services whose ``spec.className`` is the same; empty: those without one."""
    kubeconfig: str = ""
    """Path of a kubeconfig; empty: the pod's service account, else the user's default."""
    prometheus: PrometheusSettings = PrometheusSettings()
    metrics_interval_seconds: float = 15.0
    """How often Prometheus is asked: the tick of diagnosis and scaling."""
    metrics_window_seconds: float = 60.0
    """Over how long rates are taken: at least two scrapes, better four. Latencies: five times as long."""
    metrics_stale_seconds: float = 90.0
    """A scrape older than this is not believed: at least two scrape intervals."""
    scale_down_seconds: float = 600.0
    """A fleet shrinks only to the largest need of so long."""
    experiment_window_seconds: float = 60.0
    """Window of an experiment, which all its other times follow from: warm-up 3, measuring 25, watching 30, a pause of
    60 windows. At least four scrapes."""
    experiments_per_day: int = 4
    """Of one service; 0: none by itself."""
    gate_image: str = ""
    """The operator's own image, for the built-in quality gate (docs/tuning.md); empty: there is none."""
    teaching_images: tuple[str, ...] = ("vllm/vllm-openai",)
    """Image repositories whose pods teach what an engine's KV cache is (docs/learning.md)."""
    pod_policy: str = ""
    """Path of the owner's pod policy (docs/pods.md); empty: the default policy."""
    inventory: str = ""
    """Path of the file of GPU prices, node sizes, budgets and reserves; empty: the catalogue's figures, no budget."""
    activation: str = ""
    """Path of the file of activation queries (docs/scaling.md); empty: none, and no service sleeps."""
    http_host: str = "0.0.0.0"  # noqa: S104 - probes come from the kubelet, from outside the pod
    http_port: int = 8080
    workers: int = 8
    sweep_seconds: float = 600.0
    discovery_seconds: float = 20.0
    """How often to look which optional kinds are served."""
    optional_kinds: tuple[str, ...] = OPTIONAL_KINDS
    """Kinds to use where they are served; the others are left alone."""
    pod_monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every PodMonitor: what the cluster's Prometheus selects them by."""
    request_timeout_seconds: float = 15.0
    lease_seconds: int = 15
    """How long a dead leader is waited for; renewals are due after two thirds of it."""
    ledger_events: str = "changes"
    """Entries of the ledger that become Events: ``changes`` of replicas and flags, or ``all`` (docs/ledger.md)."""
    log_format: str = "json"
    log_level: str = "info"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Settings from ``PLIMSOLL_*``; raises SettingsError on a value out of range."""
        read = _Reader(env)
        return cls(
            namespace=read.text("NAMESPACE", cls.namespace),
            namespaces=tuple(n for n in read.text("NAMESPACES", "").replace(" ", "").split(",") if n),
            class_=read.name("CLASS"),
            kubeconfig=env.get("KUBECONFIG", ""),
            prometheus=_prometheus(read),
            metrics_interval_seconds=read.number("METRICS_INTERVAL_SECONDS", cls.metrics_interval_seconds, 0.5, 300),
            metrics_window_seconds=read.number("METRICS_WINDOW_SECONDS", cls.metrics_window_seconds, 1, 3600),
            metrics_stale_seconds=read.number("METRICS_STALE_SECONDS", cls.metrics_stale_seconds, 1, 3600),
            scale_down_seconds=read.number("SCALE_DOWN_SECONDS", cls.scale_down_seconds, 1, 86_400),
            experiment_window_seconds=read.number("EXPERIMENT_WINDOW_SECONDS", cls.experiment_window_seconds, 1, 3600),
            experiments_per_day=int(read.number("EXPERIMENTS_PER_DAY", cls.experiments_per_day, 0, 24)),
            gate_image=read.text("GATE_IMAGE", ""),
            teaching_images=read.repositories("TEACHING_IMAGES", cls.teaching_images),
            pod_policy=read.text("POD_POLICY", ""),
            inventory=read.text("INVENTORY", ""),
            activation=read.text("ACTIVATION", ""),
            http_host=read.text("HTTP_HOST", cls.http_host),
            http_port=int(read.number("HTTP_PORT", cls.http_port, 0, 65535)),
            workers=int(read.number("WORKERS", cls.workers, 1, 64)),
            sweep_seconds=read.number("SWEEP_SECONDS", cls.sweep_seconds, 1, 86_400),
            discovery_seconds=read.number("DISCOVERY_SECONDS", cls.discovery_seconds, 1, 3600),
            optional_kinds=read.subset("OPTIONAL_KINDS", OPTIONAL_KINDS),
            pod_monitor_labels=read.words("POD_MONITOR_LABELS", _LABEL),
            request_timeout_seconds=read.number("REQUEST_TIMEOUT_SECONDS", cls.request_timeout_seconds, 1, 300),
            lease_seconds=int(read.number("LEASE_SECONDS", cls.lease_seconds, 3, 60)),
            ledger_events=read.choice("LEDGER_EVENTS", cls.ledger_events, ("changes", "all")),
            log_format=read.choice("LOG_FORMAT", cls.log_format, ("json", "text")),
            log_level=read.choice("LOG_LEVEL", cls.log_level, ("debug", "info", "warning", "error")),
        )


def _prometheus(read: "_Reader") -> PrometheusSettings:
    url = read.text("PROMETHEUS_URL", "").rstrip("/")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise SettingsError(
            f"{PREFIX}PROMETHEUS_URL: no user or password in it, since a URL is shown; "
            f"set {PREFIX}PROMETHEUS_USERNAME_FILE and _PASSWORD_FILE"
        )
    if url and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
        raise SettingsError(f"{PREFIX}PROMETHEUS_URL: {url!r} is not http(s)://HOST[:PORT][/PATH]")
    files = {name: read.text(f"PROMETHEUS_{name.upper()}", "") for name in _PROMETHEUS_FILES}
    for one, other in (("username_file", "password_file"), ("cert_file", "key_file")):
        if bool(files[one]) != bool(files[other]):
            raise SettingsError(f"{PREFIX}PROMETHEUS_{one.upper()} and _{other.upper()} go together: one is not set")
    return PrometheusSettings(
        url=url,
        **files,
        headers=read.words("PROMETHEUS_HEADERS", r"[A-Za-z0-9-]+"),
        labels=read.words("PROMETHEUS_LABELS", r"[a-zA-Z_][a-zA-Z0-9_]*"),
        timeout_seconds=read.number("PROMETHEUS_TIMEOUT_SECONDS", PrometheusSettings.timeout_seconds, 0.5, 60),
    )


_PROMETHEUS_FILES = ("token_file", "username_file", "password_file", "ca_file", "cert_file", "key_file")


@dataclass(frozen=True)
class _Reader:
    env: Mapping[str, str]

    def text(self, name: str, default: str) -> str:
        return self.env.get(PREFIX + name, default)

    def name(self, name: str) -> str:
        value = self.env.get(PREFIX + name, "")
        if value and not (len(value) <= _NAME_LENGTH and re.fullmatch(_NAME, value)):
            raise SettingsError(f"{PREFIX}{name}: {value!r} is not a name (a-z, 0-9 and -, at most {_NAME_LENGTH})")
        return value

    def subset(self, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """A list of some of the allowed words, all of them when nothing is set, none when it is ``none``."""
        raw = self.env.get(PREFIX + name, "").replace(" ", "")
        if not raw:
            return allowed
        words = [] if raw.lower() == "none" else raw.split(",")
        wrong = next((word for word in words if word not in allowed), None)
        if wrong is not None:
            raise SettingsError(f"{PREFIX}{name}: {wrong!r} is not one of {', '.join(allowed)}, or none")
        return tuple(word for word in allowed if word in words)

    def repositories(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Image repositories, without tags; none at all when it is ``none``."""
        raw = self.env.get(PREFIX + name, "").replace(" ", "")
        if not raw:
            return default
        words = () if raw.lower() == "none" else tuple(word for word in raw.split(",") if word)
        if wrong := next((word for word in words if not re.fullmatch(_REPOSITORY, word)), None):
            raise SettingsError(f"{PREFIX}{name}: {wrong!r} is no image repository (no tag, no digest)")
        return words

    def number(self, name: str, default: float, low: float, high: float) -> float:
        raw = self.env.get(PREFIX + name)
        if raw is None or raw == "":
            return default
        try:
            value = float(raw)
        except ValueError:
            raise SettingsError(f"{PREFIX}{name}: {raw!r} is not a number ({low:g} to {high:g})") from None
        if not low <= value <= high:
            raise SettingsError(f"{PREFIX}{name}: {raw} is outside {low:g} to {high:g}")
        return value

    def words(self, name: str, keys: str) -> dict[str, str]:
        """A JSON object of texts whose keys match the pattern."""
        raw = self.env.get(PREFIX + name) or "{}"
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(v, str) and "\n" not in v for v in found.values()):
            raise SettingsError(f'{PREFIX}{name}: it must be a JSON object of texts, {{"name": "value"}}')
        if bad := next((key for key in found if not re.fullmatch(keys, key)), None):
            raise SettingsError(f"{PREFIX}{name}: {bad!r} is not a name ({keys})")
        return found

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.env.get(PREFIX + name, default).lower()
        if value not in allowed:
            raise SettingsError(f"{PREFIX}{name}: {value!r} is not one of {', '.join(allowed)}")
        return value
