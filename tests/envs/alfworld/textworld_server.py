"""The real TextWorld engine behind a pipe, one JSON object a line. Runs in an interpreter of its own.

That interpreter needs ``textworld[pddl]`` and ``alfworld``; nothing of rl_agents is imported here, and nothing of
TextWorld (whose dependencies are under the GPL) in rl_agents' processes. Requests: ``{"load": path}`` and
``{"step": command}``. Answers: feedback, admissible, won, reward, done, cpu (seconds of this process), and expert (what
ALFWorld's hand-coded expert would do next; null where it does not know).
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("ALFWORLD_DATA", tempfile.mkdtemp(prefix="alfworld-data-"))


class Engine:
    """One TextWorld environment with ALFWorld's wrappers, and the expert beside it."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from alfworld.agents.expert import HandCodedTWAgent
        from textworld.envs import PddlEnv

        infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True, extras=["gamefile"])
        self._env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
        self._new_expert = lambda: HandCodedTWAgent(max_steps=10_000)
        self._expert: Any = None

    def load(self, path: str) -> dict[str, Any]:
        random.seed(0)  # the expert draws
        self._env.load(path)
        started = time.process_time()
        state = self._env.reset()
        cpu = time.process_time() - started
        self._expert = None
        if Path(path).with_name("traj_data.json").exists():
            self._expert = self._new_expert()
            self._expert.reset(path)
            self._expert.observe(state["feedback"])
        return _answer(state, 0, False, cpu, "look")

    def step(self, command: str) -> dict[str, Any]:
        started = time.process_time()
        state, reward, done = self._env.step(command)
        cpu = time.process_time() - started
        return _answer(state, reward, done, cpu, self._advice(state, command))

    def _advice(self, state: Any, command: str) -> str | None:
        if self._expert is None:
            return None
        try:
            advice: str = self._expert.act(state, 0, state["won"], command)
        except Exception:  # the expert gives up in many ways, none of which concern the comparison
            return None
        return advice


def _answer(state: Any, reward: float, done: bool, cpu: float, expert: str | None) -> dict[str, Any]:
    return {
        "feedback": state["feedback"], "admissible": list(state["admissible_commands"]), "won": bool(state["won"]),
        "reward": reward, "done": bool(done), "cpu": cpu, "expert": expert,
    }  # fmt: skip


def private_output() -> TextIO:
    """Return the pipe to the parent, and send everything else that prints to stdout to stderr."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def main() -> None:
    answers = private_output()
    try:
        engine = Engine()
    except ImportError as error:
        print(json.dumps({"error": f"ImportError: {error}"}), file=answers, flush=True)
        return
    print(json.dumps({"ready": sys.version.split()[0]}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = engine.load(request["load"]) if "load" in request else engine.step(request["step"])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
