"""PivotRL's data: profiles of turns with the frozen initial policy (equation 4), and the choice of pivots (equation 5).

A profile has K rollouts of every turn and can be resumed. Chosen are pivots, or random turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rl_agents.algorithms.pivotrl import exact_miss_rate, turn_profile
from rl_agents.data.tasks import stream_seed
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.durable import read_json, replace_text
from rl_agents.errors import InputError
from rl_agents.traces.store import PROFILE_FILE, read_table, write_turns
from rl_agents.traces.turns import Turn

if TYPE_CHECKING:
    import pyarrow

    from rl_agents.trainer.algorithm import AgentAlgorithm

Floats = NDArray[np.float64]
PARTS, KEY_FILE = "profile_parts", "profile_key.json"
UNIFORM = 1e-9


@dataclass(frozen=True, slots=True)
class TurnOutcomes:
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
    on_progress: Callable[[Sequence[TurnOutcomes]], None],
) -> list[TurnOutcomes]:
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
    done: list[TurnOutcomes] = []
    for number, start in enumerate(range(0, len(turns), chunk)):
        group, path = turns[start : start + chunk], parts / f"{number:06d}.json"
        found = _read_part(path)
        if found is None:
            found = _play_chunk(player, group, rollouts, seed)
            rows = [[o.turn_id, list(o.scores), list(o.exact), o.judge_failures, o.tokens] for o in found]
            replace_text(path, json.dumps(rows))
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
        found = read_json(path, dict)
        for name in [*wanted, *found]:
            if found.get(name) != wanted.get(name):
                raise InputError(
                    f"{folder}: holds a profile with {name}={found.get(name)}, not {wanted.get(name)}; name another "
                    "--output, or delete it"
                )
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(wanted, indent=1))


def write_profile(folder: Path, turns: Sequence[Turn], outcomes: Sequence[TurnOutcomes]) -> Path:
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


def profile_summary(outcomes: Sequence[TurnOutcomes]) -> dict[str, float]:
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


def _play_chunk(player: AgentAlgorithm, turns: Sequence[Turn], rollouts: int, seed: int) -> list[TurnOutcomes]:
    specs = [
        EpisodeSpec(turn.turn_id, group, member, stream_seed(seed, int(turn.turn_id, 16), member))
        for group, turn in enumerate(turns)
        for member in range(rollouts)
    ]
    played = player.play(specs)
    groups = (played[start : start + rollouts] for start in range(0, len(played), rollouts))
    return [_outcomes(turn, group) for turn, group in zip(turns, groups, strict=True)]


def _outcomes(turn: Turn, played: Sequence[Trajectory]) -> TurnOutcomes:
    good = [t for t in played if t.steps and not t.failed]
    return TurnOutcomes(
        turn_id=turn.turn_id,
        scores=tuple(t.episode_return for t in good),
        exact=tuple(t.metrics["exact"] for t in good),
        judge_failures=int(sum(t.metrics["judge_failed"] for t in good)),
        tokens=sum(t.response_tokens for t in good),
    )


def _read_part(path: Path) -> list[TurnOutcomes] | None:
    if not path.is_file():
        return None
    return [
        TurnOutcomes(name, tuple(scores), tuple(exact), failures, tokens)
        for name, scores, exact, failures, tokens in read_json(path, list)
    ]


# --- the choice of turns


@dataclass(frozen=True, slots=True)
class PivotRule:
    """The conditions of a pivot.

    Attributes:
        max_mean: λ_diff (μ̂ < λ_diff); the paper does not publish its value.
        min_variance: larger σ̂² count as above 0.
        at_most: number of hardest turns (lowest μ̂) to keep; 0 keeps all.
    """

    max_mean: float = 0.6
    min_variance: float = 1e-9
    at_most: int = 0


def choose_pivots(mean: Floats, variance: Floats, names: Sequence[str], rule: PivotRule) -> NDArray[np.bool_]:
    """Return which turns are pivots, [turns] bool. Names break ties at the limit ``at_most``.

    Args:
        mean, variance: μ̂ and population σ̂² of every turn.
    """
    keep: NDArray[np.bool_] = (variance > rule.min_variance) & (mean < rule.max_mean)
    if rule.at_most and keep.sum() > rule.at_most:
        order = sorted(np.flatnonzero(keep), key=lambda i: (mean[i], names[i]))
        keep = np.zeros_like(keep)
        keep[order[: rule.at_most]] = True
    return keep


def choose_at_random(turns: int, count: int, seed: int) -> NDArray[np.bool_]:
    """Return ``count`` random turns, [turns] bool (the paper's random pivots)."""
    keep = np.zeros(turns, dtype=bool)
    keep[np.random.default_rng(seed).permutation(turns)[:count]] = True
    return keep


def read_profile(path: Path) -> tuple[pyarrow.Table, Floats, Floats]:
    """Read a profile: its table, and μ̂ and σ̂² of its turns.

    Raises:
        InputError: no such file, or turns without a profile.
    """
    table = read_table(path)
    if "mean" not in table.column_names:
        raise InputError(f"{path}: turns without a profile; run `run.py pivot profile` first")
    return table, table.column("mean").to_numpy(), table.column("variance").to_numpy()


def plot_profile(
    mean: Floats, variance: Floats, keep: NDArray[np.bool_], rule: PivotRule, path: Path, title: str
) -> None:
    """Plot every pair (μ̂, σ̂²) as a disc whose area is its number of turns.

    For scores 0 and 1 the discs are on σ² = μ(1 - μ).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=120, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    line = np.linspace(0, 1, 101)
    axes.plot(line, line * (1 - line), color="#d1d5db", linewidth=1, zorder=1)
    axes.axvspan(0, rule.max_mean, color="#0072b2", alpha=0.06, linewidth=0)
    points, counts = np.unique(np.stack([mean, variance, keep], axis=1).round(6), axis=0, return_counts=True)
    for chosen, color, label in ((0, "#9ca3af", "excluded"), (1, "#0072b2", "pivots")):
        at = points[:, 2] == chosen
        total = int(counts[at].sum())
        area = 30 + 900 * counts[at] / len(mean)
        axes.scatter(
            points[at, 0],
            points[at, 1],
            s=area,
            color=color,
            alpha=0.8,
            label=f"{label}: {total} turns",
            zorder=2 + chosen,
        )
    uniform = variance <= rule.min_variance
    for place, side, inward in ((0.0, "left", 1), (1.0, "right", -1)):
        share = float(np.mean(uniform & (np.abs(mean - place) < 1e-9)))
        axes.annotate(
            f"{share:.0%} always {place:.0f}",
            (place, 0),
            xytext=(22 * inward, 0),  # next to the disc and below the curve
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=13,
        )
    axes.set_title(f"{title}\narea: number of turns; {uniform.mean():.0%} are uninformative (σ² = 0)", fontsize=14)
    axes.set_xlabel("mean score μ of the initial policy; shaded: below λ", fontsize=13)
    axes.set_ylabel("variance σ² of the scores", fontsize=13)
    axes.set_ylim(-0.02, max(0.3, float(variance.max()) * 1.15 if len(variance) else 0.3))
    axes.set_xlim(-0.06, 1.06)
    axes.tick_params(labelsize=12)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=12.5, frameon=False, loc="outside lower center", ncols=2, markerscale=0.5)
    figure.savefig(path)
