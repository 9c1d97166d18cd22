"""Games with a policy in every seat: one environment, which each seat's episode sees as its own.

A step of a seat returns when it is the seat's turn again, or the game is over. So the episode of a seat is an ordinary
one, with its own dialogue, rewards and seed. An episode that ends before the game, because of a limit or a failure,
ends the game: the others are cut, or fail with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from rl_agents.envs.base import TextEnv
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_reset, read_seats, read_step
from rl_agents.rollout.env_worker import EnvGuard


class Game:
    """One game.

    Attributes:
        seats: the environments of its episodes.
        told: what the seat whose turn it is reads: (observation, info).
        over: (terminated, truncated) at the end; None: it continues.
        error: what stopped it, raised in every seat.
    """

    def __init__(self, env: TextEnv, guard: EnvGuard, seats: int) -> None:
        self.env, self.guard = env, guard
        self.told: tuple[str, Mapping[str, Any]] = "", {}
        self.over: tuple[bool, bool] | None = None
        self.error: BaseException | None = None
        self.seats = [SeatEnv(self, seat) for seat in range(seats)]

    async def begin(self, seed: int, task_id: str) -> None:
        """Reset the environment; raises like `EnvGuard.call`."""
        answer = await self.guard.call(self.env.reset, seed=seed, options={"task_id": task_id, "seats": True})
        read_reset(answer, env=self.env)
        self._tell(*answer)

    async def act(self, action: str) -> EnvReply:
        """Take the action of the seat whose turn it is; raises like `EnvGuard.call`."""
        try:
            answer = await self.guard.call(self.env.step, action)
            reply = read_step(answer, env=self.env)
            if reply.terminated or reply.truncated:
                self.over = reply.terminated, not reply.terminated
            self._tell(answer[0], answer[4])
        except Exception as error:
            self.over = None
            self.stop(error)
            raise
        return reply

    def stop(self, error: BaseException | None = None) -> None:
        """End a game that is not over: its other episodes are cut, or raise ``error``."""
        if self.over is None:
            self.over, self.error = (False, True), error
            self._call(*self.seats)

    def _tell(self, observation: str, info: Mapping[str, Any]) -> None:
        turn, rewards = read_seats(info, len(self.seats))
        for seat, reward in zip(self.seats, rewards, strict=True):
            seat.earned += reward
        self.told = observation, info
        self._call(*(self.seats if self.over else [self.seats[turn]]))

    def _call(self, *seats: SeatEnv) -> None:
        for seat in seats:
            seat.called.set()


class SeatEnv(EnvGuard):
    """A seat of a game, as the environment of its episode and the guard of its calls, which wait for other seats.

    Attributes:
        earned: rewards since its last action.
    """

    def __init__(self, game: Game, seat: int) -> None:
        super().__init__(game.guard.task_id, game.guard.generators.seed, 0.0)
        self.game, self.seat, self.earned, self.called = game, seat, 0.0, asyncio.Event()

    async def call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Await without a time limit; `Game.guard` limits the environment's own calls."""
        return await call(*args, **kwargs)

    async def turn(self) -> bool:
        """Wait until it is this seat's turn (True) or the game is over; raises `Game.error`."""
        await self.called.wait()
        self.called.clear()
        if isinstance(error := self.game.error, EnvFailure):
            raise EnvFailure(str(error)) from error.__cause__
        if error is not None:
            raise error
        return self.game.over is None

    async def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
        """Return what the seat reads in its turn, which has come; no other seat has its states."""
        observation, info = self.game.told
        return observation, {**info, "anchor": f"seat {self.seat}: {info.get('anchor', observation)}"}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act, and wait for the next turn; whether the seat has won is read from its rewards."""
        acted = await self.game.act(action)
        await self.turn()
        observation, info = await self.reset()
        observation = observation if info["seat"] == self.seat else ""  # the game ended in another seat's turn
        reward, self.earned = self.earned, 0.0
        own = {"valid": acted.valid, "success": None, "turn_metrics": acted.turn_metrics}
        return observation, reward, *(self.game.over or (False, False)), {**info, **own}
