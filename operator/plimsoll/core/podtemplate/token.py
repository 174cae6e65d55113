"""The one Secret that a service names itself: its token for the hub."""

from plimsoll.api.weights import FromHub, SecretKey, WeightsSource


def token_of(source: WeightsSource | None) -> SecretKey | None:
    """The service's own token reference."""
    if source is None:
        return None
    fetched: tuple[FromHub | None, ...] = (source.hub, source.pvc, source.host_path)
    return next((each.token_secret for each in fetched if each and each.token_secret), None)
