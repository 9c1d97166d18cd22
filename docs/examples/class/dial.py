"""Open a safe by its dial, in TRL's form: public methods are tools."""


class Dial:
    max_turns = 10

    def reset(self, start: int, goal: int, **row) -> str:
        self.position, self.goal = start, goal
        return f"turn the dial to open the safe: {self._seen()}"

    def turn(self, direction: str) -> str:
        """Turn the dial by one position.

        Args:
            direction: up or down.
        """
        if direction not in ("up", "down"):
            raise ValueError(f"no direction {direction}")
        self.position += 1 if direction == "up" else -1
        return self._seen()

    def get_reward(self) -> float:
        return float(self.position == self.goal)

    def _seen(self):
        if self.position == self.goal:
            return "it is open"
        return "it is too low" if self.position < self.goal else "it is too high"

    def _demonstrate(self, observation, random):
        """A mediocre player that the warm-start model imitates. TRL ignores it."""
        if random.random() < (0.8 if self.position == self.goal else 0.2):
            return "done"
        direction = "up" if self.position < self.goal else "down"
        if random.random() < 0.3:
            direction = random.choice(["up", "down"])
        return f'<tool_call> {{"name": "turn", "arguments": {{"direction": "{direction}"}}}} </tool_call>'
