"""docs/reference/models.md, from the results on file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.grid import RESULTS
from rl_agents.chat.tool_parsing import FAMILIES, REASONING, SAME_CALLS

FILE = RESULTS / "model_families.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
#: A difference of log-probabilities up to which two programs agree, in float32.
AGREES = 1e-3
HEAD = """# Models

This page says where models come from, what is refused, and which model families work with which part. `python -m
benchmarks.model_families` writes its tables; edit benchmarks/model_families/page.py, not this page.

{text}

## Families

The table comes from small random models (two layers, width 64, float32) of each family. It shows whether the parts
fit together, and not how well a model learns. Measured with {versions}; vLLM on a CPU.

- numbers: the largest difference of a log-probability, of a gradient relative to the largest one (*recomputed*), or
  of a weight; up to {agrees:g} is rounding, written as *yes*
- *learner*: compared with transformers' own forward pass; *torch engine*, *vLLM*: sampled tokens compared with the
  learner, before and after new weights were loaded
- *shared*: `prefix_sharing=true` compared with flat rows; *pieces*: logits in pieces compared with all at once
- *LoRA*: the policy with adapters compared with the merged model, and with peft's adapter folder
- *recomputed*: `activation_checkpointing`; *FSDP2*: one process, with adapters
- *saved*: a checkpoint that is written and read again, with its own head and with one tied to the embedding
- a larger number: do not train with it; *refused*: the run gives the reason before it starts
"""
COLUMNS = {
    "learner": "learner", "torch_engine": "torch engine", "vllm": "vLLM", "shared_rows": "shared",
    "in_pieces": "pieces", "lora": "LoRA", "recomputed": "recomputed", "sharded": "FSDP2", "round_trip": "saved",
}  # fmt: skip
TEXT = """## Get a model

`model=` takes a folder in Hugging Face's layout with safetensors weights, or a public name with an optional
revision, such as `model=Qwen/Qwen3-4B-Instruct-2507@main`. A name is looked up in Hugging Face's cache (`HF_HOME`).
Runs download nothing.

```bash
hf auth login                                   # once, for models whose owners ask for consent
hf download Qwen/Qwen3-4B-Instruct-2507         # --revision REV for another than main
python run.py doctor --config tune_configs/recipes/...   # reports what is missing, and whether the model fits
```

- For a GGUF file, use `run.py model` ([tutorial](../tutorials/real-model-on-a-laptop.md)).
- For a machine without a network, copy the cache folder `hub/models--OWNER--NAME` and set `HF_HOME`.
- A run writes the commit it found into its `config.yaml` (`model: NAME@COMMIT`) and keeps using it.
- On several machines the cache must be at the same path everywhere.
- Code from a model's folder is never run (`trust_remote_code` is false).
- Quantized weights are refused, because gradients need 16 or 32 bits.

## What is refused

The run prints one line before it starts.

- **Vision and audio models** (Gemma 3 from 4B on, Qwen2.5-VL, ...). The text part of Gemma 3 can be saved as a
  model of its own:

  ```python
  from transformers import AutoModelForImageTextToText, AutoTokenizer, Gemma3ForCausalLM

  whole = AutoModelForImageTextToText.from_pretrained("gemma-3-4b-it", dtype="bfloat16")
  text = Gemma3ForCausalLM(whole.config.get_text_config()).to(whole.dtype)
  text.model.load_state_dict(whole.model.language_model.state_dict())
  text.tie_weights()
  text.save_pretrained("gemma-3-4b-text")
  AutoTokenizer.from_pretrained("gemma-3-4b-it").save_pretrained("gemma-3-4b-text")
  ```
- **Sliding windows shorter than the rows** (Mistral v0.1, Gemma 2 and 3, Olmo 3, gpt-oss): `prefix_sharing=true`
  and the torch engine need `max_model_len` within the window. Flat rows and vLLM do not.
- **Capped attention** (Gemma 2): attention is computed with plain matrices, whose memory grows with the square of
  the length, and `prefix_sharing=true` is refused.
- **longrope beyond its first length** (Phi-3 and Phi-4-mini of 128k: 4096 tokens): transformers chooses frequencies
  by the longest row of a batch, and vLLM by `max_model_len`. Default lengths stay below the limit.
- **DeepSeek V2 and V3 with vLLM on a CPU**: vLLM's multi-head latent attention differs from transformers'. This was
  not tried on GPUs: check `rollout_corr/logprob_diff_max` in the first iteration.
- **gpt-oss with vLLM** (0.32): vLLM's loader keeps the experts' first weights. Any other mixture of experts with
  this problem ends the run at the first weight update.
- **Layers with a state (Qwen3-Next)**: the torch engine, `prefix_sharing=true`, and vLLM on a CPU are refused.

Mixtures of experts: checkpoints use the file names of the original model. With `lora_rank`, experts and router get
adapters, too (gpt-oss: attention only).

## LoRA

`lora_rank=16` trains adapters on all linear layers and freezes the base in `dtype`. Engines sample from the merged
weights. A checkpoint holds both forms: `hf/`, the merged model, and `adapter/`, in peft's format:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B-Instruct-2507")
model = PeftModel.from_pretrained(base, "runs/NAME/checkpoints/000100/adapter")
```

Base and adapter together give the log-probabilities of the merged model within 3e-4 in float32, for every family
below. With `dtype=bfloat16` the merged weights are rounded once more. `run.py push --adapter` publishes the adapter
alone ([install](../how-to/install.md#publish-a-model)), and `run.py serve --adapter` serves several over one base
([serve](../how-to/serve.md#adapters)).

## Quantized rollouts

With `engine_quantization=fp8` vLLM samples with FP8 weights and activations, while the learner keeps its own. It
needs vLLM 0.32, `dtype=bfloat16` or float16, and a GPU of compute capability 8.9 or more.

- After each update the weights are quantized again. On a CPU every tensor then equals, bit for bit, that of an
  engine started with the new weights (`tests/inference/transfer/test_quantized.py`). **It has never run on a GPU.**
  Watch `rollout_corr/logprob_diff_mean` from the second iteration on.
- The engine is further from the learner. In three iterations of GRPO on guess_numbers (one run each, on a CPU) the
  mean logprob mismatch was 0.013 to 0.031 with FP8 and 0.002 to 0.004 without. Use `old_logprobs=learner` and a
  `rollout_correction` ([which one](../explanation/staleness.md#corrections)).
- The torch engine, float32, mixtures of experts, `engine_sleep=2`, and adapters over a quantized base are refused.
"""
TEMPLATES = """Templates are short forms in each family's style. *grows exactly*: a dialogue extended token by token
equals what the template writes for the whole dialogue. *no tools*: the template does not write tools,
and a run with tools is refused.
"""
CALLS = """## Tool calls and thoughts

The format of tool calls is found from the chat template: a call is rendered, and the parser that reads it back is
used. A tokenizer with a response template (transformers' `parse_response`) is read by that. To choose a parser
yourself, set `tool_parser=` and `reasoning_parser=` to one below or, where vLLM is installed, to one of vLLM's (18
s of CPU time and 0.7 GB per env runner). A model whose calls no parser reads is refused before a run with tools
begins.

All environments read one format, which every family may also write: thoughts in `<think>`, calls as JSON in
`<tool_call>`. JSON without tags is a call only if it names an offered tool. Arguments that are written as text
(XML) get the types of the tool's schema.
"""
STOPS = """Thoughts (`reasoning_parser`): {thoughts}. The tag `<reasoning>` of some prompts counts as `think`.

- **Stop tokens** are the template's end of turn, the tokenizer's end of sequence, and the `eos_token_id` of
  generation_config.json, in every engine.
- **Ids beyond the tokenizer** (padded embeddings) are never sampled, and the learner ignores them.
- **A full context:** an episode ends with `context_length` when fewer tokens remain than a quarter of
  `max_response_tokens` (16 at most).
- **Dates in templates** (Llama 3, gpt-oss) are the day the run began: `template_date`.
- **Text is never control:** a special token spelled in an observation, a tool result, a tool definition, or a
  user's message is encoded as its characters, in training, evaluation, gateway, and server.
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
