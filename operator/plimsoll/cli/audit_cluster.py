"""``audit --cluster``: one context after the other, each by itself; one that cannot be reached stops no other."""

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.cli.audit_result import Audited, Options, audit_reading, given_gpu


@dataclass(frozen=True)
class Live:
    """Which clusters, and which of their namespaces; none named is all namespaces of the current context."""

    namespaces: Sequence[str]
    contexts: Sequence[str]
    everything: bool


def audit_cluster(live: Live, options: Options) -> Audited:
    """Read and judge each context."""
    from plimsoll.adapters.kube import CredentialsError  # noqa: PLC0415 - files need no client of a cluster
    from plimsoll.adapters.ports import ClusterError  # noqa: PLC0415
    from plimsoll.cli.workload_cluster import contexts_of, read_cluster  # noqa: PLC0415

    product = given_gpu(options.gpu)
    whole = Audited(ignored=options.ignored, accepted=options.accepted)
    try:
        contexts = contexts_of(live.contexts, everything=live.everything)
    except CredentialsError as error:
        return _unreachable(whole, str(error))
    for context in contexts:
        try:
            found = read_cluster(context, live.namespaces, product)
        except (CredentialsError, ClusterError) as error:
            _unreachable(whole, f"{context}: {error}" if context else str(error))
            continue
        _add(whole, audit_reading(found.reading, options, found.known))
    return whole


def _unreachable(audited: Audited, message: str) -> Audited:
    audited.notes.append(message)
    audited.unreachable = True
    return audited


def _add(whole: Audited, part: Audited) -> None:
    whole.judged += part.judged
    whole.bad += part.bad
    whole.notes += part.notes
    whole.objects += part.objects
    whole.unreachable |= part.unreachable
