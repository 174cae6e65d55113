"""The owner's policy: read strictly, since an owner believes that what is written holds."""

from pathlib import Path

import pytest

from plimsoll.adapters.policy_file import read_policy_file
from plimsoll.core.podtemplate.check import owners_policy
from plimsoll.core.policy import PodPolicy, PolicyError, below, listed, read_policy

ROOT = Path(__file__).resolve().parents[4]


def test_nothing_said_is_the_default() -> None:
    assert read_policy(None) == read_policy({}) == read_policy_file("") == PodPolicy()
    allow = PodPolicy().allow
    reach = (allow.host_paths, allow.host_network, allow.host_pid, allow.host_ipc, allow.privileged, allow.capabilities)
    assert not any((*reach, allow.service_accounts, allow.service_account_tokens, allow.control_plane_nodes))
    assert not any((allow.secrets, allow.csi_drivers, allow.node_names, allow.env))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        pytest.param({"allow": {"hostPath": ["/mnt"]}}, "allow.hostPath", id="a key that is not known"),
        pytest.param({"allowed": {}}, "allowed", id="nor at the top"),
        pytest.param({"allow": {"privileged": "yes"}}, "allow.privileged: 'yes'", id="a value of another kind"),
        pytest.param({"gpus": {"migStrategy": "none"}}, "gpus.migStrategy: 'none'", id="a value not offered"),
        pytest.param(
            {"startup": {"megabytesPerSecond": {"hub": 0}}}, "startup.megabytesPerSecond.hub: 0", id="no speed"
        ),
        pytest.param({"engine": {"runAsUser": 0}}, "engine.runAsUser: 0", id="root is not Restricted"),
        pytest.param(["allow"], "a list, not the keys", id="no mapping"),
        pytest.param(
            {"defaults": {"spec": {"containers": [{"name": "vllm", "args": ["--x"]}]}}},
            "defaults.spec.containers[vllm].args",
            id="defaults that no pod can have",
        ),
    ],
)
def test_what_cannot_be_used_is_named(document: object, says: str) -> None:
    with pytest.raises(PolicyError) as error:
        owners_policy(document)
    assert says in str(error.value)


def test_a_file_that_is_no_yaml_or_not_there_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "policy.yaml"
    broken.write_text("allow: [", encoding="utf-8")
    with pytest.raises(PolicyError, match=r"policy\.yaml: not YAML"):
        read_policy_file(str(broken))
    with pytest.raises(PolicyError, match="No such file"):
        read_policy_file(str(tmp_path / "none.yaml"))


def test_the_documented_policy_is_one() -> None:
    """The example of docs/pods.md, as it stands there."""
    text = (ROOT / "docs" / "pods.md").read_text(encoding="utf-8")
    (example,) = [block.split("```")[0] for block in text.split("```yaml\n")[1:] if block.startswith("# pod policy")]
    file = ROOT / "docs" / "pods.md"
    assert file.exists()
    import yaml  # noqa: PLC0415

    policy = owners_policy(yaml.safe_load(example))
    assert policy.allow.model_fields_set == set(type(policy.allow).model_fields), "a setting is not documented"


@pytest.mark.parametrize(
    ("name", "names", "expect"),
    [
        ("hf-token", ("hf-*",), True),
        ("hf-token", (), False),
        ("token", ("hf-*",), False),
        ("anything", ("*",), True),
        ("system-node-critical", ("*",), False),
        ("system-node-critical", ("system-node-critical",), True),
    ],
)
def test_names_on_a_list(name: str, names: tuple[str, ...], expect: bool) -> None:
    assert listed(name, names) is expect


@pytest.mark.parametrize(
    ("path", "expect"),
    [
        ("/mnt/a", True),
        ("/mnt/a/b/", True),
        ("//mnt//a", True),
        ("/mnt/a/../../etc", False),
        ("/mnt/ab", False),
        ("mnt/a", False),
    ],
)
def test_paths_below_a_root(path: str, expect: bool) -> None:
    assert below(path, ("/mnt/a",)) is expect


def test_figures_of_the_owner_replace_ours() -> None:
    policy = read_policy({"startup": {"megabytesPerSecond": {"hub": 1000}}, "drain": {"endpointDelay": "20s"}})
    assert policy.bytes_per_second["hub"] == 1e9
    assert policy.bytes_per_second["pvc"] == PodPolicy().bytes_per_second["pvc"]
    assert policy.endpoint_seconds == 20
