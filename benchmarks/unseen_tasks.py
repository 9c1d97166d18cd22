"""Five small tasks of the kinds that users bring, written after every method and its defaults were fixed.

    python -m benchmarks.equal_steps --local --jobs 2 --world science --seeds 5

Nothing in the package was tuned on them; the tasks were made easier or harder by what their starts solve, and
`Deduction` got other test codes after the first ones were unlike those of training. `Deduction` answers a guess and
forgets it: its observations say less than its states. In `Rooms` the goal has to be found first. `Traps` ends at a
wrong step. `Errand` is easy and has instructions. `Science` pays for every part of a procedure, and takes away for a
wrong one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any, ClassVar

import gymnasium
from gymnasium.spaces import Text

Step = tuple[str, float, bool, bool, dict[str, Any]]
SIDES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}


class Task(gymnasium.Env[str, str]):
    """What the five have in common: a seed is a task, and a mediocre player errs as often as `errors` says."""

    observation_space = action_space = Text(max_length=1000)
    errors: ClassVar[float]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        self.begin(Random(seed))
        return self.first(), {}

    def step(self, action: str) -> Step:
        """See `gymnasium.Env.step`."""
        words = tuple(action.split())
        if words not in self.possible():
            return f"not possible . {self.shown()}", 0.0, False, False, {"valid": False, "success": False}
        reward, ended, success = self.act(words)
        return self.shown(), reward, ended, False, {"success": success}

    def demonstrate(self, observation: str, random: Random) -> str:
        """A mediocre player."""
        wrong = random.random() < self.errors
        return " ".join(random.choice(self.possible())) if wrong else self.expert(observation, random)

    def begin(self, random: Random) -> None:
        """Draw the task."""
        raise NotImplementedError

    def first(self) -> str:
        """The task in words, and what is seen."""
        return self.shown()

    def shown(self) -> str:
        """What is seen."""
        raise NotImplementedError

    def possible(self) -> list[tuple[str, ...]]:
        """The actions that mean something now."""
        raise NotImplementedError

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Reward, whether the episode has ended, whether it is solved."""
        raise NotImplementedError

    def expert(self, observation: str, random: Random) -> str:
        """A good action."""
        raise NotImplementedError


class Deduction(Task):
    """Guess three colours in their order; the answer to a guess is all that is said."""

    max_turns, errors = 6, 0.5
    codes: ClassVar = list(product(("red", "green", "blue", "white"), repeat=3))

    @classmethod
    def task_ids(cls, split: str) -> list[str]:
        """Every fourth code is a test task; each colour stands in each place as often as in training."""
        return [str(n) for n in range(len(cls.codes)) if ((n + n // 4 + n // 16) % 4 == 0) == (split == "test")]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The task is the code."""
        self.code = self.codes[int((options or {})["task_id"])]
        self.guesses: list[tuple[str, ...]] = []
        return "guess three colours of red green blue white", {}

    def shown(self) -> str:
        """How many are right, and how many stand elsewhere."""
        if not self.guesses:
            return "guess three colours"
        exact, near = self.answer(self.guesses[-1], self.code)
        return f"{exact} right {near} elsewhere"

    def possible(self) -> list[tuple[str, ...]]:
        """Any code."""
        return self.codes

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Solved, or not."""
        self.guesses.append(words)
        return float(words == self.code), words == self.code, words == self.code

    def expert(self, observation: str, random: Random) -> str:
        """A code that agrees with all answers."""
        told = [(guess, self.answer(guess, self.code)) for guess in self.guesses]
        return " ".join(random.choice([c for c in self.codes if all(self.answer(g, c) == said for g, said in told)]))

    @staticmethod
    def answer(guess: tuple[str, ...], code: tuple[str, ...]) -> tuple[int, int]:
        """Colours in their place, and colours elsewhere."""
        exact = sum(one == other for one, other in zip(guess, code, strict=True))
        return exact, sum(min(guess.count(colour), code.count(colour)) for colour in set(guess)) - exact


class Rooms(Task):
    """Find the lamp in a house that is only seen room by room, and bring it to where you began."""

    max_turns, errors = 24, 0.6
    names = ("hall", "kitchen", "attic", "cellar", "study", "garden", "stable")

    def begin(self, random: Random) -> None:
        """A tree of rooms and one more door."""
        names = random.sample(self.names, len(self.names))
        self.doors: dict[str, list[str]] = {name: [] for name in names}
        pairs = [(random.choice(names[:number]), names[number]) for number in range(1, len(names))]
        for one, other in (*pairs, tuple(random.sample(names, 2))):
            if other not in self.doors[one]:
                self.doors[one].append(other)
                self.doors[other].append(one)
        self.start = self.room = names[0]
        self.lamp, self.carried = random.choice(names[1:]), False

    def first(self) -> str:
        """The task."""
        return f"bring the lamp to the {self.start} . {self.shown()}"

    def shown(self) -> str:
        """The room, its doors and what lies there."""
        here = " . the lamp is here" if self.room == self.lamp and not self.carried else ""
        hand = " . you have the lamp" if self.carried else ""
        return f"{self.room} . doors to {' '.join(self.doors[self.room])}{here}{hand}"

    def possible(self) -> list[tuple[str, ...]]:
        """Doors, and the lamp."""
        here = [("take", "lamp")] if self.room == self.lamp and not self.carried else []
        return [*(("go", name) for name in self.doors[self.room]), *here]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Solved with the lamp at the start."""
        if words[0] == "take":
            self.carried = True
        else:
            self.room = words[1]
        solved = self.carried and self.room == self.start
        return float(solved), solved, solved

    def expert(self, observation: str, random: Random) -> str:
        """A shortest way: it knows where the lamp is."""
        goal = self.start if self.carried else self.lamp
        if self.room == goal:
            return "take lamp"
        return f"go {first_door(self.doors, self.room, goal)}"


def first_door(doors: Mapping[str, list[str]], start: str, goal: str) -> str:
    """The next room of a shortest way, by breadth-first search from the goal."""
    behind, queue = {goal: goal}, deque([goal])
    while start not in behind:
        room = queue.popleft()
        new = [other for other in doors[room] if other not in behind]
        behind.update(dict.fromkeys(new, room))
        queue.extend(new)
    return behind[start]


class Field(Task):
    """A square field that is walked step by step."""

    size: ClassVar[int]
    place: tuple[int, int]

    def fields(self) -> list[tuple[int, int]]:
        """All of it."""
        return [(row, column) for row in range(self.size) for column in range(self.size)]

    def sides(self) -> list[tuple[str, ...]]:
        """The sides that lead to a field, as actions."""
        return [(side,) for side in SIDES if all(0 <= part < self.size for part in self.behind(side))]

    def behind(self, side: str) -> tuple[int, int]:
        """The field on that side."""
        return self.place[0] + SIDES[side][0], self.place[1] + SIDES[side][1]


class Traps(Field):
    """Cross a field of five by five to a goal; four traps are only heard from beside them."""

    max_turns, errors = 16, 0.35
    size = 5

    def begin(self, random: Random) -> None:
        """Goal, start and traps."""
        self.place, self.goal, *self.traps = random.sample(self.fields(), 6)

    def first(self) -> str:
        """The task."""
        return f"reach the goal and mind the traps . {self.shown()}"

    def shown(self) -> str:
        """Where the goal is, and on which sides something is heard."""
        heard = [side for side in SIDES if self.behind(side) in self.traps]
        return f"goal {distance(self.place, self.goal)} . clicks {' '.join(heard) or 'nowhere'}"

    def possible(self) -> list[tuple[str, ...]]:
        """Steps."""
        return self.sides()

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """A trap ends it, and so does the goal."""
        self.place = self.behind(words[0])
        solved = self.place == self.goal
        return float(solved), solved or self.place in self.traps, solved

    def expert(self, observation: str, random: Random) -> str:
        """Nearer to the goal where that is safe."""
        safe = [side for (side,) in self.possible() if self.behind(side) not in self.traps]
        far = {side: sum(abs(a - b) for a, b in zip(self.behind(side), self.goal, strict=True)) for side in safe}
        return min(far, key=lambda side: (far[side], random.random())) if far else "north"


def distance(place: tuple[int, int], goal: tuple[int, int]) -> str:
    """In words."""
    rows, columns = goal[0] - place[0], goal[1] - place[1]
    down = f"{abs(rows)} {'south' if rows > 0 else 'north'} " if rows else ""
    right = f"{abs(columns)} {'east' if columns > 0 else 'west'}" if columns else ""
    return (down + right).strip() or "here"


class Errand(Field):
    """Fetch one of three things in a field of four by four and bring it to another one."""

    max_turns, errors = 20, 0.45
    size = 4
    things = ("red ball", "blue box", "green key", "grey ring")

    def begin(self, random: Random) -> None:
        """Things and the errand."""
        fields = random.sample(self.fields(), 4)
        self.place, self.at = fields[0], dict(zip(random.sample(self.things, 3), fields[1:], strict=True))
        self.wanted, self.target = random.sample(sorted(self.at), 2)
        self.carried = ""

    def first(self) -> str:
        """The instruction."""
        return f"bring the {self.wanted} to the {self.target} . {self.shown()}"

    def shown(self) -> str:
        """Where things are, seen from here."""
        seen = [f"{thing} {distance(self.place, self.at[thing])}" for thing in sorted(self.at) if thing != self.carried]
        return " , ".join(seen) + (f" . you carry the {self.carried}" if self.carried else "")

    def possible(self) -> list[tuple[str, ...]]:
        """Sides, and what lies here."""
        here = [("take", *thing.split()) for thing in self.at if self.at[thing] == self.place and not self.carried]
        return [*self.sides(), *here]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Solved where the right thing comes to the right place; the wrong one in the hand ends it."""
        if words[0] != "take":
            self.place = self.behind(words[0])
        else:
            self.carried = " ".join(words[1:])
        solved = self.carried == self.wanted and self.place == self.at[self.target]
        return float(solved), solved or bool(self.carried and self.carried != self.wanted), solved

    def expert(self, observation: str, random: Random) -> str:
        """Straight there."""
        goal = self.at[self.target if self.carried else self.wanted]
        if self.place == goal:
            return f"take {self.wanted}"
        words = [word for word in distance(self.place, goal).split() if word in SIDES]
        return random.choice(words)


class Science(Task):
    """Melt, boil or freeze a substance, part by part; a tenth for each part, and a half is lost with a wrong one."""

    max_turns, errors = 24, 0.5
    machines: ClassVar[dict[str, str]] = {"melt": "stove", "boil": "burner", "freeze": "freezer"}
    substances = ("wax", "water", "butter", "juice", "iron")
    tools = ("pot", "tray", "dish")

    def begin(self, random: Random) -> None:
        """What to do with which substance, in which vessel."""
        self.verb, self.substance = random.choice(sorted(self.machines)), random.choice(self.substances)
        self.tool = random.choice(self.tools)
        self.others = random.sample([s for s in self.substances if s != self.substance], 2)
        self.done: list[tuple[str, ...]] = []

    def first(self) -> str:
        """The assignment."""
        return f"{self.verb} {self.substance} in the {self.tool} . {self.shown()}"

    def shown(self) -> str:
        """What was done last, and what lies around."""
        last = " ".join(self.done[-1]) if self.done else "nothing"
        return f"done {last} . around {' '.join(sorted((self.substance, *self.others)))}"

    def parts(self) -> list[tuple[str, ...]]:
        """The procedure, in its order."""
        machine = self.machines[self.verb]
        return [("take", self.tool), ("pour", self.substance), ("open", machine), ("put", machine),
                ("start", machine), ("wait",), ("focus", self.substance)]  # fmt: skip

    def possible(self) -> list[tuple[str, ...]]:
        """Every action that the room allows."""
        substances = (self.substance, *self.others)
        machines = [(verb, m) for verb in ("open", "put", "start") for m in sorted(self.machines.values())]
        return [*(("take", tool) for tool in self.tools), *(("pour", s) for s in substances), *machines, ("wait",),
                *(("focus", s) for s in substances)]  # fmt: skip

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """The next part counts; a wrong substance in focus, or too early, ends it."""
        parts = self.parts()
        if words == parts[len(self.done)]:
            self.done.append(words)
            solved = len(self.done) == len(parts)
            return 0.4 if solved else 0.1, solved, solved
        return (-0.5, True, False) if words[0] == "focus" else (0.0, False, False)

    def expert(self, observation: str, random: Random) -> str:
        """The next part."""
        return " ".join(self.parts()[len(self.done)])
