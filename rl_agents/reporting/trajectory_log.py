"""Episodes on disk: exact JSONL for programs, and three of them as readable text."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rl_agents.data.trajectory import Trajectory
from rl_agents.durable import replace_text


class TrajectoryLog:
    """Writes ``<iteration>.jsonl`` (``eval-<iteration>.jsonl``) and ``latest.md`` into one folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        """
        Args:
            folder: the run's ``trajectories/``.
            keep: episodes of one iteration that are written; 0 writes nothing.
        """
        self.folder = folder
        self.keep = keep

    def write(self, iteration: int, trajectories: Sequence[Trajectory], evaluation: bool = False) -> None:
        """Save the first episodes of an iteration; ``latest.md`` shows its best, worst and failed one."""
        if not self.keep or not trajectories:
            return
        prefix = "eval-" if evaluation else ""
        lines = (json.dumps(t.to_json()) + "\n" for t in trajectories[: self.keep])
        replace_text(self.folder / f"{prefix}{iteration:06d}.jsonl", "".join(lines))
        title = f"Iteration {iteration}{', evaluation' if evaluation else ''}"
        replace_text(self.folder / "latest.md", readable(title, trajectories))


def readable(title: str, trajectories: Sequence[Trajectory]) -> str:
    """Render the best, the worst and a failed episode as Markdown."""
    played = [t for t in trajectories if not t.failed]
    parts = [f"# {title}: {len(trajectories)} episodes, {sum(t.success for t in trajectories)} solved\n"]
    if played:
        parts.append(_episode("Best", max(played, key=_merit)))
        parts.append(_episode("Worst", min(played, key=_merit)))
    failed = next((t for t in trajectories if t.failed), None)
    parts.append(_episode("Failed", failed) if failed else "## Failed\n\nNone: no environment broke.\n")
    return "\n".join(parts)


def _merit(trajectory: Trajectory) -> tuple[float, bool, int]:
    return trajectory.episode_return, trajectory.success, -len(trajectory.steps)


def _episode(label: str, trajectory: Trajectory) -> str:
    head = (
        f"## {label}: return {trajectory.episode_return:g}, {'solved' if trajectory.success else 'not solved'}, "
        f"ended by {trajectory.end_cause or 'unknown'}\n\n"
        f"Task `{trajectory.task_id}`, group {trajectory.group_id}, member {trajectory.member}, "
        f"seed {trajectory.seed}, {trajectory.response_tokens} tokens sampled.\n"
    )
    steps = []
    for number, step in enumerate(trajectory.steps, start=1):
        notes = f"reward {step.reward:g}{'' if step.valid else ', invalid'}"
        notes += ", cut at the token limit" if step.finish_reason == "length" else ""
        steps.append(f"Step {number}, environment:\n\n{_block(step.observation)}\n\n"
                     f"Step {number}, agent ({notes}):\n\n{_block(step.action)}\n")  # fmt: skip
    return "\n".join([head, *steps])


def _block(text: str) -> str:
    # Indented, not fenced: the text may hold fences of its own.
    return textwrap.indent(text.strip() or "(empty)", "    ", lambda line: True)
