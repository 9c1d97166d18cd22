"""Learning from a pool alone, written by a real small run: it learns, resumes exactly, and says what it leaves out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trained import equal, policy_weights, train

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.cli import main
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.learner.rl_modules import POLICY
from rl_agents.orchestrator.offline_dataset import Recorded
from rl_agents.store.records import Record, session_records
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.doubtful_keys import cautions
from rl_agents.trainer.measure import ready
from rl_agents.trainer.unused_keys import apply_defaults

KEYS: dict[str, Any] = {"tasks_per_iteration": 4, "group_size": 4, "eval_episodes": 0, "minibatches": 1}


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().training(model=str(model_dir), **{**KEYS, **keys}).local().build_algo()


def offline(model_dir: Path, pool: Path, **keys: Any) -> AgentAlgorithm:
    kept = {name: value for name, value in KEYS.items() if name != "group_size" or keys.get("algo") == "sft"}
    return AgentConfig().training(model=str(model_dir), pool=str(pool), **{**kept, **keys}).local().build_algo()


def opened(pool: Path, **keys: Any) -> Recorded:
    """The source alone, for a model that reads 300 ids."""
    settings = Settings.from_dict({"tasks_per_iteration": 4, "pool": str(pool), **keys})
    recipe = ALGORITHMS[settings.algo]
    apply_defaults(settings, recipe)
    return Recorded.open(settings, recipe, 300)


def records(played: list[list[Trajectory]], **changes: Any) -> list[Record]:
    found: list[Record] = []
    for iteration, trajectories in enumerate(played):
        for t in trajectories:
            name = f"{iteration}/{t.group_id}/{t.member}"
            found += session_records(t, name, **{"iteration": iteration, "env": "guess_numbers", **changes})
    return found


@pytest.fixture(scope="module")
def played(beginner_model_dir: Path) -> list[list[Trajectory]]:
    """Two iterations of a run that learns nothing: 8 groups of 4 episodes of the beginner."""
    algo = build(beginner_model_dir, lr=0.0, temperature=1.0)
    found = []
    for _ in range(2):
        algo.train()
        found.append(algo.last_trajectories)
    algo.stop()
    return found


@pytest.fixture
def pool_of(tmp_path: Path) -> Callable[..., Path]:
    def make(*added: Record) -> Path:
        with PoolWriter(tmp_path / "pool.sqlite") as writer:
            writer.add(*added).result(60)
        return tmp_path / "pool.sqlite"

    return make


def likelihood(algo: AgentAlgorithm, trajectories: list[Trajectory]) -> float:
    """Mean log-probability per sampled token under the algorithm's policy."""
    rows = build_samples(trajectories, "merged")
    for row, logprobs in zip(rows, algo.learner_group.score(rows, POLICY), strict=True):
        row.old_logprobs = logprobs
    return float(np.concatenate([row.old_logprobs[row.mask > 0] for row in rows]).mean())  # type: ignore[index]


@pytest.mark.parametrize("algo", ["grpo", "chain-gae"])
def test_it_learns_without_engines_from_what_was_recorded(beginner_model_dir, played, pool_of, algo) -> None:
    pool = pool_of(*records(played))
    run = offline(beginner_model_dir, pool, algo=algo)
    before = policy_weights(run)
    first, second = train(run, 2)
    assert run.rollout_workers is None, "nobody plays, so nothing that plays was started"
    assert first["rollout/episodes"] >= 16 and first["actor/grad_norm"] > 0
    assert first["rollout_corr/ess"] == pytest.approx(1.0, abs=1e-3), "the beginner itself sampled it"
    assert second["rollout_corr/ess"] < first["rollout_corr/ess"], "and the learner has moved since"
    assert any(not torch.equal(tensor, before[name]) for name, tensor in policy_weights(run).items())
    run.stop()


def test_sft_imitates_the_best(beginner_model_dir, played, pool_of) -> None:
    pool, everything = pool_of(*records(played)), [t for part in played for t in part]
    solved = [t for t in everything if t.success]
    run = offline(beginner_model_dir, pool, algo="sft", lr=1e-3)
    assert run.recorded is not None and len(run.recorded.groups) == len(solved) < len(everything)
    before = likelihood(run, solved)
    losses = [metrics["actor/pg_loss"] for metrics in train(run, 6)]
    assert likelihood(run, solved) > before + 0.1 and losses[-1] < losses[0]
    assert all(t.success for t in run.last_trajectories)
    run.stop()
    run = offline(beginner_model_dir, pool, algo="sft", pool_min_return=-9.0)
    assert run.recorded is not None and len(run.recorded.groups) == len(everything)
    run.stop()


@pytest.mark.parametrize("keys", [{"algo": "grpo", "kl_coef": 0.01}, {"algo": "sft"}])
def test_resume_is_exact(
    beginner_model_dir: Path, played: list[list[Trajectory]], pool_of: Callable[..., Path], tmp_path: Path,
    keys: dict[str, Any],
) -> None:  # fmt: skip
    """Also where a pass over the pool ends between: 8 groups, three an iteration."""
    pool = pool_of(*records(played))
    keys = {**keys, "tasks_per_iteration": 3}
    whole = offline(beginner_model_dir, pool, **keys)
    train(whole, 2)
    whole.save_run_checkpoint(tmp_path / "000002")
    straight = train(whole, 3)
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000002")
    assert train(second, 3) == straight and equal(policy_weights(whole), policy_weights(second))
    assert whole.place.position == second.place.position == (15 if keys["algo"] != "sft" else whole.place.position)
    assert whole.rollout_workers is None and second.rollout_workers is None
    for run in (whole, second):
        run.stop()


def test_the_order_is_the_seeds(played: list[list[Trajectory]], pool_of: Callable[..., Path]) -> None:
    pool = pool_of(*records(played))

    def order(seed: int) -> list[tuple[str, int]]:
        source = opened(pool, seed=seed)
        return [(t.task_id, t.member) for at in (0, 4) for t in source.next(0, at).chosen]

    assert order(0) == order(0) != order(1)
    assert sorted(order(0)) == sorted(order(1)) == sorted((t.task_id, t.member) for part in played for t in part)
    drawn = opened(pool).next(0, 6).chosen
    assert [t.group_id for t in drawn] == [n // 4 for n in range(16)], "numbered anew, also where a pass ends between"


def test_what_is_left_out_is_counted(played: list[list[Trajectory]], pool_of: Callable[..., Path], capsys) -> None:
    first, second = played
    lonely, broken = Trajectory.from_json(first[0].to_json()), Trajectory.from_json(first[1].to_json())
    lonely.group_id, broken.failed, broken.group_id = 99, True, 98
    pool = pool_of(
        *records([first, second, [lonely, broken]]),
        *session_records(first[2], "test", kind="evaluation", env="guess_numbers"),
        *session_records(first[3], "else", env="alfworld"),
    )
    assert len(opened(pool).groups) == 8
    assert (
        "32 sessions in 8 groups; excluded: 1 alone in their group, 1 failed, 1 of env alfworld, 1 of kind evaluation"
        in capsys.readouterr().out
    )
    assert len(opened(pool, algo="reinforce++").groups) == 9, "a session alone teaches where none are compared"


@pytest.mark.parametrize(
    ("change", "keys", "words"),
    [
        ("nothing", {}, "no session that grpo can train on; excluded: none"),
        ("unsolved", {"algo": "sft"}, "excluded: 32 not solved (see pool_min_return)"),
        ("other ids", {}, "holds token id 999999, and the model reads 300 ids: another tokenizer wrote it"),
        ("unsolved", {"algo": "dapo"}, "4 more groups are needed whose sessions differ in return, and all 8"),
    ],
)
def test_what_cannot_be_learned_from_is_an_input_error(played, pool_of, change, keys, words) -> None:
    copies = [[Trajectory.from_json(t.to_json()) for t in part] for part in played]
    for t in (t for part in copies for t in part):
        t.success = t.success and change != "unsolved"
        for step in t.steps if change == "unsolved" else ():
            step.reward = 0.0
        if change == "other ids":
            t.steps[-1].prompt_ids[-1] = 999_999
    if change == "alone":
        copies = [[t for t in part if t.member == 0] for part in copies]
    pool = pool_of(*([] if change == "nothing" else records(copies)))
    with pytest.raises(InputError) as raised:
        opened(pool, **keys).next(0, 0)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_an_unusable_pool_is_exit_code_2_and_leaves_nothing(beginner_model_dir, pool_of, tmp_path, capsys) -> None:
    argv = ["--local", "--model", str(beginner_model_dir), "--output", str(tmp_path / "out"), "--pool", str(pool_of())]
    assert main(argv) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "no session that grpo can train on" in said[0]
    assert not (tmp_path / "out").exists()


def test_a_whole_run_without_evaluations(
    beginner_model_dir: Path, played: list[list[Trajectory]], pool_of: Callable[..., Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    output = str(tmp_path / "out")
    keys = ["--set", "eval_episodes=0", "tasks_per_iteration=4", "--iterations", "2"]
    argv = ["--local", "--model", str(beginner_model_dir), "--output", output, "--pool", str(pool_of(*records(played)))]
    assert main([*argv, *keys]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["episodes"], summary["success_end"]) == ("done", 32, None)
    assert summary["sampled_tokens"] == 0, "this run sampled nothing"
    assert not (tmp_path / "out" / "pool.sqlite").exists(), "what it learned from is in a pool already"
    capsys.readouterr()
    assert main(["--resume", output]) == 0
    assert "has completed all 2 iterations" in capsys.readouterr().out
    assert main(["eval", "--checkpoint", output, "--local", "--episodes", "2", "--seeds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


def test_defaults_correct_for_the_policy_that_sampled(pool_of: Callable[..., Path]) -> None:
    pool = str(pool_of())

    def resolved(**keys: Any) -> Settings:
        return ready(Settings.from_dict({"pool": pool, **keys}))

    plain = resolved()
    assert (plain.old_logprobs, plain.rollout_correction) == ("learner", "token_tis") and not cautions(plain)
    assert resolved(rollout_correction="sequence_tis").rollout_correction == "sequence_tis"
    assert cautions(resolved(rollout_correction="none"))[0].startswith("pool with rollout_correction=none")
    engine = resolved(old_logprobs="engine")
    assert engine.rollout_correction == "none" and cautions(engine)[0].startswith("pool with old_logprobs=engine")
    assert resolved(algo="sft").rollout_correction == "none"
    for keys, words in (
        (
            {"old_logprobs": "engine", "rollout_correction": "token_tis"},
            "rollout_correction=token_tis needs old_logprobs=learner",
        ),
        ({"truncation": "t3"}, "key 'truncation' has no effect with pool="),
        ({"algo": "sft", "demonstrations": 9}, "key 'demonstrations' has no effect with pool="),
        ({"pool_min_return": 0.5}, "key 'pool_min_return' has no effect with algo grpo; it belongs to: sft"),
    ):
        with pytest.raises(InputError) as raised:
            resolved(**keys)
        assert words in str(raised.value)
    with pytest.raises(InputError, match="key 'pool_min_return' has no effect without pool"):
        ready(Settings.from_dict({"algo": "sft", "pool_min_return": 0.5}))
    with pytest.raises(InputError, match=r"nowhere: no such pool"):
        ready(Settings.from_dict({"pool": "nowhere"}))
