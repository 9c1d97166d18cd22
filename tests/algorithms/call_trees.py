"""Trees of calls: one by hand, random ones, and credit over them by plain recursion."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rl_agents.data.trajectory import ABANDONED, Step, Trajectory
from rl_agents.data.tree import followers


def call(prompt: Sequence[int], response: Sequence[int], next_step: int | None, reward: float = 0.0) -> Step:
    logprobs = [-0.1 * token for token in response]
    return Step(list(prompt), list(response), logprobs, 0, "stop", "", str(prompt[0]), "", reward, next_step=next_step)


def session(*steps: Step, **facts: Any) -> Trajectory:
    return Trajectory("task", group_id=4, member=0, seed=0, steps=list(steps), **{"terminated": True, **facts})


def with_a_subagent() -> Trajectory:
    """Three calls of an agent, two of its subagent, whose report the third reads, and a retry of the first."""
    return session(
        call([8, 9], [3], None),
        call([8, 9, 3, 4], [5], 5, reward=0.1),
        call([1, 2], [9, 9], ABANDONED),
        call([1, 2], [3], None),
        call([1, 2, 3, 4], [5, 6], None),
        call([1, 2, 3, 4, 5, 6, 7], [8], None, reward=1.0),
    )


def chained(trajectory: Trajectory) -> Trajectory:
    """The same plain dialogue, said as a tree."""
    twin = Trajectory.from_json(trajectory.to_json())
    for number, step in enumerate(twin.steps, start=1):
        step.next_step = number if number < len(twin.steps) else -1
    return twin


tokens = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@st.composite
def dialogues(draw: st.DrawFn) -> Trajectory:
    """Plain ones, whose history is rewritten now and then, over few states."""
    steps: list[Step] = []
    read: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        read = ([] if draw(st.integers(0, 3)) == 0 else read) + draw(tokens)
        steps.append(call(read, draw(tokens), None, draw(st.sampled_from([0.0, 1.0, -0.5]))))
        steps[-1].valid, steps[-1].anchor = draw(st.booleans()), draw(st.sampled_from("ab"))
        read = read + steps[-1].response_ids
    return session(*steps, terminated=draw(st.booleans()))


@st.composite
def trees(draw: st.DrawFn) -> Trajectory:
    """Any forest of calls in any order: continued, branched, rewritten, joined, abandoned."""
    steps: list[Step] = []
    count = draw(st.integers(1, 8))
    for number in range(count):
        later = st.integers(number + 1, count - 1) if number + 1 < count else st.just(-1)
        following = draw(st.one_of(st.sampled_from([-1, ABANDONED]), later, later))
        flowing = [step for step in steps if step.next_step == number]
        earlier = draw(st.sampled_from([None, *flowing, *steps[-2:]]))
        read = [] if earlier is None else earlier.prompt_ids + earlier.response_ids
        reward = draw(st.sampled_from([0.0, 0.0, 1.0, -0.5, 0.25]))
        steps.append(call(read + draw(tokens), draw(tokens), following, reward))
        steps[-1].valid = draw(st.booleans())
    order = draw(st.permutations(range(count))) if draw(st.booleans()) else list(range(count))
    place = {number: at for at, number in enumerate(order)}
    for step in steps:
        step.next_step = (
            place.get(step.next_step or 0, step.next_step) if (step.next_step or 0) >= 0 else step.next_step
        )
    return session(*(steps[number] for number in order), terminated=draw(st.booleans()))


def abandoned(trajectory: Trajectory, number: int) -> bool:
    """Whether a step only leads to an abandoned call, of a lineage that earned nothing by itself."""
    links = followers(trajectory)

    def end(t: int) -> int:
        return t if links[t] < 0 else end(links[t])

    lineage = [step for t, step in enumerate(trajectory.steps) if end(t) == end(number)]
    return links[end(number)] == ABANDONED and not any(step.reward for step in lineage)


def value_after(t: int) -> float:
    """V of the state that a cut hides behind step t."""
    return 0.125 * (t + 1)


def step_advantage(
    trajectory: Trajectory, t: int, values: Sequence[float], gamma: float, lam: float, bootstrap: bool, penalty: float,
    after_cut: Callable[[int], float] = value_after,
) -> float:  # fmt: skip
    """A_t = r_t + γV' - V_t + γλA' by recursion; V' and A' those of the step that reads what came of t."""
    step, after = trajectory.steps[t], followers(trajectory)[t]
    reward = step.reward - (0.0 if step.valid else penalty)
    if after < 0:
        return reward + gamma * (after_cut(t) if bootstrap and not trajectory.terminated else 0.0) - values[t]
    advantage = step_advantage(trajectory, after, values, gamma, lam, bootstrap, penalty, after_cut)
    return reward + gamma * values[after] - values[t] + gamma * lam * advantage


def token_advantages(
    trajectory: Trajectory, t: int, values: Sequence[Sequence[float]], gamma: float, lam: float, bootstrap: bool
) -> list[float]:
    """The same over the sampled tokens of a step, whose last goes on at the first of the step that follows."""
    step, after = trajectory.steps[t], followers(trajectory)[t]
    if after < 0:
        carry = (value_after(t) if bootstrap and not trajectory.terminated else 0.0, 0.0)
    else:
        carry = (values[after][0], token_advantages(trajectory, after, values, gamma, lam, bootstrap)[0])
    found: list[float] = []
    for j in reversed(range(len(step.response_ids))):
        reward = step.reward if j == len(step.response_ids) - 1 else 0.0
        advantage = reward + gamma * carry[0] - values[t][j] + gamma * lam * carry[1]
        carry = (values[t][j], advantage)
        found.insert(0, advantage)
    return found


def random_values(trajectory: Trajectory, seed: int) -> list[list[float]]:
    """A critic's value before every sampled token."""
    stream = np.random.default_rng(seed)
    return [stream.normal(size=len(step.response_ids)).astype(np.float32).tolist() for step in trajectory.steps]
