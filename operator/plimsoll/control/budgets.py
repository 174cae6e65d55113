"""What each service holds and wants of the GPUs that the inventory lets several share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from plimsoll.api import names, scaling_reasons
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import address
from plimsoll.core.budget import Claim, share
from plimsoll.core.live import read_live
from plimsoll.core.manifests.workload import workloads
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.scale import Limits


@dataclass
class Budgets:
    """Shares by product. A service that nobody has sized yet counts with what its workload holds."""

    cache: Cache
    inventory: Callable[[], Inventory]
    _claims: dict[Key, tuple[str, Claim]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """The service is gone, and its GPUs are free."""
        self._claims.pop(key, None)

    def knows(self, key: Key) -> bool:
        """Whether the service was sized before."""
        return key in self._claims and not self._claims[key][1].fixed

    def claim(self, key: Key, product: str, claim: Claim) -> None:
        """What a service holds and wants now."""
        self._claims[key] = (product, claim)

    def shares(self, product: str) -> bool:
        """Whether the services that ask for it share what there is."""
        return self.inventory().of(product).shared_gpus is not None

    def limit(self, key: Key, product: str) -> Limits | None:
        """What the others leave to a service; None where nothing is shared."""
        budget = self.inventory().of(product).shared_gpus
        if budget is None:
            return None
        for service in self.cache.services():
            if service not in self._claims:
                self._claims[service] = self._unsized(service)
        claims = [claim for of, claim in self._claims.values() if of == product]
        most = share(budget, claims, str(key))
        return Limits(
            0,
            most,
            most_is=f"what the shared budget of {budget} {product} leaves",
            reason=scaling_reasons.GPU_BUDGET.name,
        )

    def priority(self, key: Key) -> int:
        """How important a service is where GPUs are short."""
        return self.inventory().priority(key.namespace, key.name)

    def _unsized(self, key: Key) -> tuple[str, Claim]:
        kinds = map(address, workloads(key.name))
        found = next((obj for kind, name in kinds if (obj := self.cache.get(kind, key.namespace, name))), None)
        if found is None:
            return "", Claim(str(key), 1, 0)
        live = read_live(found)
        claim = Claim(str(key), max(1, live.gpus_per_replica), live.asked, fixed=True)
        return live.needs.selector.get(names.GPU_PRODUCT_LABEL, ""), claim
