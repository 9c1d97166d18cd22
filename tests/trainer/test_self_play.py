"""Training against oneself and against older weights: what is trained on, exact resume, and what is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trained import equal, policy_weights, train

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.orchestrator.older_policies import OlderPolicies
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.measure import ready

GAME = "gymnasium:rollout.table_games:Lengths"
KEYS: dict[str, Any] = {
    "algo": "rloo", "tasks_per_iteration": 4, "group_size": 4, "eval_episodes": 4, "max_response_tokens": 8,
    "max_model_len": 200, "lr": 1e-3, "minibatches": 1,
}  # fmt: skip


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    settings = {**KEYS, "model": str(model_dir), **keys}
    return AgentConfig().environment(GAME).training(**settings).local().build_algo()


def test_both_seats_are_trained_on_and_evaluations_are_against_the_environment(beginner_model_dir: Path) -> None:
    algo = build(beginner_model_dir)
    (metrics,) = train(algo)
    games = algo.last_trajectories
    assert len(games) == 16 and {(t.group_id, t.facts["seat"]) for t in games} == {(g, g % 2) for g in range(4)}
    assert algo.place.position == 4 and len({t.task_id for t in games}) == 2
    assert all(step.metrics == {"letters": len(step.action)} for t in games for step in t.steps), "of its own action"
    assert metrics["rollout/return_seat_0"] == -metrics["rollout/return_seat_1"] and metrics["actor/grad_norm"] > 0
    assert set(algo.evaluate()["agent"]) >= {"eval/return_seat_0", "eval/success_seat_0"}


@pytest.mark.parametrize("opponent", ["self", "checkpoint"])
def test_resume_is_exact(beginner_model_dir: Path, tmp_path: Path, opponent: str) -> None:
    keys = {"env.opponent_interval": 2} if opponent == "checkpoint" else {}
    whole = build(beginner_model_dir, **{"env.opponent": opponent}, **keys)
    before = train(whole, 3)
    whole.save_run_checkpoint(tmp_path / "000003")
    straight = train(whole, 2)
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000003")
    assert train(second, 2) == straight
    assert equal(policy_weights(whole), policy_weights(second))
    if opponent == "self":
        return
    assert [m["rollout/opponent_iteration"] for m in before + straight] == [0, 0, 2, 2, 4]
    assert {t.facts["opponent"] for t in whole.last_trajectories} == {4}
    assert [path.name for path in (tmp_path / "000003" / "opponents").iterdir()] == ["2"]
    assert "opponents/2/model.safetensors" in (tmp_path / "000003" / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("lag", "interval", "expected"),
    [(0, 2, [0, 0, 2, 2, 4, 4]), (0, 1, [0, 1, 2, 3, 4, 5]), (1, 2, [0, 0, 0, 2, 2, 4]), (3, 2, [0, 0, 0, 0, 0, 2])],
)
def test_older_weights_do_not_depend_on_how_far_sampling_is_ahead(lag: int, interval: int, expected: list[int]) -> None:
    options = {"opponent": "checkpoint", "opponent_interval": interval}
    older = OlderPolicies(SimpleNamespace(env_options=options, async_level=lag), "initial")  # type: ignore[arg-type]
    found = [older.at(ahead) for ahead in range(lag)]  # sampled before any iteration is completed
    for completed in range(6 - lag):
        found.append(older.at(completed + lag))
        older.keep(completed + 1, Path.mkdir)
    assert [number for number, _ in found] == expected  # type: ignore[misc]
    assert all(folder == "initial" if number == 0 else Path(folder).name == str(number) for number, folder in found)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"algo": "3spo"}, "env.opponent=self does not work with algo=3spo"),
        ({"stream": True}, "env.opponent=self does not work with stream=true"),
        ({"truncation": "similarity", "env.opponent": "checkpoint"}, "env.opponent=checkpoint does not work with tr"),
        ({"truncation": "t3"}, "env.opponent=self does not work with truncation=t3: .*leave it none"),
        ({"stream": True, "num_env_runners": 0}, "env.opponent=self does not work with stream=true"),
        ({"prompting": "react"}, "env.opponent=self does not work with prompting=react"),
        ({"tasks_per_iteration": 5}, "does not work with tasks_per_iteration=5: .*multiple of 2"),
        ({"env.opponent_interval": 5}, "'env.opponent_interval' has no effect without env.opponent=checkpoint"),
    ],
)  # fmt: skip
def test_what_games_do_not_support_is_refused(beginner_model_dir: Path, keys: dict[str, Any], problem: str) -> None:
    given = {**KEYS, "env": GAME, "model": str(beginner_model_dir), **keys}
    if given["algo"] == "3spo":
        del given["minibatches"]
    with pytest.raises(InputError, match=problem):
        ready(Settings.from_dict(given))
