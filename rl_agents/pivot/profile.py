"""Profiling: K rollouts of every turn with the frozen initial policy (PivotRL, equation 4). It can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agents.algorithms.pivotrl import exact_miss_rate, turn_profile
from rl_agents.data.tasks import stream_seed
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.durable import replace_text
from rl_agents.errors import InputError
from rl_agents.traces.store import PROFILE_FILE, write_turns
from rl_agents.traces.turns import Turn

if TYPE_CHECKING:
    from rl_agents.trainer.algorithm import AgentAlgorithm

PARTS, KEY_FILE = "profile_parts", "profile_key.json"
UNIFORM = 1e-9


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Results of the rollouts of one turn.

    Attributes:
        scores: of the verifier, one per rollout.
        exact: 1 if the action equals the demonstration, one per rollout.
        judge_failures: number of rollouts without a verdict; their score is 0.
        tokens: sampled tokens of all rollouts.
    """

    turn_id: str
    scores: tuple[float, ...]
    exact: tuple[float, ...]
    judge_failures: int
    tokens: int


def profile_turns(
    player: AgentAlgorithm,
    turns: Sequence[Turn],
    folder: Path,
    *,
    rollouts: int,
    chunk: int,
    seed: int,
    on_progress: Callable[[Sequence[Outcomes]], None],
) -> list[Outcomes]:
    """Run ``rollouts`` episodes of every turn, and skip those that an interrupted call has finished.

    Every finished chunk becomes a part file. Seeds depend only on (seed, turn, member).

    Args:
        folder: of the parts; see `claim_folder`.
        rollouts: K.
        chunk: turns per part, which run concurrently.
        on_progress: receives all outcomes so far after every chunk.

    Returns:
        One entry per turn, in order. If all episodes of a turn failed, it has no scores.
    """
    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    done: list[Outcomes] = []
    for number, start in enumerate(range(0, len(turns), chunk)):
        group, path = turns[start : start + chunk], parts / f"{number:06d}.json"
        found = _read_part(path)
        if found is None:
            found = _play_chunk(player, group, rollouts, seed)
            _write_part(path, found)
        done += found
        on_progress(done)
    return done


def count_parts(folder: Path) -> int:
    return len(list((folder / PARTS).glob("*.json")))


def claim_folder(folder: Path, key: Mapping[str, Any]) -> None:
    """Reserve ``folder`` for the profile that ``key`` describes.

    Raises:
        InputError: it has parts of another profile; the message has the first difference.
    """
    path, wanted = folder / KEY_FILE, json.loads(json.dumps(dict(key)))
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        for name in [*wanted, *found]:
            if found.get(name) != wanted.get(name):
                raise InputError(
                    f"{folder}: holds a profile with {name}={found.get(name)}, not {wanted.get(name)}; name another "
                    "--output, or delete it"
                )
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(wanted, indent=1))


def write_profile(folder: Path, turns: Sequence[Turn], outcomes: Sequence[Outcomes]) -> Path:
    """Write the turns that have scores with their profiles."""
    pairs = [(turn, found) for turn, found in zip(turns, outcomes, strict=True) if found.scores]
    profile = turn_profile([found.scores for _, found in pairs])
    further = {
        "mean": profile.mean.tolist(),
        "variance": profile.variance.tolist(),
        "scores": [list(found.scores) for _, found in pairs],
        "exact": [list(found.exact) for _, found in pairs],
        "judge_failures": [found.judge_failures for _, found in pairs],
        "tokens": [found.tokens for _, found in pairs],
    }
    path = folder / PROFILE_FILE
    write_turns(path, [turn for turn, _ in pairs], further)
    return path


def profile_summary(outcomes: Sequence[Outcomes]) -> dict[str, float]:
    """Return the statistics of a profile.

    ``uninformative_share`` is the share of turns with σ̂² = 0 (the paper: 71 %), which is the sum of ``solved_share``
    and ``failed_share`` for scores 0 and 1. ``exact_miss_rate`` is Pr[r_strict = 0 | r_func = 1], or null if no rollout
    was acceptable.
    """
    scored = [found for found in outcomes if found.scores]
    if not scored:
        return {"turns": 0.0}
    profile = turn_profile([found.scores for found in scored])
    uniform = profile.variance <= UNIFORM
    scores = [score for found in scored for score in found.scores]
    exact = [value for found in scored for value in found.exact]
    return {
        "turns": float(len(scored)),
        "rollout_turns": float(len(scores)),
        "sampled_tokens": float(sum(found.tokens for found in scored)),
        "mean_score": float(profile.mean.mean()),
        "uninformative_share": float(uniform.mean()),
        "solved_share": float((uniform & (profile.mean >= 1.0)).mean()),
        "failed_share": float((uniform & (profile.mean <= 0.0)).mean()),
        "exact_miss_rate": exact_miss_rate(scores, exact),
        "judge_failures": float(sum(found.judge_failures for found in scored)),
        "turns_without_scores": float(len(outcomes) - len(scored)),
    }


def _play_chunk(player: AgentAlgorithm, turns: Sequence[Turn], rollouts: int, seed: int) -> list[Outcomes]:
    specs = [
        EpisodeSpec(turn.turn_id, group, member, stream_seed(seed, int(turn.turn_id, 16), member))
        for group, turn in enumerate(turns)
        for member in range(rollouts)
    ]
    played = player.play(specs)
    groups = (played[start : start + rollouts] for start in range(0, len(played), rollouts))
    return [_outcomes(turn, group) for turn, group in zip(turns, groups, strict=True)]


def _outcomes(turn: Turn, played: Sequence[Trajectory]) -> Outcomes:
    good = [t for t in played if t.steps and not t.failed]
    return Outcomes(
        turn_id=turn.turn_id,
        scores=tuple(t.episode_return for t in good),
        exact=tuple(t.metrics["exact"] for t in good),
        judge_failures=int(sum(t.metrics["judge_failed"] for t in good)),
        tokens=sum(t.response_tokens for t in good),
    )


def _write_part(path: Path, outcomes: Sequence[Outcomes]) -> None:
    rows = [[o.turn_id, list(o.scores), list(o.exact), o.judge_failures, o.tokens] for o in outcomes]
    replace_text(path, json.dumps(rows))


def _read_part(path: Path) -> list[Outcomes] | None:
    if not path.is_file():
        return None
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [
        Outcomes(name, tuple(scores), tuple(exact), failures, tokens) for name, scores, exact, failures, tokens in rows
    ]
