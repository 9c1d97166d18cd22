"""Branching at a state: siblings with one prompt, equal ways back, broken environments, and the check beforehand."""

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from chat_tokenizers import qwen
from rollout.scripted import ScriptedEngine
from rollout.tree_search.drawn import CONTEXT, LIMITS, Copied, Drawn, last_observation, speaker

from rl_agents.chat.template import Dialogue
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.errors import InputError
from rl_agents.rollout.branching import BranchPoint, BranchSpec, Expansions, expand_all, takes_snapshots
from rl_agents.rollout.branching_check import BranchingCheck, check_branching
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.turns import Limits, Player

HALL = BranchPoint("house", 7, dialogue=Dialogue.start("hall"), anchor="hall")


def expand(
    specs: Sequence[BranchSpec], make_env: Callable[[], Any] = Copied, branching: Any = "auto", *,
    engine: Any = None, limits: Limits = LIMITS, pool: EnvPool | None = None,
) -> Expansions:  # fmt: skip
    player = Player(engine or ScriptedEngine(qwen(), speaker()), CONTEXT, limits)
    return asyncio.run(expand_all(specs, pool or EnvPool(make_env), player, branching))


def test_siblings_share_a_prompt_and_differ_by_their_seeds() -> None:
    engine = ScriptedEngine(qwen(), speaker())
    (expansion,) = expand([BranchSpec(4, HALL, (11, 12, 13))], engine=engine).expansions
    assert [child.step.action for child in expansion.children] == ["left", "loop", "right"]
    assert [child.answer.observation for child in expansion.children] == ["attic", "hall", "barn"]
    assert len({tuple(prompt) for prompt, _ in engine.requests}) == 1
    assert [sampling.seed for _, sampling in engine.requests] == [11, 12, 13] and engine.most_running == 3
    assert expansion.group_id == 4 and {child.step.anchor for child in expansion.children} == {"hall"}
    assert all(len(child.step.logprobs) == len(child.step.response_ids) for child in expansion.children)


@pytest.mark.parametrize(("make_env", "branching"), [(Copied, "auto"), (Copied, "replay"), (Drawn, "auto")])
def test_equal_actions_are_executed_once(make_env: type[Drawn], branching: str) -> None:
    point = dataclasses.replace(HALL, snapshot="hall" if make_env is Copied else None)
    engine = ScriptedEngine(qwen(), speaker({"hall": ["left", "left", "right", "left"]}))
    before = make_env.steps
    (expansion,) = expand([BranchSpec(0, point, (1, 2, 3, 4))], make_env, branching, engine=engine).expansions
    assert [child.answer.observation for child in expansion.children] == ["attic", "attic", "barn", "attic"]
    assert make_env.steps - before == expansion.env_steps == 2
    assert len({id(child.step) for child in expansion.children}) == 4, "every sibling keeps what was sampled"
    assert [child.step.metrics for child in expansion.children] == [{"letters": n} for n in (4, 4, 5, 4)]


def test_ends_are_judged_as_in_an_episode() -> None:
    dialogue = Dialogue.start("hall").after([1], [2], "left", "attic")
    spec = BranchSpec(0, BranchPoint("house", 7, ("left",), dialogue, "attic"), (1, 2, 3))
    (expansion,) = expand([spec], limits=dataclasses.replace(LIMITS, max_turns=2)).expansions
    ends = [("terminated", False, 0.0), ("terminated", True, 1.0), ("max_turns", False, 0.0)]
    assert [(c.end_cause, c.success, c.step.reward) for c in expansion.children] == ends
    assert all(child.snapshot is None for child in expansion.children), "nobody goes on from an end"


def test_an_environment_that_breaks_takes_one_child_with_it() -> None:
    engine = ScriptedEngine(qwen(), speaker({"hall": ["left", "fall", "right"]}))
    pool = EnvPool(Copied)
    (expansion,) = expand([BranchSpec(0, HALL, (1, 2, 3))], engine=engine, pool=pool).expansions
    assert [child.failed for child in expansion.children] == [False, True, False]
    assert "KeyError" in expansion.children[1].end_cause and expansion.children[2].answer.observation == "barn"
    assert pool.created == 2, "the broken one was not used again"


class Drifting(Drawn):
    """Begins at the other place every time."""

    starts = cycle(["hall", "barn"])

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        super().reset(**kwargs)
        self.place = next(self.starts)
        return self.place, {}


def test_a_replay_that_leads_elsewhere_is_noticed() -> None:
    first, second = (expand([BranchSpec(0, HALL, (1,))], Drifting).expansions[0] for _ in range(2))
    assert not first.failed and [child.answer.observation for child in first.children] == ["attic"]
    assert second.failed and second.end_cause.startswith("env_diverged: the replay of 0 actions")


def test_a_failing_engine_leaves_its_request_open() -> None:
    engine = ScriptedEngine(qwen(), speaker(), fail=lambda text: last_observation(text) == "barn")
    barn = BranchPoint("house", 7, ("right",), Dialogue.start("hall").after([1], [2], "right", "barn"), "barn")
    answers = expand([BranchSpec(0, barn, (1, 2)), BranchSpec(1, HALL, (1, 2))], engine=engine)
    assert list(answers.by_job()) == [1] and answers.engine_errors == ["engine 0 died during generate"]


def test_what_a_person_has_to_mend() -> None:
    assert "branching=snapshot" in expand([BranchSpec(0, HALL, (1,))], Drawn, "snapshot").input_error
    short = dataclasses.replace(LIMITS, max_model_len=8)
    assert "does not fit max_model_len=8 (task house)" in expand([BranchSpec(0, HALL, (1,))], limits=short).input_error
    assert takes_snapshots(Copied(), "auto") and not takes_snapshots(Drawn(), "auto")
    with pytest.raises(InputError, match="no snapshot"):
        takes_snapshots(Drawn(), "snapshot")


def check(make_env: Callable[[], Any], branching: Any = "auto") -> BranchingCheck:
    says = {"hall": ["loop", "right"], "barn": ["left"], "attic": ["wait", "door"]}
    player = Player(ScriptedEngine(qwen(), speaker(says)), CONTEXT, LIMITS)
    specs = [EpisodeSpec("house", 0, 0, 5), EpisodeSpec("home", 1, 0, 6)]
    return asyncio.run(check_branching(specs, EnvPool(make_env), player, branching, "drawn"))


class Forgetful(Copied):
    """Restores the place, not the number of visits that it shows."""

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        self.visits = 0
        return super().reset(**kwargs)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.visits = getattr(self, "visits", 0) + 1
        observation, reward, done, cut, info = super().step(action)
        return observation, reward, done, cut, {**info, "anchor": f"{observation} {self.visits}"}


class Shared(Drawn):
    """Counts turns for all of its kind, so that episodes that are played side by side disturb each other."""

    turn = 0

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        Shared.turn = 0
        return super().reset(**kwargs)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        Shared.turn += 1
        observation, reward, done, cut, info = super().step(action)
        return observation, reward, done, cut, {**info, "anchor": f"turn {Shared.turn}"}


class Dice(Drawn):
    """Shows what the process's global generators say."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, done, cut, info = super().step(action)
        return observation, reward, done, cut, {**info, "anchor": f"{random.random()} {np.random.random()}"}


class CopiedDice(Dice, Copied):
    """The same, with a copy that lacks the global generators."""


class Unpicklable(Copied):
    def snapshot(self) -> Any:
        return lambda: self.place

    def restore(self, place: Any) -> None:
        self.place = place()


def test_ways_that_work_pass() -> None:
    for make_env, branching in ((Copied, "auto"), (Copied, "replay"), (Drawn, "auto"), (Dice, "auto")):
        found = check(make_env, branching)
        assert not found.input_error and len(found.checked) == len(found.by_job()) > 1


@pytest.mark.parametrize(
    ("make_env", "branching", "message"),
    [
        (Forgetful, "snapshot", "by snapshot: after the same further action it shows another anchor"),
        (Shared, "replay", "it shows another anchor than before ('turn 1', then 'turn "),
        (CopiedDice, "snapshot", "after the same further action it shows another anchor"),
        (Unpicklable, "auto", "its snapshot cannot be pickled"),
        (Drawn, "snapshot", "no snapshot() and restore()"),
    ],
)
def test_a_way_that_does_not_lead_back_is_named(make_env: Callable[[], Any], branching: str, message: str) -> None:
    error = check(make_env, branching).input_error
    assert message in error and "\n" not in error
    assert make_env is Drawn or error.startswith("environment drawn cannot be branched by")
