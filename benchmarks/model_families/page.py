"""docs/models.md, from the results on file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.grid import RESULTS
from rl_agents.chat.tool_parsing import FAMILIES, REASONING, SAME_CALLS

FILE = RESULTS / "model_families.json"
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
#: A difference of log-probabilities up to which two programs agree, in float32.
AGREES = 1e-3
HEAD = """# Models

Which model families train here, and with what. The tables are written by `python -m benchmarks.model_families`; edit
benchmarks/model_families/page.py, not this page.

{text}

## Families

Small random models (two layers, width 64, float32) of each family, made from transformers' configurations. So this
says whether the pieces fit together, not how well a model learns. Measured with {versions}; vLLM on a CPU.

- numbers: the largest difference of a log-probability, of a gradient relative to the largest one (*recomputed*), or of
  a weight; {agrees:g} and less is rounding, written as *yes*
- *learner*: against transformers' own forward pass; *torch engine*, *vLLM*: of sampled tokens against the learner,
  before and after new weights were loaded
- *shared*: `row_prefixes=shared` against flat rows; *pieces*: logits in pieces against all at once
- *LoRA*: the plain model with adapters merged, and with peft's folder of them, against the policy with them
- *recomputed*: `gradient_checkpointing`; *FSDP2*: one process, with adapters
- *saved*: a checkpoint that is written and read, with a head of its own and one tied to the embedding
- *a number* that is larger: do not train with it; *refused*: the run says why before it starts (below)
"""
COLUMNS = {
    "learner": "learner", "torch_engine": "torch engine", "vllm": "vLLM", "shared_rows": "shared",
    "in_pieces": "pieces", "lora": "LoRA", "recomputed": "recomputed", "sharded": "FSDP2", "round_trip": "saved",
}  # fmt: skip
TEXT = """## Getting a model

`model=` is a folder in Hugging Face's layout with safetensors weights, or the public name of a model, with a revision
or without: `model=Qwen/Qwen3-4B-Instruct-2507`, `model=Qwen/Qwen3-4B-Instruct-2507@main`. A name is looked up in
Hugging Face's cache (`HF_HOME`). Runs download nothing: neither a job of many machines nor a run in the middle of the
night should.

```bash
hf auth login                                   # once, for models whose owners ask for consent
hf download Qwen/Qwen3-4B-Instruct-2507         # --revision REV for another than main
python run.py doctor --config tune_configs/recipes/...   # says what is missing, and whether the model fits
```

- `HF_HUB_OFFLINE=1` stops `hf download`, and nothing else
- a GGUF file, also one that a package ships: `run.py model` ([laptop](laptop.md))
- a machine without a network: copy the cache's folder `hub/models--OWNER--NAME`, and set `HF_HOME`
- a run writes the commit that it found into its config.yaml (`model: NAME@COMMIT`), and goes on with that one
- on several machines the cache must be at the same path everywhere, as folders must
- code from a model's folder is never run (`trust_remote_code` is false); what transformers does not know is refused
- quantized weights are refused: gradients need 16 or 32 bits

## What is refused, and why

One line says so before anything starts.

- **Models that read images or sound** (Gemma 3 from 4B on, Qwen2.5-VL, ...). The text part of Gemma 3 is a model of its
  own once it is saved so:

  ```python
  from transformers import AutoModelForImageTextToText, AutoTokenizer, Gemma3ForCausalLM

  whole = AutoModelForImageTextToText.from_pretrained("gemma-3-4b-it", dtype="bfloat16")
  text = Gemma3ForCausalLM(whole.config.get_text_config()).to(whole.dtype)
  text.model.load_state_dict(whole.model.language_model.state_dict())
  text.tie_weights()
  text.save_pretrained("gemma-3-4b-text")
  AutoTokenizer.from_pretrained("gemma-3-4b-it").save_pretrained("gemma-3-4b-text")
  ```
- **Windows shorter than rows** (Mistral v0.1, Gemma 2 and 3, Olmo 3, gpt-oss): `row_prefixes=shared` and the torch
  engine need `max_model_len` within the window. The learner's flat rows and vLLM do not.
- **Capped attention** (Gemma 2): PyTorch's own attention has no cap, so it is calculated by plain matrices, which
  takes memory with the square of the length; `row_prefixes=shared` is refused.
- **longrope beyond its first length** (Phi-3 and Phi-4-mini of 128k: 4096 tokens): transformers chooses frequencies by
  the longest row of a batch, vLLM by `max_model_len`. Lengths that nobody chose stay below.
- **DeepSeek V2 and V3 with vLLM on a CPU**: its multi-head latent attention gives other numbers than transformers'. On
  GPUs this was not tried: look at `actor/engine_logprob_gap_max` in the first iteration.
- **gpt-oss with vLLM** (0.32): its loader keeps the experts' first weights whatever the learner sends. Any other model
  of experts for which that is so ends the run at the first change of weights.
- **Layers with a state (Qwen3-Next)**: the torch engine, `row_prefixes=shared`, and vLLM on a CPU.

## Mixtures of experts

transformers 5 holds the experts of a layer in one tensor, files hold one tensor for each. Checkpoints and what
engines get bear the files' names. With `lora_rank` the experts and the router have adapters too (gpt-oss: attention
only). vLLM on a CPU (0.32) packs experts once and not again when new weights come; that is mended here.

## LoRA and its adapters

`lora_rank=16` trains adapters on all linear layers and keeps the base frozen in `dtype`. Engines sample from the merged
weights, and a checkpoint holds both forms: `hf/`, the merged model, and `adapter/`, what peft reads
(`adapter_config.json`, `adapter_model.safetensors` in float32, some megabytes):

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B-Instruct-2507")
model = PeftModel.from_pretrained(base, "runs/NAME/checkpoints/000100/adapter")
```

Base and adapter give the merged model's numbers (float32: log-probabilities within 3e-4 for every family below, experts
and FSDP2 included). With `dtype=bfloat16` the merged weights are rounded once more than the adapter, so that the two
differ as bfloat16 does. `run.py push --adapter` publishes the adapter alone
([publishing](install.md#publishing-a-model)), and `run.py serve --adapter` serves several over one base
([serving](serving.md#adapters)). peft's file names the base: a public model with its commit, or the folder it was
loaded from.

## Quantized rollouts

`engine_quantization=fp8` lets vLLM sample with weights and activations in FP8: one scale for each row of a matrix, one
for each token (`quantization=fp8_per_channel`); embeddings, norms and head stay in `dtype`. The learner keeps its
weights. It needs `dtype=bfloat16` or float16, vLLM 0.32, and a GPU of compute capability 8.9 or more.

- **New weights are quantized again.** After an update every tensor that a vLLM engine
  on a CPU holds, FP8 weights and scales among them, is bit for bit that of an engine that was started with them
  (`tests/inference/transfer/test_quantized.py`). **It has never run on a GPU**, where vLLM multiplies with other
  kernels that may arrange weights in their own way: watch `actor/engine_logprob_gap_mean` from the second iteration on.
  A reload that goes wrong would show there.
- **The engine is further from the learner.** In three iterations of GRPO from guess_numbers' starter
  (`--iterations 3 --set engine=vllm dtype=bfloat16 old_logprobs=learner mismatch=token_tis tasks_per_iteration=4
  group_size=4`, one run each, on a CPU) the mean gap of a token's log-probability is 0.013 to 0.031 with
  `engine_quantization=fp8` and 0.002 to 0.004 without, the largest 0.6 to 1.8 and 0.05 to 0.12. Take
  `old_logprobs=learner` and a `mismatch` ([which](algorithms/README.md#engine-learner-mismatch)); a run without says so
  in its first lines.
- **Refused in one line:** the torch engine, float32, mixtures of experts (vLLM's online FP8 of experts is other
  code, and its reload was not compared), `engine_sleep=2`, and serving adapters over a quantized base. vLLM's other
  schemes are not offered: its CPU build lacks the kernels to start with `fp8` (one scale for each matrix),
  `fp8_per_block` or `mxfp8`, so that nobody can look.
"""
TEMPLATES = """Templates are short forms in the style of each family's. *grows exactly*: a dialogue that is extended
token by token is what the template writes of the whole; *no tools*: they are not written, and asking for them is
refused. GLM's turns end with the mark of the next one, which the model samples.
"""
CALLS = """## Tool calls and thoughts

The form of a model's calls is found from its chat template: a call is rendered, and the parser that reads it back is
taken. A tokenizer with a response template (transformers' `parse_response`) is read by that. `tool_parser=` and
`reasoning_parser=` name a parser instead: one of these, or any of vLLM's where vLLM is installed (18 s of CPU time and
0.7 GB for each env runner that loads it). A model whose calls no parser reads is refused before a run with tools
begins. Environments read one form of every family: thoughts in `<think>`, calls as JSON in `<tool_call>`, which all
families may write, too. JSON without marks is a call only if it names an offered tool. Tags inside an argument are its
text. Arguments that are written as text (XML) get the types of the tool's schema.
"""
STOPS = """Thoughts (`reasoning_parser`): {thoughts}. Tags of prompts, `<reasoning>`, count with `think`.

- **Stop tokens** are the template's end of turn, the tokenizer's end of sequence and the `eos_token_id` of
  generation_config.json together, in every engine.
- **Ids beyond the tokenizer** (padded embeddings) are never sampled, and the learner's distributions end before them.
- **A full context:** where it leaves fewer tokens than a quarter of `max_response_tokens` (16 at most) the episode ends
  with `context_length`; no response of a token or two is sampled and judged.
- **A template's date** (Llama 3, gpt-oss) is the day on which the run began, to its end: `template_date`.
- **Text is never control:** a special token that an observation, a tool result, a tool definition or a user's message
  spells is encoded as its characters, in training, evaluation, gateway and server. All other ids are the template's.
"""


def page(results: Mapping[str, Any]) -> str:
    """Return the page."""
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    head = HEAD.format(text=TEXT.strip(), versions=versions, agrees=AGREES)
    families = results["families"]
    lines = [head.rstrip(), "", _row(["family", "models", *COLUMNS.values()]), _row(["---"] * (2 + len(COLUMNS)))]
    notes: list[str] = []
    for name, family in families.items():
        checks = family["checks"]
        whole = None if "learner" in checks else checks["loads"]
        lines.append(_row([name, family["models"], *(_cell(whole or checks.get(column)) for column in COLUMNS)]))
        refusals = {f["said"].removeprefix("refused: ") for f in checks.values() if f["said"].startswith("refused")}
        notes += [f"- {name}: {refusal}" for refusal in sorted(refusals)]
    lines += ["", "What the refusals say:", "", *notes, "", CALLS, *_families(), "## Adapters and chat templates", ""]
    lines += [TEMPLATES, _row(["family", "matrices with adapters (LoRA)", "template"]), _row(["---"] * 3)]
    for name, family in families.items():
        checks = family["checks"]
        lines.append(_row([name, checks.get("lora", {}).get("said") or "", checks["template"]["said"]]))
    return "\n".join(lines) + "\n"


def _families() -> list[str]:
    """Return the table of parsers."""
    rows = [
        [f"`{name}`", family.models, ", ".join(f"`{opening}`" for opening in family.openings).replace("|", "\\|"),
         ", ".join(f"`{other}`" for other, same in SAME_CALLS.items() if same == name)]
        for name, family in FAMILIES.items()
    ]  # fmt: skip
    thoughts = ", ".join(f"`{name}` (`{opening.strip()}`)" for name, (opening, _) in REASONING.items())
    head = _row(["`tool_parser`", "models", "a call begins with", "vLLM's other names"])
    return [head, _row(["---"] * 4), *map(_row, rows), "", STOPS.format(thoughts=thoughts)]


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


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def stored() -> dict[str, Any]:
    """Return the results on file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def write() -> None:
    """Write the page from the results on file."""
    PAGE.write_text(page(stored()), encoding="utf-8")
