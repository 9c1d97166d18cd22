"""Pages, choices and experiments are those of the result files."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import doc_tables, speed_page
from benchmarks.engine_choice import ENVS
from benchmarks.experiments import EXPERIMENTS
from benchmarks.grid import last_of_each
from benchmarks.report import RESULTS
from benchmarks.scale_simulation import STEPS_PER_S, cores
from benchmarks.vs_trl import __main__ as vs_trl
from rl_agents.envs.base import starter_spec
from rl_agents.trainer.engine_choice import TORCH_CONTEXT, TORCH_PARAMETERS

PAGES = [path for path in doc_tables.pages() if doc_tables.named(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_are_those_of_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == doc_tables.filled(text, doc_tables.TABLES), "python -m benchmarks.doc_tables"


def test_every_table_has_a_place_and_every_mark_a_table() -> None:
    marked = {name for path in PAGES for name in doc_tables.named(path.read_text(encoding="utf-8"))}
    assert marked == doc_tables.TABLES.keys()


def test_only_what_stands_between_the_marks_is_written() -> None:
    text = (
        "before\n<!-- table: a -->\nold\n<!-- end of table -->\n<!-- table: b -->\nstays\n<!-- end of table -->\nafter"
    )
    assert doc_tables.filled(text, {"a": lambda: "| new |"}) == text.replace("old", "| new |")


def test_engine_auto_takes_torch_as_far_as_it_was_measured() -> None:
    cases = json.loads((RESULTS / "engine_choice.json").read_text(encoding="utf-8"))["cases"]
    for env in ENVS:
        assert {f"{env}, {size}" for size in ("2 M", "6 M", "20 M")} <= cases.keys()
    assert all(figures["vllm over torch"]["min"] > 1 for figures in cases.values())
    largest = max(figures["parameters"] or 0 for figures in cases.values())
    assert largest <= TORCH_PARAMETERS < 1.05 * largest
    assert max(starter_spec(env).defaults["max_model_len"] for env in ENVS) == TORCH_CONTEXT


@pytest.mark.parametrize(
    "name", ["vspo", "vspo_mixed", "prs", "prs_long_form", "steppo", "steppo_rooms", "staleness", "t3"]
)
def test_arms_are_those_on_file(name: str) -> None:
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["arms"]
    args = Namespace(**{"env": "guess_numbers", **EXPERIMENTS[name].options, "presets": True})
    arms = {arm.name: list(arm.flags) for arm in EXPERIMENTS[name].arms(args)}
    same = [arm for arm in stored if arm in arms and stored[arm]["flags"][: len(arms[arm])] == arms[arm]]
    assert same == [arm for arm in stored if arm in arms] and len(same) >= 4


def test_the_last_value_of_a_key_replaces_earlier_ones() -> None:
    """`run.py` refuses a key with two values, and arms on file have some."""
    flags = ["--local", "--set", "lr=1", "--set", "seed=3", "--set", "lr=2"]
    assert last_of_each(flags) == ["--local", "--set", "seed=3", "--set", "lr=2"]


def test_the_page_and_its_appendix_are_those_of_the_results() -> None:
    found, page = speed_page.rows(), speed_page.PAGE.read_text(encoding="utf-8")
    assert page == speed_page.filled(page, found), "python -m benchmarks.speed_page"
    assert str(speed_page.shown(found)[0]) in page and speed_page.PICTURE.is_file()
    appendix = speed_page.APPENDIX.read_text(encoding="utf-8")
    assert appendix == speed_page.appendix(found), "python -m benchmarks.speed_page"
    assert all(str(line) in appendix for line in found) and vs_trl.table() in appendix


TURNS, EPISODES = 2, 16


def test_cores_follow_from_the_time_of_a_step() -> None:
    """100 engines sample 750 steps a second; the pool counts with the nearest number of episodes."""
    case = {
        "engines": 100, "in flight": 10_000, "driver us": 100, "learner feed us": 300, "pool, outcomes us": 20,
        "runner us": 2000, "engine actors us": 1000,
    }  # fmt: skip
    needed = cores(case, [{"in flight": 9000, "call us": 80}, {"in flight": 1, "call us": 9}])
    assert STEPS_PER_S == 7.5
    assert needed == pytest.approx({"driver": 0.3, "pool writer": 0.075, "env runners": 1.5, "engine actors": 0.75})
