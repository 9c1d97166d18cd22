"""A hand-drawn world: few states, named by their observation, and a policy that says what is written beside each."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import trained
from chat_tokenizers import qwen
from rollout.scripted import ScriptedEngine

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.chat.template import make_context
from rl_agents.rollout.branching import Branching, BranchSpec, Expansion, expand_all
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.tree_search.explorer import Explorer, Request, Tick
from rl_agents.rollout.turns import Limits, Player
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

CONTEXT = make_context("append", qwen())
LIMITS = Limits(max_turns=8, max_response_tokens=20, max_model_len=2000, env_timeout_s=5.0)

#: state -> action -> next state; "won" and "lost" end the game.
MAP: dict[str, dict[str, str]] = {
    "hall": {"left": "attic", "loop": "hall", "right": "barn"},
    "attic": {"jump": "lost", "door": "won", "wait": "attic"},
    "barn": {"left": "attic", "jump": "lost"},
}
#: What the policy says at a state, one word after the other.
SAYS: dict[str, list[str]] = {
    "hall": ["left", "loop", "right"], "attic": ["jump", "door", "wait"], "barn": ["left", "left", "jump"],
}  # fmt: skip


class Drawn(gymnasium.Env[str, str]):
    """The map; other actions than those drawn break it."""

    resets = steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        type(self).resets += 1
        self.place = "hall"
        return self.place, {"admissible_actions": sorted(MAP[self.place])}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        type(self).steps += 1
        self.place = MAP[self.place][action]
        done, won = self.place not in MAP, self.place == "won"
        info = {
            "success": won,
            "admissible_actions": sorted(MAP.get(self.place, ())),
            "turn_metrics": {"letters": len(action)},
        }
        return self.place, float(won), done, False, info


class Copied(Drawn):
    """The same, and it can be copied."""

    def snapshot(self) -> str:
        return self.place

    def restore(self, place: str) -> None:
        self.place = place


def last_observation(prompt: str) -> str:
    """The last thing that the policy was shown."""
    return prompt.split("<|im_start|>user\n")[-1].split("<|im_end|>")[0]


def speaker(says: dict[str, list[str]] = SAYS) -> Callable[[str], str]:
    """The k-th answer to one and the same prompt is the k-th word of its state."""
    asked: Counter[str] = Counter()

    def speak(prompt: str) -> str:
        words = says[last_observation(prompt)]
        asked[prompt] += 1
        return words[(asked[prompt] - 1) % len(words)]

    return speak


class World:
    """Expands states for real, with the drawn environment and a scripted engine."""

    def __init__(
        self, make_env: Callable[[], Any] = Copied, branching: Branching = "auto", says: dict[str, list[str]] = SAYS,
        limits: Limits = LIMITS,
    ) -> None:  # fmt: skip
        self.pool, self.branching = EnvPool(make_env), branching
        self.engine = ScriptedEngine(qwen(), speaker(says))
        self.player = Player(self.engine, CONTEXT, limits)

    def expand(self, specs: Sequence[BranchSpec]) -> list[Expansion]:
        answers = asyncio.run(expand_all(specs, self.pool, self.player, self.branching))
        assert not answers.engine_errors and not answers.input_error, answers
        by_job = answers.by_job()
        return [by_job[spec.group_id] for spec in specs]

    def tick(self, explorer: Explorer) -> tuple[list[Request], Tick]:
        requests = explorer.select(self.expand)
        return requests, explorer.update(requests, self.expand([request.spec for request in requests]))


def settings_of(**keys: Any) -> Settings:
    """Equations as published, but graded scores, three samples of a state at most and one task at a time."""
    small = {"group_size": 3, "tasks_per_iteration": 1, "score_alpha": 1.0, "search_steps": 20, "max_turns": 40}
    settings = Settings.from_dict({"algo": "3spo", "reading": "published", **small, **keys})
    settings.set_defaults(ALGORITHMS["3spo"].defaults_of(settings))
    return settings


def explorer_of(tasks: Sequence[str] = ("house",), **keys: Any) -> Explorer:
    settings = settings_of(**keys)
    states = ALGORITHMS["3spo"].states
    assert states is not None
    return Explorer(
        settings, tasks, states(settings), width=settings.tasks_per_iteration, most=settings.group_size, seed=0
    )


#: What a resumed run may differ in: time, and the ways back to states whose snapshots were not kept.
EXCEPT = ("timing_s/", "perf/", "search/replayed_steps")

train = partial(trained.train, leave_out=EXCEPT)


def searched(algo: AgentAlgorithm) -> Explorer:
    assert algo.explorer is not None
    return algo.explorer


#: Of searches of whole runs.
KEYS: dict[str, Any] = {
    "tasks_per_iteration": 4, "group_size": 4, "search_steps": 48, "lr": 1e-3, "iterations": 4,
    "old_logprobs": "learner", "engine": "torch", "engine_timeout_s": 30.0,
}  # fmt: skip


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    config = AgentConfig().training(**{**KEYS, "model": str(model_dir), **keys})
    return (config if keys.get("num_env_runners") else config.local()).build_algo()
