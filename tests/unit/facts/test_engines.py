import pytest

from plimsoll.facts import gpus
from plimsoll.facts.engines import (
    NEWEST,
    RECORDED,
    BatchDefaults,
    EngineVersion,
    batch_defaults,
    default_utilisation,
    prefix_caching_of_state_models,
)


@pytest.mark.parametrize("text", ["0.32.0", "v0.32.0", "0.32.0+cpu", "0.32", "0.32.0rc1"])
def test_spellings_of_one_release(text: str) -> None:
    assert EngineVersion.parse(text) == EngineVersion(0, 32, 0)


@pytest.mark.parametrize("text", ["latest", "", "0.9.2", "0.34.0", "1.0.0", "nightly-0.32", "9" * 5000])
def test_releases_without_rules_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="engine version"):
        EngineVersion.parse(text)


def test_versions_order_by_release() -> None:
    versions = [EngineVersion.parse(text) for text in RECORDED]
    assert versions == sorted(versions)
    assert str(versions[-1]) == NEWEST


@pytest.mark.parametrize(("text", "share"), [("0.19.1", 0.9), ("0.20.2", 0.92), ("0.32.0", 0.92)])
def test_default_utilisation_moved(text: str, share: float) -> None:
    assert default_utilisation(EngineVersion.parse(text)) == share


@pytest.mark.parametrize(
    ("label", "version", "expected"),
    [
        ("NVIDIA-H100-80GB-HBM3", "0.32.0", BatchDefaults(8192, 1024)),
        ("NVIDIA-A100-SXM4-80GB", "0.32.0", BatchDefaults(2048, 256)),
        ("NVIDIA-L4", "0.32.0", BatchDefaults(2048, 256)),
        ("NVIDIA-B200", "0.32.0", BatchDefaults(16384, 1024)),
        ("NVIDIA-B200", "0.25.1", BatchDefaults(8192, 1024)),
    ],
)
def test_batch_defaults_follow_the_part(label: str, version: str, expected: BatchDefaults) -> None:
    gpu = gpus.find(label)
    assert gpu is not None
    assert batch_defaults(EngineVersion.parse(version), gpu) == expected


def test_a_cpu_batches_by_ranks() -> None:
    newest = EngineVersion.parse(NEWEST)
    assert batch_defaults(newest, "cpu", world_size=2) == BatchDefaults(4096, 256)
    assert batch_defaults(newest, "cpu", offline=True) == BatchDefaults(4096, 256)


@pytest.mark.parametrize(("text", "on"), [("0.25.1", False), ("0.28.0", True)])
def test_hybrids_cache_prefixes_by_default_since(text: str, on: bool) -> None:
    assert prefix_caching_of_state_models(EngineVersion.parse(text)) is on
