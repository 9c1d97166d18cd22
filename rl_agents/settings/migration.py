"""What config.yaml of earlier versions says in today's keys, so that their checkpoints go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_agents.errors import InputError

#: Keys that have been removed, whatever their value was.
RETIRED = frozenset({"gpu_memory_fraction", "kl_target", "kl_horizon"})
#: Keys that have been removed, with the only value that can go on: their default.
DROPPED: Mapping[str, Any] = {
    "divide_by_rows": True,
    "kl_controller": "constant",
    "mismatch_normalise": False,
    "overlong_length": 0,
    "return_at_observation": "skip",
}
#: Keys of searches that are gone, with the only value that can go on: their default.
REMOVED: Mapping[str, Any] = {
    "search_batch_groups": 0,
    "search_update": "step",
    "search_weights": "equal",
    "search_order": "ranked",
    "search_closed": "dropped",
    "search_baseline": "siblings",
    "state_depth": False,
    "state_normaliser": "none",
    "max_states": 100_000,
}
#: What else a run of algo=3spo must have stood at to go on as 3spo, or as chain-search.
COUNTS = {"score_difference": ("gated", "none"), "search_skip": ("search",), "state_decay": (1.0,)}
CHAIN = {"score_difference": ("value", "none"), "search_skip": ("siblings",), "score_clock": ("depth",)}
#: Failures from which chain-search's predecessor closed a state: out of reach, as today, where no state closes.
OPEN_XI = 1e6


def migrated(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's configuration in today's keys.

    Until chain-search had a name of its own it was ``algo: 3spo`` with ``state_value: chain``.

    Raises:
        InputError: a removed key whose value nothing stands for any more.
    """
    _check(data, {name: (value,) for name, value in DROPPED.items()})
    gone = RETIRED | DROPPED.keys()
    found = _with_one_turn_limit({name: value for name, value in data.items() if name not in gone})
    if found.get("env") == "webshop":
        found.setdefault("env.hold_out_eval", True)  # what they trained on; a new run trains on these goals too
    if found.get("algo") == "3spo" and found.get("state_value") != "chain":
        found.setdefault("score_gate", "score")  # the only reading there was
    if found.keys().isdisjoint(REMOVED):
        return found
    _check(found, {name: (value,) for name, value in REMOVED.items()})
    chained = found.get("state_value") == "chain"
    if found["algo"] == "3spo":
        _check(found, CHAIN if chained else COUNTS)
        if chained and found.get("score_xi", 10.0) < OPEN_XI:
            raise _refusal("score_xi", found.get("score_xi", 10.0), (f"{OPEN_XI:g} and more",))
        found["algo"] = "chain-search" if chained else "3spo"
        found["search_warmup"] = found.pop("critic_warmup", 0)
    preset = {"paper": 50.0, "graded": 1.0}[found.get("score_preset", "paper")]
    found["score_alpha"] = found.get("score_alpha") or preset
    found["score_difference"] = "none" if found.get("score_difference") == "none" else "progress"
    for name in (*REMOVED, "state_value", "search_skip", "score_preset"):
        found.pop(name, None)
    return found


def _with_one_turn_limit(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fold the environment's own turn limit of older files into ``max_turns``: the lower one ended episodes."""
    limits = [int(data[name]) for name in ("max_turns", "env.max_turns") if data.get(name)]
    kept = {name: value for name, value in data.items() if name != "env.max_turns"}
    return {**kept, "max_turns": min(limits)} if "env.max_turns" in data and limits else dict(kept)


def _check(data: Mapping[str, Any], kept: Mapping[str, tuple[Any, ...]]) -> None:
    for name, values in kept.items():
        if data.get(name, values[0]) not in values:
            raise _refusal(name, data[name], values)


def _refusal(name: str, value: Any, kept: tuple[Any, ...]) -> InputError:
    wanted = " or ".join(str(each) for each in kept)
    return InputError(f"config.yaml: {name}={value} was removed, so this run cannot go on; only {name}={wanted} can")
