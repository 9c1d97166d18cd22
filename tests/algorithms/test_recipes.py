"""What every recipe must keep: its keys, its documentation, its configuration."""

import re
from pathlib import Path

import pytest

from rl_agents.algorithms import ALGORITHMS, Settings, readers
from rl_agents.errors import InputError
from rl_agents.trainer.measure import ready
from rl_agents.trainer.resolve import resolve
from rl_agents.trainer.unused_keys import idle_of

ROOT = Path(__file__).parents[2]
NAMES = [
    "sft", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "gigpo",
    "hgpo", "steppo", "3spo", "vspo", "pivotrl", "chain-gae", "distill",
]  # fmt: skip
#: Pages of docs/algorithms that several methods share.
PAGES = {
    **dict.fromkeys(("sft", "ppo", "reinforce++", "reinforce++-baseline", "rloo"), "baselines"),
    **dict.fromkeys(("dr-grpo", "dapo", "gspo", "cispo", "gigpo", "hgpo", "vspo"), "grpo"),
}
#: Keys that some algorithms read and others do not.
ALGORITHM_KEYS = {key for recipe in ALGORITHMS.values() for key in recipe.reads}
LEARNING = [name for name in NAMES if name not in ("sft", "distill")]
#: Keys that a run of an algorithm needs.
NEEDS = {"distill": {"teacher": "policy"}}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_recipe_has_effect_on_its_own_defaults(name: str) -> None:
    recipe = ALGORITHMS[name]
    assert not idle_of({"algo": name, **recipe.defaults})
    resolved = resolve(Settings.from_dict({"algo": name, **NEEDS.get(name, {})}))
    assert all(getattr(resolved, key) == value for key, value in recipe.defaults.items())


@pytest.mark.parametrize("name", ["sft", "grpo", "3spo"])
def test_every_key_of_other_algorithms_alone_is_an_error(name: str) -> None:
    for key in ALGORITHM_KEYS - ALGORITHMS[name].reads:
        with pytest.raises(InputError, match=f"key '{key}' has no effect with algo "):
            resolve(Settings.from_dict({"algo": name, key: getattr(Settings(), key)}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algo": "grpo", "kl_coef": 0.1, "kl_in_reward_coef": 0.1}, "count the KL twice"),
        ({"algo": "grpo", "rollout_correction": "token_tis"}, "needs old_logprobs=learner"),
        (
            {"algo": "grpo", "old_logprobs": "learner", "rollout_correction": "geo_rs", "rollout_correction_cap": 2.0},
            "'rollout_correction_cap' has no effect without",
        ),
        (
            {"algo": "grpo", "loss_length": 8},
            "'loss_length' has no effect without loss_agg_mode=seq-mean-token-sum-norm",
        ),
        ({"algo": "dapo", "max_response_tokens": 16, "overlong_cache": 64}, "overlong_cache=64: must not exceed"),
        ({"algo": "vspo", "vspo_alpha": 0.5}, "vspo_alpha=0.5: must be at least 1"),
        ({"algo": "vspo", "vspo_temperature": 0}, "vspo_temperature=0: must be above 0"),
        ({"algo": "grpo", "rollout_correction_bounds": [2, 0.5]}, "rollout_correction_bounds"),
    ],
)
def test_contradictions(keys: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ready(Settings.from_dict(keys))


def test_a_chosen_kl_replaces_the_recipes_default_of_the_other_kind() -> None:
    in_loss = resolve(Settings.from_dict({"algo": "reinforce++", "kl_coef": 0.01}))
    assert (in_loss.kl_coef, in_loss.kl_in_reward_coef) == (0.01, 0.0)
    in_reward = resolve(Settings.from_dict({"algo": "gigpo", "kl_in_reward_coef": 0.01}))
    assert (in_reward.kl_coef, in_reward.kl_in_reward_coef) == (0.0, 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_a_page_that_names_its_keys(name: str) -> None:
    page = (ROOT / "docs" / "algorithms" / f"{PAGES.get(name, name)}.md").read_text(encoding="utf-8")
    found = re.search(rf"^(##?) {re.escape(name)}(?![\w+-]).*?(?=^\1 |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"a heading for {name}"
    for label in ("Formula", "When to use it", "Keys", "Result"):
        assert re.search(rf"^(?:## {label}\b|\*\*{label}\.\*\*)", found[0], re.MULTILINE), label
    own = {key for key in ALGORITHMS[name].reads if len(readers(key)) <= 8}
    for key in own | set(ALGORITHMS[name].defaults):
        assert f"`{key}`" in page, key
