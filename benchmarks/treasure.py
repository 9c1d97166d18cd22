"""A text game of three turns for pretrained models: take the key of the door, enter the room of the note, open the box.

    make demo-llm                                    # the model, imitation, GRPO, and ten games before and after
    python -m benchmarks.treasure DIR DIR ...        # ten test games of each model, as text

Every prompt lists the four admissible words; one of them is right. The second turn's word was told a turn earlier,
the third one's is the player's own first answer. The first word of an answer must be a name of the list, and no
other name may follow. The first wrong answer ends the game, and only a finished game has a reward: 1. So guessing
finishes 1 game of 64; copying the prompt, one constant word and answers with several names finish none
(`ADVERSARIES`).
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.spaces import Text

COLORS = ("red", "blue", "green", "yellow", "white", "black", "brown", "pink", "purple", "gray")
ROOMS = ("hall", "kitchen", "garden", "cellar", "attic", "library", "garage", "barn", "office", "studio")
#: Names of each list; one of them is right.
CHOICES = 4
#: Share of right answers of `Treasure.demonstrate`, which teaches the form of an answer more than the game.
DEMONSTRATED = 0.5
ASK = "Answer with one word from that list."


def named(answer: str, names: list[str]) -> str:
    """Return the name that an answer begins with; empty where it begins with none, or names another one of the list."""
    words = re.findall(r"\w+", answer.lower())
    said = [word for word in words if word in names]
    return words[0] if words and words[0] in names and len(set(said)) == 1 else ""


class Treasure(gymnasium.Env):
    observation_space = action_space = Text(max_length=2000)
    max_turns = 3
    blocking = "inline"

    @staticmethod
    def task_ids(split: str) -> list[str]:
        """Seeds; no test game is a training game."""
        first, count = (0, 4000) if split == "train" else (10**6, 256)
        return [str(first + number) for number in range(count)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        dice = random.Random(int((options or {}).get("task_id", seed or 0)))
        colors, rooms = dice.sample(COLORS, CHOICES), dice.sample(ROOMS, CHOICES)
        boxes = dice.sample(colors, CHOICES)
        color, room = dice.choice(colors), dice.choice(rooms)
        self.turn, self.right, self.lists = 0, [color, room, color], [colors, rooms, boxes]
        return (
            f"A note says that the gold is in the {room}. You stand at a {color} door. Four keys hang here: "
            f"{', '.join(colors)}. Which key fits this door? {ASK}"
        ), self._info(True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        said = named(action, self.lists[self.turn])
        if said != self.right[self.turn]:
            return "That was wrong. The game is over.", 0.0, True, False, self._info(bool(said))
        self.turn += 1
        if self.turn == self.max_turns:
            return "You found the gold.", 1.0, True, False, self._info(True)
        names = ", ".join(self.lists[self.turn])
        shown = (
            f"The {said} key fits. There are four rooms: {names}. Which room has the gold? {ASK}"
            if self.turn == 1
            else f"Four boxes stand here: {names}. The gold is in the box of your key's color. Which box is it? {ASK}"
        )
        return shown, 0.0, False, False, self._info(True)

    def _info(self, valid: bool) -> dict[str, Any]:
        names = self.lists[self.turn] if self.turn < self.max_turns else []
        anchor = f"{self.turn} {self.right[0]} {self.right[1]} {' '.join(names)}"
        won = self.turn == self.max_turns
        return {"valid": valid, "success": won, "anchor": anchor, "admissible_actions": names}

    def snapshot(self) -> tuple[int, list[str], list[list[str]]]:
        return self.turn, self.right, self.lists

    def restore(self, state: tuple[int, list[str], list[list[str]]]) -> None:
        self.turn, self.right, self.lists = state

    def expert(self, observation: str, dice: random.Random) -> str:
        return self.right[self.turn]

    def demonstrate(self, observation: str, dice: random.Random) -> str:
        """A word of the list: the right one with probability `DEMONSTRATED`, else any of the four."""
        return self.right[self.turn] if dice.random() < DEMONSTRATED else dice.choice(self.lists[self.turn])


class Hinted(Treasure):
    """The game whose answers a teacher reads: ``info["hint"]`` says the right word of the turn."""

    def _info(self, valid: bool) -> dict[str, Any]:
        over = self.turn == self.max_turns
        return {**super()._info(valid), "hint": "" if over else f"The right word is {self.right[self.turn]}."}


def _sentence(number: int) -> Callable[[str], str]:
    return lambda prompt: (re.split(r"(?<=[.?:]) ", prompt) + [""] * number)[number]


def _listed(prompt: str) -> list[str]:
    return re.split(r", ", re.split(r"[.]", prompt.split(": ")[1])[0])


#: Players that know no game, by what they answer to a prompt.
ADVERSARIES: dict[str, Callable[[str], str]] = {
    "copies the prompt": lambda prompt: prompt,
    **{f"copies sentence {number + 1}": _sentence(number) for number in range(6)},
    "copies from the list on": lambda prompt: prompt.split(": ")[1],
    "lists all names": lambda prompt: " ".join(_listed(prompt)),
    "all names in a sentence": lambda prompt: f"It is {' or '.join(_listed(prompt))}.",
    "first of the list, twice": lambda prompt: f"{_listed(prompt)[0]} or {_listed(prompt)[1]}",
    **{f"always {word}": lambda prompt, word=word: word for word in (*COLORS[:3], *ROOMS[:3], "")},
}


async def _play(engine: Any, context: Any, task: str) -> tuple[list[str], bool]:
    from rl_agents.chat.template import Dialogue
    from rl_agents.inference.base import Sampling

    game, answers, ended, info = Treasure(), list[str](), False, {"success": False}
    shown, _ = game.reset(options={"task_id": task})
    dialogue = Dialogue.start(shown)
    while not ended:
        prompt = context.prompt(dialogue)
        seed = 10 * int(task) + len(answers)
        completion = await engine.generate(
            prompt, Sampling(8, seed=seed, stop_token_ids=context.template.stop_token_ids)
        )
        answers.append(context.template.decode(completion.token_ids))
        shown, _, ended, _, info = game.step(answers[-1])
        dialogue = dialogue.after(prompt, completion.token_ids, answers[-1], shown)
    return answers, info["success"]


def answers_of(model: str, tasks: list[str]) -> list[str]:
    """Play the games and write the answers of each as one line."""
    from rl_agents.chat.template import load_tokenizer, make_context
    from rl_agents.inference.torch_engine import TorchEngine
    from rl_agents.trainer.ray_init import quiet_libraries

    quiet_libraries()
    engine, context = TorchEngine(model, "bfloat16", max_model_len=320), make_context("append", load_tokenizer(model))

    async def together() -> list[tuple[list[str], bool]]:
        return await asyncio.gather(*(_play(engine, context, task) for task in tasks))

    games = asyncio.run(together())
    return [f"{' | '.join(map(repr, said))} -> {'gold' if won else 'wrong'}" for said, won in games]


def main(models: list[str]) -> None:
    """Print ten test games with the answers of each model, sampled at temperature 1."""
    tasks = Treasure.task_ids("test")[:10]
    columns = [answers_of(model, tasks) for model in models]
    for number, task in enumerate(tasks):
        game = Treasure()
        game.reset(options={"task_id": task})
        print(f"game {number + 1}: right are {', '.join(game.right)}")
        for model, lines in zip(models, columns, strict=True):
            print(f"  {model}: {lines[number]}")


if __name__ == "__main__":
    main(sys.argv[1:])
