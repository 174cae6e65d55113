"""`python -m tests.benchmarks [NAME…]`: run the named benchmarks (`bench_NAME.py`), or all of them."""

import importlib
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    """Exit code 2 for a benchmark that does not exist."""
    found = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in names if name not in found]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    for name in names or found:
        importlib.import_module(f"tests.benchmarks.bench_{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
