"""Rewards that can be earned without doing the task: ``python -m benchmarks.reward_attacks``.

Scripted players (`benchmarks.attack_players`) play test tasks of every built-in environment except ``mcp``, which
has no tasks: the best constant, copy, shotgun and random player. Constants are chosen on training tasks. ``paper``
marks measures of a paper, which stay unchanged; ``ours`` marks those that may change. The result is the mean reward;
that of PRS is divided by its highest value. It needs no network and no model, and is deterministic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import attack_players as players
from benchmarks import pivot_attacks
from benchmarks.attack_players import Game, Player, Trial
from benchmarks.report import command_line, markdown, write_figures
from rl_agents.config import Settings
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.envs.base import make_env, starter_spec, task_ids
from rl_agents.rewards.base import make_reward

KINDS = ("constant", "copy", "shotgun", "random")
SEED = 0
#: Highest totals of the two forms of PRS.
PRS_MOST = {"short": 2.1, "long": 3.1}


@dataclass(frozen=True)
class Setting:
    """A reward and the attacks on it.

    Attributes:
        measure: ``paper`` or ``ours``.
        options: in addition to the defaults of the environment, or of its warm-start model.
        starter: use the options of the warm-start model.
        prs: form of PRS that replaces the environment's reward.
    """

    env: str
    name: str
    measure: str
    attacks: Callable[[Trial], Mapping[str, Mapping[str, Player]]]
    options: Mapping[str, Any]
    starter: bool = False
    prs: str = ""

    def resolved(self) -> dict[str, Any]:
        if not self.starter:
            return dict(self.options)
        defaults = starter_spec(self.env).defaults
        return {k.removeprefix("env."): v for k, v in defaults.items() if k.startswith("env.")} | dict(self.options)


def main() -> None:
    everything = {"envs": sorted({setting.env for setting in SETTINGS} | {"pivot"}), "tasks": 100}
    args = command_line(__doc__, everything).parse_args()
    rows = [attack(setting, args.tasks) for setting in SETTINGS if setting.env in args.envs]
    rows += pivot_attacks.rows() if "pivot" in args.envs else []
    print(table(rows))
    if vars(args) == everything:
        write_figures("reward_attacks", "python -m benchmarks.reward_attacks", {"tasks": args.tasks, "rows": rows})


def attack(setting: Setting, tasks: int) -> dict[str, Any]:
    """Run every attack; return the best of each kind with its name."""
    trial = Trial.of(setting.env, setting.resolved())
    found: dict[str, Any] = {}
    for kind, candidates in setting.attacks(trial).items():
        scores = {name: mean_reward(setting, trial, player, tasks) for name, player in candidates.items()}
        name = max(scores, key=lambda candidate: scores[candidate])
        found[kind] = {"player": name, "reward": round(scores[name], 4)}
    return {"env": setting.env, "setting": setting.name, "measure": setting.measure, **found}


def mean_reward(setting: Setting, trial: Trial, player: Player, tasks: int) -> float:
    env = make_env(trial.env, trial.options)
    ids = task_ids(trial.env, "test", trial.options)[:tasks]
    episodes = [play(env, task, player, random.Random(f"{SEED}/{task}")) for task in ids]
    if setting.prs:
        keys = {"reward": "prs", "prs_form": setting.prs, "prs_tags": ["answer"]}
        make_reward(Settings.from_dict(keys)).apply(episodes)
    return sum(episode.episode_return for episode in episodes) / len(ids) / PRS_MOST.get(setting.prs, 1.0)


def play(env: Any, task: str, player: Player, rng: random.Random) -> Trajectory:
    """Play one episode and keep the parts that rewards read."""
    observation, info = env.reset(options={"task_id": task})
    game = Game(env, task, rng, observation, info)
    steps: list[Step] = []
    over = False
    while not over:
        shown, action = game.observation, player(game)
        game.said.append(action)
        game.observation, reward, terminated, truncated, game.info = env.step(action)
        valid = bool(game.info.get("valid", True))
        steps.append(Step([0], [0], [0.0], 0, "stop", shown, "", action, reward=float(reward), valid=valid))
        over = terminated or truncated
    facts = {name: game.info[name] for name in ("references", "evidence", "points") if name in game.info}
    return Trajectory(task, 0, 0, 0, steps, terminated=True, end_cause="terminated", facts=facts)


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        attacks = [f"{row[kind]['reward']:.2f} {row[kind]['player']}" if kind in row else "-" for kind in KINDS]
        lines.append([row["env"], row["setting"], row["measure"], *attacks])
    return markdown(("environment", "reward", "measure", *KINDS), lines)


def _told(
    trial: Trial, constant: str = "most frequent answer", other: str = "another task's answer"
) -> dict[str, dict[str, Player]]:
    """Return players that answer as training tasks do: with the most frequent answer, or with any."""
    frequent = Counter(trial.references).most_common(1)[0][0]
    return {"constant": {constant: players.answer(frequent)}, "random": {other: players.chosen(trial.references)}}


def _all(trial: Trial) -> Player:
    return players.answer(" ".join(sorted(set(trial.references))))


def _circuits(trial: Trial) -> dict[str, dict[str, Player]]:
    listed = " ".join(map(str, range(1, 11)))
    return {
        "constant": {"first candidates": players.answer("1, 1"), "another pair": players.answer("1, 2")},
        "shotgun": {"all candidates": players.answer(listed)},
        "random": {"any candidates": players.any_candidates},
    }


def _codes(trial: Trial) -> dict[str, dict[str, Player]]:
    return {**_told(trial), "shotgun": {"all codes": _all(trial)}}


def _movies(trial: Trial) -> dict[str, dict[str, Player]]:
    return {"constant": {"equal weights": players.best_by_sum}, "random": {"any movie": players.any_movie}}


def _weights(trial: Trial) -> dict[str, dict[str, Player]]:
    size = len(trial.references[0].split(","))
    equal = {"equal weights": players.answer(",".join(["1"] * size))}
    return {**_told(trial, other="another task's weights"), "constant": equal}


def _stories(trial: Trial) -> dict[str, dict[str, Player]]:
    def surface(game: Game) -> str:
        return f"<answer> {game.env.state.puzzle.surface} </answer>"

    told = _told(trial, "a story", "another story")
    soups = {f"{unit} soup": players.answer(players.soup(trial, unit)) for unit in ("word", "char")}
    return {**told, "constant": {**told["constant"], **soups}, "copy": {"the surface": surface}}


def _hops(trial: Trial) -> dict[str, dict[str, Player]]:
    def searched(reply: Callable[[Game], str]) -> Player:
        return players.searching(players.whole_question, reply, trial.style)

    return {
        **_told(trial),
        "copy": {"first title": searched(players.first_title), "first passage": searched(players.first_words)},
        "shotgun": {"all titles": searched(players.all_titles), "all answers": _all(trial)},
    }


def _long(trial: Trial) -> dict[str, dict[str, Player]]:
    def pasted(share: float, queries: Callable[[Game], Any] = players.whole_question) -> Player:
        return players.searching(queries, players.pasted(share), trial.style)

    shares = {"twelve sentences": 0.0, "1 sentence a part": 1.0, "1.5 a part": 1.5, "2 a part": 2.0}
    copies = {
        f"{what} found{where}": pasted(share, queries)
        for what, share in shares.items()
        for where, queries in (("", players.whole_question), (", a search a part", players.every_part))
    }
    everything = {"all there is": players.answer(players.all_of_the_almanac())}
    return {**_told(trial, "an answer", "another answer"), "copy": copies, "shotgun": everything}


def _papers(trial: Trial) -> dict[str, dict[str, Player]]:
    return {
        "copy": {"the request": players.paper_calls(players.request_once)},
        "shotgun": {"expands all": players.paper_calls(players.expand_all)},
        "random": {"any words": players.paper_calls(players.any_word)},
    }


def _house(trial: Trial) -> dict[str, dict[str, Player]]:
    return {
        "constant": {"what won another task": players.replayed(trial)},
        "shotgun": {"least tried command": players.least_tried(trial.style)},
        "random": {"any command": players.any_admissible(trial.style)},
    }


def _shop(trial: Trial) -> dict[str, dict[str, Player]]:
    return {
        "constant": {"first of a search": players.first_result(lambda game: "shoes", "3spo")},
        "copy": {"first of the request": players.first_result(players.goal_words, "3spo")},
        "random": {"any action": players.any_admissible("3spo")},
    }


def _both(env: str, name: str, attacks: Any, prompt: str = "paper") -> list[Setting]:
    """Return the default setting, and that of the warm-start model, for which models were trained."""
    plain = Setting(env, name, "paper", attacks, {})
    return [plain, replace(plain, name=f"{name}, starter's tasks", options={"prompt": prompt}, starter=True)]


_LONG = Setting("long_form_qa", "pass", "ours", _long, {})
_HOPS = Setting("multihop_qa", "em", "paper", _hops, {})
_BAGS = Setting("situation_puzzles", "word F1", "paper", _stories, {})
_SHOP = Setting("webshop", "score", "paper", _shop, {})
_BOUGHT = {"prompt": "3spo", "reward": "success", "success_reward": 1.0}
SETTINGS = [
    *_both("guess_numbers", "exact", _codes),
    *_both("circuit_decoding", "exact", _circuits),
    *_both("movie_recommendation", "best movie", _movies),
    *_both("preference_estimation", "cosine", _weights),
    _BAGS,
    replace(_BAGS, name="character F1", options={"f1": "char"}),
    _HOPS,
    replace(_HOPS, name="F1", options={"reward": "f1"}),
    replace(_HOPS, name="em, starter's tasks", starter=True),
    replace(_HOPS, name="PRS, short form, of 2.1", prs="short"),
    _LONG,
    replace(_LONG, name="match", options={"reward": "match"}),
    replace(_LONG, name="points", options={"reward": "points"}),
    replace(_LONG, name="pass, starter's tasks", starter=True),
    replace(_LONG, name="PRS, long form, of 3.1", measure="paper", prs="long"),
    *_both("paper_search", "discovery", _papers),
    *_both("alfworld", "win", _house, "3spo"),
    _SHOP,
    replace(_SHOP, name="success, starter's tasks", options=_BOUGHT, starter=True),
]

if __name__ == "__main__":
    main()
