"""The HTML report in a real browser: the figures are there, nothing sticks out on a phone, nothing is fetched."""

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.planning import plan_files
from plimsoll.cli.report.page import report
from tests.browser import chromium

BROWSER = chromium.find()
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="NO BROWSER: the HTML report was not looked at. As root on Debian `sh tools/browser.sh` installs Chromium",
)

INFEASIBLE = """
apiVersion: plimsoll.dev/v1alpha1
kind: VLLMService
metadata: {name: too-large}
spec:
  model: {id: Qwen/Qwen3-32B}
  hardware: {gpu: NVIDIA-L4, maxGPUs: 1}
  contextTokens: 32768
"""

# The report stands in a frame of the width to be tried; what is measured is written where --dump-dom shows it.
PROBE = """<!doctype html><iframe id="frame" style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>
document.getElementById("frame").onload = event => {{
  const page = event.target.contentDocument, view = event.target.contentWindow;
  const style = (selector, name) => view.getComputedStyle(page.querySelector(selector))[name];
  const colours = [
    ["body", "color", "body", "backgroundColor"], ["a", "color", "body", "backgroundColor"],
    ["small", "color", "figure", "backgroundColor"], ["svg text.label", "fill", "figure", "backgroundColor"],
    ["svg .on-part-0", "fill", "rect.part-0", "fill"], ["svg .on-kv", "fill", "rect.kv", "fill"]];
  document.getElementById("found").textContent = JSON.stringify({{
    scrollWidth: page.documentElement.scrollWidth, clientWidth: page.documentElement.clientWidth,
    sticksOut: [...page.querySelectorAll("body *")].filter(e => !e.closest(".defs") && !e.closest("svg *"))
      .filter(e => e.getBoundingClientRect().right > page.documentElement.clientWidth + 1)
      .map(e => e.outerHTML.slice(0, 120)),
    labelsOutside: [...page.querySelectorAll("svg text")].filter(e => {{
      const box = e.getBBox(), room = e.ownerSVGElement.viewBox.baseVal;
      return box.x < -1 || box.y < -1 || box.x + box.width > room.width + 1 || box.y + box.height > room.height + 1;
    }}).map(e => e.textContent),
    fetched: view.performance.getEntriesByType("resource").map(e => e.name),
    colours: colours.map(([front, key, back, of]) => [front, style(front, key), style(back, of)]),
    unnamed: [...page.querySelectorAll("svg[role=img]")]
      .filter(e => !e.querySelector("title")?.textContent || !e.querySelector("desc")?.textContent).length,
    pictures: page.querySelectorAll("svg[role=img]").length,
  }});
}};
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    extra = tmp_path_factory.mktemp("services") / "too-large.yaml"
    extra.write_text(INFEASIBLE)
    return report(plan_files([str(EXAMPLES), str(extra)]).planned)


def probed(page: str, folder: Path, width: int, scheme: str) -> dict[str, Any]:
    assert BROWSER is not None
    file = folder / f"probe-{width}-{scheme}.html"
    file.write_text(PROBE.format(width=width, page=html.escape(page)), encoding="utf-8")
    setting = {"dark": 0, "light": 1}[scheme]
    dom = chromium.dumped(BROWSER, file, "--window-size=1400,1000", f"--blink-settings=preferredColorScheme={setting}")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-500:]
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measured


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_fits_reads_and_fetches_nothing(page: str, tmp_path: Path, width: int, scheme: str) -> None:
    found = probed(page, tmp_path, width, scheme)
    assert found["clientWidth"] == width
    assert found["scrollWidth"] <= width, found["sticksOut"]
    assert found["sticksOut"] == []
    assert found["labelsOutside"] == []
    assert found["fetched"] == []
    assert found["pictures"] >= 12
    assert found["unnamed"] == 0
    for front, ink, ground in found["colours"]:
        assert contrast(ink, ground) >= 4.5, (front, ink, ground)


def test_the_schemes_differ(page: str, tmp_path: Path) -> None:
    light, dark = (probed(page, tmp_path, 390, scheme)["colours"] for scheme in ("light", "dark"))
    assert light != dark


def test_the_browser_shows_the_figures_of_the_plan(page: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    shown = html.unescape(chromium.dumped(BROWSER, file))
    planned = plan_files([str(EXAMPLES / "qwen3.5-9b.yaml")]).planned[0].result()
    assert f"{planned['kv']['tokens']:,}" in shown
    assert shlex.join(planned["choice"]["args"]) in shown
    assert all(f"{item['bytes'] / 2**30:.2f} GiB" in shown for item in planned["memory"])
    assert "Not feasible: " in shown


def contrast(ink: str, ground: str) -> float:
    """WCAG 2 contrast ratio of two computed colours."""
    light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(figure) / 255 for figure in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
