"""A starter model for an environment of the user's own: its words, and what it imitates, come from scripted episodes.

All that the environment has is a method ``demonstrate(observation, random) -> action``, a mediocre player who may look
at the environment's inside, and perhaps ``expert``, which errs as little as it can.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.gymnasium_adapter import adapter_spec, make, own, task_ids
from rl_agents.envs.gymnasium_registry import registered
from rl_agents.envs.spec import EnvSpec, StarterSpec, TextEnv
from rl_agents.errors import InputError

Dialogue = list[tuple[str, str]]
#: Tasks whose episodes give the starter its words and lengths.
HEARD_TASKS = 200
TAG = re.compile(r"</?([A-Za-z]\w*)>")
#: Tokens that the chat template adds to a turn, at most.
TEMPLATE_TOKENS = 3


@dataclass
class ScriptedPlayer:
    """Plays tasks with a method of the environment's own; called as `StarterSpec.demonstrate` is."""

    spec: EnvSpec
    method: str
    _made: tuple[Any, int, TextEnv] | None = field(default=None, repr=False)

    def __call__(self, task_id: str, rng: random.Random, options: Any, max_turns: int = 0) -> Dialogue:
        """Return the episode's (observation, action) pairs.

        Raises:
            InputError: the method returned something else than a text.
        """
        turns = max_turns or self.spec.max_turns
        env = self._env(options, turns)
        act = env.inner.get_wrapper_attr(self.method)  # type: ignore[attr-defined]
        observation, _ = env.reset(seed=rng.getrandbits(32), options={"task_id": task_id})
        dialogue: Dialogue = []
        for _ in range(turns):
            action = act(observation, rng)
            if not isinstance(action, str):
                raise InputError(f"{self.spec.name}: {self.method}() returned {ascii(action)[:80]}, not a str")
            dialogue.append((observation, action))
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
        return dialogue

    def _env(self, options: Any, max_turns: int) -> TextEnv:
        if self._made is None or self._made[:2] != (options, max_turns):
            self._made = (options, max_turns, make(options, max_turns))
        return self._made[2]


def players_starter(name: str) -> StarterSpec:
    """Return the starter of ``gymnasium:<id>``.

    Raises:
        InputError: its class has no ``demonstrate``, or that fails.
    """
    entry = registered(adapter_spec(name).gym_id)
    if not callable(own(entry, "demonstrate")):
        raise InputError(
            f"environment {name} has no starter model: name a model folder with --set model=DIR, or give its class "
            "a method demonstrate(observation, random) that returns an action (docs/environments/gymnasium.md)"
        )
    return _starter(name, _version(entry.entry_point))


@lru_cache(maxsize=8)
def _starter(name: str, version: int) -> StarterSpec:
    spec = adapter_spec(name)
    player = ScriptedPlayer(spec, "demonstrate")
    try:
        dialogues = _heard(spec, player)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"environment {name}: demonstrate() failed: {type(error).__name__}: {error}") from error
    texts = [text for dialogue in dialogues for turn in dialogue for text in turn]
    tags = sorted({tag for text in texts for tag in TAG.findall(text)})
    longest = max(sum(_tokens(turn, tags) for turn in dialogue) for dialogue in dialogues)
    answer = max(_tokens([action], tags) for dialogue in dialogues for _, action in dialogue)
    # Twice what the player needs: the model wanders more than it does.
    length = -(-2 * longest // 64) * 64
    return StarterSpec(
        build_tokenizer=lambda: _tokenizer(texts, tags, length),
        build_model=_model,
        demonstrate=player,
        training=_imitation(),
        defaults={"max_model_len": length, "max_response_tokens": 2 * answer, "lr": 5e-4, "iterations": 60},
        version=version,
        expert=ScriptedPlayer(spec, "expert") if callable(own(registered(spec.gym_id), "expert")) else None,
    )


def _heard(spec: EnvSpec, player: Callable[..., Dialogue]) -> list[Dialogue]:
    options, rng = spec.options(), random.Random(spec.name)
    tasks = [task for split in ("train", "test") for task in task_ids(split, options)[:HEARD_TASKS]]
    if not tasks:
        raise InputError(f"environment {spec.name} has no tasks")
    return [player(task, rng, options) for task in tasks]


def _tokens(texts: Iterable[str], tags: Sequence[str]) -> int:
    return sum(len(_words(text, tags)) + len(TAG.findall(text)) + TEMPLATE_TOKENS for text in texts)


def _words(text: str, tags: Sequence[str]) -> list[str]:
    return TAG.sub(" ", text).split() if tags else text.split()


def _tokenizer(texts: Sequence[str], tags: Sequence[str], length: int) -> Any:
    from rl_agents.envs.small_model import SPECIAL_TOKENS, word_tokenizer

    words = dict.fromkeys(word for text in texts for word in _words(text, tags))
    return word_tokenizer([word for word in words if word not in SPECIAL_TOKENS], tags, length)


def _model(tokenizer: Any, seed: int) -> Any:
    from rl_agents.envs.small_model import small_qwen3

    return small_qwen3(tokenizer, seed)


def _imitation() -> dict[str, Any]:
    from rl_agents.envs.small_model import IMITATION

    return dict(IMITATION)


def _version(made_by: Any) -> int:
    """Return a number that changes with the files that the environment's class and its bases stand in.

    Files, because what a player says depends on their constants and functions, too.
    """
    texts: dict[str, bytes] = {}
    for part in getattr(made_by, "__mro__", (made_by,)):
        with contextlib.suppress(OSError, TypeError):  # without a file: built in, or typed in
            name = inspect.getfile(part)
            texts[name] = texts.get(name) or Path(name).read_bytes()
    return zlib.crc32(b"".join(texts.values()))
