"""Seven small held-out tasks, written after every method and its defaults were fixed.

    python -m benchmarks.equal_steps --local --jobs 2 --world science --seeds 5

Nothing in the package was tuned on them. Their difficulty was adjusted to the success of the warm-start models, and
the test codes of `Deduction` were chosen again because the first ones differed from those of training. `Blocks` and
`River` were written last, after 3spo was fixed; their observations contain everything that decides success.
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
    """Base of the seven: a seed is a task, and a mediocre player errs with probability `errors`."""

    blocking = "inline"  # a step takes microseconds, and runs repeat bit for bit
    observation_space = action_space = Text(max_length=1000)
    errors: ClassVar[float]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(Random(seed))
        return self.first(), {}

    def step(self, action: str) -> Step:
        words = tuple(action.split())
        if words not in self.possible():
            return f"not possible . {self.shown()}", 0.0, False, False, {"valid": False, "success": False}
        reward, ended, success = self.act(words)
        return self.shown(), reward, ended, False, {"success": success}

    def demonstrate(self, observation: str, random: Random) -> str:
        wrong = random.random() < self.errors
        return " ".join(random.choice(self.possible())) if wrong else self.expert(observation, random)

    def begin(self, random: Random) -> None:
        raise NotImplementedError

    def first(self) -> str:
        return self.shown()

    def shown(self) -> str:
        raise NotImplementedError

    def possible(self) -> list[tuple[str, ...]]:
        """Return the actions that are possible now."""
        raise NotImplementedError

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Return the reward, whether the episode has ended, and whether it is solved."""
        raise NotImplementedError

    def expert(self, observation: str, random: Random) -> str:
        """Return a good action."""
        raise NotImplementedError


class Deduction(Task):
    """Guess three colors in their order; an observation is only the answer to the last guess."""

    max_turns, errors = 6, 0.5
    codes: ClassVar = list(product(("red", "green", "blue", "white"), repeat=3))

    @classmethod
    def task_ids(cls, split: str) -> list[str]:
        """Every fourth code is a test task; colors have the same frequencies in each place as in training."""
        return [str(n) for n in range(len(cls.codes)) if ((n + n // 4 + n // 16) % 4 == 0) == (split == "test")]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.code = self.codes[int((options or {})["task_id"])]
        self.guesses: list[tuple[str, ...]] = []
        return "guess three colours of red green blue white", {}

    def shown(self) -> str:
        if not self.guesses:
            return "guess three colours"
        exact, near = self.answer(self.guesses[-1], self.code)
        return f"{exact} right {near} elsewhere"

    def possible(self) -> list[tuple[str, ...]]:
        return self.codes

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        self.guesses.append(words)
        return float(words == self.code), words == self.code, words == self.code

    def expert(self, observation: str, random: Random) -> str:
        told = [(guess, self.answer(guess, self.code)) for guess in self.guesses]
        return " ".join(random.choice([c for c in self.codes if all(self.answer(g, c) == said for g, said in told)]))

    @staticmethod
    def answer(guess: tuple[str, ...], code: tuple[str, ...]) -> tuple[int, int]:
        """Return the number of colors in their place, and of those elsewhere."""
        exact = sum(one == other for one, other in zip(guess, code, strict=True))
        return exact, sum(min(guess.count(colour), code.count(colour)) for colour in set(guess)) - exact


class Rooms(Task):
    """Find the lamp in a house that is seen room by room, and bring it to the start."""

    max_turns, errors = 24, 0.6
    names = ("hall", "kitchen", "attic", "cellar", "study", "garden", "stable")

    def begin(self, random: Random) -> None:
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
        return f"bring the lamp to the {self.start} . {self.shown()}"

    def shown(self) -> str:
        here = " . the lamp is here" if self.room == self.lamp and not self.carried else ""
        hand = " . you have the lamp" if self.carried else ""
        return f"{self.room} . doors to {' '.join(self.doors[self.room])}{here}{hand}"

    def possible(self) -> list[tuple[str, ...]]:
        here = [("take", "lamp")] if self.room == self.lamp and not self.carried else []
        return [*(("go", name) for name in self.doors[self.room]), *here]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        if words[0] == "take":
            self.carried = True
        else:
            self.room = words[1]
        solved = self.carried and self.room == self.start
        return float(solved), solved, solved

    def expert(self, observation: str, random: Random) -> str:
        """This player knows where the lamp is."""
        goal = self.start if self.carried else self.lamp
        if self.room == goal:
            return "take lamp"
        return f"go {first_door(self.doors, self.room, goal)}"


def first_door(doors: Mapping[str, list[str]], start: str, goal: str) -> str:
    """Return the next room of a shortest path, by breadth-first search from the goal."""
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
        return [(row, column) for row in range(self.size) for column in range(self.size)]

    def sides(self) -> list[tuple[str, ...]]:
        return [(side,) for side in SIDES if all(0 <= part < self.size for part in self.behind(side))]

    def behind(self, side: str) -> tuple[int, int]:
        return self.place[0] + SIDES[side][0], self.place[1] + SIDES[side][1]


class Traps(Field):
    """Cross a field of five by five to a goal; four traps are heard only from adjacent fields."""

    max_turns, errors = 16, 0.35
    size = 5

    def begin(self, random: Random) -> None:
        self.place, self.goal, *self.traps = random.sample(self.fields(), 6)

    def first(self) -> str:
        return f"reach the goal and mind the traps . {self.shown()}"

    def shown(self) -> str:
        heard = [side for side in SIDES if self.behind(side) in self.traps]
        return f"goal {distance(self.place, self.goal)} . clicks {' '.join(heard) or 'nowhere'}"

    def possible(self) -> list[tuple[str, ...]]:
        return self.sides()

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        self.place = self.behind(words[0])
        solved = self.place == self.goal
        return float(solved), solved or self.place in self.traps, solved

    def expert(self, observation: str, random: Random) -> str:
        """Move closer to the goal where that is safe."""
        safe = [side for (side,) in self.possible() if self.behind(side) not in self.traps]
        far = {side: sum(abs(a - b) for a, b in zip(self.behind(side), self.goal, strict=True)) for side in safe}
        return min(far, key=lambda side: (far[side], random.random())) if far else "north"


def distance(place: tuple[int, int], goal: tuple[int, int]) -> str:
    rows, columns = goal[0] - place[0], goal[1] - place[1]
    down = f"{abs(rows)} {'south' if rows > 0 else 'north'} " if rows else ""
    right = f"{abs(columns)} {'east' if columns > 0 else 'west'}" if columns else ""
    return (down + right).strip() or "here"


class Errand(Field):
    """Fetch one of three things in a field of four by four and bring it to another thing."""

    max_turns, errors = 20, 0.45
    size = 4
    things = ("red ball", "blue box", "green key", "grey ring")

    def begin(self, random: Random) -> None:
        fields = random.sample(self.fields(), 4)
        self.place, self.at = fields[0], dict(zip(random.sample(self.things, 3), fields[1:], strict=True))
        self.wanted, self.target = random.sample(sorted(self.at), 2)
        self.carried = ""

    def first(self) -> str:
        return f"bring the {self.wanted} to the {self.target} . {self.shown()}"

    def shown(self) -> str:
        seen = [f"{thing} {distance(self.place, self.at[thing])}" for thing in sorted(self.at) if thing != self.carried]
        return " , ".join(seen) + (f" . you carry the {self.carried}" if self.carried else "")

    def possible(self) -> list[tuple[str, ...]]:
        here = [("take", *thing.split()) for thing in self.at if self.at[thing] == self.place and not self.carried]
        return [*self.sides(), *here]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Solved if the right thing reaches the right place; taking a wrong one ends the episode."""
        if words[0] != "take":
            self.place = self.behind(words[0])
        else:
            self.carried = " ".join(words[1:])
        solved = self.carried == self.wanted and self.place == self.at[self.target]
        return float(solved), solved or bool(self.carried and self.carried != self.wanted), solved

    def expert(self, observation: str, random: Random) -> str:
        goal = self.at[self.target if self.carried else self.wanted]
        if self.place == goal:
            return f"take {self.wanted}"
        words = [word for word in distance(self.place, goal).split() if word in SIDES]
        return random.choice(words)


class Science(Task):
    """Melt, boil or freeze a substance, step by step: 0.1 for each step, -0.5 for a wrong one."""

    max_turns, errors = 24, 0.5
    machines: ClassVar[dict[str, str]] = {"melt": "stove", "boil": "burner", "freeze": "freezer"}
    substances = ("wax", "water", "butter", "juice", "iron")
    tools = ("pot", "tray", "dish")

    def begin(self, random: Random) -> None:
        self.verb, self.substance = random.choice(sorted(self.machines)), random.choice(self.substances)
        self.tool = random.choice(self.tools)
        self.others = random.sample([s for s in self.substances if s != self.substance], 2)
        self.done: list[tuple[str, ...]] = []

    def first(self) -> str:
        return f"{self.verb} {self.substance} in the {self.tool} . {self.shown()}"

    def shown(self) -> str:
        last = " ".join(self.done[-1]) if self.done else "nothing"
        return f"done {last} . around {' '.join(sorted((self.substance, *self.others)))}"

    def parts(self) -> list[tuple[str, ...]]:
        machine = self.machines[self.verb]
        return [("take", self.tool), ("pour", self.substance), ("open", machine), ("put", machine),
                ("start", machine), ("wait",), ("focus", self.substance)]  # fmt: skip

    def possible(self) -> list[tuple[str, ...]]:
        substances = (self.substance, *self.others)
        machines = [(verb, m) for verb in ("open", "put", "start") for m in sorted(self.machines.values())]
        return [*(("take", tool) for tool in self.tools), *(("pour", s) for s in substances), *machines, ("wait",),
                *(("focus", s) for s in substances)]  # fmt: skip

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Only the next step counts; focusing on a wrong substance, or too early, ends the episode."""
        parts = self.parts()
        if words == parts[len(self.done)]:
            self.done.append(words)
            solved = len(self.done) == len(parts)
            return 0.4 if solved else 0.1, solved, solved
        return (-0.5, True, False) if words[0] == "focus" else (0.0, False, False)

    def expert(self, observation: str, random: Random) -> str:
        return " ".join(self.parts()[len(self.done)])


class Blocks(Task):
    """Build a tower of three of four blocks that stand in random stacks; one free block is moved at a time."""

    max_turns, errors = 16, 0.6
    colours = ("red", "green", "blue", "white")

    def begin(self, random: Random) -> None:
        self.goal = random.sample(self.colours, 3)
        self.stacks: list[list[str]] = []
        for colour in random.sample(self.colours, 4):
            if self.stacks and random.random() < 0.6:
                random.choice(self.stacks).append(colour)
            else:
                self.stacks.append([colour])
        if self.built():
            self.stacks = [[colour] for colour in self.colours]

    def shown(self) -> str:
        stacks = " , ".join(" ".join(stack) for stack in sorted(self.stacks))
        return f"build {' '.join(self.goal)} . stacks {stacks}"

    def possible(self) -> list[tuple[str, ...]]:
        free = [stack[-1] for stack in self.stacks]
        down = [(stack[-1], "down") for stack in self.stacks if len(stack) > 1]
        return [*down, *((one, "on", other) for one in free for other in free if one != other)]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        moved = [[block for block in stack if block != words[0]] for stack in self.stacks]
        if words[1] == "down":
            moved.append([words[0]])
        else:
            next(stack for stack in moved if words[2] in stack).append(words[0])
        self.stacks = [stack for stack in moved if stack]
        return float(self.built()), self.built(), self.built()

    def built(self) -> bool:
        return self.goal in [stack[:3] for stack in self.stacks]

    def expert(self, observation: str, random: Random) -> str:
        """Return what frees the next block of the goal, or puts it where it belongs."""
        done = max(self.height(stack) for stack in self.stacks)
        best = next((stack for stack in self.stacks if self.height(stack) == done > 0), None)
        if best is not None and len(best) > done:
            return f"{best[-1]} down"
        wanted = self.goal[done]
        holder = next(stack for stack in self.stacks if wanted in stack)
        if holder[-1] != wanted or best is None:
            return f"{holder[-1]} down"
        return f"{wanted} on {best[-1]}"

    def height(self, stack: list[str]) -> int:
        """Return how many blocks of the goal stand at the stack's bottom, in their order."""
        same = [block == goal for block, goal in zip(stack, self.goal, strict=False)]
        return same.index(False) if False in same else len(same)


class River(Task):
    """Bring three things across a river in a boat for one; two pairs of them must not be left alone."""

    max_turns, errors = 20, 0.4
    names = ("wolf", "goat", "cabbage", "fox", "goose", "corn")

    def begin(self, random: Random) -> None:
        self.left, self.middle, self.right = random.sample(self.names, 3)
        self.over: set[str] = set()
        self.boat_over = False

    def shown(self) -> str:
        here = sorted(thing for thing in self.things() if (thing in self.over) == self.boat_over)
        there = sorted(set(self.things()) - set(here))
        danger = f"keep {self.middle} from {' '.join(sorted((self.left, self.right)))}"
        bank = "far" if self.boat_over else "near"
        return f"{danger} . {bank} bank . here {' '.join(here) or 'nothing'} . there {' '.join(there) or 'nothing'}"

    def things(self) -> tuple[str, str, str]:
        return self.left, self.middle, self.right

    def possible(self) -> list[tuple[str, ...]]:
        return [("cross",), *(("ferry", thing) for thing in self.things() if (thing in self.over) == self.boat_over)]

    def act(self, words: tuple[str, ...]) -> tuple[float, bool, bool]:
        """Move the boat; an unsafe pair without it ends the episode."""
        self.over ^= set(words[1:])
        self.boat_over = not self.boat_over
        alone = {thing for thing in self.things() if (thing in self.over) != self.boat_over}
        solved = len(self.over) == 3
        return float(solved), solved or (self.middle in alone and len(alone) > 1), solved

    def expert(self, observation: str, random: Random) -> str:
        """Ferry the middle thing first, take it back when the second one has crossed, and fetch it last."""
        outer = sorted((self.left, self.right))
        across = [thing for thing in outer if thing in self.over]
        if not self.boat_over:
            if self.middle not in self.over and (len(across) != 1 or len(self.over) == 0):
                return f"ferry {self.middle}"
            return f"ferry {next(thing for thing in outer if thing not in self.over)}"
        if self.middle in self.over and across:
            return f"ferry {self.middle}"
        return "cross"
