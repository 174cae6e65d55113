"""Services by the thousand end in a plan or a refusal; `e2e/agreement.py` asks the API server about the same ones."""

import itertools
from itertools import islice

import pytest

from e2e.agreement import raised
from plimsoll.api.parse import FieldError, InvalidServiceError, parse_service
from tests.unit.api.mutations import KINDS, Manifest, manifests

SERVICES = list(islice(manifests(seed=11), 1500))


def _errors(manifest: Manifest) -> tuple[FieldError, ...]:
    try:
        parse_service(manifest)
    except InvalidServiceError as invalid:
        return invalid.errors
    return ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_names_its_field_and_what_is_accepted_never_raises(kind: str) -> None:
    of = [manifest for name, manifest in SERVICES if name == kind]
    errors = [_errors(manifest) for manifest in of]
    accepted = [manifest for manifest, found in zip(of, errors, strict=True) if not found]
    assert 0 < len(accepted) < len(of)
    unnamed = [e for e in itertools.chain(*errors) if not e.message or not e.path.startswith(("spec", "metadata.name"))]
    assert unnamed == []
    assert [found for found in map(raised, accepted) if found] == []
