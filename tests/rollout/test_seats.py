"""Games with a policy in every seat: one trajectory for each seat, with its own dialogue, rewards and baseline."""

import asyncio
import dataclasses
import importlib.util
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from chat_tokenizers import qwen
from episodes import play_episodes

from rl_agents.algorithms.grpo import GrpoKeys, dr_grpo_credit
from rl_agents.chat.template import make_context
from rl_agents.data.failures import BadTasks
from rl_agents.data.samples import build_samples
from rl_agents.data.tasks import evaluation_specs, step_seed, training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import game_seats, make_env, synchronous, task_ids
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, EngineError
from rl_agents.orchestrator.collector import split_groups
from rl_agents.orchestrator.rollout_batch import rollout_metrics
from rl_agents.reporting.statistics import evaluation_metrics
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.turns import Limits

KUHN = "gymnasium:docs/examples/games/kuhn_poker.py:KuhnPoker"
needs_textarena = pytest.mark.skipif(importlib.util.find_spec("textarena") is None, reason="textarena is missing")
CONTEXT = make_context("append", qwen())
LIMITS = Limits(max_turns=2, max_response_tokens=20, max_model_len=4000)


class SeedEngine:
    """Answers a request by its sampling seed, which names the seat and the turn."""

    def __init__(self, moves: dict[int, str]) -> None:
        self.moves, self.prompts = moves, list[str]()

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        self.prompts.append(qwen().decode(prompt_ids))
        await asyncio.sleep(0)
        if (move := self.moves[sampling.seed]) == "dies":
            raise EngineError("engine 0 died")
        ids = [*qwen().encode(move, add_special_tokens=False), sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 3, "stop")


def moves_of(specs: list[EpisodeSpec], games: dict[int, list[list[str]]]) -> SeedEngine:
    """An engine that makes the moves of each member's game, by seat."""
    turns = ((s.seed, turn, move) for s in specs for turn, move in enumerate(games[s.member][s.seat]))
    return SeedEngine({step_seed(seed, turn): move for seed, turn, move in turns})


def play(specs: list[EpisodeSpec], engine: Any, env: Any = None, limits: Limits = LIMITS) -> Rollouts:
    return asyncio.run(play_episodes(specs, env or (lambda: make_env(KUHN, {})), engine, CONTEXT, limits))


def kuhn_specs(task: str = "QK0", members: int = 1) -> list[EpisodeSpec]:
    return training_specs([task], 0, 2, members, seed=0, seats=2)


def test_each_seat_has_its_rewards_and_its_own_baseline() -> None:
    """Queen against king: check, bet, fold loses one chip; bet, call loses two."""
    specs = kuhn_specs(members=2)
    engine = moves_of(specs, {0: [["check", "fold"], ["bet"]], 1: [["bet"], ["call"]]})
    trajectories = play(specs, engine).trajectories
    assert [(t.group_id, t.member, t.facts["seat"]) for t in trajectories] == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 1),
        (1, 1, 1),
    ]
    assert [[step.action for step in t.steps] for t in trajectories] == [["check", "fold"], ["bet"], ["bet"], ["call"]]
    assert [t.episode_return for t in trajectories] == [-1.0, -2.0, 1.0, 2.0]
    assert [t.success for t in trajectories] == [False, False, True, True]
    assert {(t.end_cause, t.terminated) for t in trajectories} == {("terminated", True)}
    assert [[step.anchor for step in t.steps] for t in trajectories[::2]] == [
        ["seat 0: Q ", "seat 0: Q pb"],
        ["seat 1: K p"],
    ]
    rows = build_samples(trajectories, "merged")
    dr_grpo_credit(rows, trajectories, GrpoKeys())
    assert [float(row.advantages[row.mask > 0].mean()) for row in rows] == [0.5, -0.5, -0.5, 0.5]  # type: ignore[index]
    metrics = rollout_metrics(trajectories)
    assert (metrics["rollout/return_seat_0"], metrics["rollout/return_seat_1"]) == (-1.5, 1.5)
    assert (metrics["rollout/success_seat_0"], metrics["rollout/success_seat_1"]) == (0.0, 1.0)


def test_a_seat_reads_its_own_dialogue_and_exactly_its_own_tokens() -> None:
    specs = kuhn_specs()
    engine = moves_of(specs, {0: [["check", "fold"], ["bet"]]})
    first, second = play(specs, engine).trajectories
    said = first.steps[0].prompt_ids + first.steps[0].response_ids
    assert first.steps[1].prompt_ids[: len(said)] == said
    opening, others, later = engine.prompts
    assert "first player. Your card is Q" in opening and "card is K" not in opening + later
    assert "second player. Your card is K. The other player checks." in others and "card is Q" not in others
    assert later.count("Your card is Q") == 1 and "The other player bets. Answer fold or call." in later
    assert second.steps[0].prompt_ids[: len(said)] != said


def test_tasks_and_seeds_of_games() -> None:
    specs = training_specs(["a", "b", "c"], 0, 4, 2, seed=0, seats=2, position=2, first_group=4)
    assert [(s.group_id, s.member, s.seat) for s in specs] == [(g, m, g % 2) for g in (4, 5, 6, 7) for m in (0, 1)]
    assert len({s.task_id for s in specs[:4]}) == len({s.task_id for s in specs[4:]}) == 1
    assert len({s.seed for s in specs}) == len(specs)
    single = training_specs(["a", "b", "c"], 0, 2, 2, seed=0, position=1)
    assert [s.task_id for s in specs[::4]] == [s.task_id for s in single[::2]]  # the stream continues by games
    for share in split_groups(specs, 2):
        assert sorted(s.seat for s in share) == [0, 0, 1, 1] and len({s.task_id for s in share}) == 1


class Odd(gymnasium.Env[str, str]):
    """Seats take turns; at the ``bad_at``-th step it does what its task says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert options and options["seats"] is True
        self.task, self.turn = options["task_id"], 0
        if self.task == "reset":
            raise KeyError("no such game")
        return "begin", {"seat": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        info: dict[str, Any] = {"seat": self.turn % 2}
        if self.turn == 2 and self.task == "raise":
            raise ZeroDivisionError("the table broke")
        if self.turn == 2 and self.task == "no seat":
            info = {"seat": 2}
        if self.turn == 2 and self.task == "rewards":
            info["rewards"] = [1.0]
        if self.turn == 1 and self.task == "at once":
            return "over", 0.0, True, False, {**info, "rewards": [-1.0, 1.0]}
        if self.turn == 3 and self.task == "cut":
            return "over", 0.0, False, True, {**info, "rewards": [0.5, 0.25]}
        return "go on", 5.0, False, False, {"rewards": [0.0, 0.125], **info}


class Talks:
    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        return Completion(
            [*qwen().encode("go", add_special_tokens=False), sampling.stop_token_ids[0]], [-0.5] * 2, 0, "stop"
        )


def odd(task: str, limits: Limits = LIMITS) -> list[Trajectory]:
    return play(kuhn_specs(task), Talks(), Odd, limits).trajectories


@pytest.mark.parametrize(
    ("task", "cause", "steps"),
    [
        ("reset", "env_error: KeyError", [0, 0]),
        ("raise", "env_error: ZeroDivisionError: the table broke", [1, 1]),
        ("no seat", "env_garbage: info['seat'] is int 2, not a number from 0 to 1", [1, 1]),
        ("rewards", "env_garbage: info['rewards'] is list [1.0], not a list of 2 numbers", [1, 1]),
    ],
)
def test_a_failing_environment_fails_every_seat_of_the_game_once(task: str, cause: str, steps: list[int]) -> None:
    pair = odd(task)
    assert all(t.failed and t.end_cause.startswith(cause) for t in pair) and pair[0].end_cause == pair[1].end_cause
    assert [len(t.steps) for t in pair] == steps and not build_samples(pair, "merged")
    if task in ("reset", "raise"):
        assert all("Error" in t.facts["traceback"] for t in pair)
        bad, others = BadTasks(), [Trajectory("fine", n, 0, 0) for n in range(2, 6)]
        assert not bad.observe([*pair, *others]) and bad.strikes == {task: 1}


def test_limits_of_one_seat_cut_the_game() -> None:
    first, second = odd("long", dataclasses.replace(LIMITS, max_turns=1))
    assert (first.end_cause, second.end_cause) == ("max_turns", "max_turns")
    assert first.truncated and second.truncated and [len(t.steps) for t in (first, second)] == [1, 1]
    assert [t.episode_return for t in (first, second)] == [0.0, 0.25]  # of both steps, at the last own one
    first, second = odd("cut")
    assert second.end_cause == "env_truncated" and first.truncated and second.truncated
    assert [t.episode_return for t in (first, second)] == [0.5, 0.5]
    first, second = odd("at once")
    assert [len(t.steps) for t in (first, second)] == [1, 0] and second.terminated and not second.failed
    assert first.episode_return == -1.0


def test_a_game_whose_engine_fails_is_repeated_as_a_whole() -> None:
    specs = kuhn_specs()
    rollouts = play(specs, moves_of(specs, {0: [["check", "fold"], ["dies"]]}))
    assert rollouts.unfinished == specs and not rollouts.trajectories


def test_in_evaluations_the_environment_plays_the_other_seat_from_both_sides() -> None:
    specs = evaluation_specs(task_ids(KUHN, "test", {}), 12, seed=0)

    class Always:
        async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
            ids = [*qwen().encode("bet call", add_special_tokens=False), sampling.stop_token_ids[0]]
            return Completion(ids, [-0.5] * len(ids), 0, "stop")

    found = play(specs, Always()).trajectories
    assert sorted(t.facts["seat"] for t in found) == [0] * 6 + [1] * 6
    assert all(t.terminated and abs(t.episode_return) in (1, 2) for t in found)
    metrics = evaluation_metrics(found)
    by_seat = [[t.episode_return for t in found if t.facts["seat"] == seat] for seat in (0, 1)]
    assert [metrics[f"eval/return_seat_{seat}"] for seat in (0, 1)] == [float(np.mean(own)) for own in by_seat]


def folds(text: str, rng: random.Random) -> str:
    return "[fold]" if "[fold]" in text.splitlines()[-1] else "[check]"


@needs_textarena
def test_textarena_plays_the_other_seats_in_evaluations_only() -> None:
    options = {"opponent": "self", "eval_opponent": f"{__name__}:folds"}
    env = synchronous(make_env("textarena:KuhnPoker-v0-raw", {**options, "kwargs": {"max_rounds": 1}}))
    for number in range(4):
        _, info = env.reset(seed=0, options={"task_id": f"seed-{number}"})
        assert info["seat"] == number % 2
        _, reward, over, *_, info = env.step("[bet]")
        assert over and reward == 1.0 and info["success"]
    assert game_seats("textarena:KuhnPoker-v0", {"opponent": "checkpoint"}) == 2
    assert game_seats("textarena:KuhnPoker-v0", {}) == 1
    with pytest.raises(InputError, match=r"env.opponent=self: textarena:2048-v0 is a game for one player"):
        game_seats("textarena:2048-v0", {"opponent": "self"})


@needs_textarena
@pytest.mark.parametrize("game", ["KuhnPoker-v0", "TicTacToe-v0-raw", "IteratedPrisonersDilemma-v0"])
def test_rewards_of_both_seats_are_those_of_textarenas_own_loop(game: str) -> None:
    import textarena as ta

    from rl_agents.envs.textarena.opponents import listed_move

    def move(text: str, rng: random.Random) -> str:
        return "[nonsense]" if rng.random() < 0.1 else listed_move(text, rng)

    class Mover:
        """Reads the prompt as text, and draws with one generator, as the library's loop does."""

        def __init__(self, seed: int) -> None:
            self.rng = random.Random(seed)

        async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
            said = move(qwen().decode(prompt_ids), self.rng)
            ids = [*qwen().encode(said, add_special_tokens=False), sampling.stop_token_ids[0]]
            return Completion(ids, [-0.5] * len(ids), 0, "stop")

    limits = dataclasses.replace(LIMITS, max_turns=100, max_model_len=100_000)
    for seed in range(3):
        state = random.getstate()
        random.seed(seed)
        env, rng, done = ta.make(game), random.Random(seed), False
        env.reset(num_players=2, seed=seed)
        random.seed(seed)  # later draws follow the episode's seed
        read: dict[int, list[str]] = {0: [], 1: []}
        while not done:
            player, text = env.get_observation()
            if not isinstance(text, str):
                text = "\n".join(part for _, part, _ in text)
            read[player].append(text)
            done, _ = env.step(move("\n".join(read[player]) if game.endswith("-raw") else text, rng))
        rewards = env.close()[0]
        random.setstate(state)
        specs = [dataclasses.replace(s, seed=seed) for s in kuhn_specs(f"seed-{seed}")]
        made = make_env(f"textarena:{game}", {"opponent": "self"})
        pair = play(specs, Mover(seed), lambda made=made: made, limits).trajectories
        assert {t.end_cause for t in pair} == {"terminated"}
        assert [t.episode_return for t in pair] == [rewards[0], rewards[1]]
        assert [len(t.steps) for t in pair] == [len(read[0]), len(read[1])]
