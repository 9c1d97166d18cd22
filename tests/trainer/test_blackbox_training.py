"""Training on black-box agents: a linear agent trains the very weights of the built-in loop; searches over it."""

import io
import re
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import torch
from trained import build, count_generations, equal, policy_weights, train

from rl_agents.errors import InputError
from rl_agents.orchestrator import collector, runner_pump
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer.algorithm import AgentAlgorithm

pytest.importorskip("openai")
AGENTS = Path(__file__).parents[2] / "docs" / "examples" / "agents"
#: Agents ask at other moments than the built-in loop, so that an engine's batches differ, and its logprobs with them.
KEYS: dict[str, Any] = {"old_logprobs": "learner"}
BLACK_BOX = {"env": "blackbox", "env.tasks": "guess_numbers", "env.agent": "coroutine:agent", **KEYS}


@pytest.fixture(autouse=True)
def example_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(AGENTS))


def test_a_linear_agent_trains_the_weights_of_the_built_in_loop(beginner_model_dir: Path, tmp_path: Path) -> None:
    theirs, mine = build(beginner_model_dir, **KEYS), build(beginner_model_dir, **BLACK_BOX)
    mine.open_pool(tmp_path / "pool.sqlite")
    for algo in (theirs, mine):
        train(algo, 1)
    found, expected = (
        [([s.response_ids for s in t.steps], t.end_cause, t.episode_return, t.metrics) for t in algo.last_trajectories]
        for algo in (mine, theirs)
    )
    assert found == expected
    mine.pool.flush()
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        assert list(pool.trajectories(StoreQuery(iteration=0))) == mine.last_trajectories
    assert equal(policy_weights(theirs), policy_weights(mine))


def test_an_evaluation_says_how_far_it_is(beginner_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collector, runner_pump):
        monkeypatch.setattr(module, "REPORT_S", 0.02)  # clients of eight agents take longer to build
    with redirect_stderr(io.StringIO()) as said:
        assert len(build(beginner_model_dir, **BLACK_BOX).evaluate_policy(episodes=8)) == 8
    lines = re.findall(r"^\[rl_agents\] evaluation: (\d) of 8 episodes after \d+ s$", said.getvalue(), re.MULTILINE)
    assert lines and lines == sorted(lines)


def test_a_resumed_run_serves_agents_what_was_sampled(beginner_model_dir: Path, tmp_path: Path) -> None:
    whole = build(beginner_model_dir, **BLACK_BOX)
    whole.open_pool(tmp_path / "pool.sqlite")
    train(whole, 1)
    whole.save_run_checkpoint(tmp_path / "000001")
    train(whole, 1)
    expected = policy_weights(whole)
    train(whole, 1)  # what the newest weights sampled is not reused
    assert whole.pool is not None
    whole.pool.close()
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000001")
    second.open_pool(tmp_path / "pool.sqlite")
    sampled = count_generations(second)
    train(second, 1)
    assert sampled == []
    assert equal(expected, policy_weights(second))


def test_a_tree_search_over_a_black_box_is_that_of_the_environment_inside(beginner_model_dir: Path) -> None:
    """The recorded answers lead fresh agents back to a state, where others are sampled: the search sees one world."""
    # By their observations: the environment inside names its states otherwise, and the agent does not tell.
    search = {**KEYS, "algo": "3spo", "search_steps": 60, "tasks_per_iteration": 2, "state_key": "observation"}
    theirs = build(beginner_model_dir, **{**search, "branching": "replay"})
    mine = build(beginner_model_dir, **{**search, **BLACK_BOX})
    before = policy_weights(mine)
    expected, found = train(theirs, 1)[0], train(mine, 1)[0]
    assert [[(s.prompt_ids, s.response_ids, s.reward) for s in t.steps] for t in mine.last_trajectories] == [
        [(s.prompt_ids, s.response_ids, s.reward) for s in t.steps] for t in theirs.last_trajectories
    ]
    assert found["search/replayed_steps"] == expected["search/replayed_steps"] > 0
    after = policy_weights(mine)
    for name, weights in policy_weights(theirs).items():
        assert torch.allclose(weights, after[name], atol=1e-6), name
    assert any(not torch.equal(before[name], weights) for name, weights in after.items())


@pytest.mark.parametrize(("keys", "problem"), [({"context": "window(2)"}, "context=window")])
def test_keys_that_a_strangers_program_cannot_follow_are_refused(beginner_model_dir: Path, keys, problem) -> None:
    with pytest.raises(InputError, match=problem):
        train(build(beginner_model_dir, **{**BLACK_BOX, **keys}), 1)


def test_a_runner_outlives_its_agents(beginner_model_dir: Path) -> None:
    from rl_agents.algorithms import Settings
    from rl_agents.trainer.doubtful_keys import cautions
    from rl_agents.trainer.resolve import resolve

    keys = {"algo": "grpo", "model": str(beginner_model_dir), **BLACK_BOX, "tasks_per_iteration": 8, "group_size": 8}
    with pytest.raises(InputError, match="a runner would be replaced before its agents' time is over"):
        resolve(Settings.from_dict({**keys, "env.agent_timeout_s": 600}))
    assert any("4 rounds of agents may take 1200 s" in line for line in cautions(resolve(Settings.from_dict(keys))))
    assert not cautions(resolve(Settings.from_dict({**keys, "env.agent_concurrency": 32})))
