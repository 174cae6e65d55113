"""The inventory file: read at the start, read anew when it changes, the last good one kept."""

import logging
from pathlib import Path

import pytest

from plimsoll.adapters.inventory import InventoryFile
from plimsoll.core.plan.inventory import Inventory, InventoryError

L4 = "NVIDIA-L4"


def priced(path: Path, price: object) -> None:
    """Replace the file as the kubelet replaces a mounted ConfigMap."""
    new = path.with_suffix(".new")
    new.write_text(f"products: {{{L4}: {{price: {price}}}}}\n", encoding="utf-8")
    new.replace(path)


def test_without_a_path_nothing_is_known() -> None:
    assert InventoryFile.opened("").current() == Inventory()


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    priced(path, 1)
    file = InventoryFile.opened(str(path))
    first = file.current()
    assert file.current() is first
    priced(path, 2)
    assert (first.of(L4).price, file.current().of(L4).price) == (1, 2)


@pytest.mark.parametrize("spoilt", ["[", "free", None])
def test_a_spoilt_file_keeps_what_was_known_and_is_said_once(
    spoilt: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "inventory.yaml"
    priced(path, 1)
    file = InventoryFile.opened(str(path))
    if spoilt is None:
        path.unlink()
    else:
        priced(path, spoilt)
    with caplog.at_level(logging.ERROR):
        assert [file.current().of(L4).price for _ in range(3)] == [1, 1, 1]
    (said,) = caplog.messages
    assert str(path) in said
    assert "the previous inventory is kept" in said
    priced(path, 3)
    assert file.current().of(L4).price == 3


@pytest.mark.parametrize(
    ("text", "says"), [(None, "No such file"), ("a: [", "not YAML"), ("a: 1", "a: 1: unknown field"), ("\x00", "YAML")]
)
def test_an_operator_does_not_start_with_an_unusable_file(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "inventory.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InventoryError) as caught:
        InventoryFile.opened(str(path))
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
