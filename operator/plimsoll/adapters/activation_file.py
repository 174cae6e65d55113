"""The owner's activation queries, from the file that the chart mounts."""

from pathlib import Path

import yaml

from plimsoll.core.activation import ActivationError, Template, read_templates


def read_activation_file(path: str) -> dict[str, Template]:
    """The queries of a YAML file by name; none where no path is given.

    Raises:
        ActivationError: it cannot be read or used; the message names file, entry, value and what is allowed.
    """
    if not path:
        return {}
    try:
        return read_templates(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ActivationError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise ActivationError(f"{path}: not YAML ({str(error).splitlines()[0]})") from None
    except ActivationError as error:
        raise ActivationError(f"{path}: {error}") from None
