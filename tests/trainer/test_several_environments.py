"""Several environments in one run: one model, one optimizer step, and everything else per environment."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from algorithms.handmade import episode, settings_of
from trained import TIMES, equal, policy_weights, train

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.chat.template import load_tokenizer
from rl_agents.cli import main
from rl_agents.data.samples import build_samples
from rl_agents.data.tasks import by_environment
from rl_agents.envs.base import run_tasks
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.starters import shared_starter
from rl_agents.errors import InputError
from rl_agents.reporting.episode_diagnostics import EpisodeWatch
from rl_agents.rewards.base import REWARDS, make_reward, reward
from rl_agents.rollout.demonstrations import demonstrated_trajectories
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer.advantage_pipeline import assign_credit, shape_rewards
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.measure import ready
from rl_agents.trainer.resolve import choose
from rl_agents.viewer.groups import groups
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import find_runs

WAITING: dict[str, Any] = {
    "env": "gymnasium:rollout.waiting:Drawing", "name": "waiting", "env_blocking": "inline", "weight": 3,
}  # fmt: skip
GUESS: dict[str, Any] = {
    "env": "guess_numbers", "env.prompt": "compact", "max_turns": 2, "max_response_tokens": 4,
}  # fmt: skip
KEYS: dict[str, Any] = {
    "algo": "grpo", "tasks_per_iteration": 4, "group_size": 4, "eval_episodes": 8, "max_response_tokens": 8,
    "max_model_len": 600,
}  # fmt: skip


def build(model: Path, *environments: dict[str, Any], **keys: Any) -> AgentAlgorithm:
    config = AgentConfig().training(model=str(model), environments=list(environments), **{**KEYS, **keys})
    return config.local().build_algo()


def played(algo: AgentAlgorithm) -> list[tuple[str, int, int]]:
    return sorted((t.task_id, t.group_id, t.seed) for t in algo.last_trajectories)


def test_two_environments_train_together_and_resume_exactly(wide_model_dir: Path, tmp_path: Path) -> None:
    whole = build(wide_model_dir, WAITING, GUESS)
    first = train(whole, 1)[0]
    assert (first["rollout/episodes/waiting"], first["rollout/episodes/guess_numbers"]) == (12, 4)
    shares = by_environment(whole.settings.parts, whole.last_trajectories)
    assert max(t.turns for t in shares["guess_numbers"]) == 2 < max(t.turns for t in shares["waiting"])
    longest = {name: max(len(s.response_ids) for t in own for s in t.steps) for name, own in shares.items()}
    assert longest == {"waiting": 8, "guess_numbers": 4}
    whole.save_run_checkpoint(tmp_path / "000001")
    straight = train(whole, 2)
    again = AgentAlgorithm.from_checkpoint(tmp_path / "000001")
    assert train(again, 2) == straight and played(again) == played(whole)
    assert equal(policy_weights(again), policy_weights(whole))
    assert all(metrics["actor/grad_norm"] > 0 for metrics in straight)
    tested = again.evaluate()["agent"]
    of_each = [tested[f"eval/success_rate/{name}"] for name in again.settings.parts]
    assert tested["eval/success_rate"] == sum(of_each) / 2 and of_each[0] == 1


def test_a_killed_run_continues_bit_for_bit_and_is_evaluated_per_environment(
    wide_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {**KEYS, "iterations": 3, "keep_checkpoints": 0, "model": str(wide_model_dir)}
    recipe["environments"] = [WAITING, GUESS]
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    assert main(["--config", str(tmp_path / "recipe.yaml"), "--local", "--output", str(tmp_path / "whole")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in ("[waiting: weight=3 ", ", waiting 1.00, guess_numbers 0.00", " waiting: 1.00 [0.51, 1.00] -> 1.00"):
        assert words in said, said
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for checkpoint in ("000002", "000003"):
        shutil.rmtree(tmp_path / "killed" / "checkpoints" / checkpoint)
    assert main(["--resume", str(tmp_path / "killed"), "--local", "--env", "waiting,guess_numbers"]) == 0

    def records(run: str) -> list[dict[str, Any]]:
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        unequal = (*TIMES, "seconds", "cpu_seconds")
        return [{k: v for k, v in json.loads(line).items() if not k.startswith(unequal)} for line in lines]

    assert records("killed") == records("whole") and len(records("whole")) == 4
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["env"] == "waiting,guess_numbers" and list(summary["environments"]) == ["waiting", "guess_numbers"]
    assert summary["environments"]["waiting"]["success_end"] == 1
    with PoolReader(tmp_path / "whole" / "pool.sqlite") as reader:
        stored = {(one.session.env, one.session.task_id.partition("::")[0]) for one in reader.stored(StoreQuery())}
    assert stored == {("gymnasium:rollout.waiting:Drawing", "waiting"), ("guess_numbers", "guess_numbers")}
    asked = {"run": "whole", "iteration": "0", "env": "guess_numbers"}
    page = groups(Params(find_runs([str(tmp_path / "whole")]), asked))
    assert page["envs"] == ["guess_numbers", "gymnasium:rollout.waiting:Drawing"]
    assert [row["task"].partition("::")[0] for row in page["rows"]] == ["guess_numbers"]
    capsys.readouterr()
    run = ["eval", "--checkpoint", str(tmp_path / "whole"), "--local", "--split", "train"]
    assert main([*run, "--episodes", "128", "--set", "max_turns=1", "--samples", "1", "--seeds", "1"]) == 0
    report, table = capsys.readouterr()
    found = json.loads(report)["environments"]
    assert {name: own["episodes"] for name, own in found.items()} == {"waiting": 64, "guess_numbers": 64}
    assert found["waiting"]["tasks"] == 64 and found["waiting"]["turns"]["mean"] == 1
    assert "| environment | success" in table and "pass@1 |" in table and "| waiting | " in table
    assert main([*run, "--env", "waiting", "--seeds", "1", "--episodes", "4", "--json"]) == 0
    assert "environments" not in (alone := json.loads(capsys.readouterr().out)) and alone["success"]["mean"] == 1
    assert main(["--resume", str(tmp_path / "killed"), "--env", "guess_numbers"]) == 2
    assert "that run has env=waiting,guess_numbers, not guess_numbers" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Unmade", "Unset"])
def test_an_environment_that_fails_is_named_and_loses_its_share(
    wide_model_dir: Path, capfd: pytest.CaptureFixture[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"env": f"gymnasium:trainer.broken_envs:{name}", "name": "broken", "weight": 3}
    algo = build(wide_model_dir, WAITING, broken, group_size=2)
    monkeypatch.setattr(f"trainer.broken_envs.{name}.broken", True)
    metrics = train(algo, 4)
    cause = {"Unmade": "no simulator here", "Unset": "the data folder is missing"}[name]
    lines = [line for line in capfd.readouterr().out.splitlines() if "episodes of broken failed" in line]
    assert len(lines) == 3 and all(cause in line for line in lines) and "excluded now" in lines[2]
    shares = [found.get("rollout/episodes/broken", 0) for found in metrics]
    assert min(shares[:3]) > 0 == shares[3] and metrics[3]["rollout/episodes/waiting"] == 8
    assert all(found["actor/grad_norm"] > 0 for found in metrics), "the other environment is trained on"
    watch = EpisodeWatch(algo.settings)
    watch.after_training(algo.last_trajectories, metrics[3])
    watch.check_training()


def test_whitening_is_over_the_rows_of_one_environment() -> None:
    """Rewards of 0 and 1 in one, of 10 and 30 in the other: over both, the first would have no good episode."""
    settings = settings_of("reinforce++", environments=[{"env": "guess_numbers", "name": "a"}, {"env": "webshop"}])
    returns = [("a::1", 0.0), ("a::2", 1.0), ("webshop::1", 10.0), ("webshop::2", 30.0)]
    episodes = [episode(i, [value], task_id=task) for i, (task, value) in enumerate(returns)]
    rows = build_samples(episodes, "merged")
    assign_credit(ALGORITHMS["reinforce++"], rows, episodes, settings, {}, 0.0)
    found = [float(row.advantages[row.mask > 0][0]) for row in rows if row.advantages is not None]
    assert found == pytest.approx([-(0.5**0.5), 0.5**0.5] * 2)


def test_an_environment_may_have_the_advantages_of_another_method() -> None:
    """GiGPO compares the two steps at each state, so with gamma the later step counts more; GRPO has one number."""
    entries = [{"env": "guess_numbers"}, {"env": "webshop", "advantages": "gigpo", "gigpo_omega": 0.5}]
    settings = ready(Settings.from_dict({**KEYS, "environments": entries}))
    settings = ready(Settings.restored(settings.to_dict()))
    guess, shop = settings.parts.values()
    assert (shop.gamma, shop.gigpo_omega, guess.gamma, settings.gamma) == (0.95, 0.5, 1.0, 1.0)
    episodes = [
        episode(group, rewards, group_id=group, task_id=f"{name}::1")
        for group, name in enumerate(settings.parts) for rewards in ([0.0, 0.0], [0.0, 1.0])
    ]  # fmt: skip
    rows = build_samples(episodes, "merged")
    expected = build_samples(episodes, "merged")
    assign_credit(ALGORITHMS["grpo"], rows, episodes, settings, {}, 0.0)
    for method, part, own in (("grpo", guess, expected[:2]), ("gigpo", shop, expected[2:])):
        credit = ALGORITHMS[method].credit
        assert credit
        credit(own, episodes, part)
    found, wanted = ([row.advantages.tolist() for row in one if row.advantages is not None] for one in (rows, expected))
    assert found == wanted and len({*found[1]}) < len({*found[3]})


@pytest.mark.parametrize(
    ("keys", "entry", "words"),
    [
        ({}, {"advantages": "gigpoo"}, "unknown method of advantages 'gigpoo': did you mean 'gigpo'"),
        ({}, {"advantages": "3spo"}, "advantages=3spo does more than compare the rollouts of a batch"),
        ({"algo": "ppo"}, {"advantages": "grpo"}, "algo ppo trains a critic on all environments"),
        ({}, {"advantages": "grpo"}, "environment circuit_decoding: advantages=grpo has no effect: it is the run's"),
        ({}, {"advantages": "gigpo", "lr": 1.0}, "'lr' holds for the whole run"),
        ({}, {"gamma": 0.5}, "'gamma' holds for the whole run"),
        ({}, {"advantages": "gigpo", "num_generations": 2}, "'group_size' holds for the whole run"),
        ({}, {"advantages": "gigpo", "dynamic_sampling": True}, "'dynamic_sampling' holds for the whole run"),
        ({}, {"advantages": "gigpo", "gigpo_omegaa": 1}, "unknown key 'gigpo_omegaa': did you mean 'gigpo_omega'"),
        ({}, {"advantages": "vspo"}, "advantages=vspo does more than compare"),
    ],
)
def test_advantages_that_an_environment_cannot_have(keys: dict[str, Any], entry: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        ready(Settings.from_dict({**KEYS, **keys, "environments": [GUESS, {"env": "circuit_decoding", **entry}]}))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("max_turn: 2", "environments, entry 2: unknown key 'max_turn': did you mean 'max_turns'?"),
        ("reward: prz", "environment circuit_decoding: unknown reward 'prz': did you mean 'prs'?"),
        ("max_response_tokens: 9999", "environment circuit_decoding: max_response_tokens=9999 leaves no room"),
    ],
)
def test_an_error_of_an_entry_names_the_file(entry: str, words: str, tmp_path: Path) -> None:
    (file := tmp_path / "two.yaml").write_text(
        f"environments:\n- env: guess_numbers\n- env: circuit_decoding\n  {entry}\n"
    )
    with pytest.raises(InputError, match=re.escape(f"{file}: {words}")):
        ready(choose({}, str(file)))


def test_lengths_and_rewards_are_those_of_the_environment() -> None:
    reward("constant_five", "for this test")(lambda episode: 5.0)
    try:
        entries = [GUESS, {"env": "circuit_decoding", "max_response_tokens": 8, "reward": "constant_five"}]
        settings = settings_of("dapo", environments=entries, overlong_cache=2)
        tasks = ["guess_numbers::1", "circuit_decoding::1"]
        episodes = [episode(i, [1.0], task_id=task, lengths=[4]) for i, task in enumerate(tasks)]
        make_reward(settings).apply(episodes)
        assert [t.episode_return for t in episodes] == [1.0, 5.0]
        rows = build_samples(episodes, "merged")
        shape_rewards(rows, episodes, settings, 0.0)
        assert [row.rewards.sum() for row in rows] == [0.0, 5.0], "4 of 4 tokens, and 4 of 8"
    finally:
        del REWARDS["constant_five"]


def test_a_warm_start_model_reads_the_words_of_all_and_imitates_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))

    def quick(starters: Any) -> StarterSpec:
        found = shared_starter(starters)
        small = {"demonstrations": 40, "tasks_per_iteration": 8, "minibatches": 1}
        return replace(found, training={**found.training, **small})

    monkeypatch.setattr("rl_agents.envs.starters.shared_starter", quick)
    config = AgentConfig().environment("guess_numbers,circuit_decoding").local()
    algo = config.training(starter_iterations=1, tasks_per_iteration=2, group_size=2, eval_episodes=2).build_algo()
    assert set(train(algo, 1)[0]) > {"rollout/episodes/guess_numbers", "rollout/episodes/circuit_decoding"}
    settings, tokenizer = algo.settings, load_tokenizer(algo.config.model_dir)
    settings.demonstrations = 8
    shown = demonstrated_trajectories(settings, algo.config.model_dir, 0)
    assert [t.task_id.partition("::")[0] for t in shown] == ["guess_numbers"] * 4 + ["circuit_decoding"] * 4
    assert [t.group_id for t in shown] == [*range(8)]
    assert not any(tokenizer.unk_token_id in [*s.prompt_ids, *s.response_ids] for t in shown for s in t.steps)
    with pytest.raises(InputError, match="no word for each token; set model=DIR"):
        AgentConfig().environment("guess_numbers,alfworld", prompt="compact").training(
            environments=[{"env": "guess_numbers"}, {"env": "alfworld", "env.prompt": "3spo"}]
        ).local().build_algo()


def test_tasks_and_configuration_come_back() -> None:
    settings = ready(
        Settings.from_dict({**KEYS, "environments": [GUESS, {"env": "circuit_decoding"}], "truncation": "t3"})
    )
    assert [own.truncation_window for own in settings.parts.values()] == [1, 3]
    assert (settings.max_turns, settings.max_response_tokens, settings.env) == (10, 8, "guess_numbers,circuit_decoding")
    again = ready(Settings.restored(settings.to_dict()))
    assert again.to_dict() == settings.to_dict()
    assert list(run_tasks(again, "test")) == list(run_tasks(settings, "test"))
    again.update({"truncation": "none"})
    assert {own.truncation for own in again.parts.values()} == {"none"}, "a later key holds for all"
    game = f"gymnasium:{Path(__file__).parents[2] / 'docs/examples/games/kuhn_poker.py'}:KuhnPoker"
    with pytest.raises(InputError, match=r"environment poker: env\.opponent=self: such games are trained alone"):
        ready(Settings.from_dict({**KEYS, "environments": [GUESS, {"env": game, "name": "poker"}]}))
