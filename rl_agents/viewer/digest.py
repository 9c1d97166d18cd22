"""A digest of runs for a terminal: where they stand, and the worst steps of the last iteration with what they say."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.viewer.answers import answer
from rl_agents.viewer.runs import Catalog

BARS = "▁▂▃▄▅▆▇█"
WIDTH, STEPS, SAID = 48, 5, 90
CURVES = ("rollout/success_rate", "rollout/return_mean", "eval/success_rate", "actor/entropy", "timing_s/iteration")


def digest(catalog: Catalog) -> str:
    """Return a text about all runs, without anything that moves a terminal's cursor."""
    about = _ask(catalog, "runs")["runs"]
    text = "\n\n".join(_run(catalog, run) for run in about)
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def _run(catalog: Catalog, about: Mapping[str, Any]) -> str:
    settings, name = about["settings"], about["name"]
    planned = f" of {about['planned']}" if about["planned"] else ""
    title = f"{name}: {settings.get('algo', '?')} on {settings.get('env', '?')}, seed {settings.get('seed', '?')}"
    lines = [title, "=" * len(title), f"iteration {about['iteration']}{planned}, {about['status'] or 'no metrics yet'}"]
    if evaluation := about["evaluation"]:
        bounds = [evaluation[part] for part in ("low", "high") if evaluation[part] is not None]
        interval = f" [{bounds[0]:.2f}, {bounds[1]:.2f}]" if len(bounds) == 2 else ""
        lines.append(
            f"success on test tasks {evaluation['rate']:.2f}{interval} after iteration {evaluation['iteration']}"
        )
    series = _ask(catalog, "series", run=name)["series"]
    lines += [_curve(tag, [value for _, value in series[tag]]) for tag in CURVES if tag in series]
    if about["last"] is not None:
        lines += ["", *_iteration(catalog, name, about["last"])]
    return "\n".join(lines)


def _curve(tag: str, values: Sequence[float]) -> str:
    step = max(1, len(values) / WIDTH)
    places = [values[int(number * step)] for number in range(min(WIDTH, len(values)))]
    low, high = min(places), max(places)
    bars = "".join(BARS[int((v - low) / (high - low) * 7.999) if high > low else 3] for v in places)
    return f"  {tag:22} {bars:{WIDTH}} {values[0]:8.3g} -> {values[-1]:.3g}"


def _iteration(catalog: Catalog, run: str, iteration: int) -> list[str]:
    groups = _ask(catalog, "groups", run=run, iteration=iteration)
    kinds = ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in groups["kinds"].items())
    causes = ", ".join(f"{cause or 'unknown'} {count}" for cause, count in groups["causes"].items())
    lines = [f"iteration i{iteration}: {kinds}", f"  ended by: {causes}"]
    steps = _ask(catalog, "steps", run=run, iteration=iteration)
    for title, rows in (("lowest", steps["lowest"]), ("highest", steps["highest"])):
        if rows:
            lines.append(f"  {title} advantages:")
            lines += [_step(catalog, run, row) for row in rows[:STEPS]]
    if steps["lowest"]:
        return lines
    return [*lines, "  all advantages are 0" if steps["learned"] else "  not trained on yet"]


def _step(catalog: Catalog, run: str, row: Mapping[str, Any]) -> str:
    episode = _ask(catalog, "episode", run=run, session=row["session"])
    why = next((step.get("why") for step in episode["steps"] if step["ordinal"] == row["ordinal"]), None)
    said = textwrap.shorten(row["action"], SAID, placeholder=" ...")
    place = f"step {row['ordinal']}" + (f" (and {row['alike'] - 1} more)" if row["alike"] > 1 else "")
    return f"    {row['advantage']:+7.3f}  {row['session']} {place}: {said}{_reason(episode, why)}"


def _reason(episode: Mapping[str, Any], why: Mapping[str, Any] | None) -> str:
    if why is None:
        return ""
    if why["by"] == "group":
        what = "reward" if episode["kind"] == "sample" else "return"
        return f"\n             {what} {episode['return']:g}, group mean {why['mean']:.3g}: A = {why['formula']}"
    whitened = f", whitened {why['result']:+.3f}" if "result" in why else ""  # chain-gae corrects by transitions, too
    return f"\n             TD error {why['delta']:+.3f}, summed {why['gae']:+.3f}{whitened}"


def _ask(catalog: Catalog, view: str, **values: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(answer(catalog, view, {name: str(value) for name, value in values.items()}))
    return data
