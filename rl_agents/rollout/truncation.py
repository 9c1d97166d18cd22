"""T3: rules for when to truncate an episode that no longer makes progress (definition 2, section 3 and table 3).

The agent loop handles what follows (asking for the answer now, or ending with reward 0). Truncation is for training
only, never for evaluation. A turn that the environment could not parse never fires a rule, and counts neither as a
stall nor as progress, so that a malformed action has the same consequences with and without truncation.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rl_agents.config import Settings
from rl_agents.envs.base import EnvSpec, env_spec
from rl_agents.errors import InputError, unknown
from rl_agents.installation import pip_install
from rl_agents.plugins import Entry, claim
from rl_agents.tools.thoughts import read_thoughts

Vector = NDArray[np.float32]
BUCKETS = 4096


#: Text -> a vector of length 1, or of length 0 for a text without content.
Embedder = Callable[[str], Vector]


def hashed_ngrams(text: str) -> Vector:
    """Return the counts of a text's character 2-grams and 3-grams, hashed into 4,096 buckets and scaled to length 1.

    Needs no model and no download. It compares wording, not meaning: a paraphrase counts as a new question. Case and
    white space do not matter.
    """
    vector = np.zeros(BUCKETS, dtype=np.float32)
    words = " ".join(text.casefold().split())
    padded = f" {words} " if words else ""
    for size in (2, 3):
        for start in range(len(padded) - size + 1):
            # crc32, because Python's own hash differs from process to process
            vector[zlib.crc32(padded[start : start + size].encode()) % BUCKETS] += 1.0
    return normalized(vector)


def normalized(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=2)  # shared by the env runners of a process
def make_embedder(name: str) -> Embedder:
    """Return the embedder of the key ``truncation_embedder``: `hashed_ngrams`, or a local sentence-transformers model,
    such as a copy of E5-large-v2 (the paper's).

    Raises:
        InputError: no such folder, no sentence-transformers, or a folder that it cannot load.
    """
    if name == "ngrams":
        return hashed_ngrams
    if not Path(name).is_dir():
        raise InputError(f"truncation_embedder={name}: neither `ngrams` nor a model folder")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        install = f"pip install {pip_install('similarity')}"
        raise InputError(f"truncation_embedder={name} needs sentence-transformers: {install}") from error
    try:
        model = SentenceTransformer(name, local_files_only=True)
    except Exception as error:  # the loaders raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"truncation_embedder={name}: cannot be loaded: {reason}") from error
    return lambda text: normalized(np.asarray(model.encode(text, show_progress_bar=False), dtype=np.float32))


StallMode = Literal["consecutive", "cumulative"]


#: The request for the answer if the environment has no instruction of its own.
ANSWER_INSTRUCTION = "You have no further turns to ask or act. Give your final answer now, in the form the task asks."


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """The facts about a turn that a rule uses.

    Attributes:
        number: 1 for the first turn.
        valid: the environment could parse the action.
        progress: ``info["progress"]``; None if the environment does not report it.
        action: the whole response.
        query: the question in it as reported by the environment; empty if it reports none.
    """

    number: int
    valid: bool
    progress: bool | None
    action: str
    query: str = ""


class Rule(Protocol):
    def fires(self, turn: TurnFacts) -> bool:
        """Note a turn; return whether the episode is truncated after it."""
        ...


@dataclass(slots=True)
class StallRule:
    """T3, definition 2: fires at the k-th step without progress.

    Attributes:
        k: number of stalls that fires, >= 1.
        mode: ``consecutive``: progress resets the count (paper);  ``cumulative``: it does not (released code for
            CircuitDecoding).
        minimum_turns: never fire before this turn (τ² uses 6).

    >>> rule = StallRule(k=2)
    >>> [rule.fires(TurnFacts(n, True, moved, "")) for n, moved in enumerate((False, True, False, False), 1)]
    [False, False, False, True]
    """

    k: int
    mode: StallMode = "consecutive"
    minimum_turns: int = 0
    stalled: list[int] = field(default_factory=list)

    def fires(self, turn: TurnFacts) -> bool:
        """See `Rule.fires`; ``progress`` None is neither a stall nor progress."""
        if not turn.valid or turn.progress is None:
            return False
        if not turn.progress:
            self.stalled.append(turn.number)
        elif self.mode == "consecutive":
            self.stalled.clear()
        return len(self.stalled) >= self.k and turn.number >= self.minimum_turns

    def reasons(self) -> dict[str, Any]:
        return {"stalled_turns": list(self.stalled), "window": self.k}


@dataclass(slots=True)
class SimilarityRule:
    """Fires if the question resembles an earlier one of the episode: max cosine > α (table 3: 0.9, 0.93, 0.96)."""

    embedder: Embedder
    threshold: float
    minimum_turns: int = 0
    asked: list[Vector] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    nearest: float = -1.0
    like: int = 0

    def fires(self, turn: TurnFacts) -> bool:
        if not turn.valid:
            return False
        vector = self.embedder(turn.query or question_of(turn.action))
        cosines = [float(vector @ earlier) for earlier in self.asked]
        self.nearest = max(cosines, default=-1.0)
        self.like = self.turns[cosines.index(self.nearest)] if cosines else 0
        self.asked.append(vector)
        self.turns.append(turn.number)
        return turn.number >= self.minimum_turns and self.nearest > self.threshold

    def reasons(self) -> dict[str, Any]:
        return {"cosine": round(self.nearest, 4), "like_turn": self.like, "threshold": self.threshold}


@dataclass(slots=True)
class RandomRule:
    """Fires with probability β at every step (table 3), the control for the other rules."""

    stream: random.Random
    beta: float
    minimum_turns: int = 0

    def fires(self, turn: TurnFacts) -> bool:
        return turn.valid and self.stream.random() < self.beta and turn.number >= self.minimum_turns

    def reasons(self) -> dict[str, Any]:
        return {"beta": self.beta}


def reasons(rule: Rule | None) -> dict[str, Any]:
    """Return the values that made a rule fire, as plain JSON; for a plugin's rule those of its ``reasons()``."""
    said = getattr(rule, "reasons", None)
    return dict(said()) if said is not None else {}


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a run truncates its training episodes.

    Attributes:
        after: ``force_answer``, ``zero`` or ``keep_prefix``, see `rl_agents.rollout.agent_loop`.
        start: creates a fresh rule from the episode's seed.
    """

    name: str
    after: str
    start: Callable[[int], Rule]

    @classmethod
    def from_settings(cls, settings: Settings) -> Truncation | None:
        """Read the keys of a run; None for ``truncation=none``.

        Raises:
            InputError: the environment reports no progress, or the embedder cannot be loaded.
        """
        if settings.truncation == "none":
            return None
        return cls(settings.truncation, settings.truncation_after, RULES[settings.truncation].build(settings))


def progress_window(settings: Settings, spec: EnvSpec) -> int:
    """Return k: the key, or the environment's own.

    Raises:
        InputError: neither, because the environment reports no progress.
    """
    window = settings.truncation_window or spec.progress_window
    if not window:
        raise InputError(
            f"truncation=t3: environment {spec.name} has no progress rule; where its info['progress'] says whether a "
            f"step made progress, set truncation_window; else take truncation=similarity"
        )
    return window


def question_of(action: str) -> str:
    """Return an action without its thoughts and without tags."""
    return " ".join(re.sub(r"</?[A-Za-z][\w-]*>", " ", read_thoughts(action).words).split())


def _stall(settings: Settings) -> Callable[[int], Rule]:
    window = progress_window(settings, env_spec(settings.env))
    mode: StallMode = settings.truncation_stall
    minimum = settings.truncation_min_turns
    return lambda seed: StallRule(window, mode, minimum)


def _similarity(settings: Settings) -> Callable[[int], Rule]:
    embedder = make_embedder(settings.truncation_embedder)
    threshold, minimum = settings.truncation_similarity, settings.truncation_min_turns
    return lambda seed: SimilarityRule(embedder, threshold, minimum)


def _random(settings: Settings) -> Callable[[int], Rule]:
    beta, minimum = settings.truncation_beta, settings.truncation_min_turns
    return lambda seed: RandomRule(random.Random(_rule_seed(seed)), beta, minimum)


def _rule_seed(episode_seed: int) -> int:
    """Derive a stream that is independent of the sampling seeds of the steps."""
    return int(np.random.SeedSequence(episode_seed, spawn_key=(0, 1)).generate_state(1, np.uint64)[0])


#: ``build`` returns what creates a rule from an episode's seed.
RULES: dict[str, Entry] = {
    name: Entry(name, f"ask for the answer {when}", f"T3 (arXiv 2510.12264), {place}", build)
    for name, when, place, build in (
        ("t3", "after k steps that narrow nothing down, by the environment's progress rule", "definition 2", _stall),
        ("similarity", "when a question resembles an earlier one, cosine above alpha",
         "section 3.3.3 and table 3 (alpha)", _similarity),
        ("random", "with probability beta at every step: the control for the other two",
         "section 3.3.3 and table 3 (beta)", _random),
    )
}  # fmt: skip


def register(entry: Entry) -> None:
    """Add a truncation rule of a plugin.

    Raises:
        InputError: its name is taken.
    """
    claim("truncation rule", entry.name, {**RULES, "none": None})
    RULES[entry.name] = entry


def check_rule(settings: Settings) -> None:
    """Raise `InputError` with the nearest name if the rule of ``truncation`` does not exist."""
    if settings.truncation not in ("none", *RULES):
        raise unknown("truncation", settings.truncation, ["none", *RULES])
