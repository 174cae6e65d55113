"""Never take over what somebody else made; always know our own."""

import pytest

from plimsoll.api import names
from plimsoll.core.ownership import judge

UID = "uid-now"


def _owner(kind: str = names.KIND, name: str = "svc", uid: str = UID) -> list[dict[str, object]]:
    return [{"kind": kind, "name": name, "uid": uid, "controller": True}]


@pytest.mark.parametrize(
    ("meta", "managers", "verdict", "whose"),
    [
        pytest.param({"ownerReferences": _owner()}, [], "ours", "", id="our owner reference"),
        pytest.param({}, [names.MANAGER_CHILDREN], "ours", "", id="its owner was stomped, but we wrote it"),
        pytest.param({"ownerReferences": _owner(uid="older")}, [], "leaving", "", id="an earlier service of this name"),
        pytest.param(
            {"ownerReferences": _owner(), "deletionTimestamp": "t"}, [], "leaving", "", id="ours, in deletion"
        ),
        pytest.param(
            {"ownerReferences": _owner("Application", "other", "uid-other")},
            [],
            "foreign",
            "owned by Application other",
            id="another controller's",
        ),
        pytest.param(
            {"ownerReferences": _owner(name="other", uid="uid-other")},
            [names.MANAGER_CHILDREN],
            "foreign",
            f"owned by {names.KIND} other",
            id="another service's",
        ),
        pytest.param(
            {"ownerReferences": _owner("Application", uid="uid-other")},
            [names.MANAGER_CHILDREN],
            "foreign",
            "owned by Application svc",
            id="of another kind with the same name",
        ),
        pytest.param(
            {"ownerReferences": [{"kind": "Team", "name": "t", "uid": "t"}, *_owner()]},
            [],
            "ours",
            "",
            id="ours, beside an owner that controls nothing",
        ),
        pytest.param({}, ["", "kubectl"], "foreign", "last written by kubectl", id="a writer without a name"),
        pytest.param(
            {"annotations": {"meta.helm.sh/release-name": "web"}},
            ["helm"],
            "foreign",
            "of Helm release web",
            id="a Helm release's",
        ),
        pytest.param({}, ["kubectl"], "foreign", "last written by kubectl", id="made by hand"),
        pytest.param({}, [], "foreign", "of an unknown owner", id="nobody said"),
    ],
)
def test_verdicts(meta: dict[str, object], managers: list[str], verdict: str, whose: str) -> None:
    found = judge({"metadata": {"name": "svc", **meta}, "managers": managers}, "svc", UID)
    assert (found.verdict, found.whose) == (verdict, whose)


def test_managers_are_also_read_from_an_untrimmed_object() -> None:
    live = {"metadata": {"name": "svc", "managedFields": [{"manager": names.MANAGER_CHILDREN}]}}
    assert judge(live, "svc", UID).verdict == "ours"
