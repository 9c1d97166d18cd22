"""Resolve the configuration of a run: `choose` its keys, then `resolve` their defaults and contradictions.

Both read what they are given, the model's folder and modules that register names. They change, start and write nothing.
What depends on this machine, on tokens or on episodes is measured next (`rl_agents.trainer.measure`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms import KEYS as ALL_KEYS
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.config.aliases import canonical
from rl_agents.config.loading import load_preset
from rl_agents.config.options import keys_of, plain_text
from rl_agents.config.sections import ModelKeys, RunKeys
from rl_agents.config.settings import LOCAL_KEYS, OWN_KEYS, SEPARATOR, of_the_run
from rl_agents.envs.base import (
    base_environment,
    divide,
    env_spec,
    game_seats,
    plain_options,
    read_env_options,
    starter_spec,
)
from rl_agents.errors import InputError, unknown
from rl_agents.reporting.run_folder import restored_settings
from rl_agents.reporting.trackers import check_trackers
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import check_judge
from rl_agents.rollout.truncation import check_rule, progress_window
from rl_agents.trainer.model_note import model_defaults, model_note
from rl_agents.trainer.unused_keys import advantage_keys, apply_defaults, idle_keys, layered

#: Keys that only the ``config.yaml`` of a run has all of.
SAVED_KEYS = {*keys_of(RunKeys), *keys_of(ModelKeys)}


def choose(flags: Mapping[str, Any], file: str | None = None, local: bool = False) -> Settings:
    """Return the keys of a recipe under those of the command line; a run's own ``config.yaml`` is complete.

    Args:
        file: the recipe, by path or name. Its keys that have no effect with the flags are dropped (`layered`).
        local: of ``--local``.

    Raises `InputError`: unknown key or bad value; a recipe's error names its file.
    """
    recipe = load_preset(file) if file else {}
    if file and recipe.keys() >= SAVED_KEYS:
        settings = restored_settings(Path(file))
        for name in ("algo", "env"):
            if flags.get(name, old := getattr(settings, name)) != old:
                raise InputError(f"{file}: the complete keys of a run with {name}={old}, not {flags[name]}")
        settings.update(flags)
    else:
        try:
            _check_flat(recipe)
            alone = Settings.from_dict(recipe)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        settings = layered(alone, recipe, {**(LOCAL_KEYS if local else {}), **flags})
        for own in (settings, *settings.parts.values()):
            own.source = f"{file}: " if "environments" in recipe.keys() - flags.keys() and "env" not in flags else ""
    if local:
        settings.make_local({**recipe, **flags})
    return settings


def _check_flat(recipe: Mapping[str, Any]) -> None:
    """Refuse sections, which files of other libraries have.

    Raises `InputError`: the first section, with the flat form of its first key.
    """
    for name, value in recipe.items():
        if isinstance(value, Mapping) and not name.startswith("env."):
            inner = next(iter(value), "KEY")
            written = f"env.{inner}" if name == "env" else inner
            raise InputError(f"'{name}' is a section, but keys are flat: write `{written}: ...` at the top level")


def check_names(settings: Settings) -> None:
    """Divide a run over several environments. Raises `InputError`: unknown algorithm, environment or tracker."""
    divide(settings)
    if settings.algo not in ALGORITHMS:
        raise unknown("algorithm", settings.algo, ALGORITHMS)
    for own in settings.each.values():
        env_spec(own.env)
    check_trackers(settings.trackers)


def resolve(settings: Settings) -> Settings:
    """Return the chosen keys with the defaults of the algorithm, the environment and the model, free of contradictions.

    Each of several environments is resolved as if it were the only one; the first one's defaults hold for the run.

    Raises `InputError`: unknown names, keys without effect for the algorithm, contradictions.
    """
    settings = copy.deepcopy(settings)
    check_names(settings)
    recipe = ALGORITHMS[settings.algo]
    if not settings.parts:
        return _resolved(settings, recipe)
    for name in ("pool", "teacher", "teacher_url", "expert_data", "demonstration_data"):
        if getattr(settings, name):
            raise InputError(f"{name}={getattr(settings, name)} does not work with several environments")
    if recipe.source == "search" or recipe.memory:
        raise InputError(f"{recipe.name} compares states, which several environments do not share; take grpo or gigpo")
    for (name, own), entry in zip(settings.parts.items(), settings.environments, strict=True):
        own.only_split = settings.only_split
        with of_part(own):
            if own.advantages:
                _check_advantages(own, entry, recipe)
            settings.parts[name] = own = _resolved(own, recipe)
            if game_seats(own.env, own.env_options) > 1:
                raise InputError(f"env.opponent={own.env_options['opponent']}: such games are trained alone")
    return joined(settings)


def resolve_chat(settings: Settings) -> Settings:
    """Resolve what a server of the model alone needs: its environment, which may be missing, is not read."""
    settings = copy.deepcopy(settings)
    settings.set_defaults(model_note(settings.model).get("settings", {}))
    refuse_contradictions(settings, ALGORITHMS[settings.algo])
    return settings


@contextmanager
def of_part(own: Settings) -> Iterator[None]:
    """Name the environment, and its file, in errors about one of several; nothing for the only one."""
    try:
        yield
    except InputError as error:
        if not own.task_prefix:
            raise
        raise InputError(f"{own.source}environment {own.task_prefix.removesuffix(SEPARATOR)}: {error}") from error


def _check_advantages(own: Settings, entry: Mapping[str, Any], recipe: AlgorithmSpec) -> None:
    """Refuse advantages that need more than the rollouts of a group, and keys that these advantages do not read."""
    able = [
        name
        for name, one in ALGORITHMS.items()
        if one.credit and one.source == "rollouts" and not (one.memory or one.critic or one.teacher)
        if one.select in (None, ALGORITHMS["dapo"].select)
    ]
    if own.advantages not in ALGORITHMS:
        raise unknown("method of advantages", own.advantages, able)
    if own.advantages == recipe.name:
        raise InputError(f"advantages={own.advantages} has no effect: it is the run's algorithm; leave it out")
    if recipe.critic:
        raise InputError(f"advantages={own.advantages}: algo {recipe.name} trains a critic on all environments")
    if own.advantages not in able:
        raise InputError(
            f"advantages={own.advantages} does more than compare the rollouts of a batch; take {', '.join(able)}"
        )
    for name in canonical(entry).keys() & ALL_KEYS.keys() - {"env", *OWN_KEYS} - advantage_keys(own):
        raise of_the_run(name)


def joined(settings: Settings) -> Settings:
    """Return the run over ``settings.parts``: the first one's keys, with the greatest lengths, and all of theirs."""
    first, *others = settings.parts.values()
    run = copy.deepcopy(first)
    for own in others:
        for name in ALL_KEYS.keys() - {"env", *OWN_KEYS} - advantage_keys(own):
            setattr(own, name, getattr(first, name))
    for name in ("max_turns", "max_response_tokens", "max_model_len", "max_summary_tokens"):
        setattr(run, name, max(getattr(own, name) for own in settings.parts.values()))
    run.env, run.parts, run.explicit, run.env_options = settings.env, settings.parts, settings.explicit, {}
    run.task_prefix, run.lengths = "", "; ".join(filter(None, (own.lengths for own in settings.parts.values())))
    run.environments = [
        {
            "env": own.env, "name": name, "weight": own.weight, "advantages": own.advantages,
            **{key: getattr(own, key) for key in (*OWN_KEYS, *sorted(advantage_keys(own)))},
            **{f"env.{key}": value for key, value in own.env_options.items()},
        }
        for name, own in settings.parts.items()
    ]  # fmt: skip
    return run


def _resolved(settings: Settings, recipe: AlgorithmSpec) -> Settings:
    """Resolve a run over one environment in place; see `resolve`."""
    spec = env_spec(settings.env)
    apply_defaults(settings, recipe)
    if settings.advantages:
        theirs = ALGORITHMS[settings.advantages].defaults_of(settings)
        settings.set_defaults({name: theirs[name] for name in theirs.keys() & advantage_keys(settings)})
    if "temperature" in settings.explicit:  # evaluations sample from the trained policy
        settings.set_defaults({"eval_temperature": settings.temperature})
    settings.set_defaults(model_defaults(settings))
    chosen = [name.removeprefix("env.") for name in settings.explicit if name.startswith("env.")]
    settings.env_options = plain_options(read_env_options(spec, settings.env_options, chosen))
    base = env_spec(base_environment(settings.env, settings.env_options))
    settings.max_turns = settings.max_turns or base.max_turns
    check_rule(settings)
    if settings.reward not in REWARDS:
        raise unknown("reward", settings.reward, REWARDS)
    _check_game(settings, recipe)
    check_keys(settings, recipe)
    check_judge(settings)
    if settings.truncation == "t3":
        settings.truncation_window = progress_window(settings, base)
    if spec.agent:
        _check_agent(settings)
    return settings


def check_keys(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Reject keys that contradict each other or the algorithm, and set keys that have no effect.

    Raises `InputError`: the first one, and why.
    """
    for name, reason in idle_keys(settings).items():
        raise InputError(f"key '{name}' {reason}")
    refuse_contradictions(settings, recipe)
    if recipe.source == "demonstrations" and not settings.demonstration_data and not settings.pool:
        _check_demonstrator(settings)


def refuse_contradictions(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Apply the ``rules`` of the sections that are every run's, and of those that the algorithm reads.

    Raises `InputError`: the first contradiction.
    """
    foreign = {section for one in ALGORITHMS.values() for section in one.keys.__mro__} - {*recipe.keys.__mro__}
    for section in dict.fromkeys((*reversed(Settings.__mro__), *recipe.keys.__mro__)):
        rules = vars(section).get("rules") if section not in foreign else None
        for problem, found in rules(settings, recipe).items() if rules else ():
            if found:
                raise InputError(problem)


def _check_demonstrator(settings: Settings) -> None:
    """Reject keys of an environment whose scripted player would play under others."""
    fixed = getattr(starter_spec(settings.env, settings.env_options).demonstrate, "fixed", {})
    for name, value in fixed.items():
        if (chosen := settings.env_options.get(name)) != value:
            raise InputError(
                f"env.{name}={chosen}: the scripted player of {settings.env} needs env.{name}={value}; "
                "demonstration_data=FILE imitates the dialogues of a table instead"
            )


def _check_game(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Reject what games with a policy in every seat do not support."""
    seats = game_seats(settings.env, settings.env_options)
    if seats == 1 or settings.only_split or settings.pool or recipe.source == "demonstrations":
        return
    remedies = {
        "algo": (recipe.source != "search", "a method that rolls out whole episodes does, such as rloo"),
        "stream": (not settings.stream, "leave it false"),
        "truncation": (settings.truncation == "none", "leave it none"),
        "prompting": (settings.prompting == "direct", "leave it direct"),
        "tasks_per_iteration": (settings.tasks_per_iteration % seats == 0, f"it must be a multiple of {seats}"),
    }
    for name, (works, remedy) in remedies.items():
        if not works:
            raise InputError(
                f"env.opponent={settings.env_options['opponent']} does not work with {name}="
                f"{plain_text(getattr(settings, name))}: a game's {seats} seats are rolled out together; {remedy}"
            )


def _check_agent(settings: Settings) -> None:
    """Reject keys without effect on an external agent, and times that it cannot keep."""
    timeout_s = settings.env_options["agent_timeout_s"]
    if settings.num_env_runners and timeout_s >= settings.sample_timeout_s:
        raise InputError(
            f"env.agent_timeout_s={timeout_s:g} with sample_timeout_s={settings.sample_timeout_s:g}: a runner would be "
            "replaced before its agents' time is over; raise sample_timeout_s"
        )
    for name, value in (("prompting", "direct"), ("context", "append")):
        if getattr(settings, name) != value:
            raise InputError(
                f"{name}={getattr(settings, name)} has no effect with env={settings.env}: the agent writes its own "
                f"prompts; leave {name}={value}"
            )
