"""The table and picture of docs/research/speed.md, and its appendix with all rows, from the results on file.

python -m benchmarks.speed_page
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, drawn, load, markdown
from benchmarks.vs_trl.__main__ import table as trl_table

Data = Mapping[str, Any]
DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "research" / "speed.md"
PICTURE = DOCS / "images" / "speed.png"
APPENDIX = RESULTS / "speed.md"
MARKED = re.compile(r"(<!-- speed -->\n).*?(<!-- end of speed -->)", re.DOTALL)
HEAD = ("what", "compared with", "ratio", "aim", "lowest to highest round")
PREFACE = """# Speed: all measurements

This appendix lists every measurement of the page on speed, by the command that repeats it. `python -m
benchmarks.speed_page` writes it from the results on file. A ratio above 1 means that rl_agents needs less CPU time than
what it is compared with. Ratios are medians over alternating rounds. *aim* is the target that was set in advance.
"""
#: The rows that the page shows, by the beginning of what is measured and what it is compared with.
SHOWN = (
    ("GRPO end to end, SmolLM2-135M, in one process", "TRL"),
    ("GRPO end to end, SmolLM2-135M, actors", "TRL"),
    ("GRPO, the learner alone, SmolLM2-135M", "TRL"),
    ("GRPO end to end, 0.1 M, in one process", "TRL"),
    ("GRPO end to end, 0.1 M, actors, `engine=auto`", "TRL"),
    ("GRPO end to end, 0.1 M, actors, vLLM", "TRL"),
    ("rollouts, 0.1 M parameters", "raw vLLM, turn by turn"),
    ("rollouts, SmolLM2-135M, `context=append`", "raw vLLM, turn by turn"),
    ("update, 2 M: 3SPO siblings, prompt 200", "`prefix_sharing=false`"),
    ("an environment step of 3SPO, SmolLM2-135M", "one of GRPO"),
    ("a trained token of 3SPO, SmolLM2-135M", "one of GRPO"),
)
SIDES = {
    "local": ("in one process, torch engine", "3"),
    "auto": ("actors, `engine=auto` (torch)", "1.5"),
    "vllm": ("actors, vLLM", "1.5"),
}


@dataclass(frozen=True)
class Line:
    """A row; ``figure`` has median, min and max, or the median alone."""

    what: str
    against: str
    figure: Mapping[str, float]
    aim: str = ""
    command: str = ""

    def cells(self) -> tuple[str, ...]:
        own = self.figure
        spread = f"{own['min']:.2f} to {own['max']:.2f}" if "min" in own else ""
        return self.what, self.against, f"{own['median']:.2f}", self.aim, spread

    def __str__(self) -> str:
        return f"| {' | '.join(self.cells())} |"


def main() -> None:
    found = rows()
    APPENDIX.write_text(appendix(found), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    picture(shown(found))


def rows() -> list[Line]:
    """Return the lines of each file of results, in the order of `READERS`."""
    files = {name: load(name) for name in READERS}
    return [
        replace(line, command=files[name]["command"]) for name, read in READERS.items() for line in read(files[name])
    ]


def shown(found: Sequence[Line]) -> list[Line]:
    return [
        next(line for line in found if line.what.startswith(what) and line.against == against)
        for what, against in SHOWN
    ]


def filled(page: str, found: Sequence[Line]) -> str:
    return MARKED.sub(lambda mark: f"{mark[1]}{lines_of(shown(found))}{mark[2]}", page)


def lines_of(found: Sequence[Line]) -> str:
    return markdown(HEAD, [line.cells() for line in found]) + "\n"


def appendix(found: Sequence[Line]) -> str:
    """All rows, by the command that repeats them; what TRL's CPU time consists of is below that of TRL's."""
    parts = [PREFACE]
    for command, group in groupby(found, key=lambda line: line.command):
        parts.append(f"## {command.removeprefix('python -m benchmarks.')}\n\n    {command}\n\n{lines_of(list(group))}")
        if command == load("vs_trl")["command"]:
            parts.append(f"Microseconds of CPU per sampled token, by side:\n\n{trl_table()}\n")
    return "\n".join(parts)


def picture(lines: Sequence[Line]) -> None:
    names = [f"{line.what.split(';')[0]}\nagainst {line.against}".replace("`", "") for line in lines]
    ratios = [line.figure["median"] for line in lines]
    with drawn(PICTURE, figsize=(8, 3.6)) as (_, axis):
        axis.barh(range(len(lines)), ratios, color=["#0072B2" if ratio >= 1 else "#D55E00" for ratio in ratios])
        axis.axvline(1, color="0.3", linewidth=1)
        axis.set_yticks(range(len(lines)), names, fontsize=7)
        axis.invert_yaxis()
        axis.set_xlabel("ratio of CPU time; above 1 rl_agents needs less", fontsize=8)


def rollouts(size: str, data: Data, aim: str = "0.95") -> Iterator[Line]:
    """Tokens per CPU-second of the rollout path, relative to raw vLLM."""
    yield Line(f"rollouts, {size}", "raw vLLM, turn by turn", data["summary"]["ratio_to_turn_by_turn"], aim)


def trl(data: Data) -> Iterator[Line]:
    """CPU per sampled token of TRL, relative to ours, end to end and in the learner."""
    for trl, against in (("trl", "TRL"), ("trl_vllm", "TRL, vLLM colocated")):
        for side, (words, aim) in SIDES.items():
            if figure := data["summary"].get(f"{trl}_over_{side}"):
                yield Line(f"GRPO end to end, 0.1 M, {words}", against, figure, aim if trl == "trl" else "")
    yield learner("0.1 M", data)


def treasure(data: Data) -> Iterator[Line]:
    """As `trl`, with a pretrained model."""
    what = "SmolLM2-135M, in one process"
    yield Line(f"GRPO end to end, {what}", "TRL", data["summary"]["trl_over_local"], "3")
    yield replace(learner(what, data), aim="6")


def treasure_actors(data: Data) -> Iterator[Line]:
    yield Line("GRPO end to end, SmolLM2-135M, actors, vLLM", "TRL", data["summary"]["trl_over_vllm"], "1.5")


def learner(what: str, data: Data) -> Line:
    theirs, ours = (data["sides"][side]["learner_us_per_token"]["median"] for side in ("TRL", "rl_agents local"))
    return Line(f"GRPO, the learner alone, {what}", "TRL", {"median": theirs / ours})


def searched_step(data: Data) -> Iterator[Line]:
    """CPU time of a step and of a trained token of GRPO, relative to those of 3spo."""
    for unit, key in (("an environment step", ""), ("a trained token", ", a trained token")):
        yield Line(f"{unit} of 3SPO, SmolLM2-135M", "one of GRPO", data["summary"][f"grpo over 3spo{key}"], "0.67")


def engines(data: Data) -> Iterator[Line]:
    """CPU per token of vLLM relative to the torch engine."""
    for case, figures in data["cases"].items():
        name = case.replace("starter", "starter (taught)")
        yield Line(f"torch engine: {name}", "vLLM", figures["vllm over torch"])


def shared_rows(data: Data) -> Iterator[Line]:
    for size, shapes in data["models"].items():
        for shape in shapes:
            ratios = shape["update_ratios"]
            what = f"update, {size}: {shape['shape']}; gradient's error {shape['gradient_error']:.0e}"
            figure = {"median": shape["update_ratio"], "min": min(ratios), "max": max(ratios)}
            yield Line(what, "`prefix_sharing=false`", figure)


#: File of results -> function that reads its lines.
READERS: Mapping[str, Callable[[Data], Iterator[Line]]] = {
    "rollout_efficiency": partial(rollouts, "0.1 M parameters"),
    "rollout_efficiency_256x4": partial(rollouts, "2.6 M"),
    "rollout_efficiency_512x8": partial(rollouts, "21 M"),
    "rollout_efficiency_135M_append": partial(rollouts, "SmolLM2-135M, `context=append`", aim="0.97"),
    "rollout_efficiency_135M_window2": partial(rollouts, "SmolLM2-135M, `context=window(2)`", aim="0.97"),
    "vs_trl": trl,
    "vs_trl_treasure": treasure,
    "vs_trl_treasure_actors": treasure_actors,
    "searched_step": searched_step,
    "engine_choice": engines,
    "shared_rows": shared_rows,
}


if __name__ == "__main__":
    main()
