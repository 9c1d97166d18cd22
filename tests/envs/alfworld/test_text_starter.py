"""The starters of alfworld: tokenizers, demonstrations, lengths, and recipes on the papers' prompts that run."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from environments import with_keywords

from rl_agents.algorithms import Settings
from rl_agents.chat.template import ChatTemplate, Dialogue, make_context
from rl_agents.cli import main
from rl_agents.config import load_recipe
from rl_agents.envs.alfworld import AlfworldOptions, demonstrations
from rl_agents.envs.alfworld.demonstrations import AT_RANDOM, STARTER, STEPS, Prompt, read_and_written
from rl_agents.envs.alfworld.prompts import STYLES, compact_command, read_command
from rl_agents.envs.base import make_env, starter_spec, task_ids
from rl_agents.envs.starters import ScriptedPlayer, small_qwen3
from rl_agents.rollout.demonstrations import demonstrated_trajectories
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.measure import ready
from rl_agents.trainer.warm_start_folder import starter_dir

RECIPES = Path(__file__).parents[3] / "tune_configs" / "recipes"
HOSTILE = [
    "", " ", "\n\n\t  two  blanks\r\n", "<think><think></action> </think> <action>go to mug 1</action><action>",
    "Überraschung: 麦 🜨 \u200b\u202e \x00\x07 \ufffd", "mug 1mug 12 mug  1 mugs, 'mug 1', '', ', '', ', '",
    "Your admissible actions of the current situation are: [" * 3, "<unk> <pad> <|im_end <|im_start|",
]  # fmt: skip
prompts = pytest.mark.parametrize("prompt", list(STEPS))


@cache
def tokenizer_of(prompt: Prompt) -> Any:
    return starter_spec("alfworld", {"prompt": prompt}).build_tokenizer()


@prompts
def test_every_text_is_encoded_and_comes_back(prompt: Prompt) -> None:
    tokenizer = tokenizer_of(prompt)
    for text in [*HOSTILE, *map(chr, range(1, 2000, 41)), *read_and_written(AlfworldOptions(prompt=prompt), 2, 3)]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.unk_token is None and len(tokenizer) <= 2048


def test_tokens_are_bytes_and_the_same_in_prompt_and_action() -> None:
    template = ChatTemplate(tokenizer_of("3spo"))
    texts = [template.decode([token]) for token in range(len(template.tokenizer))]
    assert all(text.encode().decode() == text for text in texts) and "\ufffd" in texts
    tokenizer = tokenizer_of("3spo")
    said = tokenizer.encode("</think> <action>take mug 1 from sinkbasin 2</action>", add_special_tokens=False)
    read = tokenizer.encode("are: ['look', 'take mug 1 from sinkbasin 2', 'inventory']", add_special_tokens=False)
    thing, place = (tokenizer.encode(name, add_special_tokens=False) for name in (" mug 1", " sinkbasin 2"))
    for ids in (said, read):
        assert [ids[i : i + 2] for i in range(len(ids))].count(thing) == 1
        assert [ids[i : i + 2] for i in range(len(ids))].count(place) == 1
    goal = tokenizer.encode("Your task is to: put a clean mug in cabinet\n", add_special_tokens=False)
    assert thing[0] in goal, "the task names it by the same token"
    again = starter_spec("alfworld", {"prompt": "3spo"}).build_tokenizer()
    assert again.get_vocab() == tokenizer_of("3spo").get_vocab()


@prompts
def test_demonstrations_parse_back_into_the_actions_that_they_were_written_from(prompt: Prompt) -> None:
    starter, options = starter_spec("alfworld", {"prompt": prompt}), AlfworldOptions(prompt=prompt)
    thoughts = set()
    for task in task_ids("alfworld", "train", {"prompt": prompt})[:6]:
        dialogue = starter.demonstrate(task, random.Random(task), options)
        short = starter.demonstrate(task, random.Random(task), AlfworldOptions(prompt="compact"))
        commands = [read_command(response, bare=False) or "" for _, response in dialogue]
        assert [compact_command(command) for command in commands] == [said for _, said in short]
        thoughts |= {response.partition("</think>")[0].removeprefix("<think>") for _, response in dialogue}
    assert len(thoughts) > 8 and AT_RANDOM in thoughts and "" not in thoughts
    sure = starter.expert(task, random.Random(0), options)
    assert not any(AT_RANDOM in response for _, response in sure)


@prompts
def test_demonstrated_prompts_are_those_that_are_sampled_from(prompt: Prompt, tmp_path: Path) -> None:
    """Windows are written by the environment, with the last steps, and fit the starter's lengths."""
    tokenizer = tokenizer_of(prompt)
    tokenizer.save_pretrained(tmp_path)
    starter = starter_spec("alfworld", {"prompt": prompt})
    settings = Settings.from_dict({**starter.defaults, "env": "alfworld", "algo": "sft", "demonstrations": 8})
    settings.env_options["prompt"] = prompt
    found = demonstrated_trajectories(settings, str(tmp_path), 0)
    asked = {
        "3spo": "Below are the most recent 2 observations and the corresponding actions you took:\n[Observation 2: ",
        "steppo": "\nHistory Actions\n1. ",
    }
    longest = 0
    for trajectory in found:
        assert trajectory.terminated, "no turn was left out"
        env = make_env("alfworld", {"prompt": prompt}, settings.max_turns)
        env.reset(seed=0, options={"task_id": trajectory.task_id})
        for number, step in enumerate(trajectory.steps):
            read = tokenizer.decode(step.prompt_ids)
            shown = env.render_window("", (("", ""),) * min(number, STEPS[prompt]), "")
            assert shown in read, "the environment's own window"
            assert number != 3 or asked[prompt] in read
            assert read_command(tokenizer.decode(step.response_ids, skip_special_tokens=True), bare=False)
            env.step(step.action)
            longest = max(longest, len(step.prompt_ids) + len(step.response_ids))
    assert 100 < longest <= settings.max_model_len and max(len(trajectory.steps) for trajectory in found) > 3


@prompts
def test_the_prompt_chooses_the_starter(prompt: Prompt) -> None:
    own = ready(Settings.from_dict({"env": "alfworld", "env.prompt": prompt, "engine": "torch"}))
    assert own.context == f"window({STEPS[prompt]})" and own.env_options["prompt"] == prompt
    compact = ready(Settings.from_dict({"env": "alfworld", "engine": "torch"}))
    assert (compact.context, compact.env_options["prompt"]) == ("append", "compact")
    folders = {starter_dir("alfworld", options=settings.env_options) for settings in (own, compact)}
    assert len(folders) == 2 and starter_dir("alfworld") in folders
    assert (
        2e6 < starter_spec("alfworld", {"prompt": prompt}).build_model(tokenizer_of(prompt), 0).num_parameters() < 6e6
    )


def test_a_recipe_samples_and_learns_from_real_text(tmp_path: Path) -> None:
    """One small iteration, from an untrained network: what it samples is bytes, and is read as such."""
    tokenizer = tokenizer_of("3spo")
    small_qwen3(tokenizer, 0, hidden_size=32, layers=1, heads=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    recipe = load_recipe(str(RECIPES / "alfworld_text_3spo.yaml"))
    keys = {**starter_spec("alfworld", {"prompt": "3spo"}).defaults, **recipe}
    keys |= {"model": str(tmp_path), "eval_episodes": 0, "max_turns": 2, "max_response_tokens": 6}
    keys |= {"tasks_per_iteration": 2, "search_steps": 8, "collapse_monitor": "off"}
    keys.pop("starter_iterations", None)  # of the starter, which another model takes the place of
    settings = Settings.from_dict(keys)
    settings.make_local()
    algo = AgentAlgorithm.from_settings(settings)
    try:
        metrics = algo.train()["agent"]
    finally:
        algo.stop()
    assert metrics["rollout/response_length_mean"] == 6


def test_sft_makes_the_prompts_starter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))
    built: list[Any] = []
    monkeypatch.setattr("rl_agents.trainer.warm_start.build_starter", lambda *args, **_: built.append(args[2]))
    assert main(["sft", "--env", "alfworld", "--set", "env.prompt=3spo"]) == 0
    assert built == [starter_dir("alfworld", options={"prompt": "3spo"})]
    assert main(["sft", "--env", "alfworld", "--set", "env.prompt=3spo", "env.size=full"]) == 2
    assert "give --output DIR" in capsys.readouterr().err


demonstrate = with_keywords("alfworld", STARTER.demonstrate)


def test_the_tokenizer_knows_every_word_of_generated_games() -> None:
    words = set(STARTER.build_tokenizer().get_vocab())
    for task in task_ids("alfworld", "test", {"size": "full"})[:12]:
        for observation, action in demonstrate(task, random.Random(task), size="full", prompt="compact"):
            assert {*observation.split(), *action.split()} <= words, task


def test_longest_episodes_fit_the_context() -> None:
    context = make_context("append", STARTER.build_tokenizer())
    longest = 0
    for task in task_ids("alfworld", "train", {})[:40]:
        env, rng = make_env("alfworld", {"prompt": "compact"}), random.Random(task)
        observation, info = env.reset(options={"task_id": task})
        dialogue = Dialogue.start(observation)
        for _ in range(int(STARTER.defaults["max_turns"])):
            prompt = context.prompt(dialogue)
            action = STYLES["compact"].response(rng.choice(info["admissible_actions"]))
            response = [*context.template.tokenizer.encode(action, add_special_tokens=False), 2]
            observation, _, terminated, _, info = env.step(action)
            dialogue = dialogue.after(prompt, response, action, observation)
            longest = max(longest, len(prompt) + len(response))
            if terminated:
                break
    assert longest <= STARTER.defaults["max_model_len"]


def test_the_demonstrator_is_beatable() -> None:
    tasks = task_ids("alfworld", "train", {})[:48]

    def turns(player: ScriptedPlayer) -> int:
        return sum(len(player(task, random.Random(task), AlfworldOptions(prompt="compact"))) for task in tasks)

    assert turns(demonstrations.EXPERT) < 0.8 * turns(demonstrations.DEMONSTRATOR)
