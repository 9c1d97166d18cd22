"""Environments made with the package openenv, and its own client; run with an interpreter that has the package.

python openenv_server.py serve PORT: below /tools and /forms.
python openenv_server.py play URL SCRIPTS: plays lists of actions with the library's client, and prints what it saw.
"""

import asyncio
import json
import sys

from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from pydantic import Field


class Move(Action):
    """Move by some steps."""

    way: str = Field(pattern="^(up|down)$")
    steps: int = Field(ge=1, le=3)


class Place(Observation):
    place: int = 0
    goal: int = 0


class Walk(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, far=0):
        self.place, self.goal = 0, (seed or 0) % 3 + far
        return Place(place=0, goal=self.goal)

    def step(self, action, timeout_s=None):
        self.place += action.steps if action.way == "up" else -action.steps
        arrived = self.place == self.goal
        return Place(place=self.place, goal=self.goal, reward=1.0 if arrived else -0.25, done=arrived)

    @property
    def state(self):
        return State()


class Tools(MCPEnvironment):
    """A counter; a wrong tool call is told."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        from fastmcp import FastMCP

        server = FastMCP("counter")
        self.count = 0

        @server.tool
        def add(number: int) -> str:
            """Add a number to the counter."""
            if number < 0:
                raise ValueError("not below zero")
            self.count += number
            return f"the counter is {self.count}"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.count = seed or 0
        return Observation(metadata={"seed": seed})

    def _rated(self, observation):
        if isinstance(observation, CallToolObservation):
            observation.reward, observation.done = (0.0 if observation.error else 0.5), self.count >= 10
        return observation

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self._rated(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation()

    @property
    def state(self):
        return State()


async def played(url, scripts):
    found = {}
    for kind, episodes in scripts.items():
        async with GenericEnvClient(base_url=f"{url}/{kind}") as client:
            found[kind] = []
            for arguments, actions in episodes:
                seen = [await client.reset(**arguments)] + [await client.step(action) for action in actions]
                found[kind].append([[one.observation, one.reward, one.done] for one in seen])
    return found


def serve(port):
    """Serve both environments, below /tools and /forms."""
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()
    for kind, parts in (
        ("tools", (Tools, CallToolAction, CallToolObservation)),
        ("forms", (Walk, Move, Place)),
    ):
        app.mount(f"/{kind}", create_fastapi_app(*parts, max_concurrent_envs=2))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if sys.argv[1] == "play":
        print(json.dumps(asyncio.run(played(sys.argv[2], json.loads(sys.argv[3])))))
    else:
        serve(int(sys.argv[2]))
