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

This page describes how to get a model, which models are refused, and which model families work with which feature.
`python -m benchmarks.model_families` writes this page. To change it, edit benchmarks/model_families/page.py.

{text}

## Families

The table is from small random models (two layers, width 64, float32) of each family. It shows whether the features
work together, not how well a model learns. Measured with {versions}; vLLM on a CPU.

- *yes*: the largest difference of a log-probability, of a relative gradient (*recomputed*), or of a weight is at most
  {agrees:g}, which is rounding. A larger difference is printed; do not train with such a combination.
- *refused*: the run prints the reason before it starts.
- *learner*: compared with transformers' own forward pass.
- *torch engine*, *vLLM*: sampled tokens compared with the learner, before and after new weights were loaded.
- *shared*: `prefix_sharing=true` compared with separate rows. *chunks*: logits in chunks compared with all at once.
- *LoRA*: the policy with adapters compared with the merged model, and with peft's adapter folder.
- *recomputed*: `activation_checkpointing`. *FSDP2*: one process, with adapters.
- *saved*: a checkpoint that is written and read again, with its own head and with one tied to the embedding.
- *tools*: a short chat template in the style of the family writes tools. Otherwise a run with tools is refused.

For every family, a dialogue that is extended token by token equals the text that the template writes for the whole
dialogue.
"""
COLUMNS = {
    "learner": "learner", "torch_engine": "torch engine", "vllm": "vLLM", "shared_rows": "shared",
    "in_pieces": "chunks", "lora": "LoRA", "recomputed": "recomputed", "sharded": "FSDP2", "round_trip": "saved",
}  # fmt: skip
TEXT = """## Get a model

`model=` takes a folder in Hugging Face's layout with safetensors weights, or a public name with an optional
revision, such as `model=Qwen/Qwen3-4B-Instruct-2507@main`. The name must be in Hugging Face's cache (`HF_HOME`),
because runs download nothing.

```bash
hf auth login                                   # once, for models that require consent
hf download Qwen/Qwen3-4B-Instruct-2507         # --revision REV for a revision other than main
python run.py doctor --config tune_configs/recipes/...   # reports what is missing, and whether the model fits
```

- For a GGUF file, use `run.py model` ([tutorial](../tutorials/real-model-on-a-laptop.md)).
- For a machine without a network, copy the cache folder `hub/models--OWNER--NAME` and set `HF_HOME`.
- A run writes the commit it found into its `config.yaml` (`model: NAME@COMMIT`) and keeps using it.
- On several machines, the cache must be at the same path everywhere.
- Code in a model's folder is never run (`trust_remote_code` is false).
- Quantized weights are refused, because gradients need 16 or 32 bits.

## What is refused

If a model or a combination is not supported, the run prints one line and ends before it starts.

- **Vision and audio models** (Gemma 3 from 4B on, Qwen2.5-VL, ...). You can save the text part of Gemma 3 as a
  separate model:

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
  and the torch engine need `max_model_len` within the window. Training without prefix sharing and vLLM do not.
- **Capped attention** (Gemma 2): attention is computed with plain matrices, so memory grows with the square of the
  length. `prefix_sharing=true` is refused.
- **longrope beyond its first length** (Phi-3 and Phi-4-mini of 128k: 4096 tokens): transformers selects frequencies
  by the longest row of a batch, but vLLM by `max_model_len`. Default lengths stay below the limit.
- **DeepSeek V2 and V3 with vLLM on a CPU**: vLLM's multi-head latent attention differs from transformers'. This was
  not tried on GPUs: check `rollout_corr/logprob_diff_max` in the first iteration.
- **gpt-oss with vLLM** (0.32): vLLM's loader keeps the experts' first weights. Any other mixture of experts with
  this problem ends the run at the first weight update.
- **Layers with a state (Qwen3-Next)**: the torch engine, `prefix_sharing=true`, and vLLM on a CPU are refused.

For mixtures of experts, checkpoints use the file names of the original model. With `lora_rank`, experts and router
also get adapters (gpt-oss: attention only).

## LoRA

`lora_rank=16` trains adapters on all linear layers and freezes the base in `dtype`. Engines sample from the merged
weights. A checkpoint contains both forms: the merged model in `hf/`, and the adapter in peft's format in `adapter/`:

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
- The logprob mismatch is larger. In three iterations of GRPO on guess_numbers (one run each, on a CPU) its mean was
  0.013 to 0.031 with FP8 and 0.002 to 0.004 without. Use `old_logprobs=learner` and a `rollout_correction`
  ([which one](../explanation/staleness.md#corrections)).
- The torch engine, float32, mixtures of experts, `engine_sleep=2`, and adapters over a quantized base are refused.
"""
CALLS = """## Tool calls and thoughts

rl_agents selects the parser for tool calls from the chat template: it renders a call and uses the parser that reads it
back. If a tokenizer has a response template (transformers' `parse_response`), that is used. To select a parser, set
`tool_parser=` and `reasoning_parser=` to a name below or, if vLLM is installed, to one of vLLM's parsers (18 s of
CPU time and 0.7 GB per env runner). If no parser reads a model's calls, a run with tools is refused before it starts.

All environments read one format, which every family may also write: thoughts in `<think>`, and calls as JSON in
`<tool_call>`. JSON without tags is a call only if it names an offered tool. Arguments that are written as text (XML)
are converted to the types of the tool's schema.
"""
STOPS = """Thoughts (`reasoning_parser`): {thoughts}. The tag `<reasoning>` of some prompts counts as `think`.

- **Stop tokens** are the template's end of turn, the tokenizer's end of sequence, and the `eos_token_id` of
  generation_config.json, in every engine.
- **Ids beyond the tokenizer** (padded embeddings) are never sampled, and the learner ignores them.
- **Full contexts:** an episode ends with `context_length` if fewer tokens remain than a quarter of
  `max_response_tokens` (at most 16).
- **Dates in templates** (Llama 3, gpt-oss) are the day on which the run started: `template_date`.
- **Text is never control:** if an observation, a tool result, a tool definition, or a user's message contains the
  spelling of a special token, it is encoded as plain characters, in training, evaluation, gateway, and server.
"""


def page(results: Mapping[str, Any]) -> str:
    """Return the page."""
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    head = HEAD.format(text=TEXT.strip(), versions=versions, agrees=AGREES)
    families = results["families"]
    heads = ["family", "models", *COLUMNS.values(), "tools"]
    lines = [head.rstrip(), "", _row(heads), _row(["---"] * len(heads))]
    for name, family in families.items():
        checks = family["checks"]
        whole = None if "learner" in checks else checks["loads"]
        tools = "no" if "no tools" in checks["template"]["said"] else "yes"
        lines.append(_row([name, family["models"], *(_cell(whole or checks.get(column)) for column in COLUMNS), tools]))
    return "\n".join([*lines, "", CALLS, *_families()]).rstrip() + "\n"


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
