"""Credentials: a named kubeconfig, the pod's service account, or a sentence that says there are none."""

from pathlib import Path

import certifi
import pytest
from kubernetes.aio.config import incluster_config

from plimsoll.adapters.kube import CredentialsError, KubeCluster, load_configuration

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


async def test_a_kubeconfig_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    cluster = KubeCluster(await load_configuration(str(path)))
    access = await cluster.access()
    await cluster.close()
    assert (access.server, access.scheme, access.token) == ("https://127.0.0.1:1", "Bearer", "secret-token")
    assert not access.verify
    assert "secret-token" not in repr(access)


async def test_in_a_pod_the_service_account_and_its_next_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = await load_configuration()
    cluster = KubeCluster(configuration)
    access = await cluster.access()
    await cluster.close()
    assert (access.server, access.token, access.ca_path) == ("https://10.0.0.1:443", "first", certifi.where())
    assert configuration.refresh_api_key_hook is not None


@pytest.mark.parametrize("text", ["", "not: [yaml", "kind: Config"])
async def test_an_unusable_kubeconfig_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=f"no usable Kubernetes credentials in {path}"):
        await load_configuration(str(path))


async def test_an_empty_kubeconfig_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("")
    with pytest.raises(CredentialsError, match="it is empty, or a part of it is not as in a kubeconfig"):
        await load_configuration(str(path))
