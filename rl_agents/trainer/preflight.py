"""Check a recipe before a GPU is rented: batch sizes, combinations of keys, lengths and memory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.chat.template import ChatOptions, ContextPolicy, load_tokenizer, make_context
from rl_agents.config import summary_limit
from rl_agents.inference.base import CACHE_BYTES, EngineSettings
from rl_agents.inference.hub import find_folder, how_to_get, plain_name
from rl_agents.inference.model_shape import ModelShape, model_shape, read_config
from rl_agents.learner.gpu_memory_estimate import (
    GB,
    KNOWN,
    USABLE,
    engine_memory,
    fewest_learners,
    learner_memory,
    micro_batch,
)
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.trainer.lengths import Dialogues, measure
from rl_agents.trainer.resolve import cautions, rate_caution, resolve

GIB = 2**30
#: Parameters up to which a model is trained without a GPU in reasonable time.
SMALL = 1e9
#: GB of a process with Ray, torch and transformers, without a model.
LIBRARIES = 0.75


@dataclass(frozen=True)
class Finding:
    """A line of a report: ``ok``, ``note`` (an assumption or an open choice) or ``fails``."""

    status: Literal["ok", "note", "fails"]
    about: str
    text: str


def check_settings(settings: Settings, gpu_gb: float = 80.0) -> list[Finding]:
    """Check a run without starting it.

    Args:
        settings: set keys, not resolved. The model's folder may be missing.
        gpu_gb: memory of the GPUs, in GB.

    Raises:
        InputError: keys that a run would reject.
    """
    folder = None if settings.model == "starter" else find_folder(settings.model)
    at_hand = settings.model == "starter" or folder is not None
    settings = resolve(settings, with_model=at_hand)
    read = folder is not None and (folder / "config.json").is_file()
    shape = model_shape(read_config(folder)) if folder and read else KNOWN.get(plain_name(settings.model))
    keys = f"{len(settings.explicit)} keys, all with an effect on {settings.algo} in {settings.env}"
    found = [_ok("keys", keys), *_batch(settings)]
    high = rate_caution(settings, shape)
    pairs = [Finding("fails", "pairs", line) for line in cautions(settings) if line != high]
    found += pairs or [_ok("pairs", "no caution")]
    if settings.model == "starter":
        return [*found, _ok("lengths", "the starter's"), Finding("note", "memory", "a starter needs no GPU")]
    if folder is None:
        found.append(Finding("note", "model", f"{settings.model}: no such folder{how_to_get(settings.model)}"))
    found.append(Finding("fails", "rates", high) if high else _ok("rates", f"lr={settings.lr:g}"))
    dialogues = None
    if ALGORITHMS[settings.algo].source != "demonstrations":
        for own in settings.each.values():
            dialogues, findings = _lengths(own, shape, folder)
            found += findings
    return [*found, *_memory(settings, shape, dialogues, gpu_gb)]


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


def _lengths(
    settings: Settings, shape: ModelShape | None, folder: Path | None
) -> tuple[Dialogues | None, list[Finding]]:
    """Compare the lengths of dialogues with ``max_model_len``, and that with the model's context length."""
    if not settings.explicit >= {"max_response_tokens", "max_model_len"}:
        said = settings.lengths or "measured when the run starts; set max_response_tokens and max_model_len to fix them"
        return None, [Finding("note", "lengths", said)]
    found, limit = [], shape.context if shape else None
    if limit and settings.max_model_len > limit:
        text = f"max_model_len={settings.max_model_len}: {settings.model} reads {limit} tokens at most"
        found.append(Finding("fails", "lengths", text))
    try:
        dialogues = _measured(settings, str(folder or ""))
    except EnvFailure as failure:
        return None, [*found, Finding("note", "lengths", f"not checked, {settings.env} fails: {failure}")]
    how = "" if folder else " (estimated without the model's tokenizer)"
    return dialogues, [*found, _fit(settings, dialogues, how)]


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
        _MEASURED[key] = measure(settings, policy)
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


def _memory(settings: Settings, shape: ModelShape | None, dialogues: Dialogues | None, gpu_gb: float) -> list[Finding]:
    if shape is None:
        return [Finding("note", "memory", f"not checked: the size of {settings.model} is not known")]
    whole = dialogues and settings.sample_layout == "merged" and settings.context == "append"
    responses = dialogues.turns_read if dialogues and whole else 1.0
    share = min(1.0, responses * settings.max_response_tokens / settings.max_model_len)
    if summary_limit(settings.context) is not None:
        share = 1.0  # rows of any number of responses
    scored = math.ceil(micro_batch(settings) * share)
    found = [_learner(settings, shape, scored, gpu_gb), _engine(settings, shape, gpu_gb)]
    if shape.parameters <= SMALL and not settings.gpus_per_learner and not settings.gpus_per_engine:
        found.append(_one_process(local_memory(settings, shape, scored)))
    return found


def local_memory(settings: Settings, shape: ModelShape, scored: int) -> float:
    """Return GB of a run in one process (``--local``): learner, torch engine with its cache, and libraries.

    The engine's weights count twice, as new ones arrive while it has the old ones. The cache is that of an iteration's
    or an evaluation's episodes side by side.
    """
    weights, context = (settings.tensor_parallel * part for part in engine_memory(settings, shape))
    episodes = max(settings.tasks_per_iteration * settings.group_size, settings.eval_episodes)
    cache = min(min(episodes, EngineSettings.max_batch) * context, CACHE_BYTES / GB)
    return learner_memory(settings, shape, 1, scored).total + 2 * weights + cache + LIBRARIES


def _one_process(needed: float) -> Finding:
    has = psutil.virtual_memory().total / GB
    text = f"without a GPU, one process (--local) takes about {needed:.1f} GB of this machine's {has:.1f}"
    if needed <= USABLE * has:
        return _ok("local", text)
    return Finding("note", "local", f"{text}: lower tokens_per_microbatch, max_model_len or eval_episodes")


def _learner(settings: Settings, shape: ModelShape, scored: int, gpu_gb: float) -> Finding:
    room = USABLE * gpu_gb
    stated = settings.gpus_per_learner > 0
    learners = settings.num_learners if stated and settings.learner_sharding == "fsdp" else 1
    needed = learner_memory(settings, shape, learners, scored)
    fewest = fewest_learners(settings, shape, scored, gpu_gb)
    how = f"micro-batches of {micro_batch(settings)} tokens, {scored} of them scored"
    if stated:
        text = f"{needed.total:.0f} GB of {room:.0f} for each of {learners} sharded learners ({how})"
        return Finding("fails" if needed.total > room else "ok", "learner", text)
    if fewest is None:
        text = (
            f"{needed.passing:.0f} GB of activations and logits and {needed.state:.0f} GB of state ({how}) fit no "
            f"number of GPUs of {gpu_gb:g} GB: set activation_checkpointing=full, a lower tokens_per_microbatch or "
            "max_model_len, or take larger ones (--gpu-memory)"
        )
        return Finding("fails", "learner", text)
    sharded = f"num_learners={fewest} gpus_per_learner=1" + (" learner_sharding=fsdp" if fewest > 1 else "")
    text = f"no GPUs stated; of {gpu_gb:g} GB (assumed) it takes {sharded} ({needed.total:.0f} GB unsharded; {how})"
    return Finding("note", "learner", text)


def _engine(settings: Settings, shape: ModelShape, gpu_gb: float) -> Finding:
    weights, context = engine_memory(settings, shape)
    text = f"{weights:.0f} GB of weights and {context:.2g} GB of KV cache for one context of {settings.max_model_len}"
    cache_gb = settings.kv_cache_gb * GIB / 1e9
    if cache_gb and context > cache_gb:
        return Finding("fails", "engine", f"{text}: kv_cache_gb={settings.kv_cache_gb:g} does not hold it")
    if weights + (cache_gb or context) > USABLE * gpu_gb:
        parts = f"tensor_parallel={2 * settings.tensor_parallel} engine_mode=async"
        stated = settings.gpus_per_engine or settings.tensor_parallel > 1
        text = f"{text} do not fit a GPU of {gpu_gb:g} GB: {parts}"
        return Finding("fails" if stated else "note", "engine", text)
    return _ok("engine", f"{text}, on GPUs of {gpu_gb:g} GB")
