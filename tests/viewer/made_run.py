"""Run folders for the viewer's tests: GRPO on two tasks, a search, and a model with hostile output."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rl_agents.advantages import grpo
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.records import BatchRow, Credit, Event, Record, session_records
from rl_agents.store.trajectory_store import PoolWriter

#: Hostile model output: markup, bidirectional marks, half a surrogate pair, invalid UTF-8.
HOSTILE = (
    "<script>window.struck = 1</script><img src=x onerror='window.struck = 1'> </script> \u202eevil\u202c \x1b[31m "
    "\ud83d \ufffd \u2028 ${window.struck=1} javascript:window.struck=1 &lt;b&gt;"
)
LONG = "\U0001f642" + "x" * 999_999
STALLED = {"stalled_turns": [1, 2], "window": 2}
ITERATIONS, TASKS, MEMBERS = 3, ("task/a", "task b"), 4


def write_run(folder: Path, seed: int = 0, iterations: int = ITERATIONS, factor: float = 1.0, **keys: object) -> Path:
    """Write a run; return its folder.

    Args:
        factor: on the advantages, such as VSPO's.
        keys: of its configuration.
    """
    folder.mkdir(parents=True)
    config = {
        "algo": "grpo",
        "env": "made",
        "seed": seed,
        "iterations": iterations,
        "gamma": 1.0,
        "gae_lambda": 1.0,
        **keys,
    }
    (folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in config.items()))
    lines = [{"iteration": i, "rollout/success_rate": i / 10, "seconds": 2.0 * i} for i in range(iterations + 1)]
    lines[0] |= {"eval/success_rate": 0.25, "eval/tasks": 7.0, "eval/episodes": 56.0}
    for number, line in enumerate(lines[1:]):
        line.update({"rollout/turns": 30.0, "collapse_monitor/turns": 10.0, "rollout/response_tokens": 500.0})
        line.update({"end_cause/terminated": 0.375} | ({"end_cause/truncated_by_rule": 0.625} if number else {}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with PoolWriter(folder / "pool.sqlite") as writer:
        writer.add(Event("run", 0))
        for iteration in range(iterations):
            for group in range(len(TASKS)):
                writer.add(*group_records(iteration, group, seed, factor))
            writer.add(Event("checkpoint", iteration + 1))
    return folder


def write_counts(folder: Path, counts: dict[str, tuple[float, float]]) -> None:
    """Write the part of a checkpoint that has a curriculum's counts."""
    checkpoint = folder / "checkpoints" / "000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text(json.dumps({"counters": {"success": counts}}))


def group_records(iteration: int, group: int, seed: int = 0, factor: float = 1.0) -> Iterator[Record]:
    """Return a group: in group 0 all but member 0, whose first step is hostile, succeed; in group 1 all fail."""
    episodes = [episode(iteration, group, member, seed) for member in range(MEMBERS)]
    advantages = grpo([e.episode_return for e in episodes], [0] * MEMBERS)
    for member, (played, advantage) in enumerate(zip(episodes, advantages, strict=True)):
        name = f"i{iteration}.g{group}.m{member}"
        yield from session_records(played, name, iteration=iteration, env="made")
        yield BatchRow(iteration, 0, group * MEMBERS + member, name)
        for ordinal in range(len(played.steps)):
            yield Credit(iteration, 0, name, ordinal, factor * float(advantage))


def episode(iteration: int, group: int, member: int, seed: int = 0) -> Trajectory:
    """Return an episode of two steps (member 3: three)."""
    number = ((seed * 100 + iteration) * 10 + group) * 10 + member
    won = group == 0 and member > 0
    words = [HOSTILE if member == 0 else "look around", "take the lamp", "drop it"][: 3 if member == 3 else 2]
    steps = [step(number, ordinal, text) for ordinal, text in enumerate(words)]
    steps[-1] = replace(steps[-1], reward=float(won))
    if member == 0 and group == 1:
        steps[0] = replace(steps[0], observation=LONG, valid=False)
    return Trajectory(
        TASKS[group], group, member, number, steps, terminated=won, truncated=not won, success=won,
        end_cause="terminated" if won else "truncated_by_rule: t3", metrics={"score": 0.5},
        facts={} if won else {"truncation": {"rule": "t3", "turn": 2, "because": STALLED}},
    )  # fmt: skip


def step(number: int, ordinal: int, text: str) -> Step:
    """Return a step whose ids and log-probabilities are derived from its numbers."""
    prompt, response, room = list(range(5 + ordinal)), [10 + ordinal, 11, 12], f"room {ordinal}"
    return Step(
        prompt, response, [-0.5, -0.25, -3.0], number // 100, "stop", f"you see {room}", room, text,
        call=step_seed(number, ordinal),
    )  # fmt: skip


def gateway_records() -> Iterator[Record]:
    """Return a session with a subagent (steps 2 and 3), whose report step 4 reads; step 1 was abandoned."""
    steps = [step(900, ordinal, text) for ordinal, text in enumerate(("plan", "plan again", "sub 1", "sub 2", "done"))]
    steps = [replace(one, next_step=after) for one, after in zip(steps, (4, -2, None, None, -1), strict=True)]
    played = Trajectory("task/a", 50, 0, 900, steps, True, False, "terminated", success=True)
    calls = [one.call for one in steps]
    yield from session_records(
        played, "sub", kind="gateway", iteration=0, env="blackbox", parents=[0, 0, 0, calls[2], calls[0]]
    )


def write_sweep(folder: Path) -> Path:
    """Write a sweep over two keys with one run each; return its folder."""
    points = []
    for number, (t, alpha) in enumerate((t, alpha) for t in (0.5, 1.0) for alpha in (1, 2)):
        write_run(folder / "trials" / f"p{number}", iterations=1)
        interval = {"mean": 0.1 * number, "low": 0.0, "high": 0.5, "n": 1}
        keys = {"vspo_temperature": t, "vspo_alpha": alpha}
        points.append({"keys": keys, "interval": interval, "status": "done", "trials": [{"name": f"p{number}"}]})
    results = {
        "sweep": "s",
        "status": "done",
        "metric": "eval/success_rate",
        "mode": "max",
        "seeds": 1,
        "points": points,
    }
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def search_records(seed: int = 77) -> Iterator[Record]:
    """Return a search of three siblings at the start; the second has two children, of which one succeeds."""
    siblings = [step(seed, ordinal, f"first {ordinal}") for ordinal in range(3)]
    children = [step(seed + 1, ordinal, f"second {ordinal}") for ordinal in range(2)]
    yield from sample_group(seed, 0, 40, siblings, 0, (1.0, 3), ("branched",) * 3)
    yield from sample_group(seed, 1, 41, children, siblings[1].call, (0.25, 2), ("terminated", "max_turns"))
    path = Trajectory("task/a", 9, 0, seed, [siblings[1], children[0]], True, False, "terminated", False, True)
    path.facts["search"] = {"scores": [1.0, 0.25], "rollouts": [3, 2]}
    yield from session_records(path, "i0.g9.m0", iteration=0, env="made")


def sample_group(
    seed: int, update: int, group: int, steps: Sequence[Step], parent: int, chosen: tuple[float, int],
    causes: Sequence[str],
) -> Iterator[Record]:  # fmt: skip
    """Return the siblings of one state: the first gets reward 1, the others 0."""
    rewards = [1.0] + [0.0] * (len(steps) - 1)
    advantages = grpo(rewards, [0] * len(steps))
    for member, (one, cause) in enumerate(zip(steps, causes, strict=True)):
        name = f"i0.u{update}.g{group}.m{member}"
        sample = Trajectory("task/a", group, member, seed, [replace(one, reward=rewards[member])], True)
        sample.end_cause, sample.success = cause, cause == "terminated"
        sample.facts["search"] = {"score": chosen[0], "rollouts": chosen[1]}
        yield from session_records(sample, name, kind="sample", iteration=0, env="made", parents=[parent])
        yield Credit(0, update, name, 0, float(advantages[member]))
