"""The base classes of the built-in environments: text spaces, seeded tasks, and an episode that is one value.

All active-reasoning tasks of T3 (appendix C) have the same form of a response with tags:
``<think>...</think> <interact>QUESTION</interact>`` or ``<answer>...</answer>``.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium
from gymnasium.spaces import Text

from rl_agents.background import at_once
from rl_agents.envs.coroutines import finished
from rl_agents.envs.spec import EnvSpec
from rl_agents.errors import InputError
from rl_agents.tools.thoughts import read_thoughts

#: The instruction to answer at once in the compact style.
COMPACT_ANSWER_NOW = "<answer>"
NO_ACTION = "no-action"
SEVERAL_ACTIONS = "several-actions"

#: The agent's messages about malformed responses.
MALFORMED_REASONS = {
    NO_ACTION: "found neither <interact>...</interact> nor <answer>...</answer> after your reasoning",
    SEVERAL_ACTIONS: "found more than one <interact> or <answer>; give exactly one per turn",
}

_TAG = re.compile(r"<(/?)(interact|answer)>")


@dataclass(frozen=True, slots=True)
class TaggedAction:
    """The action of a response.

    Attributes:
        kind: ``interact``, ``answer`` or ``malformed``.
        content: the text inside the tag, without white space around it; empty for malformed responses.
        problem: of a malformed response: ``no-action``, ``several-actions``, or a word of the environment.
        detail: a sentence about the problem; may be empty.
    """

    kind: str
    content: str = ""
    problem: str = ""
    detail: str = ""


def read_tags(response: str) -> TaggedAction:
    """Read one action from ``response``.

    Thoughts are ignored (`rl_agents.tools.thoughts`). The rest must contain exactly one complete
    ``<interact>...</interact>`` or ``<answer>...</answer>``. Two tags are malformed: an agent acts once per turn.
    """
    found = _pairs(read_thoughts(response).words)
    if not found:
        return TaggedAction("malformed", problem=NO_ACTION)
    if len(found) > 1:
        return TaggedAction("malformed", problem=SEVERAL_ACTIONS)
    kind, content = found[0]
    return TaggedAction(kind, content.strip())


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return kind and content of every complete tag, each up to its first end; in linear time, unlike a regex."""
    last_closing = {tag[2]: tag.start() for tag in _TAG.finditer(text) if tag[1]}
    found: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if opening is None:
            if not tag[1] and tag.end() <= last_closing.get(tag[2], -1):
                opening = tag
        elif tag[1] and tag[2] == opening[2]:
            found.append((tag[2], text[opening.end() : tag.start()]))
            opening = None
    return found


def malformed(problem: str, detail: str = "") -> TaggedAction:
    return TaggedAction("malformed", problem=problem, detail=detail)


StepResult = tuple[str, float, bool, bool, dict[str, Any]]
Dialogue = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeState:
    """The whole state of an episode. It is immutable, so that a snapshot is a reference to it."""

    turns: int = 0
    done: bool = False


State = TypeVar("State", bound=EpisodeState)
Options = TypeVar("Options")


def observations(max_length: int) -> Text:
    return Text(max_length=max_length, charset=string.printable)


class StatefulEnv(gymnasium.Env[str, str], Generic[State, Options]):
    """An environment whose episode is one value, ``_state``, which `snapshot` returns and `restore` sets.

    Args:
        options: the environment's keys; None means their defaults.
        max_turns: turns of the agent, after which the episode is truncated; 0 means the environment's default.

    Attributes:
        registered: its entry in the registry.
        awaited: `step` (and `reset`, if the environment overrides it) returns a coroutine, which waits for a server.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own declaration)
    observation_space = observations(1 << 20)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)
    registered: ClassVar[EnvSpec]
    awaited = False

    def __init__(self, options: Options | None = None, max_turns: int = 0) -> None:
        if max_turns < 0:
            raise InputError(f"max_turns={max_turns}: must not be negative")
        self.options: Options = self.registered.options() if options is None else options
        self.max_turns = max_turns or self.registered.max_turns
        self._state: State | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id, or a file or server of the environment cannot be used.
        """
        observation, self._state = self._begin(self._draw_task(seed, options))
        info = self._info(self._state, valid=True, progress=None)
        return observation, {**info, **self._opening(self._state)}

    def _opening(self, state: State) -> dict[str, Any]:
        """Return further entries of the first ``info``."""
        return {}

    @property
    def state(self) -> State:
        """The state of the running episode.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        if self._state is None or self._state.done:
            raise RuntimeError(f"{self.registered.name}: step() without a running episode; call reset() first")
        return self._state

    @property
    def last_state(self) -> State:
        """The state of the running episode, or of the one that has ended.

        Raises:
            RuntimeError: before `reset`.
        """
        if self._state is None:
            raise RuntimeError(f"{self.registered.name}: no episode; call reset() first")
        return self._state

    def snapshot(self) -> State | None:
        """Return the episode's state, for `restore` of this or an equally configured environment."""
        return self._state

    def restore(self, state: State | None) -> None:
        """Continue from ``state``. The random generator, which only `reset` uses, does not change."""
        self._state = state

    def step(self, action: str) -> Any:
        """Run one turn with the agent's whole response.

        Returns:
            The turn's result, or with ``awaited`` a coroutine that returns it.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
            JudgeError: the judge's server gave no usable reply; the state has not changed.
        """
        turn = self._turn(action)
        return turn if self.awaited else at_once(turn)

    async def _turn(self, action: str) -> StepResult:
        """Run a turn; an environment whose turns are plain functions overrides `step` instead."""
        raise NotImplementedError

    @property
    def _compact(self) -> bool:
        return bool(self.options.prompt == "compact")  # type: ignore[attr-defined]

    def _draw_task(self, seed: int | None, options: dict[str, Any] | None) -> str:
        super().reset(seed=seed)
        task_id: str | None = (options or {}).get("task_id")
        if task_id is not None:
            return task_id
        choices: Sequence[str] = self.registered.part("tasks", "task_ids")("train", self.options)
        return choices[int(self.np_random.integers(len(choices)))]

    def _end_turn(
        self,
        new: State,
        observation: str,
        reward: float = 0.0,
        *,
        valid: bool,
        progress: bool | None,
        terminated: bool = False,
        query: str | None = None,
    ) -> StepResult:
        """Count the turn, set the state to ``new``, and return the result of `step`, with ``query`` in ``info``."""
        truncated = not terminated and new.turns + 1 >= self.max_turns
        counted: State = replace(new, turns=new.turns + 1, done=terminated or truncated)
        self._state = counted
        info = self._info(counted, valid=valid, progress=progress)
        if query is not None:
            info["query"] = query
        return observation, reward, terminated, truncated, info

    def _end_malformed(self, new: State, observation: str, query: str | None = None) -> StepResult:
        """End a turn with a malformed response, which counts as a turn."""
        return self._end_turn(new, observation, valid=False, progress=None, query=query)

    @abstractmethod
    def _begin(self, task_id: str) -> tuple[str, State]:
        """Return a task's first observation and its state."""

    def _info(self, state: State, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        report = self._report(state)
        metrics = {"turns": state.turns, **report["metrics"]}
        numbers = {name: float(value) for name, value in metrics.items()}
        return {**report, "valid": valid, "progress": progress, "metrics": numbers}

    @abstractmethod
    def _report(self, state: State) -> dict[str, Any]:
        """Return ``info`` without ``valid``, ``progress``, ``query`` and the metric ``turns``."""


class TaggedEnv(StatefulEnv[State, Options]):
    """An environment of T3: an action is one ``<interact>`` or one ``<answer>`` (`read_tags`).

    An answer may be any text: it is final, and right or wrong.

    Attributes:
        answer_now: the instruction to answer at once in the paper's style.
        your_turn: the end of the observation after a malformed response.
    """

    answer_now: ClassVar[str]
    your_turn = ""

    async def _turn(self, action: str) -> StepResult:
        state, said = self.state, read_tags(action)
        asked = self.question(said.content, state) if said.kind == "interact" else said
        if not isinstance(asked, TaggedAction):
            came = self._ask(state, asked)
        else:
            came = self._reject(state, asked) if asked.problem else self._answer(state, asked.content)
        result: StepResult = await finished(came)
        return result

    @property
    def answer_instruction(self) -> str:
        """The instruction that the next turn must answer; one word in the compact style."""
        return COMPACT_ANSWER_NOW if self._compact else self.answer_now

    @property
    def reasons(self) -> Mapping[str, str]:
        """Messages about the environment's own problems of questions."""
        return {}

    def _reject(self, state: State, parsed: TaggedAction) -> StepResult:
        """Return the reason why the response could not be read. The response itself is not repeated."""
        return self._end_malformed(state, self._malformed_text(parsed))

    def _malformed_text(self, parsed: TaggedAction) -> str:
        if self._compact:
            return f"invalid {parsed.problem}"
        detail = f" ({parsed.detail})" if parsed.detail else ""
        reason = {**MALFORMED_REASONS, **self.reasons}[parsed.problem]
        return f"Your last response was not valid: {reason}{detail}.{self.your_turn}"

    @abstractmethod
    def question(self, content: str, state: State) -> Any:
        """Read the content of ``<interact>``: a question in the environment's form, or `malformed`."""

    @abstractmethod
    def _ask(self, state: State, asked: Any) -> Any: ...

    @abstractmethod
    def _answer(self, state: State, answer: str) -> StepResult: ...
