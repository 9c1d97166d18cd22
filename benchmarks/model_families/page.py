"""The tables of docs/reference/models.md, from the results on file; `benchmarks.doc_tables` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.report import load
from rl_agents.chat.tool_parsing import FAMILIES, REASONING, SAME_CALLS

#: Largest difference of logprobs, in float32, that counts as agreement.
AGREES = 1e-3
COLUMNS = {
    "learner": "learner", "torch_engine": "torch engine", "vllm": "vLLM", "shared_rows": "shared",
    "in_pieces": "chunks", "lora": "LoRA", "recomputed": "recomputed", "sharded": "FSDP2", "round_trip": "saved",
}  # fmt: skip


def stored() -> dict[str, Any]:
    return load("model_families")


def measured_with() -> str:
    versions = ", ".join(f"{name} {number}" for name, number in stored()["versions"].items())
    return f"Measured with {versions}; vLLM on a CPU."


def families() -> str:
    heads = ["family", "models", *COLUMNS.values(), "tools"]
    rows = []
    for name, family in stored()["families"].items():
        checks = family["checks"]
        whole = None if "learner" in checks else checks["loads"]
        tools = "no" if "no tools" in checks["template"]["said"] else "yes"
        rows.append([name, family["models"], *(_cell(whole or checks.get(column)) for column in COLUMNS), tools])
    return _table(heads, rows)


def refusals() -> str:
    lines = []
    for name, family in stored()["families"].items():
        said = {f["said"].removeprefix("refused: ") for f in family["checks"].values() if "refused" in f["said"][:7]}
        lines += [f"- {name}: {refusal}" for refusal in sorted(said)]
    return "\n".join(lines)


def parsers() -> str:
    rows = [
        [f"`{name}`", family.models, ", ".join(f"`{opening}`" for opening in family.openings).replace("|", "\\|"),
         ", ".join(f"`{other}`" for other, same in SAME_CALLS.items() if same == name)]
        for name, family in FAMILIES.items()
    ]  # fmt: skip
    return _table(["`tool_parser`", "models", "a call begins with", "vLLM's other names"], rows)


def thoughts() -> str:
    known = ", ".join(f"`{name}` (`{opening.strip()}`)" for name, (opening, _) in REASONING.items())
    return f"Thoughts (`reasoning_parser`): {known}. The tag `<reasoning>` of some prompts counts as `think`."


def _cell(finding: Mapping[str, Any] | None) -> str:
    if finding is None:
        return ""
    said = str(finding["said"])
    if said.startswith("refused"):
        return "refused"
    if finding["value"] is None:
        return said.split(":")[0]
    number = "yes" if finding["value"] <= AGREES else f"{finding['value']:.2g}"
    return f"{number}, {said}" if said.startswith(("within", "no gradient")) else number


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


#: Name in the page's mark -> function that makes the table.
TABLES: Mapping[str, Callable[[], str]] = {
    "model families, versions": measured_with,
    "model families": families,
    "model families, refusals": refusals,
    "tool parsers": parsers,
    "reasoning parsers": thoughts,
}
