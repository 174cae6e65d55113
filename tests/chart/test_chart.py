"""What the chart renders, as tables. Whether a real API server takes it: e2e/test_install.py."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from plimsoll.core.activation import read_templates
from plimsoll.core.plan.inventory import read_inventory
from plimsoll.core.podtemplate.check import owners_policy
from plimsoll.metrics import REGISTRY
from plimsoll.settings import PREFIX, Settings
from tests.chart.conftest import VALUES, Object, Render, one
from tools.generate import settings_read, variable
from tools.kustomize import CHART, NAMESPACE, ROOT

CASES = sorted(path.stem for path in VALUES.glob("*.yaml"))
# Set by the chart from other values, or none of a pod's business.
NOT_SETTINGS = {"PLIMSOLL_NAMESPACE", "PLIMSOLL_NAMESPACES", "PLIMSOLL_INVENTORY"}
HOW_TO_ADD = (
    "add settings.<camelCaseName> to charts/plimsoll/values.yaml and values.schema.json and to "
    "tests/chart/values/everything.yaml, then `make generate kustomize`"
)


def container(objects: list[Object]) -> Object:
    (found,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(objects: list[Object]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container(objects)["env"]}


def rules(objects: list[Object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in objects:
        for rule in found.get("rules") or ():
            yield found["metadata"]["name"], rule


@pytest.mark.parametrize("values", CASES)
def test_lint_finds_nothing(helm: Path, values: str) -> None:
    arguments = [str(helm), "lint", "--strict", str(CHART), f"--values={VALUES / values}.yaml"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_every_setting_of_the_operator_has_a_value_and_every_value_is_a_setting(render: Render) -> None:
    wanted = settings_read() - NOT_SETTINGS
    given = {name for name in environment(render("everything")) if name.startswith(PREFIX)} - NOT_SETTINGS
    assert wanted - given == set(), f"the operator reads these and no value sets them; {HOW_TO_ADD}"
    assert given - wanted == set(), "the chart sets these and the operator does not read them"


def test_a_value_reaches_the_operator_as_it_was_written(render: Render) -> None:
    settings = Settings.from_env(environment(render("everything")))
    values = yaml.safe_load((VALUES / "everything.yaml").read_text())["settings"]
    fields = {**vars(settings), **{f"prometheus_{name}": value for name, value in vars(settings.prometheus).items()}}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    read = {re.sub(r"_", "", field).lower(): value for field, value in plain.items()}
    assert {name: read[name.lower()] for name in values} == values


def test_rights_on_optional_kinds_follow_the_list(render: Render) -> None:
    groups = {group for _, rule in rules(render("everything")) for group in rule["apiGroups"]}
    assert "monitoring.coreos.com" in groups
    assert not {"leaderworkerset.x-k8s.io", "inference.networking.k8s.io"} & groups
    assert Settings.from_env({"PLIMSOLL_OPTIONAL_KINDS": "none"}).optional_kinds == ()


def test_the_pod_policy_is_the_file_that_the_operator_reads(render: Render) -> None:
    objects = render("everything")
    path = environment(objects)["PLIMSOLL_POD_POLICY"]
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (mount,) = (m for m in container(objects)["volumeMounts"] if path.startswith(m["mountPath"]))
    (volume,) = (v for v in pod["volumes"] if v["name"] == mount["name"])
    data = one(objects, "ConfigMap", volume["configMap"]["name"])["data"]
    policy = owners_policy(yaml.safe_load(data[path.removeprefix(f"{mount['mountPath']}/")]))
    assert policy.allow.host_paths == ("/mnt/models",)
    assert policy.defaults.spec is not None
    assert "PLIMSOLL_POD_POLICY" not in environment(render())


def test_the_secret_for_prometheus_is_where_the_files_are(render: Render) -> None:
    objects = render("everything")
    path = Path(environment(objects)["PLIMSOLL_PROMETHEUS_TOKEN_FILE"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    assert mounts["prometheus"] == str(path.parent)
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "prometheus", "secret": {"secretName": "prometheus-access"}} in volumes


def test_an_inventory_reaches_the_operator_as_a_file(render: Render) -> None:
    objects = render("everything")
    written = next(found for found in objects if found["metadata"]["name"].endswith("-inventory"))
    stock = read_inventory(yaml.safe_load(written["data"]["inventory.yaml"]))
    assert (stock.gpu_budget, stock.of("NVIDIA-H100-80GB-HBM3").price) == (64, 2.95)
    path = Path(environment(objects)["PLIMSOLL_INVENTORY"])
    assert path.name in written["data"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    assert mounts["inventory"] == str(path.parent)
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "inventory", "configMap": {"name": written["metadata"]["name"]}} in volumes


def test_activation_queries_reach_the_operator_as_a_file(render: Render) -> None:
    objects = render("everything")
    path = Path(environment(objects)["PLIMSOLL_ACTIVATION"])
    written = next(found for found in objects if found["metadata"]["name"].endswith("-activation"))
    assert set(read_templates(yaml.safe_load(written["data"][path.name]))) == {"gateway"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    assert mounts["activation"] == str(path.parent)


def test_the_charts_defaults_are_the_operators(render: Render) -> None:
    found = render()
    assert Settings.from_env(environment(found)) == Settings(namespace="", gate_image=_image(found))


def _image(rendered: list[dict[str, Any]]) -> str:
    """The operator's own, which the built-in quality gate runs from."""
    (operator,) = (each for each in rendered if each["kind"] == "Deployment")
    return str(operator["spec"]["template"]["spec"]["containers"][0]["image"])


def test_what_the_owner_lists_is_everybodys_and_the_rest_that_of_those_who_may_create_pods(render: Render) -> None:
    def keys(*arguments: str) -> list[str]:
        found = [o for o in render("default", *arguments) if o["kind"] == "ValidatingAdmissionPolicy"]
        return [each["message"].rpartition("allow.")[2] for o in found for each in o["spec"]["validations"]]

    assert keys() == ["claims", "configMaps", "images"]
    assert keys("--set=podPolicy.allow.images={mirror.example.com/*}") == ["claims", "configMaps"]
    assert keys("--set=tenantPolicy.enabled=false") == []
    listed = [f"--set=podPolicy.allow.{key}={{*}}" for key in ("images", "configMaps", "claims")]
    assert keys(*listed) == []


def test_namespaces_are_served_and_nothing_else_may_be_touched(render: Render) -> None:
    objects = render("namespaced")
    settings = Settings.from_env(environment(objects))
    assert settings.namespaces == ("team-a", "team-b")
    assert [o["kind"] for o in objects if o["kind"].startswith("Cluster") or "namespace" not in o["metadata"]] == []
    places = {(o["kind"], o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects if "Role" in o["kind"]}
    assert places == {
        (kind, *place)
        for kind in ("Role", "RoleBinding")
        for place in (("team-a", "plimsoll"), ("team-b", "plimsoll"), (NAMESPACE, "plimsoll-own"))
    }


@pytest.mark.parametrize("values", CASES)
def test_no_rule_is_a_wildcard_or_reaches_secrets(render: Render, values: str) -> None:
    for name, rule in rules(render(values)):
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "*" not in words, name
        assert not {"secrets", "escalate", "bind", "impersonate"} & words, name
        assert "resources" in rule, f"{name}: a rule about paths"


@pytest.mark.parametrize("values", CASES)
def test_every_binding_binds_a_role_of_the_release_to_its_account(render: Render, values: str) -> None:
    objects = render(values)
    roles = {(o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) for o in objects if "rules" in o}
    account = one(objects, "ServiceAccount")["metadata"]
    assert one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
    bindings = [o for o in objects if o["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
    assert len(bindings) >= 2
    for binding in bindings:
        ref = binding["roleRef"]
        assert (ref["kind"], ref["name"], binding["metadata"].get("namespace")) in roles
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]


@pytest.mark.parametrize("values", CASES)
def test_the_pod_is_restricted(render: Render, values: str) -> None:
    objects = render(values)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_openshift_chooses_the_user(render: Render) -> None:
    pod = one(render("air-gapped"), "Deployment")["spec"]["template"]["spec"]
    assert set(pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_go_where_the_operator_listens(render: Render, probe: str) -> None:
    found = container(render("everything"))
    (port,) = found["ports"]
    assert port["containerPort"] == 9000
    assert found[probe]["httpGet"]["port"] == port["name"]
    assert found[probe]["httpGet"]["path"] == ("/readyz" if probe == "readinessProbe" else "/healthz")


def test_a_single_replica_is_replaced_while_the_next_stands_by(render: Render) -> None:
    spec = one(render(), "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (1, {"maxSurge": 1, "maxUnavailable": 0})
    assert not [o for o in render() if o["kind"] == "PodDisruptionBudget"]


def test_two_replicas_stand_apart_and_go_one_at_a_time(render: Render) -> None:
    objects = render("two-replicas")
    spec = one(objects, "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"] == spec["selector"]
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert (budget["selector"], budget["maxUnavailable"]) == (spec["selector"], 1)


@pytest.mark.parametrize("kind", ["Service", "PodMonitor", "ServiceMonitor", "NetworkPolicy", "PodDisruptionBudget"])
def test_what_selects_selects_the_operators_pods(render: Render, kind: str) -> None:
    objects = render("everything")
    spec = one(objects, kind)["spec"]
    found = spec.get("selector") or spec["podSelector"]
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    if kind == "ServiceMonitor":
        labels = one(objects, "Service")["metadata"]["labels"]
    assert set(found.get("matchLabels", found).items()) <= set(labels.items())


def test_the_selector_never_depends_on_values_or_versions(render: Render) -> None:
    assert one(render("everything"), "Deployment")["spec"]["selector"] == {
        "matchLabels": {
            "app.kubernetes.io/name": "plimsoll",
            "app.kubernetes.io/instance": "plimsoll",
            "app.kubernetes.io/component": "operator",
        }
    }


@pytest.mark.parametrize(
    ("arguments", "image"),
    [
        ([], "ghcr.io/plimsoll-dev/plimsoll:0.1.0"),
        (["--set=image.tag=1.2"], "ghcr.io/plimsoll-dev/plimsoll:1.2"),
        (["--set=image.repository=mirror/p", "--set=image.tag=1.2"], "mirror/p:1.2"),
        (
            ["--set=image.tag=1.2", f"--set=image.digest=sha256:{'a' * 64}"],
            f"ghcr.io/plimsoll-dev/plimsoll@sha256:{'a' * 64}",
        ),
    ],
)
def test_image_by_tag_or_digest(render: Render, arguments: list[str], image: str) -> None:
    assert container(render("default", *arguments))["image"] == image


def test_a_mirror_is_the_only_place_an_image_comes_from(render: Render) -> None:
    objects = render("air-gapped")
    assert set(re.findall(r'"image": "([^/"]*)', json.dumps(objects))) == {"registry.internal.example"}
    assert one(objects, "Deployment")["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "mirror"}]


def test_the_definition_is_the_repositorys_and_stays(render: Render) -> None:
    (file,) = (ROOT / "crds").glob("*.yaml")
    wanted = yaml.safe_load(file.read_text())
    wanted["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
    assert one(render(), "CustomResourceDefinition") == wanted
    wanted["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] = "Prune=false"
    assert one(render("everything"), "CustomResourceDefinition") == wanted
    assert not [o for o in render("namespaced") if o["kind"] == "CustomResourceDefinition"]


REFUSED = [
    ("replicas=3", "/replicas", "want 2"),
    ("replicas=0", "/replicas", "want 1"),
    ("settings.workers=many", "/settings/workers", "want integer"),
    ("settings.sweepSecond=5", "/settings", "'sweepSecond' not allowed"),
    ("settings.logLevel=loud", "/settings/logLevel", "'debug', 'info', 'warning', 'error'"),
    ("settings.prometheusURL=prometheus:9090", "/settings/prometheusURL", "https?://"),
    ("settings.prometheusHeaders.a b=1", "/settings/prometheusHeaders", "a b"),
    ("settings.prometheusLabels.a-b=1", "/settings/prometheusLabels", "a-b"),
    ("image.digest=sha256:12", "/image/digest", "sha256:"),
    ("image.tga=1", "/image", "'tga' not allowed"),
    ("namespaces={Bad_Name}", "/namespaces/0", "Bad_Name"),
    ("namespaces={a,a}", "/namespaces", "equal"),
    ("runAsUser=0", "/runAsUser", "want 1"),
    ("metrics.podMonitor.interval=often", "/metrics/podMonitor/interval", "often"),
    ("podMonitor.enabled=true", "", "'podMonitor' not allowed"),
]


@pytest.mark.parametrize(("setting", "path", "says"), REFUSED)
def test_a_wrong_value_is_refused_by_name(helm: Path, setting: str, path: str, says: str) -> None:
    arguments = [str(helm), "template", "plimsoll", str(CHART), "--set", setting]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode
    assert f"at '{path}'" in done.stderr
    assert says in done.stderr


def test_a_service_monitor_without_service_is_refused(helm: Path) -> None:
    settings = "metrics.serviceMonitor.enabled=true,metrics.service.enabled=false"
    arguments = [str(helm), "template", "plimsoll", str(CHART), "--set", settings]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "or use metrics.podMonitor" in done.stderr


def test_the_charts_limits_are_the_operators() -> None:
    """Both ends of every numeric range pass, and one step outside neither does."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]
    ranges = {name: (p["minimum"], p["maximum"]) for name, p in properties.items() if "minimum" in p}
    assert ranges
    for name, (low, high) in ranges.items():
        Settings.from_env({variable(name): str(low)})
        Settings.from_env({variable(name): str(high)})
        with pytest.raises(ValueError, match=variable(name)):
            Settings.from_env({variable(name): str(high + 1)})


def test_schema_and_defaults_have_the_same_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"], schema["properties"]["enabled"]
    del schema["properties"]["inventory"]["properties"]  # nothing is in it by default
    assert leaves(yaml.safe_load((CHART / "values.yaml").read_text()), schema) == []


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """Values that only one of the two has."""
    different = [f"{path}{name}" for name in set(values) ^ set(schema["properties"])]
    nested = [(name, part) for name, part in schema["properties"].items() if "properties" in part and name in values]
    return different + [found for name, part in nested for found in leaves(values[name], part, f"{path}{name}.")]


def test_chart_and_operator_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def exported() -> set[str]:
    def names(metric: Metric) -> set[str]:
        return {f"{metric.name}_total"} if metric.type == "counter" else {metric.name, f"{metric.name}_bucket"}

    return set().union(*(names(metric) for metric in REGISTRY.collect()))


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_only_metrics_that_exist_are_asked_for(file: str) -> None:
    used = set(re.findall(r"plimsoll_\w+", (CHART / "files" / file).read_text()))
    assert used
    assert used - exported() == set()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("default", ["the whole cluster", "deployment/plimsoll -n plimsoll-system", "prometheusURL=http"]),
        ("namespaced", ["the namespaces team-a, team-b", "namespace: team-a", "crds/"]),
        ("everything", ["deployment/sizing"]),
    ],
)
def test_the_notes_say_what_is_next_and_what_is_missing(helm: Path, values: str, says: list[str]) -> None:
    arguments = ["install", "plimsoll", str(CHART), f"--namespace={NAMESPACE}", "--dry-run=client"]
    done = subprocess.run(
        [str(helm), *arguments, f"--values={VALUES / values}.yaml"], capture_output=True, text=True, check=True
    )
    notes = done.stdout.partition("NOTES:")[2]
    assert [text for text in says if text not in notes] == []
    assert ("prometheusURL" in notes) == (values != "everything")
