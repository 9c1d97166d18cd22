"""Items of reasoning-gym: the same answers score as in the library's own calls, and what is refused or reported."""

import importlib.util
import random
import sys
from typing import Any

import pytest

from rl_agents import errors
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.reasoning_gym import NONSENSE
from rl_agents.errors import InputError, NoPlayer

INSTALLED = importlib.util.find_spec("reasoning_gym") is not None
needs_library = pytest.mark.skipif(not INSTALLED, reason="reasoning-gym is not installed")
#: Small sums, which a small model learns.
SUMS = {"config": {"max_terms": 2, "max_digits": 1}, "prompt": "none"}
NAMES = ("leg_counting", "basic_arithmetic", "spell_backward", "countdown", "mini_sudoku", "sentence_reordering")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.delitem(sys.modules, "reasoning_gym.factory", raising=False)
    with pytest.raises(InputError, match=r"the package reasoning_gym is missing .*: pip install .*reasoning-gym"):
        env_spec("reasoning_gym:chain_sum")


@needs_library
@pytest.mark.parametrize("name", [*NAMES, "boxnet"])
def test_scores_are_those_of_the_library(name: str) -> None:
    import reasoning_gym as library

    own = library.create_dataset(name, seed=5, size=6)
    env = make_env(f"reasoning_gym:{name}", {"item_seed": 5, "train_tasks": 4, "test_tasks": 2})
    for item in range(6):
        entry = own[item]
        right = entry["metadata"]["expression"] if name == "countdown" else entry["answer"]
        for answer in (str(right), "7", str(own[0]["answer"]), None):
            observation, info = env.reset(options={"task_id": f"{name}/{item}"})
            assert observation.endswith(entry["question"]) and info["messages"][1]["content"] == entry["question"]
            said = "<think> so </think> it is 7" if answer is None else f"<answer> {answer} </answer>"
            _, reward, *ended, info = env.step(said)
            assert (reward, ended, info["valid"]) == (scored(own, answer, entry), [True, False], answer is not None)
            assert info["success"] == (reward == 1) and info["metrics"] == {name: reward}


def scored(own: Any, answer: str | None, entry: Any) -> float:
    """The library's score; a scorer that raises says that the answer is wrong."""
    try:
        return 0.0 if answer is None else float(own.score_answer(answer, entry))
    except Exception:
        return 0.0


@needs_library
def test_tests_are_the_first_items_and_weights_are_shares() -> None:
    options = {"train_tasks": 8, "test_tasks": 4, "weights": [1, 3], "config": {"chain_sum": SUMS["config"]}}
    name = "reasoning_gym:leg_counting,chain_sum"
    assert task_ids(name, "test", options) == ["leg_counting/0", *(f"chain_sum/{n}" for n in range(3))]
    train = ["leg_counting/1", "leg_counting/2", *(f"chain_sum/{n}" for n in range(3, 9))]
    assert task_ids(name, "train", options) == train
    env = make_env(name, options)
    assert env.reset(seed=3)[1]["task_id"] in train
    env.reset(options={"task_id": "chain_sum/8"})
    assert env.step("<answer>0.5</answer>")[-1]["metrics"].keys() == {"chain_sum"}


@needs_library
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chain_smu", {}, "unknown dataset of reasoning_gym 'chain_smu': did you mean 'chain_sum'?"),
        ("chain_sum,", {}, "unknown dataset of reasoning_gym ''"),
        ("chain_sum,chain_sum", {}, "write each dataset once"),
        ("composite", {}, "unknown dataset of reasoning_gym 'composite'"),
        ("word_ladder", {}, "word_ladder: its items change with Python's hashes: set PYTHONHASHSEED=0"),
        ("chain_sum", {"config": {"max_trems": 2}}, "env.config does not fit: TypeError"),
        ("chain_sum", {"config": {"min_terms": 0}}, "env.config does not fit: AssertionError: min_terms must be"),
        ("chain_sum", {"weights": [1, 2]}, "write 1 numbers above 0"),
        ("chain_sum,leg_counting", {"weights": [1, 0]}, "write 2 numbers above 0"),
        ("chain_sum,leg_counting", {"config": {"chain_smu": {}}}, "did you mean 'chain_sum'?"),
        ("chain_sum", {"task": "chain_sum/1100"}, "'chain_sum/1100': did you mean 'chain_sum/0'?"),
        ("chain_sum", {"task": "leg_counting/1"}, "'leg_counting/1': valid: chain_sum/0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    name: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    given = {key: value for key, value in options.items() if key != "task"}
    with pytest.raises(InputError) as error:
        make_env(f"reasoning_gym:{name}", given).reset(options={"task_id": options.get("task", f"{name}/0")})
    assert message in str(error.value) and "\n" not in str(error.value)


@needs_library
def test_traps_are_reported_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    env_spec("reasoning_gym:acre")
    env = make_env("reasoning_gym:chain_sum", {})
    kind = type(env._data["chain_sum"])  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "score_answer", lambda self, answer, entry: 1 / len(answer.strip("x")))
    env.reset(options={"task_id": "chain_sum/0"})
    assert env.step("<answer>x</answer>")[1] == 0.0
    said = capsys.readouterr().err
    assert "reasoning_gym:acre: its items change with env.train_tasks and env.test_tasks" in said
    assert f"chain_sum: in some items '{NONSENSE}' scores 0.111" in said
    assert "chain_sum: its scorer fails for some answers, which get 0: ZeroDivisionError" in said


@needs_library
def test_a_dataset_without_answers_has_no_player() -> None:
    with pytest.raises(NoPlayer, match="its items have no reference answer"):
        starter_spec("reasoning_gym:chain_sum,rush_hour")


@needs_library
def test_the_warm_start_model_knows_the_words_of_its_player() -> None:
    name = "reasoning_gym:chain_sum"
    starter, options = starter_spec(name, SUMS), read_env_options(env_spec(name), SUMS)
    (dialogue,) = starter.demonstrate("chain_sum/0", random.Random(0), options)
    tokenizer = starter.build_tokenizer()
    assert tokenizer.unk_token_id not in tokenizer(" ".join(dialogue))["input_ids"]
