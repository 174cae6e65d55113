"""Are there advisories against what requirements.lock pins? Asked with pip-audit, in an environment of its own.

    python -m tools.audit_deps            where nobody answers: says so in large letters, exit code 0
    python -m tools.audit_deps --strict   where nobody answers: exit code 3 (for CI)

Exit code 1 and a line for each when there are some.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).resolve().parents[1] / "requirements.lock"
TOOL: Final = "pip-audit==2.9.0"
SERVICES: Final = ("pypi", "osv")
SECONDS: Final = 300
FOUND: Final = 1
UNREACHABLE: Final = 3


def advisories(answer: str) -> list[str] | None:
    """A line for each advisory in pip-audit's JSON; None when it is no answer."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    if not packages or any("skip_reason" in package for package in packages):
        return None
    return [_line(package, found) for package in packages for found in package["vulns"]]


def _line(package: dict[str, Any], found: dict[str, Any]) -> str:
    mended = ", ".join(found["fix_versions"]) or "nothing yet"
    return f"{package['name']} {package['version']}: {found['id']}, mended in {mended}"


def _asked(python: Path, service: str) -> tuple[list[str] | None, str]:
    command = ["-m", "pip_audit", "-r", str(LOCK), "--disable-pip", "--no-deps", "-f", "json", "-s", service]
    try:
        ran = subprocess.run([str(python), *command], capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS} s"
    return advisories(ran.stdout), (ran.stderr.strip().splitlines() or ["no answer"])[-1]


def _audited(folder: Path) -> tuple[list[str] | None, str]:
    """What the first service that answers says, else why none does."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", TOOL]
    if subprocess.run(install, check=False).returncode:
        return None, f"{TOOL} cannot be installed"
    why = ""
    for service in SERVICES:
        found, why = _asked(python, service)
        if found is not None:
            return found, service
    return None, why


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit_deps", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="nobody answers: exit code 3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, said = _audited(Path(folder))
    if found is None:
        print(f"\n*** SKIPPED: the dependencies were NOT audited: {said[:300]} ***\n", file=sys.stderr)
        return UNREACHABLE if options.strict else 0
    print(*found, f"{len(found)} advisories against {LOCK.name} ({said})", sep="\n")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
