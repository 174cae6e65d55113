"""Headless Chromium as a function: a page in, its document after scripts ran out."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
# Debian's Chromium as root in a container, offline; the background flags keep it from looking up hosts of its own.
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def find() -> str | None:
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def dumped(program: str, page: Path, *flags: str) -> str:
    """The page's DOM as HTML, once its scripts and timers have run."""
    with tempfile.TemporaryDirectory() as profile:
        command = (program, *FLAGS, *flags, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom")
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout
