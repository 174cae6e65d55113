"""Do the API server and our models accept the same services? And does what is accepted ever raise?

    python -m e2e.agreement --count 10000 --seed 1 --live 200

asks a control plane of its own about generated services (`tests/unit/api/mutations.py`), nothing stored, plans those
that both accept, gives some of them to a running operator, and prints a table. `e2e/test_crd.py` does the same with a
few hundred.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from e2e.controlplane import ControlPlane
from e2e.controlplane.api import Api, ApiError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, Operator, create_account, install_crds
from plimsoll.api.parse import FieldError, InvalidServiceError, parse_service
from plimsoll.core import rollout
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import read_request
from plimsoll.core.steps import Step
from tests.unit.api.mutations import KINDS, Manifest, manifests

AT_A_TIME: Final = 4
NAMESPACE: Final = "default"
SERVICES: Final = f"/apis/plimsoll.dev/v1alpha1/namespaces/{NAMESPACE}/vllmservices"
_SHOWN: Final = 10
_JUDGED_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Asked:
    """One service and the two answers; an empty refusal is a yes."""

    kind: str
    manifest: Manifest
    server: str
    ours: tuple[FieldError, ...]

    @property
    def agreed(self) -> bool:
        return bool(self.server) == bool(self.ours)

    @property
    def accepted(self) -> bool:
        return not self.server and not self.ours

    @property
    def unnamed(self) -> bool:
        """Whether we refuse without the name of a field."""
        return any(not error.path.startswith(("spec", "metadata.name")) or not error.message for error in self.ours)

    def __str__(self) -> str:
        ours = "; ".join(map(str, self.ours)) or "yes"
        return f"{self.kind}: server: {self.server[:400] or 'yes'} | ours: {ours[:400]} | {self.manifest}"


def compare(api: Api, seed: int, count: int) -> list[Asked]:
    """What the server and we say to `count` services."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(lambda each: _ask(api, *each), islice(manifests(seed), count)))


def refusal(api: Api, manifest: Manifest, namespace: str = NAMESPACE) -> ApiError | None:
    """What the server says against creating this object; None when it would. Nothing is stored."""
    body = _as_sent({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})
    try:
        api.post(f"/apis/plimsoll.dev/v1alpha1/namespaces/{namespace}/vllmservices?dryRun=All", body)
    except ApiError as error:
        return error
    return None


def _as_sent(value: Any) -> Any:
    """As kubectl and everything else built on Kubernetes' YAML library send it: 8.0 goes as 8.

    Sent as 8.0, the server takes it where no CEL rule looks at the field and refuses it elsewhere.
    """
    if isinstance(value, dict):
        return {key: _as_sent(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_sent(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def raised(manifest: Manifest) -> str:
    """The traceback of planning and rendering an accepted service; empty when there is none."""
    try:
        request = read_request({**manifest, "metadata": {"namespace": NAMESPACE, "uid": "u", **manifest["metadata"]}})
        config = bundled_config(request.spec.model.id)
        outcome = plan_service(request.spec, request.minimum_replicas, config, Inventory())
        if isinstance(outcome, Plan):
            revision = rollout.render(request, outcome, 1)
            list(rollout.children(request, revision, Step(revision, 1, "OneAtATime")))
    except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
        return traceback.format_exc()
    return ""


def _ask(api: Api, kind: str, manifest: Manifest) -> Asked:
    error = refusal(api, manifest)
    if error is not None and error.code not in {400, 422}:
        raise error
    return Asked(kind, manifest, str(error or ""), _ours(manifest))


def _ours(manifest: Manifest) -> tuple[FieldError, ...]:
    try:
        parse_service(manifest)
    except InvalidServiceError as error:
        return error.errors
    return ()


def live(plane: ControlPlane, services: Iterable[Manifest]) -> tuple[int, list[str]]:
    """How many services a running operator was given, those of which it says nothing, and its tracebacks."""
    create_account(plane.kubectl)
    operator = Operator(plane, MANIFEST)
    operator.process.start()
    operator.await_ready()
    try:
        given = [_ours_to_serve(f"s{at}", each) for at, each in enumerate(services)]
        for manifest in given:
            plane.api.post(SERVICES, _as_sent(manifest))
        silent = _silent(plane.api)
        log = operator.process.log.read_text()
    finally:
        operator.stop()
    return len(given), [*silent, *(line for line in log.splitlines() if "Traceback" in line)]


def _ours_to_serve(name: str, manifest: Manifest) -> Manifest:
    """The service under a name of its own, for an operator without a class."""
    spec = {key: value for key, value in manifest["spec"].items() if key != "className"}
    return {**manifest, "metadata": {"name": name}, "spec": spec}


def _silent(api: Api) -> list[str]:
    """Services of which nothing is said, though there was time."""
    try:
        eventually(lambda: not list(_unjudged(api)), within_seconds=_JUDGED_SECONDS)
    except AssertionError:
        return list(_unjudged(api))
    return []


def _unjudged(api: Api) -> Iterator[str]:
    for service in api.get(SERVICES)["items"]:
        conditions = service.get("status", {}).get("conditions") or ()
        if not any(each["type"] == "Ready" for each in conditions):
            yield f"nothing is said of {service['metadata']['name']}: {service['spec']}"


def table(asked: Sequence[Asked]) -> str:
    """Counts by kind of change."""
    rows: list[tuple[str, ...]] = [("services", "asked", "accepted", "refused", "differ", "no field")]
    for kind in (*KINDS, "all"):
        of = [each for each in asked if kind in (each.kind, "all")]
        counts = Counter("accepted" if each.accepted else "refused" if each.agreed else "differ" for each in of)
        unnamed = sum(each.unnamed for each in of)
        rows.append(
            (kind, *(str(n) for n in (len(of), counts["accepted"], counts["refused"], counts["differ"], unnamed)))
        )
    return "\n".join(f"{first:30}" + "".join(f"{cell:>10}" for cell in rest) for first, *rest in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when anything differs or raises."""
    parser = argparse.ArgumentParser(prog="python -m e2e.agreement", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="services to ask about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--live", type=int, default=0, help="accepted ones to give to a running operator")
    options = parser.parse_args(arguments)
    with ControlPlane(prometheus=False, log=lambda line: print(line, file=sys.stderr)) as plane:
        install_crds(plane.kubectl, CHECKOUT / "crds")
        asked = compare(plane.api, options.seed, options.count)
        accepted = [each.manifest for each in asked if each.accepted]
        given, broken = live(plane, accepted[: options.live]) if options.live else (0, [])
    bad: list[Any] = [each for each in asked if not each.agreed or each.unnamed]
    tracebacks = [found for found in map(raised, accepted) if found]
    print(table(asked))
    print(f"{len(accepted)} planned and rendered, {len(tracebacks)} raised")
    print(f"{given} given to a running operator, {len(broken)} without a word or with a traceback")
    print(*bad[:_SHOWN], *tracebacks[:_SHOWN], *broken[:_SHOWN], sep="\n")
    return 1 if bad or tracebacks or broken else 0


if __name__ == "__main__":
    sys.exit(main())
