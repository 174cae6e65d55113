"""`make demo`: a VLLMService becomes a running fleet on a real Kubernetes API, and shows its arithmetic.

Uses the lab of this checkout, or starts one and stops it at the end (KEEP=1 leaves it up). HEAL=0: no last act.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from e2e import demo_healing
from e2e.demo_burst import BURST_SECONDS, PROMPT_TOKENS, RATE, absorb
from e2e.labrun import CHECKOUT
from e2e.labstate import ENV, taken

EXAMPLE: Final = CHECKOUT / "examples" / "qwen3.5-9b.yaml"
NAME: Final = "qwen-docs"
NAMESPACE: Final = "plimsoll-demo"
READY_SECONDS: Final = 180.0
GONE_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.5
GIB: Final = 2**30


class DemoError(RuntimeError):
    """The demo did not show what it promises; the message says what was seen instead."""


def main() -> int:
    """Exit code 0 when everything was shown."""
    started = time.monotonic()
    try:
        with _lab():
            _show()
    except DemoError as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    print(f"\ndone in {time.monotonic() - started:.0f} s")
    return 0


@contextmanager
def _lab() -> Iterator[None]:
    if taken():
        print("using the lab that runs in this checkout")
        yield
        return
    try:
        _python("e2e.lab", "up")
        yield
    finally:
        if os.environ.get("KEEP") == "1":
            print(f"\nthe lab stays: . {ENV.relative_to(CHECKOUT)} && kubectl get vllm; stop it with make lab-down")
        else:
            _python("e2e.lab", "down")


def _python(module: str, *args: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *args], cwd=CHECKOUT, check=False)
    if done.returncode:
        raise DemoError(f"python -m {module} {' '.join(args)} ended with exit code {done.returncode}")


def _show() -> None:
    _heading("A person asks for a model, a GPU and a context length")
    print(EXAMPLE.read_text(encoding="utf-8"))
    _heading("Kubernetes takes it; Plimsoll plans and rolls out")
    _kubectl("create", "namespace", NAMESPACE)
    try:
        print(_kubectl("apply", "-n", NAMESPACE, "-f", str(EXAMPLE)).strip())
        _watch_until_ready(NAME)
        _heading("What the API server holds now")
        print(_kubectl("get", "vllm", NAME, "-n", NAMESPACE, "-o", "wide").rstrip() + "\n")
        kinds = "deployments,services,poddisruptionbudgets,controllerrevisions,pods"
        print(_kubectl("get", kinds, "-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={NAME}").rstrip())
        _complete()
        _arithmetic()
        _burst()
        _kubectl("delete", "-n", NAMESPACE, "-f", str(EXAMPLE))
        _await_gone(NAME)
        if os.environ.get("HEAL") != "0":
            _healing()
    finally:
        _kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _watch_until_ready(name: str) -> None:
    """Print what `kubectl get vllm` and the pods say, whenever it changes."""
    began, shown = time.monotonic(), ""
    while True:
        service = _json("get", "vllm", name)
        ready = _condition(service, "Ready")
        told = f"Ready={ready.get('status')} {ready.get('reason', '')}: {ready.get('message', '')}"
        line = told if ready else "the operator has not answered yet"
        pods = "; ".join(f"{p['metadata']['name']} {_pod_phase(p)}" for p in _pods(name))
        if (now := f"{line}\n          {pods}" if pods else line) != shown:
            print(f"[{time.monotonic() - began:5.1f} s] {now}", flush=True)
            shown = now
        if ready.get("status") == "True":
            return
        if _condition(service, "Stalled").get("status") == "True":
            raise DemoError(f"the service is stalled: {ready.get('message')}")
        if time.monotonic() - began > READY_SECONDS:
            raise DemoError(f"not Ready after {READY_SECONDS:.0f} s: {line}")
        time.sleep(POLL_SECONDS)


def _pod_phase(pod: Mapping[str, Any]) -> str:
    if _condition(pod, "Ready").get("status") == "True":
        return "Ready"
    containers: list[dict[str, Any]] = pod["status"].get("containerStatuses") or [{}]
    state: dict[str, Any] = containers[0].get("state", {})
    return "loading" if "running" in state else next(iter(state), pod["status"].get("phase", "Pending")).lower()


def _complete() -> None:
    _heading("A completion, answered through a pod")
    pod = next(p for p in _pods() if _condition(p, "Ready").get("status") == "True")
    container = pod["spec"]["containers"][0]
    url = f"http://{pod['status']['podIP']}:8000/v1/completions"
    body = json.dumps({"model": container["args"][0], "prompt": "The load line of a ship is", "max_tokens": 12})
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            reply = json.loads(answer.read())
    except OSError as error:
        raise DemoError(f"POST {url}: {error}") from error
    print(f"POST {url}\n  {json.dumps(reply['choices'][0])}\n  {json.dumps(reply['usage'])}")


def _arithmetic() -> None:
    _heading("The arithmetic: what was planned, and what the engine found")
    plan = _json("get", "vllm", NAME)["status"]["plan"]
    for item in plan["memory"]:
        print(f"  {item['bytes'] / GIB:8.2f} GiB  {item['item']:24} {item['basis']:8} {item['from']}")
    kv, available = plan["kv"], plan["availableKVBytes"]
    low, mid, high = (available[key] / GIB for key in ("low", "mid", "high"))
    print(f"  {mid:8.2f} GiB  left for the KV cache ({low:.2f} to {high:.2f})")
    print(f"  / {kv['bytesPerBlock']:,} bytes a block of {kv['blockSize']} tokens = {kv['numBlocks']:,} blocks")
    print(f"  = {kv['tokens']:,} tokens, {kv['maxConcurrency']:.2f} requests of the full context at once\n")
    log = _kubectl("logs", "-n", NAMESPACE, next(p["metadata"]["name"] for p in _pods()))
    print("\n".join(f"  the engine: {line.partition('] ')[2]}" for line in log.splitlines() if "KV cache" in line))
    found = re.search(r"KV cache size: ([0-9,]+) tokens", log)
    if found:
        tokens = int(found[1].replace(",", ""))
        print(f"  planned {kv['tokens']:,}, found {tokens:,} tokens: {(kv['tokens'] / tokens - 1):+.1%}")


def _burst() -> None:
    _heading(f"A burst: {RATE:.0f} prompts of {PROMPT_TOKENS:,} tokens a second for {BURST_SECONDS:.0f} s")
    prometheus = _environment()["PROMETHEUS_URL"]
    report, decisions = absorb(lambda: _json("get", "vllm", NAME), NAME, NAMESPACE, prometheus)
    answered = f"{report['succeeded']} of {report['sent']} requests were answered"
    print(f"\n  {answered}, failures: {report['failures'] or 'none'}")
    for made in decisions:
        print(f"  {made['reason']}: {made.get('from', '-')} -> {made.get('to')} replicas. {made['message']}")
    scaling = _json("get", "vllm", NAME)["status"].get("scaling", {})
    print(f"  fewer again: {scaling.get('shrinksWhen', 'not known')}")
    if not any(made["reason"] == "MoreDemand" for made in decisions):
        raise DemoError("the burst did not add a replica")


def _healing() -> None:
    _heading("Another service, whose limit is wrong for its traffic, heals itself (about three minutes)")
    name, manifest = demo_healing.NAME, str(demo_healing.MANIFEST)
    print(demo_healing.MANIFEST.read_text(encoding="utf-8"))
    print(_kubectl("apply", "-n", NAMESPACE, "-f", manifest).strip())
    _watch_until_ready(name)
    try:
        outcome = demo_healing.heal(lambda: _json("get", "vllm", name), NAMESPACE, _environment()["PROMETHEUS_URL"])
    except demo_healing.NotHealedError as error:
        raise DemoError(str(error)) from error
    print(f"\n  {outcome}")
    _kubectl("delete", "-n", NAMESPACE, "-f", manifest)
    _await_gone(name)


def _await_gone(name: str) -> None:
    _heading("Deleted: owner references clean up, nothing is left")
    kinds, began = "deployments,services,poddisruptionbudgets,controllerrevisions,replicasets,pods", time.monotonic()
    while left := _kubectl(
        "get", kinds, "-n", NAMESPACE, "-o", "name", "-l", f"app.kubernetes.io/instance={name}"
    ).split():
        if time.monotonic() - began > GONE_SECONDS:
            raise DemoError(f"still there after {GONE_SECONDS:.0f} s: {', '.join(left)}")
        time.sleep(POLL_SECONDS)
    print(f"gone after {time.monotonic() - began:.1f} s")


def _pods(name: str = NAME) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _json("get", "pods", "-l", f"app.kubernetes.io/instance={name}")["items"]
    return items


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in obj.get("status", {}).get("conditions") or () if c["type"] == kind), {})


def _json(*args: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_kubectl(*args, "-n", NAMESPACE, "-o", "json"))
    return answer


def _kubectl(*args: str) -> str:
    done = subprocess.run(["kubectl", *args], capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise DemoError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    """The lab's `.lab/env`, as a shell that sources it would have it."""
    lines = (line.partition("=") for line in Path(ENV).read_text(encoding="utf-8").splitlines())
    return {**os.environ, **{name: value.strip("'") for name, equals, value in lines if equals}}


def _heading(text: str) -> None:
    print(f"\n== {text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
