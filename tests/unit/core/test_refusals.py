"""The API server's refusals, in its own sentences (recorded on 1.36), become a reason and a way out."""

import pytest

from plimsoll.core.refusals import leaving, refusal, webhook_away

WHAT = "Deployment llm/svc"


@pytest.mark.parametrize(
    ("message", "reason", "says"),
    [
        pytest.param(
            'PATCH /apis/apps/v1/…: 403 deployments.apps "svc" is forbidden: User "system:serviceaccount:ops:plimsoll" '
            'cannot patch resource "deployments" in API group "apps" in the namespace "llm"',
            "Forbidden",
            ("may not patch deployments.apps in namespace llm", "add the verb patch for deployments"),
            id="a missing right",
        ),
        pytest.param(
            'LIST: 403 pods is forbidden: User "u" cannot list resource "pods" in API group "" at the cluster scope',
            "Forbidden",
            ("may not list pods;",),
            id="a missing right over the whole cluster",
        ),
        pytest.param(
            'PATCH /apis/apps/v1/…: 403 deployments.apps "svc" is forbidden: ',
            "Forbidden",
            ("may not create deployments.apps", "add the verb create for deployments"),
            id="a missing right to create, as Kubernetes 1.30 says it of an apply: with no word of the right",
        ),
        pytest.param(
            '403 services "svc" is forbidden: exceeded quota: small, requested: services=1, used: services=1, '
            "limited: services=1",
            "QuotaExceeded",
            ("ResourceQuota small is used up (requested: services=1, limited: services=1)",),
            id="a quota",
        ),
        pytest.param(
            '403 pods "svc-1" is forbidden: failed quota: compute: must specify limits.cpu for: vllm',
            "QuotaExceeded",
            ("ResourceQuota compute must specify limits.cpu",),
            id="a quota that wants limits",
        ),
        pytest.param(
            '400 admission webhook "validate.corp.example" denied the request: images come from mirror.corp only',
            "DeniedByPolicy",
            ("validate.corp.example refuses it: images come from mirror.corp only",),
            id="a webhook",
        ),
        pytest.param(
            "422 deployments.apps \"svc\" is forbidden: ValidatingAdmissionPolicy 'team-label' with binding "
            "'everywhere' denied request: a team label is needed",
            "DeniedByPolicy",
            ("ValidatingAdmissionPolicy team-label (binding everywhere) refuses it: a team label is needed",),
            id="a policy",
        ),
        pytest.param(
            "PATCH /apis/apps/v1/…: 500 failed to create typed patch object (llm/svc; apps/v1, Kind=Deployment): "
            '.spec.template.spec.containers[name="proxy"].livenessProbe.httpGet.paths: field not declared in schema',
            "Refused",
            (
                'spec.podTemplate.spec.containers[name="proxy"].livenessProbe.httpGet.paths',
                "field not declared",
                "correct",
            ),
            id="a field that pods do not have",
        ),
        pytest.param(
            '422 Deployment.apps "svc" is invalid: spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: field is '
            "immutable",
            "ImmutableField",
            ("spec.selector cannot be changed", "delete the object"),
            id="an immutable field",
        ),
        pytest.param("403 no", "Forbidden", ("the API server refuses Deployment llm/svc: 403 no",), id="another 403"),
    ],
)
def test_a_refusal_is_explained(message: str, reason: str, says: tuple[str, ...]) -> None:
    problem = refusal(WHAT, message, forbidden=message.startswith("403 no"))
    assert problem.reason == reason
    assert all(text in problem.message for text in says), problem.message


def test_what_is_invalid_without_a_pattern_keeps_its_sentence() -> None:
    assert refusal(WHAT, "422 odd", forbidden=False).reason == "Refused"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "403 exceeded quota: small, requested: services=1, used: services=7, limited: services=8",
            "403 exceeded quota: small, requested: services=1, used: services=8, limited: services=8",
            id="others use more of the quota",
        ),
        pytest.param(
            '400 admission webhook "w" denied the request: at 2026-01-02T03:04:05Z: no (request ID: 8f3a)',
            '400 admission webhook "w" denied the request: at 2026-01-02T03:05:11Z: no (request ID: 11bc)',
            id="a webhook with times and ids",
        ),
    ],
)
def test_the_same_cause_has_the_same_sentence(first: str, second: str) -> None:
    """F20: a text that changes with every try would be a status write with every try."""
    assert refusal(WHAT, first, forbidden=True) == refusal(WHAT, second, forbidden=True)


def test_a_namespace_in_deletion_and_a_webhook_that_is_away_pass_by_themselves() -> None:
    assert leaving(
        '403 … "svc" is forbidden: unable to create new content in namespace llm because it is being terminated'
    )
    assert webhook_away('500 Internal error occurred: failed calling webhook "w.example": failed to call webhook: Post')
    assert webhook_away("500 etcd is away") is None
