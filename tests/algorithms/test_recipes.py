"""What every recipe must keep: its keys, its documentation, its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import ALGORITHM_KEYS
from rl_agents.core.resolve import ineffective_keys, resolve
from rl_agents.errors import InputError
from rl_agents.settings import FIELD_TYPES, Settings

ROOT = Path(__file__).parents[2]
NAMES = [
    "sft", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "gigpo",
    "hgpo", "steppo", "3spo", "chain-search", "vspo", "pivotrl",
]  # fmt: skip
LEARNING = [name for name in NAMES if name != "sft"]


def test_all_are_registered_in_the_order_of_listings() -> None:
    assert [name for name in ALGORITHMS if name in NAMES] == NAMES


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_recipe_names_real_keys_and_has_effect_on_its_own_defaults(name: str) -> None:
    recipe = ALGORITHMS[name]
    assert recipe.uses <= ALGORITHM_KEYS
    assert set(FIELD_TYPES) >= recipe.uses | set(recipe.defaults)
    assert not set(recipe.defaults) & ALGORITHM_KEYS - recipe.uses
    chosen = Settings.from_dict({"algo": name, **recipe.defaults})
    assert not ineffective_keys(chosen, recipe)
    resolved = resolve(Settings.from_dict({"algo": name}))
    assert all(getattr(resolved, key) == value for key, value in recipe.defaults.items())


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_key_without_effect_is_an_error(name: str) -> None:
    for key in ALGORITHM_KEYS - ALGORITHMS[name].uses:
        with pytest.raises(InputError, match=f"key '{key}' has no effect with algo "):
            resolve(Settings.from_dict({"algo": name, key: getattr(Settings(), key)}))


def test_every_algorithm_key_has_a_user() -> None:
    assert set().union(*(recipe.uses for recipe in ALGORITHMS.values())) == ALGORITHM_KEYS


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algo": "grpo", "kl_coef": 0.1, "kl_in_reward_coef": 0.1}, "count the KL twice"),
        ({"algo": "grpo", "mismatch": "token_tis"}, "needs old_logprobs=learner"),
        ({"algo": "grpo", "kl_controller": "adaptive"}, "'kl_controller' has no effect without kl_in_reward_coef"),
        ({"algo": "grpo", "kl_target": 0.1}, "'kl_target' has no effect without kl_controller=adaptive"),
        (
            {"algo": "grpo", "old_logprobs": "learner", "mismatch": "geo_rs", "mismatch_cap": 2.0},
            "'mismatch_cap' has no effect without",
        ),
        ({"algo": "grpo", "loss_length": 8}, "'loss_length' has no effect without aggregation=seq-mean-token-sum-norm"),
        ({"algo": "dapo", "overlong_length": 16, "overlong_cache": 64}, "overlong_cache=64: must not exceed"),
        ({"algo": "vspo", "vspo_alpha": 0.5}, "vspo_alpha=0.5: must be at least 1"),
        ({"algo": "vspo", "vspo_temperature": 0}, "vspo_temperature=0.0: must be above 0"),
        ({"algo": "grpo", "mismatch_bounds": [2, 0.5]}, "mismatch_bounds"),
    ],
)
def test_contradictions(keys: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(Settings.from_dict(keys))


def test_a_chosen_kl_replaces_the_recipes_default_of_the_other_kind() -> None:
    in_loss = resolve(Settings.from_dict({"algo": "reinforce++", "kl_coef": 0.01}))
    assert (in_loss.kl_coef, in_loss.kl_in_reward_coef) == (0.01, 0.0)
    in_reward = resolve(Settings.from_dict({"algo": "gigpo", "kl_in_reward_coef": 0.01}))
    assert (in_reward.kl_coef, in_reward.kl_in_reward_coef) == (0.0, 0.01)


def test_the_reference_is_built_only_for_a_kl() -> None:
    from rl_agents.core.config import AgentConfig

    for keys, wanted in (({}, False), ({"kl_coef": 0.1}, True), ({"kl_in_reward_coef": 0.1}, True)):
        config = AgentConfig()
        config.agent = Settings.from_dict({"algo": "grpo", **keys})
        assert ("reference" in config.get_multi_rl_module_spec().rl_module_specs) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_a_page_that_names_its_keys(name: str) -> None:
    page = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("## Formula", "## Symbols", "## Pitfalls", "## Metrics", "## Curve"):
        assert heading in page, heading
    own = ALGORITHMS[name].uses - {
        key for key in ALGORITHM_KEYS if len([r for r in ALGORITHMS.values() if key in r.uses]) > 8
    }
    for key in own | set(ALGORITHMS[name].defaults):
        assert f"`{key}`" in page, key
