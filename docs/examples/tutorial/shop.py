"""A tool of your own: a price list that an agent queries before it says what two things cost together."""

import random

import gymnasium
from gymnasium.spaces import Text

THINGS = ("apple", "bread", "candle", "dish", "egg", "fork")


def price_of(thing: str, day: int) -> int:
    """The tool: what a thing costs on a day. Yours may ask a database or a server; then write `async def step`."""
    return random.Random(f"{thing} on day {day}").randint(1, 6)


class Shop(gymnasium.Env):
    observation_space = action_space = Text(max_length=200)
    max_turns = 6

    @staticmethod
    def task_ids(split):
        """A task is a day and two things; every fifth day is a test task."""
        days = [day for day in range(200) if (day % 5 == 0) == (split == "test")]
        return [f"{day}/{first}/{second}" for day in days for first in THINGS for second in THINGS if first < second]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        day, first, second = options["task_id"].split("/")
        self.day, self.wanted, self.known = int(day), (first, second), {}
        return f"what cost {first} and {second} ?", {}

    def step(self, action):
        word, _, rest = action.strip().partition(" ")
        if word == "price" and rest in THINGS:
            new = rest in self.wanted and rest not in self.known
            self.known[rest] = price_of(rest, self.day)
            return f"{rest} costs {self.known[rest]}", 0.0, False, False, {"success": False, "progress": new}
        if word == "answer":
            right = rest == str(sum(price_of(thing, self.day) for thing in self.wanted))
            return "right" if right else "wrong", float(right), True, False, {"success": right}
        return "say price and a thing , or answer and a number", 0.0, False, False, {"valid": False, "success": False}

    def snapshot(self):
        return self.day, self.wanted, dict(self.known)

    def restore(self, state):
        self.day, self.wanted, known = state
        self.known = dict(known)

    def expert(self, observation, rng):
        """Ask for what is not known, then add."""
        missing = [thing for thing in self.wanted if thing not in self.known]
        return f"price {missing[0]}" if missing else f"answer {sum(self.known[thing] for thing in self.wanted)}"

    def demonstrate(self, observation, rng):
        """A careless customer that the warm-start model imitates: guesses early, and asks for other prices."""
        if rng.random() < 0.25:
            return f"answer {rng.randint(2, 12)}"
        return f"price {rng.choice(THINGS)}" if rng.random() < 0.25 else self.expert(observation, rng)
