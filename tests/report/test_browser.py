"""The report in a real browser without a network: what the file says is what is seen."""

import base64
import json
import os
import shutil

import pytest
from report_kit import EVIL, Author, rich_run

from coevo.report import run_report

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with chromedriver here"),
]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1280,900",
)  # fmt: skip

# Boxes on the page of the figures, and of the glyphs and the curves in them.
BOXES = """
const box = (e) => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
return [...document.querySelectorAll('svg')].map((svg) => ({
  size: box(svg),
  glyphs: [...svg.querySelectorAll('use')].map(box).filter(([w, h]) => w > 0 && h > 0).length,
  curves: [...svg.querySelectorAll('[id*=line2d] path[clip-path]')].map(box).filter(([w, h]) => w > 50).length,
}));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    log = str(tmp_path_factory.mktemp("log") / "driver")
    service = selenium.ChromeService(DRIVER, log_output=log, env={**os.environ, "NO_PROXY": "*"})
    driver = selenium.Chrome(options=options, service=service)
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield driver
    driver.quit()


def opened(browser, written):
    """Open a report; gives the addresses that were asked for, without those of the browser's own first page."""
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(written.html.as_uri())
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in asked if not one["documentURL"].startswith(("chrome:", "about:"))]


def colours(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    return browser.execute_script(
        "const s = getComputedStyle(document.body), c = getComputedStyle(document.querySelector('.card'));"
        "return [s.backgroundColor, s.color, c.backgroundColor];"
    )


def test_figures_and_words_are_seen_and_nothing_is_asked_for(browser, written):
    assert opened(browser, written) == [written.html.as_uri()]
    assert browser.get_log("browser") == []
    figures = browser.execute_script(BOXES)
    assert len(figures) == 3
    for figure in figures:
        assert figure["size"][0] > 500
        assert figure["size"][1] > 150
        assert figure["glyphs"] > 50
        assert figure["curves"] >= 3
    seen = browser.find_element("tag name", "body").text
    for expected in ("Run rich", "gap 16.72 % to optimum (5.7047)", "def select_next_node(", "What ran"):
        assert expected in seen


def test_a_screenshot_of_a_figure_has_its_colours(browser, written):
    opened(browser, written)
    png = base64.b64decode(browser.find_element("tag name", "svg").screenshot_as_base64)
    # A blank picture of this size compresses to a few kilobytes.
    assert len(png) > 10_000


def test_the_page_follows_the_scheme_and_figures_stay_on_white(browser, written):
    opened(browser, written)
    light, dark = colours(browser, "light"), colours(browser, "dark")
    assert light == ["rgb(246, 247, 249)", "rgb(28, 36, 48)", "rgb(255, 255, 255)"]
    assert dark == ["rgb(18, 22, 28)", "rgb(228, 232, 238)", "rgb(255, 255, 255)"]


def test_a_narrow_window_scrolls_figures_and_tables_but_not_the_page(browser, written):
    opened(browser, written)
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 400


def test_a_printed_report_has_what_is_folded_away(browser, written):
    opened(browser, written)
    hidden = "const e = document.querySelector('details pre'); return e.checkVisibility({contentVisibilityAuto: true});"
    assert browser.execute_script(hidden) is False
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = browser.execute_script("return document.querySelector('details pre').getBoundingClientRect().height")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown > 20


def test_a_hostile_run_is_shown_as_text(browser, tmp_path):
    config = {"task": EVIL, "model": EVIL, "context": EVIL}
    hostile = run_report.write(rich_run(tmp_path / "evil", 2, operators=(EVIL, "m1"), code=EVIL, config=config))
    assert opened(browser, hostile) == [hostile.html.as_uri()]
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
    assert "<script>alert(1)</script>" in browser.find_element("tag name", "pre").text


def test_a_run_that_has_not_begun_is_a_page_too(browser, tmp_path):
    opened(browser, run_report.write(Author(tmp_path / "empty", info=None).folder))
    assert "No batch was committed yet" in browser.find_element("tag name", "main").text
    assert browser.execute_script(BOXES) == []
