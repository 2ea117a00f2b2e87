# SPDX-License-Identifier: Apache-2.0
"""The report over 1,000 models: its size, how long pare takes to write it, and when a headless Chromium
first paints it and has loaded it whole, medians of nine loads in one browser."""

import json
import statistics
import sys

from common import ROOT, Failed, call

sys.path.insert(0, str(ROOT / "tests" / "interop"))
import _chromium  # noqa: E402
import _reports  # noqa: E402

MODELS, LOADS = 1000, 9
PAINTED = """new Promise((done) => {
  const look = () => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
    if (paint && load > 0) done([paint.startTime, load]); else setTimeout(look, 10);
  };
  look();
})"""


def write_report(options):
    """The page's path and what writing it cost."""
    folder = options.work / "report"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for i, facts in enumerate(_reports.many(MODELS)):
        files.append(folder / f"facts-{i}.json")
        files[-1].write_text(json.dumps(facts))
    page = folder / "report.html"
    return page, call([options.pare, "report", *files, "-o", page, "--quiet"])


def run(options, results):
    case = f"{MODELS} models"
    try:
        page, outcome = write_report(options)
    except Failed as error:
        results.fail("report", case, error)
        return
    results.add("report", case, "size of the page", page.stat().st_size / 1e6, "MB", "< 5")
    results.add("report", case, "written in", outcome.seconds, "s")
    results.add("report", case, "pare's memory", outcome.peak_bytes / 1e6, "MB")
    if not _chromium.find():
        results.fail("report", case, "no chromium")
        return
    said, times = 0, []
    with _chromium.Page() as browser:
        for _ in range(LOADS):
            browser.open(page)
            times.append(browser.run(PAINTED))
            said += len(browser.said)
        version = browser.call("Browser.getVersion")["product"]
    results.add("report", f"{case}, {version}", "first contentful paint, median",
                statistics.median(t[0] for t in times) / 1000, "s", "< 2")
    results.add("report", f"{case}, {version}", "first contentful paint, worst",
                max(t[0] for t in times) / 1000, "s", "< 2")
    results.add("report", f"{case}, {version}", "loaded and drawn, median",
                statistics.median(t[1] for t in times) / 1000, "s")
    results.add("report", f"{case}, {version}", "words on the console", said, "", "== 0")
