"""``python run.py new environment my_game``: a plugin to begin with, and its test, which passes as written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rl_agents.algorithms import ALGORITHMS
from rl_agents.cli.parser import Parser
from rl_agents.envs.base import is_environment
from rl_agents.errors import InputError
from rl_agents.rewards.base import REWARDS

ALGORITHM = '''"""An algorithm: {name}."""

from dataclasses import dataclass

from rl_agents.algorithms import register
from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.grpo import DualClipKeys, policy_loss
from rl_agents.data.steps import StepTable
from rl_agents.settings.options import key


@dataclass
class Keys(DualClipKeys):
    """Keys of {name}."""

    {name}_baseline: float = key(0.5, "subtracted from every return")


def credit(rows, trajectories, settings):
    """A_i = R_i - baseline, for every sampled token of episode i."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, _, of_step = table.returns("trajectories")
    table.spread(rows, (returns - settings.{name}_baseline)[of_step])


register(
    Recipe(
        name="{name}",
        summary="returns less a constant",
        reference="{name}.py",
        credit=credit,
        policy_loss=policy_loss,
        keys=Keys,
    )
)
'''
ALGORITHM_TEST = """from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.rows import lower
from rl_agents.data.trajectory import Step, Trajectory


def test_returns_less_the_baseline():
    settings = Settings.from_dict({{"plugins": ["{name}"], "algo": "{name}", "{name}_baseline": 0.25}})
    step = Step([1, 2], [3], [-0.5], 0, "stop", "", "", "", reward=1.0)
    episodes = [Trajectory("task", 0, 0, 0, [step])]
    rows = lower(episodes, "per_step")
    ALGORITHMS["{name}"].credit(rows, episodes, settings)
    assert rows[0].advantages.max() == 0.75
"""
ENVIRONMENT = '''"""An environment: {name}, in which the agent says a number back."""

import gymnasium
from gymnasium.spaces import Text

from rl_agents.envs.base import environment


@environment("{name}")
class Game(gymnasium.Env):
    """What else a class may have: docs/environments/gymnasium.md."""

    observation_space = action_space = Text(max_length=1000)
    max_turns = 3

    @staticmethod
    def task_ids(split):
        """Odd numbers are for training."""
        return [str(n) for n in range(40) if n % 2 == (split == "train")]

    def reset(self, *, seed=None, options=None):
        """Begin a task."""
        super().reset(seed=seed)
        self.number = options["task_id"]
        return f"say {{self.number}}", {{"anchor": self.number}}

    def step(self, action):
        """Judge an answer, the whole response of the model."""
        right = action.strip() == self.number
        return "yes" if right else f"say {{self.number}}", float(right), right, False, {{"success": right}}

    def demonstrate(self, observation, random):
        """A mediocre player, whom the starter model imitates."""
        return random.choice([self.number, "0"])
'''
ENVIRONMENT_TEST = """from rl_agents import plugins
from rl_agents.envs.base import make_env, task_ids


def test_a_right_and_a_wrong_answer():
    plugins.load(["{name}"])
    assert not set(task_ids("{name}", "train", {{}})) & set(task_ids("{name}", "test", {{}}))
    env = make_env("{name}", {{}})
    observation, _ = env.reset(seed=0, options={{"task_id": "7"}})
    assert observation == "say 7"
    assert env.step("8")[1:3] == (0.0, False)
    assert env.step("7")[1:3] == (1.0, True)
"""
REWARD = '''"""A reward: {name}."""

from rl_agents.rewards.base import reward


@reward("{name}", "1 for success, less 0.05 a turn")
def score(trajectory):
    """Score one finished episode."""
    return float(trajectory.success) - 0.05 * len(trajectory.steps)
'''
REWARD_TEST = """import pytest

from rl_agents.algorithms import Settings
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rewards.base import make_reward


def test_a_solved_episode_of_two_turns():
    reward = make_reward(Settings.from_dict({{"plugins": ["{name}"], "reward": "{name}"}}))
    steps = [Step([1], [2], [-0.5], 0, "stop", "", "", "") for _ in range(2)]
    episode = Trajectory("task", 0, 0, 0, steps, success=True)
    reward.apply([episode])
    assert episode.episode_return == pytest.approx(0.9)
"""
#: Kind -> its file, the file's test, and how the command goes on.
KINDS = {
    "algorithm": (ALGORITHM, ALGORITHM_TEST, "--algo {name}"),
    "environment": (ENVIRONMENT, ENVIRONMENT_TEST, "--env {name}"),
    "reward": (REWARD, REWARD_TEST, "--set reward={name}"),
}


def build_parser() -> Parser:
    """Return the parser of the new command."""
    parser = Parser("new", "Write a plugin to begin with, NAME.py, and its test, test_NAME.py.")
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("name", metavar="NAME", help="small letters, digits and _; also the name on the command line")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where (default: here)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the new command; return its exit code.

    Raises:
        InputError: a name that is none for a module, or is taken; a file that is there.
    """
    args = build_parser().parse(argv)
    name, (body, test, flags) = args.name, KINDS[args.kind]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise InputError(f"'{name}' is no name for a module: small letters, digits and _, a letter first")
    if {"algorithm": name in ALGORITHMS, "environment": is_environment(name), "reward": name in REWARDS}[args.kind]:
        raise InputError(f"there is an {args.kind} '{name}' already: choose another name")
    files = {args.folder / f"{name}.py": body, args.folder / f"test_{name}.py": test}
    for path in files:
        if path.exists():
            raise InputError(f"{path} exists: it is left as it is")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=name), encoding="utf-8")
    first, second = files
    print(f"wrote {first} and {second}\n  test it: cd {args.folder} && python -m pytest {second.name}")
    print(f"  use it:  python run.py --import {first} {flags.format(name=name)}")
    return 0
