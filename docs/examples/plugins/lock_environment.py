"""An environment: find the number of a lock; the reply to each try is "higher" or "lower"."""

import gymnasium
from gymnasium.spaces import Text

from rl_agents.envs.base import environment


@environment("own-lock")
class Lock(gymnasium.Env):
    """Thirty numbers."""

    observation_space = action_space = Text(max_length=1000)
    max_turns = 6
    progress_window = 2

    @staticmethod
    def task_ids(split):
        """A task is the lowest of thirty numbers, and the one that opens. Every third lowest number is for tests."""
        lowest = [low for low in range(1, 31) if (low % 3 == 0) == (split == "test")]
        return [f"{low} {n}" for low in lowest for n in range(low, low + 30)]

    def reset(self, *, seed=None, options=None):
        """Start with all numbers possible."""
        super().reset(seed=seed)
        self.low, self.secret = map(int, options["task_id"].split())
        self.high = self.low + 29
        return f"a number from {self.low} to {self.high} opens the lock", {}

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
        """A forgetful player that the warm-start model imitates: every other number is any of all."""
        low, high = random.choice([(self.low, self.high), (1, 59)])
        return f"<think> {low} to {high} </think> {random.randint(low, high)}"
