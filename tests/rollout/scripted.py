"""Stand-ins: an engine that says what a function says, environments that behave in known ways, and T3's rule."""

import asyncio
import threading
import time
from collections.abc import Iterable

import gymnasium

from rl_agents.inference.base import Completion, EngineError
from rl_agents.rollout.truncation import StallMode, StallRule, TurnFacts


class ScriptedEngine:
    """Answers each prompt with the ids of ``script(prompt text)``; no model, so that the loop's own part shows."""

    def __init__(self, tokenizer, script, fail=lambda text: False):
        self.tokenizer, self.script, self.fail = tokenizer, script, fail
        self.requests = []
        self.running = self.most_running = 0

    async def generate(self, prompt_ids, sampling):
        self.requests.append((list(prompt_ids), sampling))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        text = self.tokenizer.decode(prompt_ids)
        if self.fail(text):
            raise EngineError("engine 0 died during generate")
        ids = [*self.tokenizer.encode(self.script(text), add_special_tokens=False), sampling.stop_token_ids[0]]
        reason = "stop" if len(ids) <= sampling.max_tokens else "length"
        ids = ids[: sampling.max_tokens]
        return Completion(ids, [-0.5] * len(ids), 3, reason)


class Countdown(gymnasium.Env):
    """Ends with reward 1 after ``length`` steps; odd tasks are never won. ``task-5`` names the fifth."""

    length = 3

    def reset(self, *, seed=None, options=None):
        self.number, self.turn = int(options["task_id"].removeprefix("task-")), 0
        return f"task {self.number} begins", {"anchor": "start"}

    def step(self, action):
        self.turn += 1
        done, won = self.turn >= self.length, self.number % 2 == 0
        info = {"success": done and won, "valid": action != "junk", "anchor": f"turn {self.turn}"}
        if done:
            info["metrics"] = {"turns": self.turn, "name": "not a number"}
        return f"turn {self.turn}", float(done and won), done, False, info


def spin():
    """Never end, and swallow the first interruption, as careless code does."""
    try:
        while True:
            pass
    except:  # noqa: E722
        pass
    while True:
        pass


class Broken(Countdown):
    """Misbehaves in the way that its task's number names, at its second step (or its reset)."""

    closed = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        if self.number == 10:
            raise KeyError("no such game")
        if self.number == 11:
            return observation
        return observation, info

    def step(self, action):
        good = super().step(action)
        observation, _, terminated, truncated, info = good
        answers = {
            12: lambda: (observation, "one", terminated, truncated, info),
            13: lambda: (observation, float("nan"), terminated, truncated, info),
            17: lambda: ("\ud800", 0.0, terminated, truncated, info),
            19: lambda: 1 / 0,
            20: lambda: time.sleep(60),
            21: spin,
            22: lambda: exit(3),
            23: lambda: (observation, 10**400, terminated, truncated, info),
            24: lambda: (*good[:4], {"lock": threading.Lock()}),
        }
        return answers.get(self.number, lambda: good)() if self.turn == 2 else good

    def close(self):
        type(self).closed += 1
        raise RuntimeError("cannot even close")


def fires_at(
    progress: Iterable[bool], k: int, mode: StallMode = "consecutive", *, minimum_turns: int = 0
) -> int | None:
    """1-based turn at which the rule of a fresh episode fires, or None."""
    rule = StallRule(k, mode, minimum_turns)
    turns = (TurnFacts(number, True, moved, "") for number, moved in enumerate(progress, start=1))
    return next((turn.number for turn in turns if rule.fires(turn)), None)
