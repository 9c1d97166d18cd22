"""What the built-in environments share: text spaces, tasks drawn with a seed, and a state that is all of an episode."""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import gymnasium
from gymnasium.spaces import Text

from rl_agents.background import at_once
from rl_agents.envs.spec import EnvSpec
from rl_agents.envs.tags import COMPACT_ANSWER_NOW, MALFORMED_REASONS, TaggedAction
from rl_agents.errors import InputError

StepResult = tuple[str, float, bool, bool, dict[str, Any]]
Dialogue = list[tuple[str, str]]
Played = tuple[Dialogue, dict[str, Any]]


class EpisodeState(Protocol):
    """All that changes in an episode: an immutable data class, so that a snapshot is a reference to it."""

    @property
    def turns(self) -> int: ...

    @property
    def done(self) -> bool: ...


State = TypeVar("State", bound=EpisodeState)
Options = TypeVar("Options")


def observations(max_length: int) -> Text:
    """Return the space of printable texts up to a length."""
    return Text(max_length=max_length, charset=string.printable)


class StatefulEnv(gymnasium.Env[str, str], Generic[State, Options]):
    """An environment whose episode is one value, ``_state``, that `snapshot` gives away and `restore` takes back.

    Args:
        options: the environment's keys; None takes their defaults.
        max_turns: turns of the agent; after the last the episode is truncated. 0 takes the environment's default.

    Attributes:
        registered: its entry in the registry.
        task_ids: (split, options) -> the ids of its tasks.
        awaited: `step` (and `reset`, where the environment says so) returns a coroutine: it waits for a server.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own declaration)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)
    registered: ClassVar[EnvSpec]
    task_ids: ClassVar[Any]  # a static method
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
            InputError: unknown task id, or what the environment needs cannot be used.
        """
        observation, self._state = self._begin(self._draw_task(seed, options))
        info = self._info(self._state, valid=True, progress=None)
        return observation, {**info, **self._opening(self._state)}

    def _train_ids(self) -> Sequence[str]:
        ids: list[str] = self.task_ids("train", self.options)
        return ids

    def _opening(self, state: State) -> dict[str, Any]:
        """Return what the first ``info`` has besides."""
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

    def snapshot(self) -> State | None:
        """Return the episode's state, to give to `restore` of this or an equally configured environment."""
        return self._state

    def restore(self, state: State | None) -> None:
        """Continue from ``state``. The random generator, which only `reset` uses, stays as it is."""
        self._state = state

    def _played(self, turn: Coroutine[Any, Any, StepResult]) -> Any:
        """Return what `step` returns: the result of a turn, or where it waits for a server the turn itself."""
        return turn if self.awaited else at_once(turn)

    def _draw_task(self, seed: int | None, options: dict[str, Any] | None) -> str:
        super().reset(seed=seed)
        task_id: str | None = (options or {}).get("task_id")
        if task_id is not None:
            return task_id
        choices = self._train_ids()
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
        """Count the turn, keep ``new``, and return what `step` returns; ``query`` enters ``info`` when there is one."""
        truncated = not terminated and new.turns + 1 >= self.max_turns
        counted: State = replace(new, turns=new.turns + 1, done=terminated or truncated)  # type: ignore[type-var]
        self._state = counted
        info = self._info(counted, valid=valid, progress=progress)
        if query is not None:
            info["query"] = query
        return observation, reward, terminated, truncated, info

    def _end_malformed(self, new: State, observation: str, query: str | None = None) -> StepResult:
        """End a turn whose response could not be read: it counts, and the agent is told what is wrong."""
        return self._end_turn(new, observation, valid=False, progress=None, query=query)

    @abstractmethod
    def _begin(self, task_id: str) -> tuple[str, State]:
        """Return a task's first observation and its state."""

    @abstractmethod
    def _info(self, state: State, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        """Return ``info`` after a turn, without ``query``."""


class TaggedEnv(StatefulEnv[State, Options]):
    """An environment of T3's: an action is one ``<interact>`` or one ``<answer>`` (`rl_agents.envs.tags.read_tags`).

    Attributes:
        answer_now: what asks for the answer at once in the paper's style.
        your_turn: what ends the observation after a malformed response.
    """

    answer_now: ClassVar[str]
    your_turn = ""

    def step(self, action: str) -> Any:
        """Play one turn with the agent's whole response.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        state = self.state
        parsed = self._read(action, state)
        if not isinstance(parsed, TaggedAction):
            return self._ask(state, parsed)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        return self._reject(state, parsed) if parsed.problem else self._ask(state, parsed.content)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer; the compact style has one word for it."""
        return COMPACT_ANSWER_NOW if self._compact else self.answer_now

    @property
    def _compact(self) -> bool:
        return bool(self.options.prompt == "compact")  # type: ignore[attr-defined]

    def _reject(self, state: State, parsed: TaggedAction) -> StepResult:
        """Tell the agent that, and why, its response could not be read; nothing of the response is repeated."""
        return self._end_malformed(state, self._malformed_text(parsed))

    def _malformed_text(self, parsed: TaggedAction) -> str:
        if self._compact:
            return f"invalid {parsed.problem}"
        detail = f" ({parsed.detail})" if parsed.detail else ""
        reason = {**MALFORMED_REASONS, **self._reasons()}[parsed.problem]
        return f"Your last response was not valid: {reason}{detail}.{self.your_turn}"

    def _reasons(self) -> Mapping[str, str]:
        """Return what the agent is told about malformed responses of the environment's own kinds."""
        return {}

    @abstractmethod
    def _read(self, response: str, state: State) -> Any:
        """Return the action: a `TaggedAction`, or a question as the environment reads it."""

    @abstractmethod
    def _ask(self, state: State, asked: Any) -> Any:
        """Play what stands in ``<interact>``."""

    @abstractmethod
    def _answer(self, state: State, answer: str) -> StepResult:
        """Play what stands in ``<answer>``."""
