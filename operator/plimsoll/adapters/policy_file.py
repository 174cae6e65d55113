"""The owner's pod policy, from the file that the chart mounts."""

from pathlib import Path

import yaml

from plimsoll.core.podtemplate.check import owners_policy
from plimsoll.core.policy import PodPolicy, PolicyError


def read_policy_file(path: str) -> PodPolicy:
    """The policy of a YAML file; the default where no path is given.

    Raises:
        PolicyError: it cannot be read or used; the message names file, field, value and what is allowed.
    """
    if not path:
        return PodPolicy()
    try:
        return owners_policy(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not YAML ({str(error).splitlines()[0]})") from None
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None
