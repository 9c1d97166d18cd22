"""An engine that only its own file knows (`plain_engine`) trains, evaluates and serves, wherever a run has engines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model
from serving.in_process import Server, problem
from trained import policy_weights

from rl_agents.algorithms import Settings
from rl_agents.cli.listing import listed
from rl_agents.errors import InputError
from rl_agents.inference.engines import ENGINES, check_engine
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.measure import ready
from tests.inference import plain_engine

KEYS: dict[str, Any] = {
    "env": "gymnasium:tests.orchestrator.process_envs:Odd", "env.train_tasks": 4, "env.test_tasks": 4, "engine":
    "plain", "plugins": ["tests.inference.plain_engine"], "tasks_per_iteration": 2, "group_size": 4, "eval_episodes": 2,
    "lr": 1e-3, "num_learners": 0, "max_turns": 2, "max_response_tokens": 6, "max_model_len": 600,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat"))


#: Other tests do not have it.
ROW = ENGINES.pop("plain")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "plain", ROW)


@pytest.mark.parametrize("where", [{"num_env_runners": 0}, {"num_env_runners": 1}])
def test_it_trains_and_evaluates(ray_session: None, model: Path, where: dict[str, Any]) -> None:
    algo = AgentConfig().training(model=str(model), **KEYS, **where).build_algo()
    try:
        before = {name: tensor.clone() for name, tensor in policy_weights(algo).items()}
        for version in range(2):
            metrics = algo.train()["agent"]
            assert {step.policy_version for t in algo.last_trajectories for step in t.steps} == {version}
            # New weights arrived whole: what it samples has the log-probabilities that the learner computes.
            assert metrics["rollout_corr/logprob_diff_max"] < 1e-4
        assert any((before[name] != tensor).any() for name, tensor in policy_weights(algo).items())
        assert {len(played.steps) for played in algo.evaluate_policy(episodes=2)} == {2}
    finally:
        algo.stop()


def test_it_serves_and_refuses_what_it_lacks(model: Path) -> None:
    server = Server(model, engine="plain", plugins=KEYS["plugins"])
    try:
        answer = server.chat(max_tokens=4, seed=0)
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 4
        status, code, message = problem(server.chat(top_k=3))
        assert (status, code) == (400, "unsupported_value")
        assert "the plain engine samples from the policy as it is; serve with engine=vllm" in message
    finally:
        server.close()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"weight_switch": "keep"}, "it does not report each token's weights; use weight_switch=wait, or engine="),
        ({"engine_sleep": 1}, "it has no sleep mode"),
    ],
)
def test_capabilities_that_it_lacks_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"with engine=plain: {words}"):
        check_engine(Settings.from_dict({"engine": "plain", **keys}))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            "tests.inference.plain_engine:PlainEngin",
            "PlainEngin: AttributeError: module 'tests.inference.plain_eng",
        ),
        ("tests.inference.nowhere:PlainEngine", "nowhere:PlainEngine: ModuleNotFoundError: No module named"),
        ("pathlib:Path", "pathlib:Path is no StreamingEngine: it has no close, generate, load_weights"),
    ],
)
def test_a_row_that_names_no_engine_is_refused_before_anything_is_written(
    model: Path, monkeypatch: pytest.MonkeyPatch, build: str, words: str
) -> None:
    monkeypatch.setitem(ENGINES, "plain", replace(ROW, build=build))
    with pytest.raises(InputError, match=f"^engine plain: .*{words}"):
        ready(Settings.from_dict({"model": str(model), **KEYS}))


def test_it_is_listed() -> None:
    assert [entry["name"] for entry in listed("engines")["engines"]] == ["auto", "vllm", "torch", "plain"]
    assert plain_engine.PlainEngine.__name__ in ROW.build
