"""Lengths of models that are no starters: measured, bounded by the model, said, and never in a person's way."""

import asyncio
import json
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import save_chat_model
from episodes import play_episodes

from rl_agents.algorithms import Settings
from rl_agents.chat.template import load_tokenizer, make_context
from rl_agents.cli.evaluate import build_parser as eval_parser
from rl_agents.cli.evaluate import evaluation_settings
from rl_agents.cli.parser import main_parser
from rl_agents.cli.train import describe, plan_new
from rl_agents.cli.tune import resolve_trials
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import ENVIRONMENTS, starter_spec, task_ids
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, EngineSettings
from rl_agents.inference.vllm_common import GIB, engine_args
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.prompting import env_factory
from rl_agents.rollout.turns import Limits
from rl_agents.trainer import lengths
from rl_agents.trainer.measure import ready
from rl_agents.trainer.model_note import MODEL_NOTE
from rl_agents.tuning.sweep import load_sweep

#: Those without `mcp`, `openenv`, `harbor` and `verifiers`, which need servers, folders or another Python, and `pivot`,
#: whose dialogues have one turn. Not those that other tests register.
BUILT_IN = [name for name, spec in ENVIRONMENTS.items() if spec.module.startswith("rl_agents.")]
GAMES = [name for name in BUILT_IN if name not in ("mcp", "openenv", "harbor", "pivot", "blackbox", "verifiers")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat-model"))


def resolved(model: Path | str, **keys: Any) -> Settings:
    return ready(Settings.from_dict({"engine": "torch", "model": str(model), **keys}))


class Talkative:
    """An engine that always writes as much as it may, and nothing that an environment understands."""

    def __init__(self, tokenizer: Any) -> None:
        self.words = tokenizer.encode(" go to the box", add_special_tokens=False)

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        ids = (self.words * sampling.max_tokens)[: sampling.max_tokens]
        return Completion(ids, [-0.5] * len(ids), 0, "length")


@pytest.mark.parametrize(
    ("env", "context"),
    [*((env, "append") for env in GAMES), ("alfworld", "window(2)"), ("guess_numbers", "window(2)"),
     ("alfworld", "summary(600)"), ("webshop", "summary(600)")],
)  # fmt: skip
def test_no_episode_is_cut_by_the_context(model: Path, env: str, context: str) -> None:
    settings = resolved(model, env=env, context=context)
    tokenizer = load_tokenizer(model)
    specs = [EpisodeSpec(task, i, 0, i) for i, task in enumerate(task_ids(env, "train", settings.env_options)[:3])]
    policy = make_context(context, tokenizer)
    limits = Limits.from_settings(settings)
    rollouts = asyncio.run(play_episodes(specs, env_factory(settings), Talkative(tokenizer), policy, limits))  # type: ignore[arg-type]
    causes = Counter(t.end_cause for t in rollouts.trajectories)
    assert not causes["context_length"], settings.lengths
    assert all(len(step.response_ids) == limits.max_response_tokens for t in rollouts.trajectories for step in t.steps)
    if context.startswith("summary"):
        assert any(step.is_summary for t in rollouts.trajectories for step in t.steps)


def test_the_defaults_would_have_cut_all_of_them(model: Path) -> None:
    with pytest.raises(InputError, match=r"^max_model_len=512: the first prompt of alfworld has \d+ tokens"):
        resolved(model, env="alfworld", max_model_len=512, max_response_tokens=32)


@pytest.mark.parametrize("env", ["guess_numbers", "alfworld", "long_form_qa"])
def test_starters_keep_their_numbers(env: str) -> None:
    defaults = starter_spec(env).defaults
    settings = ready(Settings.from_dict({"env": env, "engine": "torch"}))
    assert [getattr(settings, name) for name in lengths.KEYS] == [defaults[name] for name in lengths.KEYS]
    assert settings.lengths == ""


def test_what_somebody_sets_wins(model: Path) -> None:
    assert resolved(model, max_response_tokens=100).max_response_tokens == 100
    assert resolved(model, max_model_len=6000).max_model_len == 6000
    assert resolved(model, max_model_len=6000).max_response_tokens <= 512
    free = resolved(model)
    assert resolved(model, max_response_tokens=100).max_model_len < free.max_model_len, "it follows from the other"
    both = resolved(model, max_response_tokens=77, max_model_len=5000)
    assert (both.max_response_tokens, both.max_model_len) == (77, 5000)
    assert "measured" in free.lengths and "checked" in both.lengths


def test_a_model_that_reads_too_little_is_refused_with_the_keys_to_set(tmp_path: Path) -> None:
    short = save_chat_model(tmp_path, max_position_embeddings=2048)
    with pytest.raises(InputError, match=r"reads 2048 tokens; 50 turns of alfworld take about .* context=window\(2\)"):
        resolved(short, env="alfworld")
    with pytest.raises(InputError, match=r"^max_model_len=4096: model=.* reads 2048 tokens at most"):
        resolved(short, env="guess_numbers", max_model_len=4096, max_response_tokens=64)
    assert resolved(short, env="alfworld", max_model_len=2048, max_response_tokens=512).max_model_len == 2048


def test_lengths_shrink_to_what_the_model_reads(tmp_path: Path) -> None:
    settings = resolved(save_chat_model(tmp_path, max_position_embeddings=4096), env="guess_numbers")
    assert settings.max_model_len <= 4096 and 128 <= settings.max_response_tokens < 512


def test_a_model_that_thinks_gets_longer_responses(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path)
    plain = resolved(folder, env="guess_numbers").max_response_tokens
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + "{# reasoning ends with <think> #}")
    assert resolved(folder, env="guess_numbers").max_response_tokens == 4 * plain
    assert plain == (512 if torch.cuda.is_available() else 128)


def test_they_are_measured_once_and_a_resumed_run_keeps_its_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolved(model)
    monkeypatch.setattr(lengths, "measure_dialogues", lambda *args, **keys: pytest.fail("measured again"))
    again = ready(settings)
    assert again.to_dict() == settings.to_dict() and again.lengths == settings.lengths
    old = Settings.restored({**settings.to_dict(), "max_model_len": 999, "max_response_tokens": 99})
    assert (ready(old).max_model_len, ready(old).max_response_tokens) == (999, 99)


def test_train_eval_and_tune_take_the_same(model: Path, tmp_path: Path) -> None:
    wanted = resolved(model)
    flags = ["--algo", "3spo", "--env", "guess_numbers", "--model", str(model), "--local"]
    plan = plan_new(main_parser().parse([*flags, "--output", str(tmp_path / "out")]))
    assert plan.settings.algo == "3spo"
    args = eval_parser().parse(["--model", str(model), "--local"])
    file = tmp_path / "sweep.yaml"
    keys = f"{{env: guess_numbers, model: {model}, engine: torch}}"
    file.write_text(f"set: {keys}\nspace: {{lr: [1.0e-4, 1.0e-5]}}\n")
    trials = resolve_trials(load_sweep(file), str(file)).values()
    for settings in (plan.settings, evaluation_settings(args, str(model), {}), *trials):
        assert [getattr(settings, n) for n in lengths.KEYS] == [getattr(wanted, n) for n in lengths.KEYS]


def test_a_broken_environment_cannot_be_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def reset(self, **keys: Any) -> None:
            raise RuntimeError("no boiler")

        def close(self) -> None: ...

    monkeypatch.setattr(lengths, "env_pool", lambda settings: EnvPool(Broken))  # type: ignore[arg-type]
    wanted = r"^guess_numbers fails in every task that was tried: RuntimeError: no boiler \(test_lengths.py:\d+\)$"
    with pytest.raises(InputError, match=wanted):
        resolved(model)
    monkeypatch.setattr(Broken, "reset", lambda self, **keys: time.sleep(60))
    with pytest.raises(InputError, match=r"; max_response_tokens and max_model_len cannot be measured, set them$"):
        resolved(model, env_timeout_s=0.05)


def test_an_environment_that_is_never_made_does_not_hold_up_the_command(model: Path) -> None:
    keys = {"env": "gymnasium:rollout.waiting:NeverMade", "env_blocking": "thread", "env_start_timeout_s": 1.0}
    with pytest.raises(InputError, match=r"start: no answer within 1 s \(waiting\.py:\d+\) \(env_start_timeout_s\)"):
        resolved(model, **keys)


def test_only_a_run_with_evaluations_needs_test_tasks(model: Path) -> None:
    no_tests: dict[str, Any] = {"env": "gymnasium:FrozenLake-v1", "env.test_tasks": 0}
    assert resolved(model, **no_tests, eval_episodes=0).max_model_len
    with pytest.raises(InputError, match="FrozenLake-v1 has no test tasks with"):
        resolved(model, **no_tests)
    words = ["--env", "gymnasium:FrozenLake-v1", "--model", str(model), "--local", "--set", "env.train_tasks=0"]
    assert evaluation_settings(eval_parser().parse(words), str(model), {}).max_model_len
    with pytest.raises(InputError, match="FrozenLake-v1 has no train tasks with"):
        evaluation_settings(eval_parser().parse([*words, "--split", "train"]), str(model), {})


def test_a_cpu_engine_has_room_for_one_context(model: Path) -> None:
    def cache(length: int, **keys: Any) -> Any:
        settings = EngineSettings(str(model), "vllm", max_model_len=length, **keys)
        return engine_args(settings, is_cpu=True)["kv_cache_memory_bytes"]

    assert cache(512) == GIB // 2
    assert cache(10**7) > 10**7 * 2 * 2 * 32 * 4, "K and V, 2 layers, one head of 32, float32"
    assert cache(512, kv_cache_gb=0.25) == GIB // 4
    assert "kv_cache_memory_bytes" not in engine_args(EngineSettings(str(model), "vllm"), is_cpu=False)


@pytest.mark.rllib
def test_a_starter_is_not_asked_for_more_than_it_reads(tmp_path: Path) -> None:
    from rl_agents.trainer.algorithm import AgentConfig

    config = AgentConfig.from_settings(Settings.from_dict({"engine": "vllm", "max_model_len": 4096}))
    config.model_dir = str(save_chat_model(tmp_path, max_position_embeddings=2048))
    with pytest.raises(InputError, match=r"^max_model_len=4096: model=starter reads 2048 tokens at most"):
        config.completed()
    config.agent.max_model_len = 2048
    assert config.completed().agent.max_model_len == 2048


def test_a_templates_date_is_the_day_on_which_the_run_began(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path)
    assert resolved(folder, env="guess_numbers").template_date == ""
    template = folder / "chat_template.jinja"
    template.write_text("{% set today = strftime_now('%d %b %Y') %}" + template.read_text())
    settings = resolved(folder, env="guess_numbers")
    assert settings.template_date == date.today().isoformat()
    begun = Settings.restored({**settings.to_dict(), "template_date": "2024-07-26"})
    assert ready(begun).template_date == "2024-07-26", "a resumed run keeps its own"
    assert resolved(folder, env="guess_numbers", template_date="2025-01-02").template_date == "2025-01-02"


def built_for_market(folder: Path, reads: int) -> Path:
    """A warm-start model whose environment's module has another name now."""
    own = {"max_response_tokens": 12, "max_model_len": 192, "lr": 5e-4}
    save_chat_model(folder, max_position_embeddings=reads)
    (folder / MODEL_NOTE).write_text(json.dumps({"env": "gymnasium:market:Market", "settings": own}))
    return folder


def test_a_model_built_for_another_environment_is_named_before_any_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        resolved(built_for_market(tmp_path, 192), env="guess_numbers")
    assert str(refused.value) == (
        f"model={tmp_path} was built for gymnasium:market:Market; its settings are not used "
        "(max_response_tokens=12 max_model_len=192); set these, or env to that environment"
    )


def test_a_models_learning_rate_is_the_same_in_every_environment(tmp_path: Path) -> None:
    settings = resolved(built_for_market(tmp_path, 8192), env="guess_numbers")
    assert settings.lr == 5e-4 and settings.max_model_len != 192
    assert settings.lengths.startswith(f"model={tmp_path} was built for gymnasium:market:Market; its settings are not")
    assert " lr=0.0005 " in describe(settings)
    default = resolved(save_chat_model(tmp_path / "plain"))
    assert f" lr={default.lr}" in describe(default), "also a default"


NINE_CALLS = """
import httpx
async def agent(task, client):
    said, head = [], {"Authorization": f"Bearer {client.api_key}"}
    async with httpx.AsyncClient(base_url=client.base_url, headers=head) as model:
        for number in range(9):
            said.append({"role": "user", "content": f"price {number} ?"})
            got = await model.post("chat/completions", json={"model": "policy", "messages": said}, timeout=60)
            said.append(got.json()["choices"][0]["message"])
    return {"reward": 1.0}
"""


def test_lengths_of_agents_come_from_episodes_that_were_played(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "nine_calls.py").write_text(NINE_CALLS)
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"id": "t{number}"}}\n' for number in range(20)))
    monkeypatch.chdir(tmp_path)
    keys = {"env": "blackbox", "env.agent": "nine_calls:agent", "env.tasks": "tasks.jsonl"}
    wide = resolved(save_chat_model(tmp_path / "wide", max_position_embeddings=40_000), **keys)
    assert "for 50 turns;" in wide.lengths and wide.max_model_len < 50 * (wide.max_response_tokens + 100)
    narrow = resolved(save_chat_model(tmp_path / "narrow", max_position_embeddings=4096), **keys)
    assert "for 9 turns" in narrow.lengths and "set max_turns=9 if yours never make more" in narrow.lengths
    assert 9 * narrow.max_response_tokens < narrow.max_model_len <= 4096
    for settings in (wide, narrow):
        assert "cut" not in settings.lengths and "assumed" not in settings.lengths
    told = resolved(tmp_path / "narrow", **keys, max_turns=9)
    assert told.max_model_len == narrow.max_model_len and "max_turns" not in told.lengths
    short = resolved(save_chat_model(tmp_path / "short", max_position_embeddings=512), **keys)
    assert 0 < short.max_response_tokens < 60, "nine answers fit"


COLORS = """
import gymnasium
from gymnasium.spaces import Discrete, Text
class Colors(gymnasium.Env):
    observation_space = action_space = Text(99)
    def reset(self, *, seed=None, options=None):
        return "go", {}
    def step(self, action):
        return "red", 0.0, False, False, {"success": False, "valid": self.takes(action)}
    def takes(self, action):
        return True
class Strict(Colors):
    def takes(self, action):
        return action == "blue"
class Numbered(Colors):
    action_space = Discrete(3)
"""


@pytest.mark.parametrize(
    ("env", "note", "longest"),
    [
        ("Colors", " (observations after 'hm'; set max_model_len for others)", 40),
        ("Numbered", "", 80),
        (
            "Strict",
            " (observations taken as 512 tokens each, as no player acts here; set max_model_len for others)",
            700,
        ),
    ],
)
def test_observations_of_an_environment_without_player(tmp_path, monkeypatch, env: str, note: str, longest: int):
    (tmp_path / "colors_env.py").write_text(COLORS)
    monkeypatch.chdir(tmp_path)
    keys = {"env": f"gymnasium:colors_env:{env}", "max_turns": 10, "env_blocking": "inline"}
    said = resolved(save_chat_model(tmp_path / "model"), **keys)
    assert f" for 10 turns{note};" in said.lengths
    per_turn = said.max_model_len / 10 - said.max_response_tokens
    assert longest / 2 < per_turn <= longest
