"""Check a recipe before a GPU is rented: batch sizes, combinations of keys, and lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.chat.template import ChatOptions, ContextPolicy, load_tokenizer, make_context
from rl_agents.inference.hub import find_folder, how_to_get, plain_name
from rl_agents.inference.model_shape import ModelShape, model_shape, read_config
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.trainer.doubtful_keys import cautions, rate_caution
from rl_agents.trainer.lengths import Dialogues, measure_dialogues
from rl_agents.trainer.measure import measure
from rl_agents.trainer.resolve import resolve

#: Shapes of the models in recipes, from their config.json: layers, hidden, feed-forward, heads, KV heads, head
#: width, vocabulary, context, tied head. Feed-forward counts all experts.
KNOWN: Mapping[str, ModelShape] = {
    "Qwen2.5-1.5B-Instruct": ModelShape(28, 1536, 8960, 12, 2, 128, 151_936, 32_768, True),
    "Qwen2.5-3B-Instruct": ModelShape(36, 2048, 11_008, 16, 2, 128, 151_936, 32_768, True),
    "Qwen2.5-7B-Instruct": ModelShape(28, 3584, 18_944, 28, 4, 128, 152_064, 32_768, False),
    "Qwen2.5-32B": ModelShape(64, 5120, 27_648, 40, 8, 128, 152_064, 131_072, False),
    "Llama-3.3-70B-Instruct": ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256, 131_072, False),
    "Qwen3-4B-Instruct-2507": ModelShape(36, 2560, 9728, 32, 8, 128, 151_936, 262_144, True),
    "Qwen3-14B": ModelShape(40, 5120, 17_408, 40, 8, 128, 151_936, 40_960, False),
    "Qwen3-30B-A3B-Thinking-2507": ModelShape(48, 2048, 128 * 768, 32, 4, 128, 151_936, 262_144, False),
}


@dataclass(frozen=True)
class Finding:
    """A line of a report: ``ok``, ``note`` (an assumption or an open choice) or ``fails``."""

    status: Literal["ok", "note", "fails"]
    about: str
    text: str


def check_settings(settings: Settings) -> list[Finding]:
    """Check a run without starting it.

    Args:
        settings: set keys, not resolved. The model's folder may be missing.

    Raises `InputError`: keys that a run would reject.
    """
    folder = None if settings.model == "starter" else find_folder(settings.model)
    at_hand = settings.model == "starter" or folder is not None
    settings = measure(resolve(settings), with_model=at_hand)
    read = folder is not None and (folder / "config.json").is_file()
    shape = model_shape(read_config(folder)) if folder and read else KNOWN.get(plain_name(settings.model))
    keys = f"{len(settings.explicit)} keys, all with an effect on {settings.algo} in {settings.env}"
    found = [_ok("keys", keys), *_batch(settings)]
    high = rate_caution(settings, shape)
    pairs = [Finding("fails", "pairs", line) for line in cautions(settings) if line != high]
    found += pairs or [_ok("pairs", "no caution")]
    if settings.model == "starter":
        return [*found, _ok("lengths", "the starter's")]
    if folder is None:
        found.append(Finding("note", "model", f"{settings.model}: no such folder{how_to_get(settings.model)}"))
    found.append(Finding("fails", "rates", high) if high else _ok("rates", f"lr={settings.lr:g}"))
    if ALGORITHMS[settings.algo].source != "demonstrations":
        for own in settings.each.values():
            found += _lengths(own, shape, folder)
    return found


def _ok(about: str, text: str) -> Finding:
    return Finding("ok", about, text)


def _batch(settings: Settings) -> list[Finding]:
    recipe = ALGORITHMS[settings.algo]
    if recipe.source != "rollouts":
        return []
    tasks, size, parts = settings.tasks_per_iteration, settings.group_size, settings.minibatches
    episodes = tasks * size
    text = f"{tasks} tasks x {size} rollouts = {episodes} episodes, {parts} optimizer steps of {episodes / parts:g}"
    if episodes < parts or episodes < settings.num_learners:
        return [Finding("fails", "batch", f"{text}: minibatches and num_learners must not exceed the episodes")]
    if episodes % parts:
        return [Finding("fails", "batch", f"{text}: minibatches={parts} does not divide them")]
    return [_ok("batch", text)]


def _lengths(settings: Settings, shape: ModelShape | None, folder: Path | None) -> list[Finding]:
    """Compare the lengths of dialogues with ``max_model_len``, and that with the model's context length."""
    if not settings.explicit >= {"max_response_tokens", "max_model_len"}:
        said = settings.lengths or "measured when the run starts; set max_response_tokens and max_model_len to fix them"
        return [Finding("note", "lengths", said)]
    found, limit = [], shape.context if shape else None
    if limit and settings.max_model_len > limit:
        text = f"max_model_len={settings.max_model_len}: {settings.model} reads {limit} tokens at most"
        found.append(Finding("fails", "lengths", text))
    try:
        dialogues = _measured(settings, str(folder or ""))
    except EnvFailure as failure:
        return [*found, Finding("note", "lengths", f"not checked, {settings.env} fails: {failure}")]
    how = "" if folder else " (estimated without the model's tokenizer)"
    return [*found, _fit(settings, dialogues, how)]


def _fit(settings: Settings, dialogues: Dialogues, how: str) -> Finding:
    length, response, turns = settings.max_model_len, settings.max_response_tokens, dialogues.turns
    need = dialogues.need(response)
    text = (
        f"{turns} turn{'s' if turns > 1 else ''} of {settings.env} with responses of {response} and {settings.context} "
        f"take {need} of max_model_len={length}{how}"
    )
    if not dialogues.shown:
        text += "; the length of its observations is unknown and assumed"
    if need <= length:
        return _ok("lengths", text)
    if settings.context == "append" and dialogues.shown:
        return Finding("fails", "lengths", f"{text}: episodes are cut by the context")
    if dialogues.base + response > length:
        return Finding("fails", "lengths", f"{text}: even {dialogues.base} and one response do not fit")
    return Finding("note", "lengths", f"{text}; full-length responses in the prompt would be cut")


#: Measured dialogues by the settings that affect them; recipes of one environment share them.
_MEASURED: dict[tuple[str, ...], Dialogues] = {}


def _measured(settings: Settings, model_dir: str) -> Dialogues:
    options = json.dumps(settings.env_options, sort_keys=True, default=str)
    asked = ChatOptions.from_settings(settings)
    key = (settings.env, options, settings.context, settings.prompting, str(settings.max_turns), model_dir, str(asked))
    if key not in _MEASURED:
        context = settings.context
        policy = make_context(context, load_tokenizer(model_dir), asked) if model_dir else stand_in_context(context)
        _MEASURED[key] = measure_dialogues(settings, policy)
    return _MEASURED[key]


def stand_in_context(context: str) -> ContextPolicy:
    """Return a context whose tokens are about as long as those of real vocabularies: words, digits and symbols."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<|im_start|>", "<|im_end|>"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special)}, unk_token="<unk>"))
    pattern = Regex(r" ?[A-Za-z]{1,8}|\d| ?[^\sA-Za-z\d]|\s+")
    backend.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:]})
    tokenizer.chat_template = (
        "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return make_context(context, tokenizer)
