"""Prompting baselines: ReAct and Reflexion around any environment, for policies that are not trained.

They change what the agent reads, never how it is sampled or scored, so that every policy, trained or not, is measured
through the same rollout path: ``run.py eval --prompting react``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import gymnasium

from rl_agents.config import Settings
from rl_agents.envs.base import TextEnv, env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.coroutines import then
from rl_agents.errors import InputError
from rl_agents.rollout.demonstrations import solves

#: Reflections that a new trial is shown (Reflexion, section 3: a sliding window of one to three).
MEMORY = 3
MAX_REFLECTION = 4000

REACT_INSTRUCTION = (
    "Solve the task below by thinking and acting in turns. In every turn, first write a short thought about what you "
    "have learned so far and what to do next, then act in exactly the form that the task asks for."
)
REFLECTION_REQUEST = (
    "{observation}\n\nThe task was not solved, and this attempt is over. You will try the same task again from the "
    "beginning. In a few sentences, say what went wrong and what you will do differently. Do not act now."
)
MEMORY_HEADING = "What you noted after earlier attempts at this task:"

Shot = Sequence[tuple[str, str]]
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class ReAct(gymnasium.Wrapper[str, str, str, str]):
    """Asks for a thought before each action, with solved episodes of other tasks as examples (arXiv 2210.03629).

    Args:
        env: any text environment; its own form of actions stays.
        shots: example episodes, each a list of (observation, action).
    """

    def __init__(self, env: TextEnv, shots: Sequence[Shot] = ()) -> None:
        super().__init__(env)
        examples = [f"Example {number}:\n{episode_text(shot)}" for number, shot in enumerate(shots, start=1)]
        self._preamble = "\n\n".join([REACT_INSTRUCTION, *examples])

    def __getattr__(self, name: str) -> Any:
        """Pass on what only some environments have: their window format, words for a forced answer, snapshots."""
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return then(self.env.reset(seed=seed, options=options), self._instructed)

    def _instructed(self, answer: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        observation, info = answer
        info = {"anchor": observation, **info}
        return _retold(observation, info, lambda task: f"{self._preamble}\n\n{task}")


class Reflexion(gymnasium.Wrapper[str, str, str, str]):
    """Lets the agent try a task again, with its own words about the failed attempts (arXiv 2303.11366).

    One episode holds up to ``trials`` attempts. After a failed one the agent is asked for a reflection; then the task
    begins again, with the last three reflections after its description and nothing else of the past
    (``info["new_dialogue"]``). ``metrics`` gets ``trials`` and ``solved_in_trial_1``, so that Reflexion's gain over a
    single attempt can be read from one evaluation.

    Args:
        env: any text environment whose reset with the same seed and options begins the same task.
    """

    def __init__(self, env: TextEnv, trials: int, max_turns: int) -> None:
        super().__init__(env)
        self._trials, self._max_turns = trials, max_turns
        self._seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._reflections: list[str] = []
        self._trial, self._turns, self._return, self._reflecting = 0, 0, 0.0, False

    @property
    def render_window(self) -> Any:
        return self.env.render_window  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._seed, self._options = seed, options
        self._reflections = []
        self._trial = 0
        return self._begin()

    def step(self, action: str) -> StepResult:
        """Run a turn of the attempt; or, after a failed one, take the reflection and begin the next."""
        if self._reflecting:
            self._reflections.append(action.strip()[:MAX_REFLECTION])
            return then(self._begin(), _next_trial)
        return then(self.env.step(action), self._stepped)

    def _stepped(self, answer: StepResult) -> StepResult:
        observation, earned, terminated, truncated, info = answer
        reward = float(earned)
        self._turns += 1
        self._return += reward
        info = self._counted(info)
        over = terminated or truncated or self._turns >= self._max_turns
        success = info.get("success")
        solved = self._return > 0 if success is None else bool(success)
        if not over or solved or self._trial == self._trials:
            return observation, reward, terminated, over and not terminated, info
        self._reflecting = True
        return REFLECTION_REQUEST.format(observation=observation), 0.0, False, False, {**info, "progress": None}

    def _begin(self) -> tuple[str, dict[str, Any]]:
        return then(self.env.reset(seed=self._seed, options=self._options), self._begun)

    def _begun(self, answer: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        observation, info = answer
        self._trial, self._turns, self._return, self._reflecting = self._trial + 1, 0, 0.0, False
        info = self._counted({"anchor": observation, **info})
        if not self._reflections:
            return observation, info
        notes = [f"- {text}" for text in self._reflections[-MEMORY:]]
        return _retold(observation, info, lambda task: "\n".join([task, "", MEMORY_HEADING, *notes]))

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        first = float(self._trial == 1 and bool(info.get("success")))
        metrics = {**(info.get("metrics") or {}), "trials": float(self._trial), "solved_in_trial_1": first}
        return {**info, "metrics": metrics}


def _next_trial(answer: tuple[str, dict[str, Any]]) -> StepResult:
    observation, info = answer
    return observation, 0.0, False, False, {**info, "new_dialogue": True}


def env_factory(settings: Settings) -> Callable[[], TextEnv]:
    """Return what makes a run's environments, wrapped as its key ``prompting`` says.

    Reflexion's attempts are ReAct episodes, as in its paper. Examples are run where the first environment is made;
    there `InputError` is raised when no demonstrator solves enough tasks.
    """

    def bare() -> TextEnv:
        return make_env(settings.env, settings.env_options, settings.max_turns)

    if settings.prompting == "direct":
        return bare
    shots = cache(lambda: solved_examples(settings, bare) if settings.prompting_shots else [])
    if settings.prompting == "react":
        return lambda: ReAct(bare(), shots())
    max_turns = settings.max_turns or env_spec(settings.env).max_turns
    return lambda: Reflexion(ReAct(bare(), shots()), settings.prompting_trials, max_turns)


def episode_turns(settings: Settings) -> int:
    """Turns of a whole episode at most; with Reflexion every attempt, and a reflection after each but the last."""
    turns = settings.max_turns or env_spec(settings.env).max_turns
    trials = settings.prompting_trials
    return trials * turns + trials - 1 if settings.prompting == "reflexion" else turns


def solved_examples(settings: Settings, make: Callable[[], TextEnv]) -> list[Shot]:
    """Return demonstrations of the first ``prompting_shots`` training tasks that the demonstrator solves.

    Raises:
        InputError: the environment has no demonstrator, or it solves too few.
    """
    demonstrate, count = starter_spec(settings.env).demonstrate, settings.prompting_shots
    options = read_env_options(env_spec(settings.env), settings.env_options)
    env = make()
    examples: list[Shot] = []
    for task_id in task_ids(settings.env, "train", settings.env_options)[: 50 * count]:
        shot = demonstrate(task_id, random.Random(f"shots/{task_id}"), options, settings.max_turns)
        if solves(env, task_id, [action for _, action in shot]):
            examples.append(shot)
        if len(examples) == count:
            return examples
    raise InputError(f"prompting_shots={count}: the demonstrator solves only {len(examples)} of the tasks tried")


def episode_text(shot: Shot) -> str:
    return "\n".join(line for observation, action in shot for line in (observation, action))


def _retold(observation: str, info: dict[str, Any], write: Callable[[str], str]) -> tuple[str, dict[str, Any]]:
    """Return the observation as ``write`` has it, and so the last of its messages, if it has any."""
    if info.get("messages"):
        *before, last = info["messages"]
        info = {**info, "messages": [*before, {**last, "content": write(str(last["content"]))}]}
    return write(observation), info
