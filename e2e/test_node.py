"""What of the real node can be told without one: images, configurations, and when it says that it cannot run."""

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from e2e.controlplane.commands import Options
from e2e.controlplane.identity import Tls
from e2e.kind import __main__ as kind
from e2e.node import __main__ as node
from e2e.node import cgroups, packages
from e2e.node.images import application, archive, layer, runtime
from e2e.node.images.archive import Image
from e2e.node.images.layer import Folder, Link, Text
from e2e.node.rig import small_requests

LOCK = application.CHECKOUT / "requirements.lock"


def read_tar(content: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() if file else None for name, file in files.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source.txt"
    file.write_text("text")
    file.chmod(0o600)
    return file


def test_a_layer_is_roots_readable_and_keeps_times(source: Path, tmp_path: Path) -> None:
    tar_path = tmp_path / "layer.tar"
    layer.write({"/a/b": source, "/a/link": Link("/a/b"), "/tmp": Folder(0o1777), "/etc/x": Text("x")}, tar_path)
    with tarfile.open(tar_path) as tar:
        members = {member.name: member for member in tar}
    assert {name: member.mode & 0o7777 for name, member in members.items() if not member.issym()} == {
        "a/b": 0o644,
        "etc/x": 0o644,
        "tmp": 0o1777,
    }
    assert members["a/b"].mtime == int(source.stat().st_mtime)  # or Python would not believe its bytecode
    assert all(member.uid == member.gid == 0 for member in members.values())
    assert members["a/link"].linkname == "/a/b"


def test_the_key_of_a_layer_changes_with_what_is_in_it(source: Path) -> None:
    before = layer.key({"/a": source})
    assert layer.key({"/a": source}) == before
    assert layer.key({"/b": source}) != before
    source.write_text("other text")
    assert layer.key({"/a": source}) != before


def test_images_share_the_layers_they_have_in_common(tmp_path: Path) -> None:
    base, top = tmp_path / "base.tar", tmp_path / "top.tar"
    layer.write({"/base": Text("base")}, base)
    layer.write({"/top": Text("top")}, top)
    out = io.BytesIO()
    one = Image(("one:1",), (base,), ["/a"])
    two = Image(("two:2",), (base, top), ["/b"], env={"A": "1"}, mirrors=("mirror/two",))
    archive.write([one, two], out)

    files = read_tar(out.getvalue())
    entries = json.loads(files["index.json"] or b"")["manifests"]
    names = [entry["annotations"]["io.containerd.image.name"] for entry in entries]
    assert names == ["one:1", "two:2", f"mirror/two@{entries[1]['digest']}"]
    first, second = (read_blob(files, entry["digest"]) for entry in entries[:2])
    assert first["layers"] == second["layers"][:1]
    config = read_blob(files, second["config"]["digest"])
    assert config["config"]["Env"] == ["A=1"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in second["layers"]]
    assert len(files) == 2 + 2 * 2 + 2  # each image's manifest and configuration, and the two layers


def read_blob(files: dict[str, bytes | None], digest: str) -> dict[str, Any]:
    content = files[f"blobs/{digest.replace(':', '/')}"] or b""
    assert digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return dict(json.loads(content))


def test_the_operators_image_holds_what_the_lock_file_names_and_no_tools() -> None:
    locked = dict(re.findall(r"^(\S+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    for distribution in application.dependencies():
        name = canonicalize_name(distribution.metadata["Name"])
        if name != application.DISTRIBUTION:
            assert locked[name] == distribution.version
    held = {canonicalize_name(distribution.metadata["Name"]) for distribution in application.dependencies()}
    assert {"kopf", "kubernetes", "pydantic"} <= held
    assert not {"pytest", "pip", "ruff", "hypothesis"} & held


def test_the_python_of_the_image_finds_its_libraries() -> None:
    files = runtime.layer()
    program = str(Path(sys.executable).resolve())
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in re.findall(r"(/\S+) \(0x", needed):
        assert path in files
    assert program in files
    assert any(path.endswith("/encodings/__init__.py") for path in files)


def test_our_layers_hold_the_code_without_bytecode() -> None:
    assert f"{application.FOLDER}/plimsoll/__main__.py" in application.operator_layer()
    engine = application.engine_layer()
    assert f"{application.FOLDER}/e2e/fleet/serve.py" in engine
    assert not any("__pycache__" in path for path in engine)


def test_a_certificate_for_a_node_names_its_address_and_the_services(tmp_path: Path) -> None:
    options = Options(node_address="10.243.0.1", service_cidr="10.96.0.0/12")
    assert options.reached_at == ("10.243.0.1", "10.96.0.1")
    tls = Tls.create(tmp_path / "tls", options.reached_at)
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(tls.certificate), "-noout", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(f"IP Address:{address}" in shown for address in ("127.0.0.1", "10.243.0.1", "10.96.0.1"))


def test_requests_are_lowered_for_engines_only() -> None:
    policy, binding = small_requests("admissionregistration.k8s.io/v1")
    assert "app.kubernetes.io/name" in policy["spec"]["matchConditions"][0]["expression"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(("platform.system", lambda: "Darwin"), "a kubelet needs Linux, this is Darwin", id="not Linux"),
        pytest.param(("os.geteuid", lambda: 1000), "need root, this is user 1000", id="not root"),
        pytest.param(("shutil.which", lambda *_, **__: None), "there is no `unshare`", id="no unshare, no apt-get"),
    ],
)
def test_it_says_loudly_why_it_did_not_run(
    change: tuple[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(*change)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    assert node.main([]) == 0
    out = capsys.readouterr().out
    assert "SKIPPED" in out
    assert said in out
    monkeypatch.setenv(node.REQUIRED, "1")
    assert node.main([]) == 1


@pytest.mark.parametrize(
    ("ours", "withheld"),
    [pytest.param("cpu io memory pids", [], id="delegated"), pytest.param("io", ["cpu", "memory", "pids"], id="not")],
)
def test_control_groups_without_controllers_hold_no_kubelet(
    ours: str, withheld: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids misc\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "cgroup.controllers").write_text(f"{ours}\n")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    assert cgroups.withheld("run") == withheld


def test_it_says_what_it_installs_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refuse(*_: str) -> str:
        assert "containerd" in said[0]
        return "no network"

    monkeypatch.setattr(packages, "missing", lambda: ["containerd", "runc"])
    monkeypatch.setattr(packages, "find", lambda _: Path("/usr/bin/apt-get"))
    monkeypatch.setattr(packages, "_apt", refuse)
    monkeypatch.setattr(packages, "POLICY", Path("/dev/null"))
    with pytest.raises(packages.NotInstalledError, match="containerd, runc: no network"):
        packages.ensure(said.append)


def test_kind_is_missed_loudly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert kind.main([]) == 1
    assert "did NOT run: not on PATH: docker, kind" in capsys.readouterr().out


def test_the_fake_engine_ends_like_vllm_as_a_process_of_its_own() -> None:
    env = {"PYTHONPATH": str(application.CHECKOUT), "FLEET_GPU": "NVIDIA-L4", "FLEET_VISIBLE_GPUS": "1"}
    command = [sys.executable, "-m", "e2e.fleet.serve"]
    unknown = subprocess.run(
        [*command, "Qwen/Qwen3-8B", "--no-such-flag"], capture_output=True, text=True, check=False, env=env
    )
    assert unknown.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in unknown.stderr
    small = subprocess.run(
        [*command, "Qwen/Qwen3-8B", "--max-model-len", "32768"],
        capture_output=True,
        text=True,
        check=False,
        env={**env, "FLEET_LOAD_SECONDS": "0"},
    )
    assert small.returncode == 1
    assert "To serve at least one request" in small.stderr
