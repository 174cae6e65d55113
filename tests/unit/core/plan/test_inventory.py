"""What the operator's owner says of the cluster: prices, nodes, budgets, memory that others hold, mixed nodes."""

from typing import Any

import pytest

from plimsoll.core.plan.inventory import Inventory, InventoryError, Stock, read_inventory, with_prices
from plimsoll.core.plan.result import Refusal
from tests.unit.core.plan.asking import H100, L4, L40S, answer, flags, load, plan, refusal

GIB = 1 << 30
SMALL = "Qwen/Qwen3-8B"
GB10 = "NVIDIA-GB10"
UNKNOWN = "ACME-Z1-96GB"


def test_a_file_is_read_by_node_label() -> None:
    read = read_inventory(
        {
            "gpus": 12,
            "products": {
                "NVIDIA H100 80GB HBM3": {"price": 2, "gpusPerNode": 4, "gpus": 8},
                "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb": {"price": 0.4},
                GB10: {"memoryGiB": 110, "reserveGiB": 30.5},
                L4: {"mixedNodes": True},
            },
        }
    )
    assert read.gpu_budget == 12
    assert read.of(H100) == Stock(price=2, gpus_per_node=4, gpus=8)
    assert read.of(f"{H100}-MIG-1g.10gb").price == 0.4
    assert (read.of(GB10).memory_bytes, read.of(GB10).reserve_bytes) == (110 * GIB, int(30.5 * GIB))
    assert read.of(L4).mixed
    assert read.of("anything else") == Stock()
    assert read_inventory(None) == Inventory()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        pytest.param([], "must be a group of fields", id="a list"),
        pytest.param({"budget": 3}, "budget: 3: unknown field", id="an unknown field"),
        pytest.param({"gpus": -1}, "gpus: -1: must be at least 0", id="less than nothing"),
        pytest.param({"products": {H100: {"prices": 2}}}, f"products.{H100}.prices: 2: unknown field", id="misspelt"),
        pytest.param({"products": {H100: {"price": "2 EUR"}}}, "price: '2 EUR'", id="a price with its currency"),
        pytest.param({"products": {H100: {"price": 0}}}, "must be more than 0", id="a price of nothing"),
        pytest.param({"products": {H100: {"gpusPerNode": 0}}}, "must be at least 1", id="an empty node"),
        pytest.param({"products": {H100: 2}}, "must be a group of fields", id="a bare figure"),
        pytest.param({"products": {"": {}}}, "products", id="no name"),
        pytest.param({"products": {L4: {"reserveGiB": 24}}}, "less than the GPU's 22.", id="all of it kept"),
        pytest.param({"products": {H100: {}, "NVIDIA H100 80GB HBM3": {}}}, "stands there already", id="one twice"),
    ],
)
def test_what_cannot_be_used_is_named(written: Any, says: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read_inventory(written)
    assert says in str(caught.value)


def test_a_single_price_wins_over_the_file_and_leaves_the_rest() -> None:
    priced = with_prices(Inventory({H100: Stock(price=2, gpus=8)}), {H100: 3, L4: 1})
    assert (priced.of(H100), priced.of(L4)) == (Stock(price=3, gpus=8), Stock(price=1))


@pytest.mark.parametrize(
    ("gpus", "per_node", "args", "replicas"),
    [
        pytest.param(7, 8, ["-tp=1"], 7, id="seven GPUs are seven replicas of one"),
        pytest.param(7, 8, ["-tp=2"], 3, id="three of two"),
        pytest.param(6, 3, ["-tp=2"], 2, id="on nodes of three one of two each, the third GPU idles"),
        pytest.param(7, 3, ["-tp=2"], 2, id="a seventh GPU alone on a node holds none of two"),
    ],
)
def test_replicas_fit_onto_the_nodes_there_are(gpus: int, per_node: int, args: list[str], replicas: int) -> None:
    there = Inventory({L40S: Stock(gpus=gpus, gpus_per_node=per_node)})
    found = plan(SMALL, L40S, 8192, 64, load=load(2000), args=args, inventory=there)
    assert found.choice.replicas == replicas
    assert found.slo_met == "unknown"
    assert any("limit: " in note for note in found.assumptions)


def test_replicas_over_nodes_take_whole_nodes() -> None:
    asked = ("deepseek-ai/DeepSeek-V3.2", H100, 65_536, 64)
    assert plan(*asked, inventory=Inventory({H100: Stock(gpus=16)})).choice.nodes_per_replica == 2
    assert isinstance(answer(*asked, inventory=Inventory({H100: Stock(gpus=15)})), Refusal)


def test_too_few_gpus_of_a_product_are_counted_in_the_refusal() -> None:
    no = refusal(SMALL, L40S, 8192, args=["-tp=2"], inventory=Inventory({L40S: Stock(gpus=1)}))
    assert no.reason == "MaxGPUsExceeded"
    assert f"inventory: 1 GPUs {L40S} are there, 8 on a node: too few for 1 x 2" in no.message


def test_a_product_with_no_gpus_is_no_choice() -> None:
    there = Inventory({L40S: Stock(gpus=0)})
    assert plan(SMALL, [L40S, H100], 8192, inventory=there).choice.gpu == H100
    assert refusal(SMALL, L40S, 8192, inventory=there).reason == "MaxGPUsExceeded"


def test_the_budget_of_all_products_bounds_a_service() -> None:
    assert plan(SMALL, L40S, 8192, 8, load=load(2000), inventory=Inventory(gpu_budget=3)).choice.replicas == 3
    no = refusal(SMALL, L40S, 8192, 8, scaling={"minReplicas": 4}, inventory=Inventory(gpu_budget=3))
    assert "inventory: 4 x 1 GPUs are 4, a service may hold 3" in no.message


def test_a40_what_co_tenants_hold_of_unified_memory_is_left_to_them() -> None:
    """A GB10 has 119.7 GiB for CPU and GPU: with 60 GiB kept, the engine asks for its usual share of the rest."""
    alone = plan(SMALL, GB10, 32_768)
    beside = plan(SMALL, GB10, 32_768, inventory=Inventory({GB10: Stock(reserve_bytes=60 * GIB)}))
    share = float(flags(beside)["--gpu-memory-utilization"])
    assert share < float(flags(alone)["--gpu-memory-utilization"]) / 2 + 0.05
    assert beside.kv.num_blocks < alone.kv.num_blocks
    assert any("60.00 GiB of each NVIDIA-GB10 are kept for others" in note for note in beside.assumptions)


def test_a40_a_drafted_fraction_that_does_not_fit_beside_others_is_refused() -> None:
    there = Inventory({GB10: Stock(reserve_bytes=60 * GIB)})
    no = refusal(SMALL, GB10, 32_768, args=["--gpu-memory-utilization=0.8"], inventory=there)
    assert no.reason == "NotEnoughFreeMemory"
    assert "0.8" in no.message


def test_memory_given_for_a_product_replaces_the_catalogues() -> None:
    less = plan(SMALL, L40S, 8192, inventory=Inventory({L40S: Stock(memory_bytes=30 * GIB)}))
    assert less.kv.num_blocks < plan(SMALL, L40S, 8192).kv.num_blocks
    small = Inventory({L40S: Stock(memory_bytes=12 * GIB)})
    assert refusal(SMALL, L40S, 8192, 1, inventory=small).reason == "NoMemoryForKV"


def test_a42_an_unknown_product_has_no_capacity_and_hides_no_other() -> None:
    found = plan(SMALL, [UNKNOWN, L40S], 8192)
    assert found.choice.gpu == L40S
    (left_out,) = [each for each in found.rejected if each.reason == "UnknownGPU"]
    assert left_out.choice == UNKNOWN
    assert f"hardware: {UNKNOWN} is left out (UnknownGPU)" in found.assumptions
    alone = answer(SMALL, UNKNOWN, 8192, inventory=Inventory({UNKNOWN: Stock(price=1, gpus=64)}))
    assert isinstance(alone, Refusal)
    assert alone.reason == "UnknownGPU"


def test_a43_nodes_that_mix_products_are_left_out() -> None:
    mixed = Inventory({L40S: Stock(mixed=True)})
    found = plan(SMALL, [L40S, H100], 8192, inventory=mixed)
    assert found.choice.gpu == H100
    assert "MixedNodes" in [each.reason for each in found.rejected]
    no = refusal(SMALL, L40S, 8192, inventory=mixed)
    assert no.reason == "MixedNodes"
    assert "also hold other GPUs" in no.message
    offered = refusal("meta-llama/Llama-3.1-70B", L4, 8192, 1, inventory=mixed).nearest
    assert not any(L40S in change.change for change in offered)
