"""Property tests are about values, not about speed: no example may fail because the machine is busy."""

from hypothesis import settings

settings.register_profile("plimsoll", deadline=None)
settings.load_profile("plimsoll")
