"""Further outputs of a run: TensorBoard, episodes as text, and a plot of success."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_agents.data.trajectory import Trajectory
from rl_agents.durable import replace_text


class TensorBoardLog:
    """Write every tagged number of a record as a scalar at the record's iteration."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        """
        Args:
            folder: the run's ``tensorboard/``.
            resumed_at: iteration from which a resumed run continues; TensorBoard discards later ones.
        """
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)  # type: ignore[no-untyped-call]

    def write(self, record: Mapping[str, Any]) -> None:
        for tag, value in record.items():
            if "/" in tag and value is not None:
                self._writer.add_scalar(tag, value, record["iteration"])  # type: ignore[no-untyped-call]
        self._writer.flush()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._writer.close()  # type: ignore[no-untyped-call]


def write_trajectories(
    folder: Path, keep: int, iteration: int, trajectories: Sequence[Trajectory], evaluation: bool = False
) -> None:
    """Write ``<iteration>.jsonl`` (``eval-<iteration>.jsonl``) and ``latest.md`` into a run's ``trajectories/``.

    Args:
        keep: number of episodes to write; 0 writes nothing.
    """
    if not keep or not trajectories:
        return
    prefix = "eval-" if evaluation else ""
    lines = (json.dumps(t.to_json()) + "\n" for t in trajectories[:keep])
    replace_text(folder / f"{prefix}{iteration:06d}.jsonl", "".join(lines))
    title = f"Iteration {iteration}{', evaluation' if evaluation else ''}"
    replace_text(folder / "latest.md", readable(title, trajectories))


def readable(title: str, trajectories: Sequence[Trajectory]) -> str:
    """Return the best, the worst and a failed episode as Markdown."""
    parts = [f"# {title}: {len(trajectories)} episodes, {sum(t.success for t in trajectories)} solved\n"]
    chosen = _chosen(trajectories)
    parts += [_episode(label, trajectory) for label, trajectory in chosen.items()]
    if "Failed" not in chosen:
        parts.append("## Failed\n\nNone: no environment failed.\n")
    return "\n".join(parts)


def episode_rows(iteration: int, trajectories: Sequence[Trajectory], most: int = 8) -> list[dict[str, Any]]:
    """Return up to ``most`` episodes as rows of a table: the best, the worst, a failed one, and the first others."""
    chosen = _chosen(trajectories)
    others = [("Other", t) for t in trajectories if all(t is not known for known in chosen.values())]
    return [
        {
            "iteration": iteration, "kind": label.lower(), "task": t.task_id, "return": float(t.episode_return),
            "success": bool(t.success), "turns": t.turns, "tokens": t.response_tokens,
            "end": t.end_cause or "unknown", "episode": _episode(label, t),
        }
        for label, t in [*chosen.items(), *others][:most]
    ]  # fmt: skip


def _chosen(trajectories: Sequence[Trajectory]) -> dict[str, Trajectory]:
    played = [t for t in trajectories if not t.failed]
    failed = next((t for t in trajectories if t.failed), None)
    chosen = {"Best": max(played, key=_merit), "Worst": min(played, key=_merit)} if played else {}
    return chosen | ({"Failed": failed} if failed else {})


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
        notes = f"{'summary' if step.is_summary else f'reward {step.reward:g}'}{'' if step.valid else ', invalid'}"
        notes += ", cut at the token limit" if step.finish_reason == "length" else ""
        notes += "".join(f", {name} {value:g}" for name, value in step.metrics.items())
        steps.append(f"Step {number}, environment:\n\n{_block(step.observation)}\n\n"
                     f"Step {number}, agent ({notes}):\n\n{_block(step.action)}\n")  # fmt: skip
    return "\n".join([head, *steps])


def _block(text: str) -> str:
    # Indented, not fenced, because the text may contain fences.
    return textwrap.indent(text.strip() or "(empty)", "    ", lambda line: True)


def plot_success(records: Sequence[Mapping[str, Any]], path: Path, title: str) -> bool:
    """Plot success over iterations: training rollouts as a line, evaluations with their 95 % band, and the collapse
    monitor's estimate of the policy with two standard errors and its start.

    Args:
        records: lines of metrics.jsonl.
        title: algorithm and environment.

    Returns:
        False if the records have no success rate, so that nothing was drawn.
    """
    training = [
        (r["iteration"], r["rollout/success_rate"]) for r in records if r.get("rollout/success_rate") is not None
    ]
    evaluations = [r for r in records if r.get("eval/success_rate") is not None]
    if not training and not evaluations:
        return False
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 4.8), dpi=120, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    if training:
        axes.plot(*zip(*training, strict=True), color="#6b7280", linewidth=1.2, label="training rollouts")
    _draw_collapse_monitor(axes, [r for r in records if r.get("collapse_monitor/success") is not None])
    if evaluations:
        iterations = [r["iteration"] for r in evaluations]
        low, mean, high = ([r[f"eval/success_{part}"] for r in evaluations] for part in ("low", "rate", "high"))
        axes.fill_between(iterations, low, high, color="#0072b2", alpha=0.15, linewidth=0, label="95 % interval")
        axes.plot(iterations, mean, "o-", color="#0072b2", linewidth=2, markersize=5, label="test tasks")
        for index in {0, len(mean) - 1}:
            axes.annotate(
                f"{mean[index]:.2f}", (iterations[index], mean[index]), xytext=(0, 9),
                textcoords="offset points", ha="center", fontsize=13, color="#00476e",
            )  # fmt: skip
    axes.set_title(title, fontsize=15)
    axes.set_xlabel("completed iterations", fontsize=14)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("success (share of episodes)", fontsize=14)
    axes.set_ylim(0, 1.02)
    axes.margins(x=0.04)
    axes.tick_params(labelsize=13)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=12.5, frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(path)
    return True


def _draw_collapse_monitor(axes: Any, records: Sequence[Mapping[str, Any]]) -> None:
    if not records:
        return
    iterations = [r["iteration"] for r in records]
    mean, error = ([r[f"collapse_monitor/success{part}"] for r in records] for part in ("", "_se"))
    low, high = ([m + side * e for m, e in zip(mean, error, strict=True)] for side in (-2, 2))
    axes.fill_between(iterations, low, high, color="#d55e00", alpha=0.12, linewidth=0)
    axes.plot(iterations, mean, color="#d55e00", linewidth=1.6, label="plain policy (collapse monitor)")
    axes.axhline(records[-1]["collapse_monitor/start"], color="#d55e00", linewidth=1, linestyle=":", label="its start")
