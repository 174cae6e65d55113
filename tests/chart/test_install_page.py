"""docs/install.md says what is true: the table of rights is the chart's, and what it names exists."""

import re

import pytest

from e2e.verbs import granted
from tools.kustomize import ROOT

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w./-]+)` \| ([a-z, ]+) \|", re.MULTILINE)


def test_every_right_of_the_operator_is_explained_and_no_other() -> None:
    section = PAGE.split("## What the operator may do")[1].split("\n## ")[0]
    services, cluster, own = section.split("| Resource |")[1:]
    said = {
        (role, resource, verb)
        for role, tables in (("plimsoll", services + cluster), ("plimsoll-own", own))
        for resource, verbs in ROW.findall(tables)
        for verb in verbs.split(", ")
    }
    assert said == {(use.role, use.resource, use.verb) for use in granted()}


@pytest.mark.parametrize("file", ["docs/install.md", "README.md"])
def test_links_lead_somewhere(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (ROOT / file).parent.joinpath(target).exists(), target


def test_anchors_are_headings() -> None:
    titles = re.findall(r"^##+ (.*)", PAGE, re.MULTILINE)
    headings = {re.sub(r"[^\w ]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings


def test_files_that_commands_use_exist() -> None:
    for path in set(re.findall(r"(?<![\w/])(?:charts|deploy/kustomize|examples|crds)/[\w./-]*", PAGE)):
        assert (ROOT / path).exists(), path
