"""``doctor --gpu`` on a machine without one: real engines in actors over gloo, one is killed and comes back."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from rl_agents.cli import main
from rl_agents.cli.transfer_test import plan, would_choose


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is an optional extra")
def test_weights_travel_and_a_killed_engine_comes_back(ray_session: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--gpu", "--json"])
    report = json.loads(capsys.readouterr().out)
    lines = [(line["status"], line["about"], line["text"]) for line in report["lines"]]
    assert (code, report["works"]) == (0, True), lines
    texts = {about: [text for _, found, text in lines if found == about] for _, about, _ in lines}
    assert texts["machine"] == ["no GPU here; the same test over gloo:"]
    assert "engine 1 failed in sync to version 3" in texts["death"][0]
    assert texts["checksums"][:3] == [
        "engine 0: 8 of 8 parameters as sent",  # after two updates
        "engine 1: 8 of 8 parameters as sent",
        "engine 0: 8 of 8 parameters as sent",  # while engine 1 is dead
    ]
    assert len(texts["checksums"]) == 6
    assert len(texts["a run"]) == 1 and "weight_transfer=auto takes object_store" in texts["a run"][0]


@pytest.mark.parametrize(("gpus", "way", "engines"), [(0, "gloo", 2), (1, "ipc", 1), (2, "nccl", 1), (8, "nccl", 2)])
def test_the_plan_follows_the_gpus(gpus: float, way: str, engines: int) -> None:
    assert plan(gpus)[:2] == (way, engines)
    assert len(would_choose(gpus)) == (2 if gpus else 1)
