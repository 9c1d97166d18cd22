"""``reasoning_gym:<dataset>``: generated questions of the package reasoning-gym, each answered inside ``<answer>``.

A task is ``<dataset>/<item>``. A dataset's first items are tests, the following ones are for training.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from rl_agents.config.options import key
from rl_agents.envs.gymnasium_adapter import LibraryEnv, options_of, words_starter
from rl_agents.envs.spec import EnvFamily, EnvSpec, StarterSpec
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.task_sets import unknown_task
from rl_agents.errors import InputError, NoPlayer, described, named, number_from, report_once, unknown
from rl_agents.installation import import_extra

PREFIX, PAGE = "reasoning_gym:", "docs/environments/reasoning_gym.md"
#: Datasets of version 0.1.25 whose items depend on Python's hashes of texts, and those whose items depend on the size.
HASHED = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
SIZED = ("acre", "codeio")
#: An answer that no item wants.
NONSENSE = "no answer"


@dataclass(frozen=True)
class ReasoningOptions:
    """Keys of reasoning_gym; see docs/environments/reasoning_gym.md."""

    config: dict[str, Any] = key({}, "fields of the dataset's configuration; of several datasets, {dataset: {...}}")
    weights: list[float] = key([], "shares of several datasets in the tasks, in their order; empty for equal shares")
    item_seed: int = key(0, "seed of the dataset")
    train_tasks: int = key(1000, "number of training tasks", ge=1)
    test_tasks: int = key(100, "number of test tasks", ge=1)
    prompt: Literal["default", "DeepSeekZero", "simple", "direct", "chain_of_draft", "none"] = key(
        "default", "the library's system prompt of this name"
    )


def library(module: str = "") -> Any:
    return import_extra(f"reasoning_gym{module}", "reasoning-gym")


def dataset_spec(name: str) -> EnvSpec:
    """Return the spec of ``reasoning_gym:<dataset>,...``."""
    known, names = set(library(".factory").DATASETS) - {"composite"}, name.removeprefix(PREFIX)
    parts = names.split(",")
    if len(set(parts)) < len(parts):
        raise InputError(f"environment {name}: write each dataset once, with env.weights for shares")
    for one in parts:
        if one not in known:
            raise unknown("dataset of reasoning_gym", one, known)
        if one in HASHED and not os.environ.get("PYTHONHASHSEED", "").isdecimal():
            raise InputError(f"{PREFIX}{one}: its items change with Python's hashes: set PYTHONHASHSEED=0 before")
        if one in SIZED:
            report_once(f"{PREFIX}{one}: its items change with env.train_tasks and env.test_tasks")
    options = options_of(names, ReasoningOptions, "names of the datasets")
    return EnvSpec(name, f"questions of {names}", PAGE, options, 1, __name__, name, blocking="inline")


def starter(name: str, options: Any) -> StarterSpec:
    """Return the warm-start model that imitates a player who is right in half of the items."""
    return words_starter(dataset_spec(name), ReasoningEnv, options, "demonstrate", "player")


FAMILY = EnvFamily(f"{PREFIX}<dataset>", "generated questions of reasoning-gym", PAGE, dataset_spec, starter)


def sizes(options: Any) -> dict[str, tuple[int, int]]:
    """Return how many test and training items every dataset has. Raises `InputError`: the weights do not fit."""
    names, counts = options.id.split(","), (options.test_tasks, options.train_tasks)
    weights = options.weights or [1.0] * len(names)
    if len(weights) != len(names) or min(weights) <= 0:
        raise InputError(f"env.weights={options.weights}: write {len(names)} numbers above 0, one for each dataset")
    parts = [[max(round(count * weight / sum(weights)), 1) for count in counts] for weight in weights]
    return {name: (test, train) for name, (test, train) in zip(names, parts, strict=True)}


def task_ids(split: str, options: Any) -> list[str]:
    ranges = {name: (range(test), range(test, test + train)) for name, (test, train) in sizes(options).items()}
    return [f"{name}/{item}" for name, both in ranges.items() for item in both[split == "train"]]


@lru_cache(maxsize=128)  # for all environments of a process
def dataset(name: str, seed: int, size: int, config: str) -> Any:
    with named(f"environment {PREFIX}{name}: env.config does not fit"):
        return library().create_dataset(name, seed=seed, size=size, **json.loads(config))


class ReasoningEnv(LibraryEnv):
    """Answer a question in one turn; a score of 1 is a success. ``metrics`` has the score under the dataset's name."""

    def __init__(self, options: Any, max_turns: int = 1) -> None:
        self.options, self._data = options, dict[str, Any]()
        for name, counts in sizes(options).items():
            config = options.config.get(name, {}) if "," in options.id else options.config
            self._data[name] = dataset(name, options.item_seed, sum(counts), json.dumps(config, sort_keys=True))
        if "," in options.id and (wrong := set(options.config) - set(self._data)):
            raise unknown("dataset in env.config", min(wrong), self._data)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``; raises `InputError`: unknown task."""
        self._task = self.draw(seed, options, lambda: task_ids("train", self.options))
        self._name, _, item = self._task.partition("/")
        data = self._data.get(self._name, ())
        if not item.isdecimal() or int(item) >= len(data):
            raise unknown_task(PREFIX[:-1], self._task[:80], (), f"{next(iter(self._data))}/0")
        self._entry = data[int(item)]
        if (score := self._score(NONSENSE)) > 0:
            report_once(f"{PREFIX}{self._name}: in some items '{NONSENSE}' scores {score:g}", PREFIX, self._name)
        messages = [{"role": "user", "content": self._entry["question"]}]
        if self.options.prompt != "none":
            prompt = library(".utils").SYSTEM_PROMPTS[self.options.prompt]
            messages.insert(0, {"role": "system", "content": prompt})
        return "\n\n".join(one["content"] for one in messages), {**self._info(True, 0.0), "messages": messages}

    def step(self, action: str) -> StepResult:
        """Score the answer; a response without ``<answer>`` has none, and its reward is 0."""
        answer: str | None = library(".utils").extract_answer(action)
        score = 0.0 if answer is None else self._score(answer)
        return "", score, True, False, self._info(answer is not None, score)

    def _info(self, valid: bool, score: float) -> dict[str, Any]:
        references = [] if self._entry["answer"] is None else [str(self._entry["answer"])]
        info = {"task_id": self._task, "success": score >= 1, "valid": valid, "references": references}
        return {**info, "metrics": {self._name: score}}

    def _score(self, answer: str) -> float:
        """Return the dataset's score in [0, 1]; 0 if its scorer cannot read the answer."""
        scorer = self._data[self._name].score_answer
        try:
            return number_from(scorer, scorer(answer, self._entry), 0, 1)
        except Exception as error:
            line = f"{PREFIX}{self._name}: its scorer fails for some answers, which get 0: {described(error)}"
            report_once(line, "scorer", self._name)
            return 0.0

    def player(self, method: str) -> Callable[[str, random.Random], str]:
        """Return a player who is always right, or with ``demonstrate`` in half of the items."""

        def act(observation: str, rng: random.Random) -> str:
            if self._entry["answer"] is None:
                raise NoPlayer(f"{PREFIX}{self._name}", " (its items have no reference answer)")
            data = self._data[self._name]
            guess = method == "demonstrate" and rng.random() < 0.5
            answer = (data[rng.randrange(len(data))] if guess else self._entry)["answer"]
            return f"<answer> {answer} </answer>"

        return act


make = ReasoningEnv
