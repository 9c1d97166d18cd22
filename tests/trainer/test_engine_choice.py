"""What ``engine=auto`` becomes, why, and that a run keeps it."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model

from rl_agents.algorithms import Settings
from rl_agents.cli import evaluate, train, tune
from rl_agents.cli.parser import main_parser
from rl_agents.inference.engines import ENGINES
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer import engine_choice
from rl_agents.trainer.measure import ready

QUICK = {"max_response_tokens": 8, "max_model_len": 2048}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """vLLM can run, on a CPU."""
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], obstacle=lambda: ("", "")))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(
        engine_choice, "TORCH_CONTEXT", 40_000
    )  # the model's tokenizer makes long prompts of short ones


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat-model"))


def settled(keys: Mapping[str, Any]) -> Settings:
    return ready(Settings.from_dict(dict(keys)))


@pytest.fixture
def prefer_vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes new runs with the model choose vLLM."""
    return lambda: monkeypatch.setattr(engine_choice, "TORCH_PARAMETERS", 10_000)


def test_small_models_get_the_torch_engine_and_large_ones_vllm(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"model": str(model), **QUICK}
    small = settled(keys)
    assert small.engine == "torch" and "engine" not in small.explicit
    assert small.engine_choice.startswith("engine torch: 0.")
    monkeypatch.setattr(engine_choice, "TORCH_PARAMETERS", 10_000)
    large = settled(keys)
    assert large.engine == "vllm" and large.engine_choice.startswith("engine vllm: 0.")
    monkeypatch.setattr(engine_choice, "TORCH_PARAMETERS", 10_000_000)
    monkeypatch.setattr(engine_choice, "TORCH_CONTEXT", 384)
    assert settled(keys).engine == "vllm", "a long context"
    assert settled(keys | {"engine": "torch"}).engine_choice == "", "as asked"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kv_cache_gb": 1}, "the torch engine has no kv_cache_gb"),
        ({"engine_mode": "inprocess"}, "the torch engine has no engine_mode"),
        ({"gpus_per_engine": 1}, "it has GPUs"),
    ],
)
def test_what_only_vllm_has_takes_vllm(model: Path, keys: dict[str, Any], words: str) -> None:
    found = settled({"model": str(model), **QUICK, **keys})
    assert (found.engine, found.engine_choice) == ("vllm", f"engine vllm: {words}")


def test_layers_that_the_torch_engine_cannot_cache_take_vllm(tmp_path: Path) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 0}
    found = settled({"model": str(save_chat_model(tmp_path / "windows", **windows)), **QUICK})
    assert found.engine == "vllm" and "the torch engine needs full attention" in found.engine_choice


def test_with_a_gpu_or_without_vllm_nothing_is_weighed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.from_dict({"model": str(model), **QUICK})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert engine_choice.choose_engine(settings)[0] == "vllm" and not engine_choice.small_models("vllm")
    monkeypatch.undo()
    absent = replace(ENGINES["vllm"], obstacle=lambda: ("vLLM is not installed", "Install it"))
    monkeypatch.setitem(ENGINES, "vllm", absent)
    assert engine_choice.choose_engine(settings) == ("torch", "engine torch: vLLM is not installed. Install it")
    idle = settled({"model": str(model), "kv_cache_gb": 1, **QUICK})
    assert ready(idle).engine == "torch", "no mistake, though only vLLM has that key"


def test_resumed_runs_and_evaluations_keep_the_engine_on_file(model, tmp_path, prefer_vllm) -> None:
    flags = ["--model", str(model), "--set", *(f"{name}={value}" for name, value in QUICK.items())]
    plan = train.plan_new(main_parser().parse([*flags, "--output", str(tmp_path / "run")]))
    folder = RunFolder.create(plan.output, plan.settings)
    assert "\nengine: torch\n" in folder.config_file.read_text() and "engine=torch" in train.describe(plan.settings)
    folder.pool.touch()
    prefer_vllm()
    again = train.plan_resume(main_parser().parse(["--resume", str(folder.path)])).settings
    assert (again.engine, again.engine_choice) == ("torch", "engine torch: as this run began")
    asked = Settings.restored(plan.settings.to_dict())
    asked.update({"engine": "auto"})
    assert ready(asked).engine == "vllm", "who asks gets a new choice"
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(model, checkpoint / "hf")
    shutil.copy(folder.config_file, checkpoint / "config.yaml")
    args = evaluate.build_parser().parse(["--checkpoint", str(checkpoint)])
    assert evaluate.evaluation_settings(args, str(checkpoint), {}).engine == "torch"
    args = evaluate.build_parser().parse(["--model", str(model), *flags[2:]])
    assert evaluate.evaluation_settings(args, str(model), {}).engine == "vllm"


def test_trials_of_a_sweep_have_one_engine(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"set: {{model: {model}, max_response_tokens: 8, max_model_len: 2048}}\n"
    file = tmp_path / "sweep.yaml"
    file.write_text(f"{text}space: {{lr: [1.0e-4, 1.0e-3]}}\n")
    plan = tune.plan_new(tune.build_parser().parse([str(file), "--output", str(tmp_path / "o")]))
    assert plan.sweep.keys["engine"] == "torch" and {s.engine for s in plan.settings.values()} == {"torch"}
    assert tune.first_lines(plan.settings.values())[0].startswith("engine torch: 0.")
    assert "engine: torch" in plan.sweep.to_yaml(), "a resumed sweep keeps it"
    file.write_text(f"{text}space: {{max_model_len: [2048, 4096]}}\n".replace(", max_model_len: 2048", ""))
    monkeypatch.setattr(engine_choice, "TORCH_CONTEXT", 2048)  # one of the two trials would take vLLM
    plan = tune.plan_new(tune.build_parser().parse([str(file), "--output", str(tmp_path / "p")]))
    assert {s.engine for s in plan.settings.values()} == {"vllm"} and plan.sweep.keys["engine"] == "vllm"


@pytest.mark.parametrize("capabilities", [{"avx512_bf16": True, "amx_bf16": False}, {"avx512_bf16": False}])
def test_auto_is_bfloat16_where_the_cpu_has_instructions_for_it(model, capabilities, monkeypatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    expected = "bfloat16" if capabilities["avx512_bf16"] else "float32"
    assert settled({"model": str(model), "dtype": "auto", **QUICK}).dtype == expected
    assert settled({"model": str(model), **QUICK}).dtype == "float32"
