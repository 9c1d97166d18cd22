"""Episodes for the tests of the pool, made from numbers alone: the same ones whenever and wherever they are made."""

import struct
from array import array

from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step, Trajectory


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def dialogue(seed: int, turns: int = 3, tokens: int = 20, vocabulary: int = 150_000) -> Trajectory:
    """An episode in which every prompt extends the step before."""
    history = [(seed + 7 * i) % vocabulary for i in range(tokens)]
    steps = []
    for turn in range(turns):
        response = [(seed * 31 + turn * 17 + i * 7919) % vocabulary for i in range(tokens)]
        logprobs = array("f", [-0.01 * (i + turn) for i in range(tokens)]).tolist()
        steps.append(
            Step(
                list(history), response, logprobs, turn % 2, "stop", f"observation {turn}", f"anchor {turn}",
                f"action {turn}", 0.25 * turn, turn != 1, step_seed(seed, turn),
            )
        )  # fmt: skip
        history += [*response, 3, 4, 5, turn]
    return Trajectory(
        f"task-{seed % 5}", seed // 4, seed % 4, seed, steps, terminated=True, end_cause="terminated",
        success=seed % 2 == 0, metrics={"score": seed / 3}, facts={"references": ["a", "b"]},
    )  # fmt: skip
