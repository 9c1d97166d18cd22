"""The pictures of the run explorer and of a server's page in docs/images, from runs that it records in runs/pictures.

python -m benchmarks.explorer_pictures     # needs chromium, and the package playwright of the extra `dev`
"""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT, RUN = Path(__file__).parents[1], (sys.executable, "run.py")
RUNS, IMAGES = ROOT / "runs" / "pictures", ROOT / "docs" / "images"
RECORDED = {  # of the first-run tutorial, of `make view-example`, and small ones for what these lack
    "tour": "--algo grpo --env guess_numbers --iterations 15",
    "tour-steppo": "--config guess_numbers_steppo --iterations 15",
    "tour-chain-gae": "--config guess_numbers_chain_gae --iterations 15",
    "3spo": "--algo 3spo --env alfworld --iterations 3 --seed 2 --set search_steps=400 max_turns=12 group_size=6 "
    "tasks_per_iteration=6 eval_interval=3 eval_episodes=8 old_logprobs=learner rollout_correction=token_tis",
    "subagent": "--algo grpo --env blackbox --iterations 2 --set env.tasks=guess_numbers eval_episodes=0 "
    "ref_kl_coef=0.1 teacher=runs/pictures/tour/checkpoints/000015/hf env.agent=docs.examples.agents.subagent:agent",
    "vspo": "tune runs/pictures/sweep.yaml --iterations 2 --set eval_interval=0 eval_episodes=64",
}
SWEEP = "{recipe: guess_numbers_vspo, space: {vspo_temperature: [0.1, 1.0], vspo_alpha: [2.0, 4.0]}}"
LOWEST, TASK = "section:has-text('Lowest advantages') li:first-child a", "a[title='the same task elsewhere']"
TAG = ".sampled:text-matches('^<(interact|answer)>$')"
KEYS = {TAG: ["ArrowRight"], "#action": "look"}  # what is pressed after a click
PICTURES = {  # name: width, address, what is clicked one after the other, the last element that the picture has
    "view_start": (1180, "#/", (), ".plots .plot:nth-child(3)"),
    "view_run": (1180, "#/run/tour", (), "tbody tr:nth-child(6)"),
    "view_phone": (390, "#/run/tour", (), ".plots .plot:nth-child(2)"),
    "view_episode": (1180, "#/i/tour/15", (LOWEST,), "li.marked"),
    "view_iteration": (1180, "#/i/tour/15", (), "tbody tr:nth-child(6)"),
    "view_group": (1000, "#/i/tour/15", (LOWEST, "#crumbs li:nth-child(4) a"), ".side-by-side tr:nth-child(4)"),
    "view_diff": (1180, "#/i/tour/15", (LOWEST, TASK, "text='compare'"), ".side-by-side"),
    "view_tokens": (1180, "#/t/subagent/i2.g12.m5/4", (TAG,), "main p:last-child"),
    "view_tree": (1180, "#/searches/3spo", ("text='small/pick/bedroom-6/2'",), ".tree-and-state"),
    "view_calls": (1180, "#/i/subagent/2", (LOWEST,), ".panel:has(.graph)"),
    "view_sweep": (1180, "#/sweep/vspo", (), ".rows"),
    "serve_page": (980, "", ("#open", "#agent", "#action", "#play"), "#turns:has(li:nth-child(5)) ~ #acting"),
}


def main() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    (RUNS / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    for name, flags in RECORDED.items():
        if not any((RUNS / name / last).is_file() for last in ("summary.json", "results.json")):
            subprocess.run([*RUN, *flags.split(), "--local", "--output", RUNS / name], check=True, cwd=ROOT)
    names, runs = [*PICTURES], [RUNS / name for name in RECORDED]
    draw(names[:7], "view", *runs[:3])
    draw(names[7:-1], "view", *runs[3:])
    draw(names[-1:], "serve", "--checkpoint", RUNS / "3spo", "--engine", "torch")


def draw(names: list[str], *command: str | Path) -> None:
    """Draw pages of a server that run.py starts, and that prints its address."""
    process = subprocess.Popen([*RUN, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            address = next(filter(None, (re.search(r"http://[^/\s]+/", line) for line in process.stdout or ())))[0]
            for name in names:
                picture(browser, address, name)
        finally:
            process.send_signal(signal.SIGINT)


def picture(browser: Browser, address: str, name: str) -> None:
    (width, place, clicked, last), file = PICTURES[name], IMAGES / f"{name}.png"
    theme, whole = "dark" if name == "view_diff" else "light", name != "view_episode"  # this one begins at its step
    page = browser.new_page(viewport={"width": width, "height": 740}, color_scheme=theme)
    page.goto(address + place)
    for selector in clicked:
        page.click(selector)
        for key in KEYS.get(selector, ()):
            page.keyboard.press(key)
    page.mouse.move(0, 0)
    bottom = "(last, whole) => (whole && scrollTo(0, 0), Math.round(last.getBoundingClientRect().bottom) + 6)"
    height = page.locator(last).first.evaluate(bottom, whole)
    page.screenshot(path=file, clip={"x": 0, "y": 0, "width": width, "height": height}, full_page=whole)
    Image.open(file).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3).save(file, optimize=True)


if __name__ == "__main__":
    main()
