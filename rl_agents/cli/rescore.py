"""``python run.py rescore``: how the advantages of recorded groups would change with another reward or judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl_agents.advantages import group_statistics, grpo
from rl_agents.algorithms import Settings
from rl_agents.cli.parser import Parser
from rl_agents.config.loading import merge_flags
from rl_agents.config.options import keys_of
from rl_agents.config.sections import RewardKeys
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError, unknown
from rl_agents.reporting.run_folder import RunFolder, json_safe, restored_settings
from rl_agents.rewards.base import Reward, make_reward
from rl_agents.rewards.judges import check_judge
from rl_agents.store.files import pool_file
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer.unused_keys import idle_keys

#: Sessions whose groups are compared: siblings of searches have the rewards of their search.
KINDS = ("episode", "gateway")


class Scored(NamedTuple):
    """An episode's return as recorded and with the other reward; ``group`` is unique over iterations."""

    iteration: int
    group: tuple[int, int, str]
    before: float
    after: float


def run(argv: Sequence[str]) -> int:
    parser = Parser("rescore", "Score recorded episodes with another reward or judge. Nothing is sampled or changed.")
    parser.add_argument("run", metavar="RUN", help="a run folder or a pool file")
    parser.add_settings_flag()
    parser.add_count("--iteration", None, "only episodes of this iteration")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    args = parser.parse(argv)
    pool = pool_file(args.run)
    settings = reward_settings(RunFolder(pool.parent), merge_flags(args.set, {}))
    reward, scored, total = make_reward(settings), list[Scored](), 0
    with PoolReader(pool) as reader:
        numbers = [row[0] for row in reader.rows("SELECT DISTINCT iteration FROM sessions ORDER BY iteration")]
        if args.iteration is not None and args.iteration - 1 not in numbers:
            raise InputError(f"--iteration {args.iteration}: {pool} has {numbers[0] + 1} to {numbers[-1] + 1}")
        for number in numbers if args.iteration is None else [args.iteration - 1]:
            episodes = rescored(reader, number, reward, settings.reward)
            total, scored = total + len(episodes), scored + [one for one in episodes if one is not None]
    sizes = Counter(one.group for one in scored)
    compared = [one for one in scored if sizes[one.group] > 1]
    if not compared:
        raise InputError(f"{pool}: none of {total} episodes has a score and another one in its group to compare with")
    found = {n: changes(own) for n in numbers if (own := [one for one in compared if one.iteration == n])}
    report = {"reward": settings.reward, "not_compared": total - len(compared), **changes(compared)}
    rows: dict[str, Mapping[str, Any]] = {"all": report, **{str(number + 1): part for number, part in found.items()}}
    print(json.dumps(json_safe(rows)) if args.json else table(rows))
    return 0


def reward_settings(folder: RunFolder, given: Mapping[str, Any]) -> Settings:
    """Return a run's settings with other rewards; those of a pool alone are the defaults.

    Raises:
        InputError: no key, one that is not a reward's or has no effect, or a judge without a server.
    """
    if not given:
        raise InputError("rescore needs another reward or judge: --set reward=NAME")
    settings = restored_settings(folder.config_file) if folder.config_file.is_file() else Settings()
    known = {*keys_of(RewardKeys), "plugins"}
    if wrong := [name for name in given if name not in known]:
        raise unknown("key of rewards", wrong[0], known)
    settings.update(given)
    for name, reason in idle_keys(settings).items():
        if name in given:
            raise InputError(f"key '{name}' {reason}")
    if settings.reward == "prs":
        check_judge(settings)
    return settings


def rescored(reader: PoolReader, iteration: int, reward: Reward, name: str) -> list[Scored | None]:
    """Score the episodes of an iteration again; None: it failed then or now. Raises `InputError` if all fail now."""
    stored = [one for kind in KINDS for one in reader.stored(StoreQuery(iteration=iteration, kind=kind))]
    played = [(one.total, _of_environment(reader.trajectory(one))) for one in stored if not one.session.failed]
    reward.apply([episode for _, episode in played])
    if played and all(episode.failed for _, episode in played):
        cause = played[0][1].end_cause.removeprefix("judge_error: ")
        raise InputError(f"reward={name} scored none of {len(played)} episodes of iteration {iteration + 1}: {cause}")
    given = [(before, e, (iteration, e.group_id, e.task_id)) for before, e in played if not e.failed]
    scored = [Scored(iteration, group, before, e.episode_return) for before, e, group in given]
    return [*scored, *[None] * (len(stored) - len(scored))]


def _of_environment(episode: Trajectory) -> Trajectory:
    """Give an episode its environment's return again if a reward replaced it; the last step earns all of it."""
    if "environment_return" in episode.facts:
        for step in episode.steps:
            step.reward = 0.0
        episode.steps[-1].reward = episode.facts["environment_return"]
    return episode


def changes(scored: Sequence[Scored]) -> dict[str, float | None]:
    """Compare the standardized advantages A = (R - μ_g)/(σ_g + ε) of both returns, in groups of two or more.

    ``correlation`` is Pearson's over the episodes; None if all advantages of one reward are 0. ``signs_changed`` is the
    share of the episodes with two advantages other than 0 whose signs differ; None if there are none. Groups become
    equal if only their recorded returns differ, and unequal if only the new ones do.
    """
    names = {group: number for number, group in enumerate(dict.fromkeys(one.group for one in scored))}
    groups = [names[one.group] for one in scored]
    returns = np.array([(one.before, one.after) for one in scored]).T
    old, new = (grpo(values, groups) for values in returns)
    first = np.unique(groups, return_index=True)[1]
    was, now = (group_statistics(values, groups).equal[first] for values in returns)
    both = (old != 0) & (new != 0)
    return {
        "episodes": len(scored), "groups": len(names),
        "return_before": float(returns[0].mean()), "return_after": float(returns[1].mean()),
        "correlation": float(np.corrcoef(old, new)[0, 1]) if old.any() and new.any() else None,
        "signs_changed": float(np.mean(old[both] * new[both] < 0)) if both.any() else None,
        "groups_equal_before": int(was.sum()), "groups_become_equal": int((now & ~was).sum()),
        "groups_become_unequal": int((was & ~now).sum()),
    }  # fmt: skip


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    names = [name for name in rows["all"] if name not in ("reward", "not_compared")]
    cells = [[head, *("-" if row[n] is None else f"{row[n]:.3g}" for n in names)] for head, row in rows.items()]
    lines = [["iteration", *(name.replace("_", " ") for name in names)], ["---"] * (len(names) + 1), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
