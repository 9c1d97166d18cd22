"""``doctor --engines``: both engines play for real, and ``engine=auto`` remembers which was cheaper."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from chat_models import save_chat_model

from rl_agents.algorithms import Settings
from rl_agents.cli import engine_costs, main
from rl_agents.core.resolve import resolve
from rl_agents.errors import InputError


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is an optional extra")
def test_both_engines_are_measured_and_the_outcome_decides(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine_costs, "ROUNDS", 1)
    model, keys = str(save_chat_model(tmp_path / "model")), {"max_response_tokens": 8, "max_turns": 2}
    batch = ["tasks_per_iteration=2", "group_size=2", "kv_cache_gb=0.125"]
    flags = ["--set", *batch, *(f"{name}={value}" for name, value in keys.items())]
    assert main(["doctor", "--engines", "--json", "--model", model, *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["torch_us"] > 0 and found["vllm_us"] > 0 and (found["rounds"], found["what"]) == (1, "guess_numbers")
    assert found["ratio_low"] == found["ratio_high"] == pytest.approx(found["vllm_us"] / found["torch_us"])
    assert json.loads(Path(found["file"]).read_text())["subject"]["layers"] == 2
    chosen = resolve(Settings.from_dict({"model": model, **keys}))
    assert chosen.engine == found["cheaper"] and "measured here on " in chosen.engine_choice


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_vllm(kind: str) -> None:
        raise InputError("engine vllm cannot run here: vLLM is not installed")

    assert main(["doctor", "--model", "m"]) == 2
    assert "--model goes with --engines" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(engine_costs, "resolve_engine", lambda kind: ("vllm", ""))
    assert main(["doctor", "--engines"]) == 2
    assert "with a GPU engine=auto takes vLLM" in capsys.readouterr().err
    monkeypatch.setattr(engine_costs, "resolve_engine", no_vllm)
    assert main(["doctor", "--engines"]) == 2
    assert "vLLM is not installed" in capsys.readouterr().err
