"""What a plan was made from, as small as a line of the log needs it, and the plan made once more. Pure.

Left out is what decides no plan: the pod template and the owner's defaults for one (their values may be secret), the
namespace's gates and routes, credentials among the engine's arguments. The configuration of a bundled model is known
to whoever reads the log with a release of ours, so its digest does; one that is too long for a line likewise.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.extra_args import by_flag
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.policy import PodPolicy
from plimsoll.core.request import minimum_replicas

LONGEST_CONFIG: Final = 6_000
"""Characters as JSON; with the rest of an entry it has to stay within the 16 KiB of a line."""
CREDENTIALS: Final = ("--api-key", "--hf-token")
HIDDEN: Final = "***"
_REPLICAS: Final = "replicas"


@dataclass(frozen=True)
class Asked:
    """What the planner is given."""

    spec: VLLMServiceSpec
    config: ModelConfig | None
    known: Inventory
    correction: Correction = NOTHING_LEARNED

    def plan(self) -> Plan | Refusal:
        """Its answer."""
        return self.of(self.spec)

    def of(self, spec: VLLMServiceSpec) -> Plan | Refusal:
        """Its answer to another spec, were all else the same."""
        return plan_service(spec, minimum_replicas(spec), self.config, self.known, self.correction)


@dataclass(frozen=True)
class Model:
    """A model's configuration as recorded: whole, or its digest where the reader can be expected to have it."""

    digest: str
    config: ModelConfig | None = None

    def found(self, model_id: str) -> ModelConfig | None:
        """The configuration.

        Raises:
            ValueError: it is neither recorded nor known here.
        """
        if not self.digest:
            return None
        config = self.config or bundled_config(model_id)
        if config is None or config.mark != self.digest:
            raise ValueError(f"another configuration of {model_id} was planned with, which is not in the log")
        return config


NO_MODEL: Final = Model("")
NOTHING_KNOWN: Final = Inventory()


@dataclass(frozen=True)
class Recorded:
    """Arguments of the planner for the log."""

    spec: VLLMServiceSpec
    model: Model = NO_MODEL
    known: Inventory = NOTHING_KNOWN
    correction: Correction = NOTHING_LEARNED

    @property
    def asked(self) -> Asked:
        """As the planner takes them.

        Raises:
            ValueError: the model's configuration is not known here.
        """
        return Asked(self.spec, self.model.found(self.spec.model.id), self.known, self.correction)


def recorded(asked: Asked) -> Recorded:
    """What decides the answer, and no more."""
    return Recorded(_plain(asked.spec), _model(asked), _public(asked.known), asked.correction)


def chosen(plan: Plan) -> dict[str, Any]:
    """What was decided, for comparison: the choice without replicas, which move by themselves, and the KV cache."""
    choice = {key: value for key, value in to_json(plan.choice).items() if key != _REPLICAS}
    return {**choice, "args": without_credentials(plan.choice.args), "kvTokens": plan.kv.tokens}


def otherwise(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What is another in the second choice, a flag at a time."""
    was, now = ({**by_flag(each.get("args") or ()), **each} for each in (before, after))
    for key in sorted((was.keys() | now.keys()) - {"args"}):
        if was.get(key) != now.get(key):
            yield f"{key} {was.get(key, 'unset')} -> {now.get(key, 'unset')}"


def without_credentials(args: Sequence[str]) -> list[str]:
    """An engine's arguments with ``***`` for the values of credentials."""
    found, secret = [], False
    for arg in args:
        flag, given, _ = arg.partition("=")
        if flag.startswith("--"):
            secret = flag.replace("_", "-") in CREDENTIALS
            found.append(f"{flag}={HIDDEN}" if secret and given else arg)
        else:
            found.append(HIDDEN if secret else arg)
    return found


def _plain(spec: VLLMServiceSpec) -> VLLMServiceSpec:
    engine = spec.engine.model_copy(update={"extra_args": tuple(without_credentials(spec.engine.extra_args))})
    # Whether somebody judges answers decides whether a plan may take fp8 by itself; who it is does not.
    gate = None if spec.tuning.quality_gate is None else QualityGateSpec()
    tuning = spec.tuning.model_copy(update={"quality_gate": gate, "freeze": ()})
    return spec.model_copy(update={"engine": engine, "tuning": tuning, "pod_template": None, "routing": None})


def _model(asked: Asked) -> Model:
    config = asked.config
    if config is None:
        return NO_MODEL
    known = config == bundled_config(asked.spec.model.id) or len(json.dumps(asdict(config))) > LONGEST_CONFIG
    return Model(config.mark, None if known else config)


def _public(known: Inventory) -> Inventory:
    policy = known.policy.model_copy(update={"defaults": PodPolicy().defaults})
    return replace(known, policy=policy, priorities={})
