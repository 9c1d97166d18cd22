"""An environment: find the number of a lock; the reply to each try is "higher" or "lower"."""

import gymnasium
from gymnasium.spaces import Text

from rl_agents.envs.base import environment


@environment("own-lock")
class Lock(gymnasium.Env):
    """Numbers from 1 to 60."""

    observation_space = action_space = Text(max_length=1000)
    max_turns = 6
    progress_window = 2

    @staticmethod
    def task_ids(split):
        """Every third number is a test task."""
        return [str(n) for n in range(1, 61) if (n % 3 == 0) == (split == "test")]

    def reset(self, *, seed=None, options=None):
        """Start with all numbers possible."""
        super().reset(seed=seed)
        self.secret, self.low, self.high = int(options["task_id"]), 1, 60
        return "a number from 1 to 60 opens the lock", {}

    def step(self, action):
        """Try a number."""
        word = action.split("</think>")[-1].strip()
        if not word.isdecimal():
            return "not a number", 0.0, False, False, {"valid": False, "success": False}
        guess, before = int(word), self.high - self.low
        if guess == self.secret:
            return "open", 1.0, True, False, {"success": True}
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        info = {"success": False, "progress": self.high - self.low < before}
        return "higher" if guess < self.secret else "lower", 0.0, False, False, info

    def demonstrate(self, observation, random):
        """A mediocre player that the warm-start model imitates."""
        return f"<think> {self.low} to {self.high} </think> {random.randint(self.low, self.high)}"
