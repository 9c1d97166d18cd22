"""``textarena:<game>``: games of the package textarena; one seat is the agent's, opponents have the others.

A task is ``seed-7``: all that happens until the agent's first turn. Later draws, and those of opponents, follow the
episode's own seed. With textarena's observation wrappers, every turn begins a new dialogue, as the wrapper repeats what
it shows of the past. Without (ids that end in ``-raw``), a turn adds the messages since the agent's last move.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

from rl_agents.config.options import key, off, on
from rl_agents.envs.coroutines import finished
from rl_agents.envs.gymnasium_adapter import LibraryEnv, SeedOptions, options_of, seeded_tasks, task_seed, words_starter
from rl_agents.envs.options import OlderOpponentKey, shared_game
from rl_agents.envs.spec import EnvFamily, EnvSpec, StarterSpec
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.textarena.opponents import listed_move, opponent_of
from rl_agents.errors import InputError, NoPlayer, named, number_from, report_once, similar
from rl_agents.installation import import_extra
from rl_agents.tools.thoughts import read_thoughts

PREFIX, PAGE = "textarena:", "docs/environments/textarena.md"
#: Games of version 0.7.4 that call a hosted model.
HOSTED = ("Crosswords", "Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions")
MAX_TURNS = 50
task_ids = seeded_tasks


@dataclass(frozen=True)
class GameOptions(OlderOpponentKey, SeedOptions):
    """Keys of textarena; see docs/environments/textarena.md."""

    kwargs: dict[str, Any] = key({}, "constructor arguments of the game, such as {max_rounds: 3}")
    success_return: float = key(1.0, "lowest reward of a success")
    players: int = key(0, "number of players; 0 for 1 or 2, as the game's code has it", ge=0)
    seat: int | None = key(None, "the agent's seat, from 0; empty for all in turn, by the number of the task", ge=0)
    opponent: str = key(
        "random", "the other players: random, <module>:<function>, a model folder, a URL up to /v1, self, or checkpoint"
    )
    eval_opponent: str = key("random", "the same in evaluations", needs=on(opponent=("self", "checkpoint")))
    opponent_model: str = key("", "name of the model on the server", needs=off(opponent="random"))
    opponent_tokens: int = key(256, "longest response of a model, in tokens", ge=1, needs=off(opponent="random"))
    opponent_temperature: float = key(1.0, "sampling temperature of a model", ge=0, needs=off(opponent="random"))


def offline(name: str) -> AbstractContextManager[Any]:
    """Let NLTK, whose downloads some games start, look for its data on this machine only; ``name`` begins errors."""
    nltk = importlib.import_module("nltk")

    def installed(wanted: str | list[str], *others: Any, **more: Any) -> None:
        for data in [wanted] if isinstance(wanted, str) else wanted:
            if not any(list(Path(folder).glob(f"*/{data}*")) for folder in nltk.data.path):
                raise InputError(f"{name}: the game needs data of NLTK: python -m nltk.downloader {data}")

    return mock.patch.object(nltk, "download", installed)


def entry_point(game: str) -> Any:
    """Return the class of a game; raises as `game_spec` does."""
    known = import_extra("textarena.envs.registration", "textarena").ENV_REGISTRY
    if game not in known:
        raise InputError(f"unknown game of textarena '{game}': {similar(game, known, f'{PAGE} has examples')}")
    module, _, kind = known[game].entry_point.partition(":")
    if module.split(".")[2] in HOSTED:
        raise InputError(f"{PREFIX}{game}: the game calls a hosted model, and runs have no network")
    with named(f"{PREFIX}{game} cannot be loaded"), offline(f"{PREFIX}{game}"):
        return getattr(importlib.import_module(module), kind)


def game_spec(name: str) -> EnvSpec:
    """Return the spec of ``textarena:<game>``."""
    entry_point(game := name.removeprefix(PREFIX))
    options = options_of(game, GameOptions, "id of the game")
    return EnvSpec(name, f"the game {game}", PAGE, options, MAX_TURNS, __name__, name, blocking="inline", seats=seats)


def players_of(options: Any) -> int:
    alone = "SinglePlayerState" in inspect.getsource(entry_point(options.id))
    return options.players or (1 if alone else 2)


def seats(options: Any) -> int:
    """Return the number of players if the policy has all seats, else 1; raises `InputError`: it is a game for one."""
    if not shared_game(options):
        return 1
    if (players := players_of(options)) == 1:
        raise InputError(f"env.opponent={options.opponent}: {PREFIX}{options.id} is a game for one player")
    return players


def against_others(options: Any) -> Any:
    """Return the options of games against other players, as in evaluations."""
    if not shared_game(options):
        return options
    return replace(options, opponent=options.eval_opponent, eval_opponent="random", opponent_interval=10)


def starter(name: str, options: Any) -> StarterSpec:
    """Return the warm-start model that imitates random moves; raises `NoPlayer`: a game with textarena's wrappers."""
    if not options.id.endswith("-raw"):
        raise NoPlayer(name, f", or use {name}-raw if the game lists its moves")
    return words_starter(game_spec(name), GameEnv, against_others(options), "random_move", "")


FAMILY = EnvFamily(f"{PREFIX}<game>", "a game of TextArena, alone or against opponents", PAGE, game_spec, starter)


@dataclass
class Match:
    """An episode. ``generator`` is the state of Python's own generator inside of the game's calls.

    ``rng`` is the opponents', ``seat`` the agent's (with ``shared``, the one whose turn it is), and ``chats`` has the
    messages of each seat's present dialogue.
    """

    seat: int
    rng: random.Random
    generator: Any
    game: Any = None
    chats: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    wrapped: bool = False
    turns: int = 0
    invalid: int = 0
    done: bool = False
    shared: bool = False

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let the game draw from its own generator."""
        outside = random.getstate()
        random.setstate(self.generator)
        try:
            yield
        finally:
            self.generator = random.getstate()
            random.setstate(outside)

    def move(self, seat: int, response: str) -> bool:
        """Make a move, which is the response without thoughts; return whether the game accepted it."""
        action = read_thoughts(response).words
        self.chats[seat].append({"role": "assistant", "content": action})
        with self.drawing():
            self.done, _ = self.game.step(action)
        state = self.game.state
        return not (getattr(state, "error_count", 0) or state.game_info[seat].get("invalid_move"))

    def look(self) -> int:
        """Return whose turn it is; what that player reads is added to its chat."""
        with self.drawing():
            seat, shown = self.game.get_observation()
        self.wrapped = isinstance(shown, str)
        if self.wrapped:
            self.chats[seat] = []
        else:  # in the form of textarena's LLMObservationWrapper
            names = {-1: "GAME", **(self.game.state.role_mapping or {})}
            lines = [(names.get(sender, f"Player {sender}"), text) for sender, text, _ in shown if sender != seat]
            shown = "\n".join(f"[{sender}] {text}" for sender, text in lines)
        self.chats.setdefault(seat, []).append({"role": "user", "content": shown})
        return int(seat)


class GameEnv(LibraryEnv):
    """See the module. The reward is the game's at the end, for the agent's seat; a turn limit gives none."""

    def __init__(self, options: Any, max_turns: int) -> None:
        self.options, self.max_turns, self.name = against_others(options), max_turns, f"{PREFIX}{options.id}"
        self._players = players_of(options)
        if (options.seat or 0) >= self._players:
            raise InputError(f"env.seat={options.seat}: {self.name} has {self._players} players, counted from 0")
        self._opponent, self._match = opponent_of(self.options), cast(Match, None)

    def snapshot(self) -> Match:
        """Return a copy of the episode, with the state of every generator."""
        return copy.deepcopy(self._match)

    def restore(self, state: Match) -> None:
        """Continue from a snapshot of this or an equally configured environment."""
        self._match = copy.deepcopy(state)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        """Start ``options["task_id"]``, or a train task drawn with ``seed``; raises `InputError`: no such task."""
        number = task_seed(self.draw(seed, options, lambda: task_ids("train", self.options)))
        seat = number % self._players if self.options.seat is None else self.options.seat
        self._match = match = Match(seat, random.Random(number), random.Random(number).getstate())
        match.shared = bool((options or {}).get("seats"))
        make = import_extra("textarena", "textarena").make
        with named(f"{self.name} cannot begin with {self._players} players"), offline(self.name), match.drawing():
            match.game = make(self.options.id, **copy.deepcopy(self.options.kwargs))  # wrappers remember after a reset
            match.game.reset(num_players=self._players, seed=number)
        text = await self._until_own_turn(match)
        if seed is not None:
            match.rng, match.generator = random.Random(seed), random.Random(seed).getstate()
        return text, self._info(match, True)

    async def step(self, action: str) -> StepResult:  # type: ignore[override]
        """Move, and let the opponents move until the agent's next turn."""
        match = self._match
        valid = match.done or match.move(match.seat, action)  # done: the opponents ended the game before the first turn
        match.turns, match.invalid = match.turns + 1, match.invalid + (not valid)
        text = await self._until_own_turn(match)
        rewards = self._rewards(match) if match.done else [0.0] * self._players
        truncated = not match.done and match.turns >= self.max_turns * (self._players if match.shared else 1)
        return text, rewards[match.seat], match.done, truncated, self._info(match, valid, rewards)

    async def _until_own_turn(self, match: Match) -> str:
        """Let opponents move; return what the agent reads next."""
        while not match.done:
            if (seat := match.look()) == match.seat or match.shared:
                match.seat = seat
                return match.chats[seat][-1]["content"]
            match.move(seat, str(await finished(self._opponent(match.chats[seat], match.rng))))
            if match.game.state.game_info[seat].get("invalid_move"):
                line = f"{self.name}: the opponent {self.options.opponent} loses games by moves that are not valid"
                report_once(line, self.name, "opponent")
        return f"The game is over. {match.game.state.game_info[match.seat].get('reason') or ''}".strip()

    def _rewards(self, match: Match) -> list[float]:
        """Return the reward of every seat."""
        rewards, game_info = match.game.close()
        found = []
        for seat in range(self._players):
            reward = (rewards or {}).get(seat, 0.0)
            if isinstance(reward, str):  # four games give an invalid move's reward and its reason in the wrong order
                reward = game_info[seat]["reason"].rpartition(" ")[2]
            found.append(number_from(match.game.close, reward))
        return found

    def _info(self, match: Match, valid: bool, rewards: list[float] | None = None) -> dict[str, Any]:
        rewards = rewards or [0.0] * self._players
        metrics: dict[str, float] = {"turns": match.turns, "invalid_moves": match.invalid}
        if match.done and self._players > 1 and not match.shared:
            metrics[f"reward_seat_{match.seat}"] = rewards[match.seat]
        success = match.done and rewards[match.seat] >= self.options.success_return
        seat = {"seat": match.seat, "rewards": rewards} if self._players > 1 else {}
        again = match.wrapped and match.turns > 0
        return {"success": success, "valid": valid, "metrics": metrics, "new_dialogue": again, **seat}

    def player(self, method: str) -> Callable[[str, random.Random], str]:
        """Return the player of random moves."""
        return listed_move


make = GameEnv
