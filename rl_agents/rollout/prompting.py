"""Prompting baselines: ReAct and Reflexion around any environment, for untrained policies.

They change what the agent reads, not how it is sampled or scored. Trained and untrained policies are therefore measured
by the same rollout code: ``run.py eval --compare react:MODEL``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from rl_agents.config import Settings
from rl_agents.envs.base import TextEnv, env_spec, make_env
from rl_agents.envs.coroutines import then

#: Attempts at one task.
TRIALS = 3
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

StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class ReAct(gymnasium.Wrapper[str, str, str, str]):
    """Asks for a thought before each action, without examples (arXiv 2210.03629).

    Args:
        env: any text environment; its form of actions does not change.
    """

    def __getattr__(self, name: str) -> Any:
        """Pass on what only some environments have: window format, instruction for a forced answer, snapshots."""
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return then(self.env.reset(seed=seed, options=options), self._instructed)

    def _instructed(self, answer: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        observation, info = answer
        info = {"anchor": observation, **info}
        return _retold(observation, info, lambda task: f"{REACT_INSTRUCTION}\n\n{task}")


class Reflexion(gymnasium.Wrapper[str, str, str, str]):
    """Lets the agent try a task again, with its own notes on the failed attempts (arXiv 2303.11366).

    One episode has up to `TRIALS` attempts. After a failed one the agent is asked for a reflection. Then the task
    begins again, with all reflections after its description and nothing else of the past (``info["new_dialogue"]``).
    ``metrics`` gets ``trials`` and ``solved_in_trial_1``, so that one evaluation shows Reflexion's gain over a single
    attempt.

    Args:
        env: any text environment whose reset with the same seed and options begins the same task.
        max_turns: of one attempt.
    """

    def __init__(self, env: TextEnv, max_turns: int) -> None:
        super().__init__(env)
        self._max_turns = max_turns
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
        """Run a turn of the attempt, or, after a failed one, take the reflection and begin the next attempt."""
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
        if not over or solved or self._trial == TRIALS:
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
        notes = [f"- {text}" for text in self._reflections]
        return _retold(observation, info, lambda task: "\n".join([task, "", MEMORY_HEADING, *notes]))

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        first = float(self._trial == 1 and bool(info.get("success")))
        metrics = {**(info.get("metrics") or {}), "trials": float(self._trial), "solved_in_trial_1": first}
        return {**info, "metrics": metrics}


def _next_trial(answer: tuple[str, dict[str, Any]]) -> StepResult:
    observation, info = answer
    return observation, 0.0, False, False, {**info, "new_dialogue": True}


def env_factory(settings: Settings) -> Callable[[], TextEnv]:
    """Return the constructor of a run's environments, wrapped according to the key ``prompting``.

    Reflexion's attempts are ReAct episodes, as in its paper.
    """

    def bare() -> TextEnv:
        return make_env(settings.env, settings.env_options, settings.max_turns)

    if settings.prompting == "direct":
        return bare
    if settings.prompting == "react":
        return lambda: ReAct(bare())
    max_turns = settings.max_turns or env_spec(settings.env).max_turns
    return lambda: Reflexion(ReAct(bare()), max_turns)


def _retold(observation: str, info: dict[str, Any], write: Callable[[str], str]) -> tuple[str, dict[str, Any]]:
    """Apply ``write`` to the observation, and to the last of its messages if it has any."""
    if info.get("messages"):
        *before, last = info["messages"]
        info = {**info, "messages": [*before, {**last, "content": write(str(last["content"]))}]}
    return write(observation), info
