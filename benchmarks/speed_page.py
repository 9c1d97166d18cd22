"""The table and picture of docs/research/speed.md, and its appendix with all rows, from the results on file.

python -m benchmarks.speed_page
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS
from benchmarks.vs_trl.__main__ import table as trl_table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "research" / "speed.md"
PICTURE = DOCS / "images" / "speed.png"
APPENDIX = RESULTS / "speed.md"
MARKED = re.compile(r"(<!-- speed -->\n).*?(<!-- end of speed -->)", re.DOTALL)
HEAD = "| what | compared with | ratio | aim | lowest to highest round |\n|---|---|---|---|---|\n"
PREFACE = """# Speed: all measurements

This appendix lists every measurement of the page on speed, by the command that repeats it. `python -m
benchmarks.speed_page` writes it from the results on file. A ratio above 1 means that rl_agents needs less CPU time than
what it is compared with. Ratios are medians over alternating rounds. *aim* is the target that was set in advance.
"""
#: The rows that the page shows, by the beginning of what is measured and what it is compared with.
SHOWN = (
    ("GRPO end to end, SmolLM2-135M", "TRL"),
    ("GRPO, the learner alone, SmolLM2-135M", "TRL"),
    ("GRPO end to end, 0.1 M, in one process", "TRL"),
    ("GRPO end to end, 0.1 M, actors, `engine=auto`", "TRL"),
    ("GRPO end to end, 0.1 M, actors, vLLM", "TRL"),
    ("rollouts, 0.1 M parameters", "raw vLLM, turn by turn"),
    ("rollouts, 21 M", "raw vLLM, turn by turn"),
    ("update, 2 M: 3SPO siblings, prompt 200", "`prefix_sharing=false`"),
    ("an environment step of 3SPO, SmolLM2-135M", "one of GRPO"),
)
ROLLOUTS = {
    "rollout_efficiency": "0.1 M parameters",
    "rollout_efficiency_256x4": "2.6 M",
    "rollout_efficiency_512x8": "21 M",
}
SIDES = {
    "local": ("in one process, torch engine", "3"),
    "auto": ("actors, `engine=auto` (torch)", "1.5"),
    "vllm": ("actors, vLLM", "1.5"),
    "vllm-together": ("actors, vLLM, `placement=colocate`", "1.5"),
}


@dataclass(frozen=True)
class Line:
    """A row; ``low`` and ``high`` are 0 if the file has only the median."""

    what: str
    against: str
    ratio: float
    low: float
    high: float
    command: str
    aim: str = ""

    def __str__(self) -> str:
        spread = f"{self.low:.2f} to {self.high:.2f}" if self.high else ""
        return f"| {self.what} | {self.against} | {self.ratio:.2f} | {self.aim} | {spread} |"


def main() -> None:
    found = rows()
    APPENDIX.write_text(appendix(found), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    picture(shown(found))


def rows() -> list[Line]:
    return [*rollouts(), *trl(), searched_step(), *engines(), *shared_rows()]


def shown(found: Sequence[Line]) -> list[Line]:
    return [
        next(line for line in found if line.what.startswith(what) and line.against == against)
        for what, against in SHOWN
    ]


def filled(page: str, found: Sequence[Line]) -> str:
    """The page with today's table between its marks."""
    return MARKED.sub(lambda mark: f"{mark[1]}{lines_of(shown(found))}{mark[2]}", page)


def lines_of(found: Sequence[Line]) -> str:
    """A table of rows."""
    return HEAD + "".join(f"{line}\n" for line in found)


def appendix(found: Sequence[Line]) -> str:
    """All rows, by the command that repeats them; what TRL's CPU time consists of is below that of TRL's."""
    parts = [PREFACE]
    for command, group in groupby(found, key=lambda line: line.command):
        parts.append(f"## {command.removeprefix('python -m benchmarks.')}\n\n    {command}\n\n{lines_of(list(group))}")
        if command == load("vs_trl")["command"]:
            parts.append(f"Microseconds of CPU per sampled token, by side:\n\n{trl_table()}\n")
    return "\n".join(parts)


def picture(lines: Sequence[Line]) -> None:
    """Draw a bar for each row; 1 means equal CPU time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    ratios = [line.ratio for line in lines]
    names = [f"{line.what.split(';')[0]}\nagainst {line.against}".replace("`", "") for line in lines]
    axis.barh(range(len(lines)), ratios, color=["#0072B2" if ratio >= 1 else "#D55E00" for ratio in ratios])
    axis.axvline(1, color="0.3", linewidth=1)
    axis.set_yticks(range(len(lines)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("ratio of CPU time; above 1 rl_agents needs less", fontsize=8)
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data


def line(what: str, against: str, figure: dict[str, float], command: str, aim: str = "") -> Line:
    return Line(what, against, figure["median"], figure["min"], figure["max"], command, aim)


def rollouts() -> Iterator[Line]:
    """Tokens per CPU-second of the rollout path, relative to raw vLLM."""
    for name, size in ROLLOUTS.items():
        data = load(name)
        for key, words in (("", ""), ("together_", ", `placement=colocate`")):
            figure = data["summary"][f"{key}ratio_to_turn_by_turn"]
            yield line(f"rollouts, {size}{words}", "raw vLLM, turn by turn", figure, data["command"], "0.95")


def trl() -> Iterator[Line]:
    """CPU per sampled token of TRL, relative to ours, end to end and in the learner."""
    data = load("vs_trl")
    for trl, against in (("trl", "TRL"), ("trl_vllm", "TRL, vLLM colocated")):
        for side, (words, aim) in SIDES.items():
            if figure := data["summary"].get(f"{trl}_over_{side}"):
                yield line(
                    f"GRPO end to end, 0.1 M, {words}", against, figure, data["command"], aim if trl == "trl" else ""
                )
    yield Line("GRPO, the learner alone, 0.1 M", "TRL", learner_ratio(data), 0, 0, data["command"])
    data = load("vs_trl_treasure")
    what, command = "SmolLM2-135M, in one process", data["command"]
    yield line(f"GRPO end to end, {what}", "TRL", data["summary"]["trl_over_local"], command, "3")
    yield Line(f"GRPO, the learner alone, {what}", "TRL", learner_ratio(data), 0, 0, command, "6")


def searched_step() -> Line:
    """CPU time of a step of GRPO, relative to one of 3spo."""
    data = load("searched_step")
    figure = data["summary"]["grpo over 3spo"]
    return line("an environment step of 3SPO, SmolLM2-135M", "one of GRPO", figure, data["command"], "0.83")


def learner_ratio(data: dict[str, Any]) -> float:
    """TRL's CPU per sampled token in the learner, over ours."""
    theirs, ours = (data["sides"][side]["learner_us_per_token"]["median"] for side in ("TRL", "rl_agents local"))
    return float(theirs / ours)


def engines() -> Iterator[Line]:
    """CPU per token of vLLM relative to the torch engine, and of separate placement relative to colocated.

    The busiest process is the lower bound of the wall time, with a free core for each process.
    """
    data = load("engine_choice")
    for case, figures in data["cases"].items():
        name = case.replace("starter", "starter (taught)")
        yield line(
            f"torch engine: {name}", "vLLM, either where it is cheaper", figures["vllm over torch"], data["command"]
        )
        for what in ("", ", busiest process"):
            own = figures[f"apart over together, torch{what}"]
            yield line(
                f"torch engine, `placement=colocate`: {name}{what}", "`placement=separate`", own, data["command"]
            )


def shared_rows() -> Iterator[Line]:
    """Speed of updates with prefix sharing, relative to flat rows."""
    data = load("shared_rows")
    for size, shapes in data["models"].items():
        for shape in shapes:
            spread = (min(shape["update_ratios"]), max(shape["update_ratios"]))
            what = f"update, {size}: {shape['shape']}; gradient's error {shape['gradient_error']:.0e}"
            yield Line(what, "`prefix_sharing=false`", shape["update_ratio"], *spread, data["command"])


if __name__ == "__main__":
    main()
