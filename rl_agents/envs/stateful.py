"""What the built-in environments share: text spaces, tasks drawn with a seed, and a state that is all of an episode."""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import gymnasium
from gymnasium.spaces import Text

from rl_agents.background import at_once, settled
from rl_agents.envs.options import MalformedKey
from rl_agents.envs.spec import EnvSpec
from rl_agents.errors import InputError

StepResult = tuple[str, float, bool, bool, dict[str, Any]]
Dialogue = list[tuple[str, str]]
Played = tuple[Dialogue, dict[str, Any]]


class EpisodeState(Protocol):
    """All that changes in an episode: an immutable data class, so that a snapshot is a reference to it."""

    @property
    def turns(self) -> int:
        """Turns played."""
        ...

    @property
    def done(self) -> bool:
        """The episode has ended."""
        ...


State = TypeVar("State", bound=EpisodeState)
Options = TypeVar("Options")
Retrying = TypeVar("Retrying", bound=MalformedKey)


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
        awaited: `step` (and `reset`, where the environment says so) returns a coroutine: it waits for a server.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own declaration)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)
    registered: ClassVar[EnvSpec]
    awaited = False

    def __init__(self, options: Options | None = None, max_turns: int = 0) -> None:
        if max_turns < 0:
            raise InputError(f"max_turns={max_turns}: must not be negative")
        self.options: Options = self.registered.options() if options is None else options
        self.max_turns = max_turns or self.registered.max_turns
        self._state: State | None = None

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

    def _draw_task(self, seed: int | None, options: dict[str, Any] | None, ids: Callable[[], Sequence[str]]) -> str:
        """Return ``options["task_id"]``, or one of ``ids`` drawn with ``seed``."""
        super().reset(seed=seed)
        task_id: str | None = (options or {}).get("task_id")
        if task_id is not None:
            return task_id
        choices = ids()
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

    def _end_malformed(
        self: StatefulEnv[State, Retrying], new: State, observation: str, query: str | None = None
    ) -> StepResult:
        """End a turn whose response could not be read, and the episode where the key ``malformed`` says so."""
        ends = self.options.malformed == "end"
        return self._end_turn(new, observation, valid=False, progress=None, terminated=ends, query=query)

    @abstractmethod
    def _info(self, state: State, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        """Return ``info`` after a turn, without ``query``."""


def play(env: StatefulEnv[Any, Any], task_id: str, act: Callable[[str], tuple[str, str]]) -> Played:
    """Let a scripted player play ``task_id``.

    Args:
        act: observation -> (what stands in the dialogue as observation, action). It may look at ``env.state``.

    Returns:
        The dialogue, and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    observation, info = settled(env.reset(options={"task_id": task_id}))
    dialogue: Dialogue = []
    over = False
    while not over:
        shown, action = act(observation)
        dialogue.append((shown, action))
        observation, _, terminated, truncated, info = settled(env.step(action))
        over = terminated or truncated
    return dialogue, info
