"""Property tests are about values: no example may fail because the machine is busy, and a run is the same as the last.

`make fuzz` and `PLIMSOLL_PROFILE=long` look at examples that nobody has seen.
"""

import os

from hypothesis import settings

SEARCHING = bool({"FUZZ", "PLIMSOLL_PROFILE"} & os.environ.keys())

settings.register_profile("plimsoll", deadline=None, derandomize=not SEARCHING)
settings.load_profile("plimsoll")
