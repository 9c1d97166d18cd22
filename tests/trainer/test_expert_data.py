"""A method that imitates dialogues of a file alongside its own loss: metrics, records, and exact resumption."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from trained import equal, policy_weights, train

from rl_agents.cli import main
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec, read_env_options, starter_spec, task_ids
from rl_agents.store.reader import PoolReader
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.expert_data import ExpertData
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import find_runs
from rl_agents.viewer.tokens import tokens

KEYS: dict[str, Any] = {"algo": "grpo", "tasks_per_iteration": 4, "group_size": 4, "lr": 3e-3, "iterations": 4}


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six solved games as chats."""
    spec, path = starter_spec("guess_numbers", {}), tmp_path_factory.mktemp("expert") / "chats.jsonl"
    options, rng = read_env_options(env_spec("guess_numbers"), {}), random.Random(0)
    chats = []
    for task in task_ids("guess_numbers", "train", {})[:6]:
        turns = spec.demonstrate(task, rng, options, 0)
        roles = [("user", "assistant")] * len(turns)
        chats.append([{"role": r, "content": t} for of, turn in zip(roles, turns) for r, t in zip(of, turn)])  # noqa: B905
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return path


def build(model: Path, dialogues: Path, **keys: Any) -> AgentAlgorithm:
    given = {**KEYS, "model": str(model), "expert_data": str(dialogues), "expert_dialogues": 6, **keys}
    return AgentConfig().environment("guess_numbers").training(**given).local().build_algo()


def test_a_run_imitates_alongside_and_records_what_each_component_adds(
    beginner_model_dir: Path, dialogues: Path, tmp_path: Path
) -> None:
    algo = build(beginner_model_dir, dialogues, ce_coef=0.5)
    algo.open_pool(tmp_path / "pool.sqlite")
    (first,) = train(algo)
    algo.save_run_checkpoint(tmp_path / "one")
    (second,) = train(algo)
    after = policy_weights(algo)
    algo.stop()
    (tmp_path / "config.yaml").write_text("algo: grpo\n")
    (tmp_path / "metrics.jsonl").write_text("")
    catalog, shown = find_runs([str(tmp_path / "pool.sqlite")]), {}
    for session in ("i1.u0.e0.r0", "i1.g0.m0"):
        shown[session] = tokens(Params(catalog, {"run": next(iter(catalog.runs)), "session": session, "ordinal": "0"}))
    assert [list(each["losses"]) for each in shown.values()] == [["ce"], ["rl"]], "the viewer shows them"
    assert all(len(v) == len(each["logprobs"]) for each in shown.values() for v in each["losses"].values())
    assert second["actor/ce_nll"] < first["actor/ce_nll"]
    assert first["actor/ce_loss"] == pytest.approx(0.5 * first["actor/ce_nll"], rel=0.1), "two steps of three dialogues"
    with PoolReader(tmp_path / "pool.sqlite") as reader:
        found = [reader.token_losses(s.session.id, n) for s in reader.stored() for n in range(s.steps)]
        kinds = {s.session.kind for s in reader.stored()}
    assert kinds == {"episode", "expert"}
    total = sum(sum(one.losses) for of in found for one in of)
    expected = sum(2 * of[name] for of in (first, second) for name in ("actor/ce_loss", "actor/pg_loss"))
    assert total == pytest.approx(expected, abs=1e-5)
    again = AgentAlgorithm.from_checkpoint(tmp_path / "one")
    assert train(again) == [second] and equal(policy_weights(again), after)
    again.stop()


def test_the_weight_falls_to_zero_and_then_nothing_is_read() -> None:
    settings = Settings.from_dict({"iterations": 10, "expert_data": "x", "ce_coef": 0.4, "ce_decay": 0.5})
    experts = ExpertData(settings, None)  # type: ignore[arg-type]
    assert [round(experts.coefficient(i), 6) for i in (0, 1, 4, 5, 9)] == [0.4, 0.32, 0.08, 0.0, 0.0]
    assert not experts.draw(5)


def test_a_missing_table_is_one_line_before_anything_starts(
    beginner_model_dir: Path, tmp_path: Path, capfd: Any
) -> None:
    keys = ["--set", f"model={beginner_model_dir}", "expert_data=missing.jsonl"]
    assert main(["--env", "guess_numbers", "--local", "--output", str(tmp_path / "run"), *keys]) == 2
    error = capfd.readouterr().err
    assert "missing.jsonl" in error and "Traceback" not in error


def test_every_update_of_a_search_imitates_other_dialogues(beginner_model_dir: Path, dialogues: Path) -> None:
    algo = build(beginner_model_dir, dialogues, algo="3spo", search_steps=64, expert_dialogues=2)
    (metrics,) = train(algo)
    experts = algo.experts
    algo.stop()
    assert metrics["search/optimizer_steps"] > 0 and metrics["actor/ce_loss"] > 0
    assert experts is not None
    drawn = [[dialogue.task_id for dialogue in experts.draw(0, update)] for update in range(4)]
    assert len({*map(tuple, drawn)}) > 1 and drawn == [[d.task_id for d in experts.draw(0, u)] for u in range(4)]
