"""Small training runs whose results are on file: whoever moves or rewrites code sees at once what it changes.

    python tests/golden/runs.py [CASE ...]     # record all cases, or these, in golden.json anew

The runs are local and sequential, so one machine repeats them bit by bit: `machine` says which one recorded them.
"""

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import numpy as np
import torch
import transformers
from algorithms.handmade import episode, settings_of, with_values

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import LossInputs
from rl_agents.data.samples import Row, build_samples
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.warm_start import build_starter

FILE = Path(__file__).with_name("golden.json")
ITERATIONS = 3
#: Metrics of time, and of what a machine does otherwise.
TIMES = ("timing_s/", "perf/")
#: A few seconds of imitation: models that solve some tasks and fail at others.
WARM_START = {"iterations": 5, "tasks_per_iteration": 512, "minibatches": 12, "demonstrations": 1024, "lr_warmup": 8}
LONGER = {"guess_numbers": {"iterations": 10, "tasks_per_iteration": 768}}
KEYS: Mapping[str, Any] = {"tasks_per_iteration": 4, "group_size": 4, "lr": 1e-3}


class Case(NamedTuple):
    """A run of three iterations: an environment, whose warm-start model it begins with, and keys."""

    env: str
    keys: Mapping[str, Any]


CASES: Mapping[str, Case] = {
    "grpo": Case("guess_numbers", {"algo": "grpo", "kl_coef": 0.01}),
    "ppo": Case("guess_numbers", {"algo": "ppo", "kl_in_reward_coef": 0.01}),
    "steppo": Case("guess_numbers", {"algo": "steppo", "old_logprobs": "learner", "rollout_correction": "token_tis"}),
    "t3": Case("guess_numbers", {"algo": "grpo", "truncation": "t3", "truncation_window": 1}),
    "prs": Case("long_form_qa", {"algo": "grpo", "reward": "prs", "prs_form": "long", "prs_tags": ["answer"]}),
    "vspo": Case("guess_numbers", {"algo": "vspo"}),
    "pivotrl": Case("pivot", {"algo": "pivotrl"}),
    "chain-gae": Case("guess_numbers", {"algo": "chain-gae"}),
    "3spo": Case("guess_numbers", {"algo": "3spo", "search_steps": 96, "tasks_per_iteration": 8}),
}


def machine() -> dict[str, str | int]:
    """What decides about the last bit of a number."""
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in _cpu_lines())}
    cpu = " ".join(facts.get(name, "") for name in ("model name", "cpu family", "model", "stepping"))
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": cpu.strip() or platform.processor(),
        "threads": torch.get_num_threads(),
    }


def _cpu_lines() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text(encoding="utf-8").splitlines() if info.is_file() else []


class WarmStarts:
    """The models that the runs begin with, made when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, env: str) -> Path:
        target = self.folder / env
        if not target.exists():
            build_starter(AgentAlgorithm.from_settings, env, target, set={**WARM_START, **LONGER.get(env, {})})
        return target


def build(case: Case, model: Path) -> AgentAlgorithm:
    keys = {"model": str(model), **KEYS, **case.keys}
    return AgentConfig().environment(case.env).training(**keys).local().build_algo()


def numbers(algo: AgentAlgorithm) -> dict[str, float]:
    """One iteration's metrics without times."""
    return {name: float(value) for name, value in algo.train()["agent"].items() if not name.startswith(TIMES)}


def digest(algo: AgentAlgorithm) -> str:
    """SHA-256 of all weights and of the optimizers' tensors, in the order of their names."""
    sha = hashlib.sha256()
    for name, tensor in sorted(_tensors(algo.learner_group.full_state())):
        sha.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def _tensors(state: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    if isinstance(state, torch.Tensor):
        return [(prefix, state)]
    items = state.items() if isinstance(state, Mapping) else enumerate(state) if isinstance(state, list | tuple) else ()
    return [found for name, value in items for found in _tensors(value, f"{prefix}/{name}")]


def play(case: Case, model: Path, halfway: Path | None = None) -> dict[str, Any]:
    """Train; with ``halfway`` save there before the last iteration."""
    algo = build(case, model)
    found = [numbers(algo) for _ in range(ITERATIONS - 1)]
    if halfway is not None:
        algo.save_run_checkpoint(halfway)
    found.append(numbers(algo))
    result = {"metrics": found, "weights": digest(algo)}
    algo.stop()
    return result


def resumed(checkpoint: Path) -> dict[str, Any]:
    """The last iteration, from the checkpoint before it."""
    algo = AgentAlgorithm.from_checkpoint(checkpoint)
    result = {"metrics": [numbers(algo)], "weights": digest(algo)}
    algo.stop()
    return result


def batch() -> list[Any]:
    """Seven episodes of two tasks, of one to four steps, that share states; solved, failed, cut, and misread."""
    shapes = [
        (0, [0.0, 0.5, 1.0], "abc"),
        (0, [0.0, -0.5], "ac"),
        (0, [0.0, 0.0, 0.0, 0.0], "abab"),
        (0, [1.0], "a"),
        (1, [0.0, 1.0], "de"),
        (1, [-0.25, 0.0, 0.0], "dff"),
        (1, [0.0, 0.5], "df"),
    ]
    made = [episode(group, rewards, anchors=anchors) for group, rewards, anchors in shapes]
    made[2].terminated, made[2].truncated = False, True
    made[5].steps[1].valid = False
    for number, trajectory in enumerate(made):
        trajectory.member, trajectory.seed = number, 100 + number
        trajectory.metrics = {"prs_level": float(number % 3)}
    return made


def fixed(algo: str) -> dict[str, list[float]]:
    """Advantages, returns and the policy's loss of every sampled token of the fixed batch."""
    recipe, trajectories = ALGORITHMS[algo], batch()
    settings = settings_of(algo, invalid_action_penalty=0.1)
    rows = build_samples(trajectories, settings.sample_layout)
    rng = np.random.default_rng(0)
    with_values(rows, [rng.normal(size=len(each.steps)).round(3).tolist() for each in trajectories])
    for row in rows:
        row.value_mask = None if recipe.value_mask is None else recipe.value_mask(row, settings)
    if recipe.memory is not None:
        recipe.memory(settings).credit(rows, trajectories)
    elif recipe.credit is not None:
        recipe.credit(rows, trajectories, settings)
    losses = [_token_losses(recipe, row, settings, rng) for row in rows]
    return {
        "advantages": _joined(rows, "advantages"),
        "returns": _joined(rows, "returns") if recipe.critic else [],
        "losses": [float(loss) for loss in np.concatenate(losses)],
    }


def _joined(rows: Sequence[Row], name: str) -> list[float]:
    return [float(value) for row in rows for value in getattr(row, name)[row.mask > 0]]


def _token_losses(recipe: Any, row: Row, settings: Any, rng: np.random.Generator) -> np.ndarray:
    drift = rng.normal(scale=0.3, size=len(row)).astype(np.float32)
    old, advantages, mask = (torch.from_numpy(array)[None] for array in (row.logprobs, row.advantages, row.mask))
    segments = torch.from_numpy(row.segments.astype(np.int64))[None]
    inputs = LossInputs(old + torch.from_numpy(drift)[None], old, advantages, mask, segments)
    loss, _ = recipe.policy_loss(inputs, settings)
    return loss[0].numpy()[row.mask > 0]


FIXED = [name for name, recipe in ALGORITHMS.items() if recipe.credit is not None and not recipe.teacher]


def record(names: Sequence[str]) -> None:
    """Write what these runs and all batches give now; other runs stay, those of removed cases go."""
    data = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {"runs": {}, "batches": {}}
    if data.get("machine") not in (None, machine()) and set(names) < set(CASES):
        raise SystemExit(f"{FILE} is of another machine: record all cases")
    data["runs"] = {name: run for name, run in data["runs"].items() if name in CASES}
    with tempfile.TemporaryDirectory() as folder:
        models = WarmStarts(Path(folder))
        for name in names:
            data["runs"][name] = play(CASES[name], models.of(CASES[name].env))
    data["machine"] = machine()
    data["batches"] = {name: fixed(name) for name in FIXED}
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1:] or list(CASES))
