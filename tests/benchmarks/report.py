"""How a figure is printed."""

import json


def figure(bench: str, value: float, unit: str, **more: object) -> None:
    """One JSON line: `{"bench": …, "value": …, "unit": …}` and whatever explains it."""
    print(json.dumps({"bench": bench, "value": round(value, 3), "unit": unit, **more}), flush=True)


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
