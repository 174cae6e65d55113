"""Node specifications and what such a node says of itself."""

import pytest

from e2e.fleet import NodeSpec, nodes, parse_nodes


def test_a_fleet_in_one_line() -> None:
    specs = parse_nodes("2*NVIDIA-H100-80GB-HBM3:8, NVIDIA-L40S:4")
    assert [(spec.name, spec.product, spec.gpus) for spec in specs] == [
        ("h100-80gb-hbm3-0", "NVIDIA-H100-80GB-HBM3", 8),
        ("h100-80gb-hbm3-1", "NVIDIA-H100-80GB-HBM3", 8),
        ("l40s-0", "NVIDIA-L40S", 4),
    ]


@pytest.mark.parametrize("text", ["H100", "2*NVIDIA-L40S", "x*NVIDIA-L40S:1"])
def test_what_does_not_read_so_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"COUNT\*PRODUCT:GPUS"):
        parse_nodes(text)


def test_an_unknown_product_is_named_with_the_known() -> None:
    with pytest.raises(ValueError, match=r"'NVIDIA-X1' is unknown.*NVIDIA-L40S"):
        parse_nodes("NVIDIA-X1:1")


def test_labels_are_those_of_feature_discovery() -> None:
    labels = nodes.manifest(NodeSpec("n", "NVIDIA-H100-80GB-HBM3", 8))["metadata"]["labels"]
    expected = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/mig.capable": "true",
    }
    assert expected.items() <= labels.items()


def test_a_node_without_gpus_offers_none() -> None:
    plain = nodes.status(NodeSpec("n", "", 0), "127.0.0.1", 0)
    assert "nvidia.com/gpu" not in plain["capacity"]
    assert nodes.status(NodeSpec("n", "NVIDIA-L4", 4), "127.0.0.1", 0)["allocatable"]["nvidia.com/gpu"] == "0"
