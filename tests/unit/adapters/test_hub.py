"""The hub's client against a server that answers as the hub does: found, gated, absent, broken, away."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")

from huggingface_hub import constants  # noqa: E402 - after the check that it is there

from plimsoll.adapters.hub import HubError, fetch  # noqa: E402 - as above

CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
FILES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/acme/nine/resolve/main/config.json": (200, {}, json.dumps(CONFIG).encode()),
    "/acme/nine/resolve/main/model.safetensors.index.json": (200, {}, b'{"metadata": {"total_size": 1234}}'),
    "/acme/plain/resolve/main/config.json": (200, {}, json.dumps(CONFIG).encode()),
    "/acme/broken/resolve/main/config.json": (200, {}, b"{not json"),
    "/acme/list/resolve/main/config.json": (200, {}, b"[]"),
    "/acme/gated/resolve/main/config.json": (403, {"X-Error-Code": "GatedRepo"}, b""),
}


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        known = any(path.startswith("/".join(self.path.split("/")[:3])) for path in FILES)
        missing = {"X-Error-Code": "EntryNotFound" if known else "RepoNotFound"}
        status, headers, text = FILES.get(self.path, (404, missing, b""))
        self.send_response(status)
        for name, value in {"ETag": f'"{abs(hash(self.path))}"', "X-Repo-Commit": "0" * 40, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("hub")
def test_configuration_and_size_of_a_model() -> None:
    found = fetch("acme/nine")
    assert found.config == CONFIG
    assert found.quant_config is None
    assert found.weights_bytes == 1234
    assert "acme/nine" in found.origin


@pytest.mark.usefixtures("hub")
def test_a_model_without_an_index_has_no_known_size() -> None:
    assert fetch("acme/plain").weights_bytes is None


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("model", "says", "unreachable"),
    [
        pytest.param("acme/gated", "accept its licence", False, id="gated"),
        pytest.param("other/none", "not on the hub, or private", False, id="no such repository"),
        pytest.param("acme/broken", "not JSON", False, id="broken JSON"),
        pytest.param("acme/list", "JSON list, not an object", False, id="no object"),
        pytest.param("../../etc/passwd", "not a repository", False, id="a path"),
        pytest.param("/models/x", "not a repository", False, id="a folder in an image"),
    ],
)
def test_what_cannot_be_had_says_why_and_what_to_do(model: str, says: str, *, unreachable: bool) -> None:
    with pytest.raises(HubError, match=says) as caught:
        fetch(model)
    assert caught.value.unreachable is unreachable


def test_offline_is_said_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(HubError, match="unset HF_HUB_OFFLINE") as caught:
        fetch("acme/nine")
    assert caught.value.unreachable
