"""Rewards that can be earned without doing the task: ``python -m benchmarks.reward_attacks``.

Scripted players play test tasks of every built-in environment with tasks of its own. They give one answer to every task
(chosen on training tasks), repeat what they were shown, or try everything. Of those that were tried, the ones that
earned most are kept, and those whose holes were closed. The result is the mean reward of the best one; that of PRS is
divided by its highest value. It needs no network and no model, and is deterministic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import command_line, markdown, write_figures
from rl_agents.config import Settings
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.long_form_qa.tasks import ASPECTS, TOWNS
from rl_agents.envs.webshop.demonstrations import in_style
from rl_agents.rewards.base import make_reward
from rl_agents.rewards.grounding import sentences
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier
from rl_agents.rewards.wording import words
from rl_agents.tools.calls import ToolCall, write_response
from rl_agents.traces.desk import desk_turns
from rl_agents.traces.turns import Turn

SEED, TRAIN_TASKS = 0, 300
#: Highest totals of the two forms of PRS.
PRS_MOST = {"short": 2.1, "long": 3.1}


@dataclass
class Game:
    """One episode as a player sees it; it only reads the parts of the state that the agent has seen."""

    env: Any
    task_id: str
    rng: random.Random
    observation: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def state(self) -> Any:
        return self.env.state

    @property
    def question(self) -> str:
        asked = self.state.task.question
        return str(asked if isinstance(asked, str) else asked.question)[:900]


Player = Callable[[Game], str]


@dataclass(frozen=True)
class Trial:
    """An environment with options, whose training tasks, as (id, references), a player may read."""

    env: str
    options: Mapping[str, Any]
    train: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> Trial:
        """Read the references of training tasks; empty if a task has none."""
        env, found = make_env(name, options), []
        for task in task_ids(name, "train", options)[:TRAIN_TASKS]:
            info = env.reset(options={"task_id": task})[1]
            found.append((task, str((info.get("references") or [""])[0])))
        return cls(name, options, tuple(found))

    @property
    def style(self) -> str:
        return str(self.options.get("prompt", "paper"))

    @property
    def references(self) -> list[str]:
        return [reference for _, reference in self.train]


@dataclass(frozen=True)
class Setting:
    """A reward and the attacks on it.

    Attributes:
        options: in addition to the defaults of the environment, or of its warm-start model.
        starter: use the options of the warm-start model.
        prs: form of PRS that replaces the environment's reward.
    """

    env: str
    name: str
    attacks: Callable[[Trial], Mapping[str, Player]]
    options: Mapping[str, Any] = field(default_factory=dict)
    starter: bool = False
    prs: str = ""

    def resolved(self) -> dict[str, Any]:
        if not self.starter:
            return dict(self.options)
        defaults = starter_spec(self.env).defaults
        return {k.removeprefix("env."): v for k, v in defaults.items() if k.startswith("env.")} | dict(self.options)


def main() -> None:
    tasks = command_line(__doc__, {"tasks": 100}).parse_args().tasks
    rows = [attack(setting, tasks) for setting in SETTINGS]
    rows += [attack_verifier(options) for options in VERIFIERS]
    print(markdown(tuple(rows[0]), [tuple(map(str, row.values())) for row in rows]))
    write_figures("reward_attacks", "python -m benchmarks.reward_attacks", {"tasks": tasks, "rows": rows})


def attack(setting: Setting, tasks: int) -> dict[str, Any]:
    """Run every attack; return the best one."""
    trial = Trial.of(setting.env, setting.resolved())
    scores = {name: mean_reward(setting, trial, player, tasks) for name, player in setting.attacks(trial).items()}
    return _row(setting.env, setting.name, scores)


def _row(env: str, setting: str, scores: Mapping[str, float]) -> dict[str, Any]:
    best = max(scores, key=lambda name: scores[name])
    return {"env": env, "setting": setting, "player": best, "reward": round(scores[best], 4)}


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
    game, steps, over = Game(env, task, rng, observation), list[Step](), False
    while not over:
        shown, action = game.observation, player(game)
        game.said.append(action)
        game.observation, reward, terminated, truncated, info = env.step(action)
        valid = bool(info.get("valid", True))
        steps.append(Step([0], [0], [0.0], 0, "stop", shown, "", action, reward=float(reward), valid=valid))
        over = terminated or truncated
    facts = {name: info[name] for name in ("references", "evidence", "points") if name in info}
    return Trajectory(task, 0, 0, 0, steps, terminated=True, end_cause="terminated", facts=facts)


# --- players


def answer(text: str) -> Player:
    return lambda game: f"<answer> {text} </answer>"


def told(trial: Trial) -> dict[str, Player]:
    """Answer as training tasks do: with the most frequent answer, or with any."""
    return {
        "most frequent answer": answer(Counter(trial.references).most_common(1)[0][0]),
        "another task's answer": lambda game: f"<answer> {game.rng.choice(trial.references)} </answer>",
    }


def circuits(trial: Trial) -> dict[str, Player]:
    return {"first candidates": answer("1, 1"), "another pair": answer("1, 2")}


def movies(trial: Trial) -> dict[str, Player]:
    def equal_weights(game: Game) -> str:
        from rl_agents.envs.movie_recommendation.env import movie_name

        task = game.state.task
        if not game.state.final:
            return f"<answer> {','.join(['1'] * len(task.weights))} </answer>"
        best = max(task.unseen, key=lambda movie: sum(movie.scores))
        return f"<answer> {movie_name(best, task.size, game.env.options.prompt)} </answer>"

    return {"equal weights": equal_weights}


def weights(trial: Trial) -> dict[str, Player]:
    return {"equal weights": answer(",".join(["1"] * len(trial.references[0].split(","))))}


def stories(trial: Trial) -> dict[str, Player]:
    return {f"{unit} soup": answer(soup(trial, unit)) for unit in ("word", "char")}


def soup(trial: Trial, unit: str) -> str:
    """Return the bag of words or characters that overlaps most with the training stories."""
    bags = [Counter(found if unit == "word" else "".join(found)) for found in map(words, trial.references)]
    return max((_bag(bags, share, unit) for share in (0.2, 0.3, 0.4, 0.5)), key=lambda text: _overlap(text, bags, unit))


def _bag(bags: Sequence[Counter[str]], share: float, unit: str) -> str:
    """Return every piece as often as at least ``share`` of the bags have it."""
    counts = {piece: sorted((bag[piece] for bag in bags), reverse=True) for bag in bags for piece in bag}
    kept = {piece: found[int(share * (len(found) - 1))] for piece, found in counts.items()}
    return (" " if unit == "word" else "").join(piece for piece, count in sorted(kept.items()) for _ in range(count))


def _overlap(text: str, bags: Sequence[Counter[str]], unit: str) -> float:
    found = words(text)
    mine = Counter(found if unit == "word" else "".join(found))
    return sum(2 * (mine & bag).total() / (mine.total() + bag.total()) for bag in bags)


def searching(queries: Callable[[Game], Sequence[str]], reply: Callable[[Game], str], style: str) -> Player:
    def act(game: Game) -> str:
        if game.said:
            return f"<answer> {reply(game)} </answer>"
        if style == "compact":
            call = '<tool_call> {{"name":"search","arguments":{{"query":" {} "}}}} </tool_call>'
            return " ".join(call.format(query) for query in queries(game))
        return write_response("", [ToolCall("search", {"query": query}) for query in queries(game)])

    return act


def whole(game: Game) -> list[str]:
    return [game.question]


def every_part(game: Game) -> list[str]:
    """Search for each sentence of the question, up to four."""
    return [part.strip() for part in game.question.replace(".", "?").split("?") if part.strip()][:4]


def hops(trial: Trial) -> dict[str, Player]:
    def first_title(game: Game) -> str:
        seen = game.state.seen
        return (game.state.task.store.get(seen[0]).title if seen else "") or "unknown"

    return {**told(trial), "first title": searching(whole, first_title, trial.style)}


def long_answers(trial: Trial) -> dict[str, Player]:
    def pasted(share: float) -> Callable[[Game], str]:
        def reply(game: Game) -> str:
            found = [part for text in game.state.read for part in sentences(text.partition("\n")[2] or text)]
            most = int(share * len(every_part(game))) if share else 12
            return " ".join(found[: max(most, 1)])

        return reply

    shares = {"twelve sentences": 0.0, "1 sentence a part": 1.0, "1.5 a part": 1.5, "2 a part": 2.0}
    copies = {
        f"{what} found{where}": searching(queries, pasted(share), trial.style)
        for what, share in shares.items()
        for where, queries in (("", whole), (", a search a part", every_part))
    }
    facts = [aspect.statement.format(town="", value="").strip(" .") for aspect in ASPECTS]
    everything = " ".join([*TOWNS, *facts, *(value for aspect in ASPECTS for value in aspect.values)]) + "."
    return {**told(trial), **copies, "all there is": answer(everything)}


def papers(trial: Trial) -> dict[str, Player]:
    from rl_agents.envs.paper_search.demonstrations import STOP, written

    def expand_all(game: Game) -> str:
        state, compact = game.state, game.env.options.prompt == "compact"
        asked = " ".join(state.task.wanted) if compact else ""
        calls = [("expand", found.paper_id) for found in state.pool if found.paper_id not in state.expanded]
        found = (calls if game.said else [("search", asked or state.task.query)])[:5]
        return written(found, compact) if found else STOP

    return {"expands all": expand_all}


def house(trial: Trial) -> dict[str, Player]:
    """Do what won the first training task, whatever the task."""
    options = read_env_options(env_spec(trial.env), {**trial.options, "prompt": "compact"})
    expert = starter_spec(trial.env).expert
    assert expert is not None
    commands = [action for _, action in expert(trial.train[0][0], random.Random(0), options)]
    return {
        "what won another task": lambda game: f"<action>{commands[min(len(game.said), len(commands) - 1)]}</action>"
    }


def shop(trial: Trial) -> dict[str, Player]:
    def first_of_the_request(game: Game) -> str:
        turn = game.state.turn
        if turn.page.kind == "search":
            return in_style(f"search[{turn.goal.instruction}]", "3spo")
        if turn.page.kind == "results" and turn.page.items:
            return in_style(f"click[{turn.page.items[0].asin.lower()}]", "3spo")
        return in_style("click[buy now]", "3spo")

    return {"first of the request": first_of_the_request}


TAUGHT = "{}, starter's tasks".format
PAPER = {"prompt": "paper"}
SETTINGS = [
    Setting("guess_numbers", "exact", told),
    Setting("circuit_decoding", "exact", circuits),
    Setting("movie_recommendation", "best movie", movies),
    Setting("movie_recommendation", TAUGHT("best movie"), movies, PAPER, starter=True),
    Setting("preference_estimation", "cosine", weights),
    Setting("preference_estimation", TAUGHT("cosine"), weights, PAPER, starter=True),
    Setting("situation_puzzles", "word F1", stories),
    Setting("situation_puzzles", "character F1", stories, {"f1": "char"}),
    Setting("multihop_qa", TAUGHT("em"), hops, starter=True),
    Setting("multihop_qa", "PRS, short form, of 2.1", hops, prs="short"),
    Setting("long_form_qa", "pass", long_answers),
    Setting("long_form_qa", "match", long_answers, {"reward": "match"}),
    Setting("long_form_qa", "points", long_answers, {"reward": "points"}),
    Setting("long_form_qa", TAUGHT("pass"), long_answers, starter=True),
    Setting("long_form_qa", "PRS, long form, of 3.1", long_answers, prs="long"),
    Setting("paper_search", TAUGHT("discovery"), papers, PAPER, starter=True),
    Setting("alfworld", "win", house),
    Setting("webshop", "score", shop),
    Setting(
        "webshop", TAUGHT("success"), shop, {"prompt": "3spo", "reward": "success", "success_reward": 1.0}, starter=True
    ),
]

# --- PivotRL's verifiers

VERIFIERS: tuple[dict[str, Any], ...] = ({"verifier": "tool_name"}, {"verifier": "tool_name", "parallel": "free"})


def attack_verifier(options: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    """Attack on turns of the built-in help desk where the expert called a tool; chosen on half of the turns.

    A message passes wherever the expert wrote one, so turns without calls are excluded.
    """
    turns, verifier = [turn for turn in desk_turns() if turn.calls][:most], make_verifier(VerifierOptions(**options))
    frequent = Counter(turn.text for turn in turns[::2]).most_common(1)[0][0]
    attacks: dict[str, Callable[[Turn], str]] = {
        "most frequent call": lambda turn: frequent,
        "every tool, no arguments": lambda turn: write_response("", [ToolCall(t.name, {}) for t in turn.tools]),
    }
    scores = {
        name: sum(assess(verifier, turn, act(turn)).score for turn in turns[1::2]) / len(turns[1::2])
        for name, act in attacks.items()
    }
    label = ", ".join(value if key == "verifier" else f"{key}={value}" for key, value in options.items())
    return _row("pivot", label, scores)


if __name__ == "__main__":
    main()
