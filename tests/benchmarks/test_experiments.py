"""Experiments: a second command continues a grid from its result file; wrong names are refused."""

import json
from argparse import Namespace

import pytest

from benchmarks.experiments import EXPERIMENTS
from benchmarks.report import RESULTS


@pytest.mark.parametrize(
    "name", ["vspo", "vspo_mixed", "prs", "prs_long_form", "steppo", "steppo_rooms", "staleness", "t3"]
)
def test_arms_are_those_on_file(name: str) -> None:
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["arms"]
    args = Namespace(**{"env": "guess_numbers", **EXPERIMENTS[name].options, "presets": True})
    arms = {arm.name: list(arm.flags) for arm in EXPERIMENTS[name].arms(args)}
    same = [arm for arm in stored if arm in arms and stored[arm]["flags"][: len(arms[arm])] == arms[arm]]
    assert same == [arm for arm in stored if arm in arms] and len(same) >= 4
