"""Keys: types, unknown names, contradictions, and which default wins."""

import copy
import pickle
import re
import typing
from pathlib import Path

import pytest

from rl_agents.algorithms import KEYS, Settings
from rl_agents.config import load_recipe, parse_assignments
from rl_agents.config.aliases import ALIASES, HINTS, canonical
from rl_agents.config.loading import yaml_text
from rl_agents.config.options import Key, keys_of
from rl_agents.envs.gymnasium_adapter import AdapterOptions
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import restored_settings
from rl_agents.serving.options import ServingOptions
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.measure import ready
from rl_agents.trainer.resolve import choose, resolve


def test_chosen_keys_win_over_the_starters_and_these_over_the_defaults() -> None:
    plain, chosen = resolve(Settings()), resolve(choose({"lr": 1e-5}))
    assert plain.lr == 5e-4 and plain.env_options["prompt"] == "compact"
    assert chosen.lr == 1e-5 and chosen.max_model_len == plain.max_model_len


def test_what_an_older_configuration_holds_in_vain_does_not_stop_it() -> None:
    old = resolve(Settings.from_dict({"env": "webshop", "env.catalogue": "small"})).to_dict()
    settings = resolve(Settings.restored({**old, "env.success_reward": 5.0}))
    assert settings.env_options["success_reward"] == 5.0


def test_resolving_a_resolved_configuration_changes_nothing() -> None:
    chosen = choose({"lr": 1e-5, "algo": "ppo"})
    before = copy.deepcopy(chosen)
    started = ready(chosen)
    assert (chosen, chosen.explicit) == (before, {"lr", "algo"}) and chosen.to_dict() == before.to_dict()
    assert ready(started) is started and started.of("x") is not chosen
    assert ready(Settings.restored(started.to_dict())).to_dict() == started.to_dict()
    config = AgentConfig.from_settings(started)
    assert ready(config.agent) is config.agent, "a run that was checked to start is not checked again"
    started.update({"lr": 1e-4})
    assert not started.measured, "a run with another key is checked anew"


def test_values_are_read_as_yaml() -> None:
    assert parse_assignments(["lr=1e-4", "betas=[0.9, 0.99]", "model="]) == {
        "lr": 1e-4,
        "betas": [0.9, 0.99],
        "model": "",
    }
    assert Settings.from_dict({"lr": "1e-4"}).lr == 1e-4
    with pytest.raises(InputError, match="key=value"):
        parse_assignments(["lr"])


def test_settings_travel_to_actors_with_the_keys_of_all_algorithms() -> None:
    chosen = Settings.from_dict({"algo": "vspo", "vspo_alpha": 3, "hgpo_history": 1, "env.prompt": "paper"})
    arrived = pickle.loads(pickle.dumps(chosen))
    assert arrived == chosen and arrived.explicit == chosen.explicit and arrived.vspo_alpha == 3.0


@pytest.mark.parametrize(
    ("key", "hint"),
    [("guard_z", ""), ("env.malformed", ""), ("lr_warmups", "; did you mean 'lr_warmup'?"),
     ("env.promt", "; did you mean 'prompt'?"), ("loss_type", "; set loss_agg_mode instead")],
)  # fmt: skip
def test_a_saved_key_that_this_version_does_not_have_is_named_with_its_file(
    tmp_path: Path, key: str, hint: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml_text({**Settings().to_dict(), key: 2}))
    with pytest.raises(InputError) as refused:
        restored_settings(file)
    assert str(refused.value) == f"{file}: this version has no key '{key}'{hint}"


def test_other_libraries_words_are_accepted_or_lead_to_keys_that_exist() -> None:
    assert not (ALIASES.keys() | HINTS.keys()) & KEYS.keys() and not ALIASES.keys() & HINTS.keys()
    assert set(ALIASES.values()) <= KEYS.keys()
    for word, ours in HINTS.items():
        assert any(name in KEYS for name in re.findall(r"\w+", ours)), word
    settings = Settings.from_dict({"num_generations": 8, "gae_lambda": 0.9})
    assert (settings.group_size, settings.gae_lambda) == (8, 0.9) and settings.explicit == {"group_size", "gae_lambda"}
    with pytest.raises(InputError, match="'micro_batch_size': set tokens_per_microbatch instead"):
        Settings.from_dict({"micro_batch_size": 8})


def test_one_key_under_two_names_is_refused(tmp_path: Path) -> None:
    for read in (canonical, Settings.from_dict):
        with pytest.raises(InputError, match="'lr' and 'learning_rate' are the same key"):
            read({"lr": 1e-4, "learning_rate": 1e-5})
    assert parse_assignments(["learning_rate=0.5"]) == {"lr": 0.5}
    (tmp_path / "recipe.yaml").write_text("async_level: 1\n")
    assert load_recipe(str(tmp_path / "recipe.yaml")) == {"async_level": 1}


def test_a_flag_may_leave_a_recipes_key_without_effect_and_a_recipe_must_not(tmp_path: Path) -> None:
    recipe, odd = str(tmp_path / "recipe.yaml"), str(tmp_path / "odd.yaml")
    Path(recipe).write_text("algo: vspo\nvspo_temperature: 0.5\nvspo_alpha: 4.0\n")
    Path(odd).write_text("algo: vspo\nvspo_temperature: 0.5\nvspo_mode: random\n")
    assert choose({"vspo_mode": "random"}, recipe).explicit == {"algo", "vspo_alpha", "vspo_mode"}
    assert choose({"lr": 1e-4}, odd).vspo_temperature == 0.5
    assert choose({"vspo_mode": "none", "vspo_alpha": 3.0}, recipe).vspo_alpha == 3.0
    assert choose({"algo": "grpo"}, recipe).vspo_alpha == 4.0


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_needs_name_keys_and_numbers_have_ranges(key: Key) -> None:
    for need in key.needs:
        for kind in (KEYS[name].kind for name in need.names):
            if typing.get_origin(kind) is typing.Literal:
                assert set(need.values) <= set(typing.get_args(kind)), str(need)
    if key.kind in (int, float, list[float]) and key.name != "prs_thresholds":
        assert key.range


def test_text_keys_keep_their_characters_and_ambiguous_yaml_is_refused(tmp_path) -> None:
    read = Settings.from_dict(parse_assignments(["tracker_project=007", "model=1.10", "lr=1e-4", "seed=12"]))
    assert (read.tracker_project, read.model, read.lr, read.seed) == ("007", "1.10", 1e-4, 12)
    assert parse_assignments(["tracker_project=12:30", "x='5'"]) == {"tracker_project": "12:30", "x": "5"}
    assert parse_assignments(["env.kwargs={is_slippery: false}"]) == {"env.kwargs": {"is_slippery": False}}
    with pytest.raises(InputError, match="'is_slippery:false' has no value"):
        parse_assignments(["env.kwargs={is_slippery:false}"])
    for text in ("1.10", "007", "12:30"):  # of `serve --set`, and of `serve run app key=value`
        served, run = ServingOptions.read({"checkpoint": "x", **parse_assignments([f"model_name={text}"])})
        assert served.model_name == text and not run
        assert Settings.from_dict(ServingOptions.read({"checkpoint": "x", "model": text})[1]).model == text
    with pytest.raises(
        InputError, match=r"env.kwargs='is_slippery:false': must be a valid mapping, such as {name: value}"
    ):
        keys_of(AdapterOptions)["kwargs"].read("is_slippery:false", "env.")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "tracker_project: 007\nmodel: 1.10\nat: 12:30\nlr: 1e-4\nseed: 12\nbetas: [0.90, 0.99]\nsaid: off\n"
        "env.kwargs: {mode: on, gravity: 9.80, at: 12:30, step: 1e-4, count: 010}\n"
    )
    keys = load_recipe(str(recipe))
    read = Settings.from_dict({name: keys[name] for name in ("tracker_project", "model")})
    assert (read.tracker_project, read.model, keys["said"], keys["at"]) == ("007", "1.10", "off", "12:30")
    assert keys["env.kwargs"] == {"mode": "on", "gravity": 9.8, "at": "12:30", "step": 1e-4, "count": 10}
    (tmp_path / "saved.yaml").write_text(yaml_text(keys | {"env.kwargs": {"commit": "1e5", "step": 1e-5, "at": "0o7"}}))
    assert load_recipe(str(tmp_path / "saved.yaml"))["env.kwargs"] == {"commit": "1e5", "step": 1e-5, "at": "0o7"}
    read = Settings.from_dict({name: keys[name] for name in ("lr", "seed", "betas")})
    assert (read.lr, read.seed, read.betas) == (1e-4, 12, [0.9, 0.99])
    for line, problem in (
        ("1: 1\n0x1: 2", ":2: broken YAML: key '0x1' occurs twice"),
        ("env.kwargs: {is_slippery:false}", ":1: broken YAML: 'is_slippery:false' has no value; write a space"),
        ("env.kwargs:\n  is_slippery:", ":2: broken YAML: 'is_slippery' has no value; write a space"),
    ):
        recipe.write_text(f"{line}\n")
        with pytest.raises(InputError, match=problem):
            load_recipe(str(recipe))
    recipe.write_text("env.kwargs: &all {size: 3, seed: 1}\nenv.task_options:\n  <<: *all\n  seed: 2\n")
    assert load_recipe(str(recipe))["env.task_options"] == {"size": 3, "seed": 2}
    recipe.write_text("on: 1\n1: 2\n")  # two keys by YAML 1.2, and none of a run's
    with pytest.raises(InputError, match="unknown key 'on'"):
        Settings.from_dict(load_recipe(str(recipe)))


def test_the_number_of_keys_is_known() -> None:
    """Raise it deliberately: each key is one more thing to understand, and to test beside all others."""
    assert len(KEYS) == 181
