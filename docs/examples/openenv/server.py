"""An environment in OpenEnv's form: guess a number from 1 to 7 in three guesses.

python docs/examples/openenv/server.py 8000         # with the package openenv, in an environment of its own
"""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

GUESSES = 3


class Guess(Action):
    number: int


class Answer(Observation):
    text: str


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None):
        self.number, self.made = random.Random(seed).randint(1, 7), 0
        return Answer(text="guess a number from 1 to 7")

    def step(self, action: Guess, timeout_s=None):
        self.made += 1
        if action.number == self.number:
            return Answer(text="right", reward=1.0, done=True)
        text = f"{action.number} is too " + ("low" if action.number < self.number else "high")
        return Answer(text=text, reward=0.0, done=self.made >= GUESSES)

    @property
    def state(self):
        return State(step_count=self.made)


if __name__ == "__main__":
    app = create_fastapi_app(GuessEnvironment, Guess, Answer, max_concurrent_envs=256)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
