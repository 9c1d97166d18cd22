"""Templates of ``run.py new``: a plugin of each kind and a test that passes as written; ``{name}`` is replaced."""

ALGORITHM = '''"""An algorithm: {name}."""

from dataclasses import dataclass

from rl_agents.algorithms import register
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.options import key
from rl_agents.config.sections import PolicyGradientKeys
from rl_agents.data.step_table import StepTable


@dataclass
class Keys(PolicyGradientKeys):
    """Keys of {name}"""

    {name}_baseline: float = key(0.5, "Baseline subtracted from every return")


def credit(rows, trajectories, settings):
    """A_i = R_i - baseline, for every sampled token of episode i."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, _, of_step = table.returns("trajectories")
    table.spread(rows, (returns - settings.{name}_baseline)[of_step])


register(
    AlgorithmSpec(
        name="{name}",
        summary="returns minus a constant",
        reference="{name}.py",
        credit=credit,
        policy_loss=policy_loss,
        keys=Keys,
    )
)
'''
ALGORITHM_TEST = """from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory


def test_returns_less_the_baseline():
    settings = Settings.from_dict({{"plugins": ["{name}"], "algo": "{name}", "{name}_baseline": 0.25}})
    step = Step([1, 2], [3], [-0.5], 0, "stop", "", "", "", reward=1.0)
    episodes = [Trajectory("task", 0, 0, 0, [step])]
    rows = build_samples(episodes, "per_step")
    ALGORITHMS["{name}"].credit(rows, episodes, settings)
    assert rows[0].advantages.max() == 0.75
"""
ENVIRONMENT = '''"""An environment: {name}, in which the agent repeats a number."""

import gymnasium
from gymnasium.spaces import Text

from rl_agents.envs.base import environment


@environment("{name}")
class Game(gymnasium.Env):
    """Optional attributes and methods: docs/environments/gymnasium.md."""

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
        """Score an answer, the whole response of the model."""
        right = action.strip() == self.number
        return "yes" if right else f"say {{self.number}}", float(right), right, False, {{"success": right}}

    def demonstrate(self, observation, random):
        """An imperfect player, which the warm-start model imitates."""
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


@reward("{name}", "1 for success, minus 0.05 per turn")
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
VERIFIER = '''"""A verifier: {name}."""

from rl_agents.rewards.verifiers import verifier


@verifier("{name}", "the same tools with any arguments; any message for a message")
def score(turn, response):
    """Score an action from 0 to 1; the expert's own (``turn.calls`` or ``turn.text``) must score 1."""
    return [call.name for call in response.calls] == [call.name for call in turn.calls]
'''
VERIFIER_TEST = """from rl_agents import plugins
from rl_agents.envs.pivot.desk import desk_turns
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier, self_check


def test_the_experts_action_and_another():
    plugins.load(["{name}"])
    verifier, turns = make_verifier(VerifierOptions(verifier="{name}")), desk_turns()
    assert not self_check(verifier, turns).failures
    called = next(turn for turn in turns if turn.calls)
    assert assess(verifier, called, "I would rather not.").score == 0.0
"""
JUDGE = '''"""A judge: {name}."""

from rl_agents.rewards.judges import judge


@judge("{name}", "a reference, or every point, occurs in the answer word for word")
def judged(reading, asked):
    """Whether an answer is correct without inventions (``verdict``), or covers every point (``complete``).

    A judge that calls a server is ``async def``.
    """
    said = reading.answer.lower()
    if asked == "complete":
        return all(point.lower() in said for point in reading.points)
    return any(reference.lower() in said for reference in reading.references)
'''
JUDGE_TEST = """from rl_agents.algorithms import Settings
from rl_agents.background import wait
from rl_agents.rewards.judges import make_judge
from rl_agents.rewards.reading import Reading


def test_two_answers():
    judge = make_judge(Settings.from_dict({{"plugins": ["{name}"], "judge": "{name}"}}))

    def verdict(answer):
        return wait(judge.verdict(Reading((), answer, True, ("Rome",), "Where does Ada live?", ())))

    assert (verdict("In Rome."), verdict("In Oslo.")) == (1.0, 0.0)
"""
AGENT = '''"""An agent: {name}, which asks the model once."""

import httpx

from rl_agents.envs.blackbox.agents import agent


@agent("{name}", "asks once; the task's answer must occur in the reply")
async def solve(task, client):
    """Solve a task through the gateway, with any client; return the reward (docs/environments/blackbox.md)."""
    headers = {{"Authorization": f"Bearer {{client.api_key}}"}}
    body = {{"model": "policy", "messages": [{{"role": "user", "content": task["question"]}}]}}
    async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=None) as model:
        reply = await model.post("/chat/completions", json=body)
    reply.raise_for_status()
    return float(task["answer"] in reply.json()["choices"][0]["message"]["content"])
'''
TRACKER = '''"""A tracker: {name}, which writes test success to a file in the run's folder."""

from rl_agents.reporting.trackers import TrackerEntry, register_tracker


class Lines:
    """One run; if a method raises, the run continues without this tracker, after one warning."""

    def __init__(self, run):
        self.id, self.path = run.name, run.folder / "{name}.txt"

    def log(self, iteration, metrics):
        """Log the numbers of an iteration."""
        if "eval/success_rate" in metrics:
            with self.path.open("a") as file:
                print(iteration, metrics["eval/success_rate"], file=file)

    def episodes(self, iteration, text):
        """Log some episodes of an evaluation, as Markdown."""

    def close(self, status):
        """Called when the run has ended: done, interrupted, fell or failed."""


register_tracker(TrackerEntry("{name}", Lines))
'''
TRACKER_TEST = """from rl_agents import plugins
from rl_agents.reporting.trackers import TRACKERS, TrackedRun


def test_success_is_written_and_other_numbers_are_not(tmp_path):
    plugins.load(["{name}"])
    tracker = TRACKERS["{name}"].open(TrackedRun(tmp_path, "project", "run", "", {{}}))
    tracker.log(1, {{"actor/lr": 0.1}})
    tracker.log(2, {{"eval/success_rate": 0.5}})
    assert (tmp_path / "{name}.txt").read_text() == "2 0.5\\n"
"""
AGENT_TEST = """import json

from rl_agents import plugins
from rl_agents.envs.base import make_env


def test_a_right_and_a_wrong_answer(tmp_path):
    plugins.load(["{name}"])
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({{"id": "1", "question": "2 + 2 =", "answer": "4"}}) + "\\n")
    env = make_env("blackbox", {{"agent": "{name}", "tasks": str(tasks)}})  # the test plays the model
    for said, reward in (("It is 4.", 1.0), ("5", 0.0)):
        assert "2 + 2 =" in env.reset(seed=0, options={{"task_id": "1"}})[0]
        assert env.step(said)[1] == reward
"""
