"""Every page in a real Chromium, from a server and from disk, with hostile model output."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer.made_run import (
    LONG,
    TASKS,
    gateway_records,
    group_records,
    search_records,
    write_counts,
    write_run,
    write_sweep,
)

from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.viewer.export import export
from rl_agents.viewer.runs import find_runs

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]
#: Addresses, each with a text that its page shows.
PAGES = {
    "#/": "rollout/success_rate",
    "#/run/run": "Test success after 0 iterations",
    "#/i/run/3": "Iteration 3 of run",
    "#/g/run/2/0?kind=episode": "diverges here",
    "#/e/run/i1.g0.m0?step=1": "(0 \u2212 0.750) / 0.500 = \u22121.50",
    "#/e/run/i1.g1.m0": "988,000 more characters",
    "#/t/run/i1.g0.m0/1": "The pool holds the exact ids",
    "#/searches/run": "task/a",
    "#/tree/run/77": "tick 2 of 2: 6 states, 2 expanded",
    "#/task/task%20b": "compare with",
    "#/curriculum/run": "retired",
    "#/diff/run/i0.g0.m1/run/i2.g0.m1": "They are the same",
    "#/diff/run/i0.g0.m0/run/i0.g0.m1": "The first step that differs is step 1: another action.",
    "#/e/run/i0.g9.m0?step=1": "among its siblings",
    "#/e/run/sub": "One lane for each conversation",
    "#/sweep/sweep": "eval/success_rate by vspo_temperature and vspo_alpha",
    "#/nothing": "There is no page",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("pages") / "run")
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(*search_records(), *gateway_records())
    write_sweep(folder.with_name("sweep"))
    write_counts(folder, {TASKS[0]: (8.0, 8.0)})
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    executable = os.environ.get("RL_AGENTS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs a Chromium (RL_AGENTS_CHROMIUM=PATH)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "run.py", "view", str(folder), str(folder.with_name("sweep")), "--token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        address = re.fullmatch(r"5 runs at (http://\S+/#token=[\w-]+)\n", process.stdout.readline())
        assert address is not None
        yield address[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page that may not raise errors, violate its content policy or request other hosts."""
    page, wrong = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: wrong.append(asked.url) if not re.match(LOCAL, asked.url) else None)
    yield page
    struck = page.evaluate("window.struck")
    page.close()
    assert (wrong, struck) == ([], None)


LOCAL = r"http://127\.0\.0\.1:\d+/|file:///"


#: Links, buttons, fields and pictures without an accessible name.
UNNAMED = """() => {
  const labeled = (e) => [...(e.labels || [])].map((l) => l.innerText).join("");
  const words = (e) => e.getAttribute("aria-label") || labeled(e) || e.title || e.textContent.trim();
  const all = "a, button, input, select, summary, [role=button], [role=img], [role=region], [tabindex='0']";
  return [...document.querySelectorAll(all)].filter((e) => !words(e)).map((e) => e.outerHTML.slice(0, 200));
}"""


def visit(page: Any, base: str) -> None:
    for place, text in PAGES.items():
        page.goto(base + place)
        page.wait_for_function("text => document.querySelector('main').innerText.includes(text)", arg=text)
        assert page.locator("main script, main img, main b script").count() == 0
        assert page.evaluate(UNNAMED) == [], place
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            place
        )  # only tables scroll sideways


def test_every_page_from_the_server(page, server):
    page.goto(server)
    page.wait_for_selector("text=test success")
    assert "token" not in page.url  # it is out of sight
    visit(page, server.partition("#")[0])


def test_what_a_model_wrote_is_text(page, server):
    page.goto(server)
    page.goto(server.partition("#")[0] + "#/e/run/i1.g0.m0")
    said = page.locator("#step-0 pre.agent")
    assert "<script>window.struck = 1</script><img src=x" in said.inner_text()
    marks = said.locator(".hidden-char").all_inner_texts()
    assert marks == ["U+202E", "U+202C", "U+001B", "U+D83D", "U+2028"]
    page.goto(server.partition("#")[0] + "#/e/run/i1.g1.m0")
    button = page.locator("#step-0 button", has_text="988,000 more characters")
    button.click()
    page.wait_for_selector("text=788,000 more characters")


def test_the_worst_step_and_why_in_two_clicks(page, server):
    page.goto(server)
    page.click("tbody tr:first-child a.go")
    lowest = page.locator("section:has-text('Lowest advantages') li:first-child a")
    assert "step 2, the last of 2 with this value" in lowest.inner_text()  # not the first, which may be good
    lowest.click()
    page.wait_for_selector("li.card.marked details.why[open]")
    assert "A = (R \u2212 mean of the group) / standard deviation" in page.locator(".card.marked").inner_text()


def test_curves_by_what_iterations_took(page, server):
    """The choice of axis holds for all pages, and a click still opens the iteration."""
    page.goto(server)
    page.get_by_label("Axis").select_option("environment steps")
    chart = page.locator(".plot:has-text('rollout/success_rate')")
    chart.locator("text.tick:text-is('100')").wait_for()
    chart.locator("svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "after 80 environment steps" in chart.locator("output").inner_text()  # 40 for each of two iterations
    ticks = chart.locator("svg.chart text.tick[text-anchor=middle]")
    assert ticks.all_text_contents() == ["0", "25", "50", "75", "100"]
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Iteration 2')")
    page.keyboard.press("u")
    page.wait_for_function("location.hash === '#/run/run'")
    assert page.get_by_label("Axis").input_value() == "environment steps"
    page.get_by_label("Axis").select_option("seconds")
    page.locator(".plot:has-text('Success rate') text.tick:text-is('6')").wait_for()
    page.locator(".plot:has-text('Success rate') svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    assert "after 6 seconds" in page.locator(".plot:has-text('Success rate') output").inner_text()


def test_keys(page, server):
    page.goto(server)
    page.goto(server.partition("#")[0] + "#/i/run/2")
    page.wait_for_selector("[data-row][href='#/e/run/i1.g0.m1?step=2']")  # rows of the page before are gone
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    assert focused == "#/e/run/i1.g0.m1?step=2"
    page.keyboard.press("]")
    page.wait_for_function("location.hash === '#/i/run/3'")
    page.keyboard.press("u")
    page.wait_for_function("location.hash === '#/run/run'")
    page.keyboard.press("/")
    page.keyboard.type("lamp")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hits mark")


def test_a_tree_without_a_mouse(page, server):
    """The tree is one tab stop; arrow keys move in it, and the selection is shown next to it and in the address."""
    page.goto(server)
    page.goto(server.partition("#")[0] + "#/tree/run/77")
    page.wait_for_selector("svg.tree .node")
    assert page.locator("svg.tree [tabindex='0']").count() == 1
    page.get_by_label("Tick").focus()
    page.keyboard.press("Tab")  # "all of it"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("start, n 3, S 1.00")
    for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "depth 3, success, advantage +0.71" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "A state at depth 3" in page.get_by_label("The chosen state").inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.wait_for_function("location.hash === '#/tree/run/77?state=0'")
    page.get_by_label("Tick").fill("0")
    assert page.locator(".tree-box .node").count() == 1


def test_the_tokens_of_a_step(page, server):
    """Colors by layer, numbers on hover and focus, and a table of all numbers."""
    page.goto(server)
    page.goto(server.partition("#")[0] + "#/t/run/i1.g0.m0/1?layer=advantage")
    page.wait_for_selector(".tokens [data-kind=sampled]")
    tokens = page.locator(".tokens [data-kind=sampled]")
    colors = "all => all.map((one) => one.style.backgroundColor)"
    assert all("213, 94, 0" in color for color in tokens.evaluate_all(colors)), "the step's advantage, below zero"
    page.get_by_label("surprise").check()
    page.wait_for_selector(".scale:has-text('1.25 nats (p 0.3)')")
    opacity = [float(color.rstrip(")").split(", ")[3]) for color in tokens.evaluate_all(colors)]
    assert opacity == pytest.approx([0.12, 0.09, 0.42], abs=0.005), "by 0.5, 0.25 and 3 nats"
    page.set_viewport_size({"width": 390, "height": 800})  # where the numbers of a token take several lines
    place = tokens.nth(1).evaluate("token => token.offsetTop")
    tokens.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert tokens.nth(1).evaluate("token => token.offsetTop") == place  # else a pointer would be at another token
    said = page.locator("output.token-info").inner_text()
    for words in ("log-probability \u22120.250 (p 0.779)", "advantage \u22121.500", "policy version 1"):
        assert words in said, said
    page.click("summary:has-text('All numbers as a table')")
    rows = page.locator("details[data-key=numbers] tbody tr")
    rows.nth(2).wait_for()
    assert rows.count() == 3 and rows.nth(2).locator("td").nth(2).inner_text() == "3.000"
    page.goto(server.partition("#")[0] + "#/e/run/i1.g0.m0")
    page.wait_for_selector("#step-1 .badge:has-text('cut here by t3')")
    assert "no progress (2 of 2)" in page.locator("#step-1").inner_text()


def test_a_page_follows_a_run_that_is_written(page, server, folder):
    page.goto(server)
    page.goto(server.partition("#")[0] + "#/run/run")
    page.wait_for_selector("tbody th:has-text('i3')")
    page.focus("tbody tr:first-child a")
    with PoolWriter(folder / "pool.sqlite") as pool:
        pool.add(*group_records(3, 0))
    page.wait_for_selector("tbody tr:first-child th:has-text('i4')", timeout=60_000)
    assert page.evaluate("document.activeElement.textContent") == "i3"  # who reads stays where they are
    assert page.locator("#news[aria-live=polite]").inner_text() == "run: now with i4"


def test_every_page_from_disk(page, folder, tmp_path):
    export(find_runs([str(folder), str(folder.with_name("sweep"))]), tmp_path / "out", 0)
    page.set_viewport_size({"width": 390, "height": 800})  # a phone's
    visit(page, (tmp_path / "out" / "index.html").as_uri())
    page.goto((tmp_path / "out" / "index.html").as_uri() + "#/e/run/i1.g1.m0")
    while (more := page.locator("button:has-text('more characters')")).count():
        more.first.click()
        page.wait_for_function("!document.querySelector('button.small[disabled]')")
    longest = "Math.max(...[...document.querySelectorAll('pre.text')].map((pre) => [...pre.textContent].length))"
    assert page.evaluate(longest) == len(LONG)


def test_success_at_phone_width_and_one_axis_for_each_environment(page, tmp_path):
    for name, env in (("one", "taxi"), ("two", "lake")):
        write_run(tmp_path / name, env=env)
    export(find_runs([str(tmp_path / "one"), str(tmp_path / "two")]), tmp_path / "out", 1)
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto((tmp_path / "out" / "index.html").as_uri())
    cell = page.locator("tbody tr").first.locator("td").first
    assert cell.inner_text() == "0.25" and cell.bounding_box()["x"] + cell.bounding_box()["width"] <= 390
    charts = page.locator(".plot:has-text('rollout/success_rate')")
    assert charts.count() == 2  # one for each environment, each with its own run
    assert [label.split(". ")[1].split(":")[0] for label in charts.locator("svg").evaluate_all(LABELS)] == [
        "one",
        "two",
    ]
    assert page.locator("section h3").all_inner_texts() == ["TAXI", "LAKE"]


LABELS = "all => all.map((one) => one.getAttribute('aria-label'))"
