"""Check a model's folder within seconds, before engines and learners fail on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from rl_agents.durable import read_json
from rl_agents.errors import InputError
from rl_agents.inference.model_shape import attention, check_model_dir, read_config
from rl_agents.inference.weights import as_in_files
from rl_agents.learner.prefix_attention import enable
from rl_agents.startup import leave_out_sklearn

#: Files of tokenizers; one of them is needed.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
#: Bytes that are searched for non-finite numbers, in one tensor and in all.
SAMPLED, SAMPLED_IN_ALL = 1 << 20, 1 << 30
#: Share of a model's tensor names that the files must contain; otherwise transformers renames tensors when loading.
SAME_NAMES = 0.9

Shapes = Mapping[str, tuple[int, ...]]


def check_model(model_dir: str | Path) -> Path:
    """Check configuration, tokenizer files and weights of a folder; return it as a path.

    Raises:
        InputError: something is missing, truncated, of the wrong shape or not a number.
    """
    folder = check_model_dir(model_dir)
    read_config(folder)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise InputError(f"model={folder}: no tokenizer in it ({TOKENIZERS[0]}, {TOKENIZERS[1]} or {TOKENIZERS[2]})")
    files = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir()))
    _check_weights(folder, files)
    return folder


def check_vocabulary(model_dir: str | Path, tokenizer: Any, vocabulary: int | None) -> None:
    """Reject a tokenizer with ids that the model has no embedding for.

    Raises:
        InputError: there are such ids, and prompts with them would end the run.
    """
    largest = max(tokenizer.get_vocab().values(), default=0)
    if vocabulary is not None and largest >= vocabulary:
        raise InputError(
            f"model={model_dir}: its tokenizer has ids up to {largest}, the model embeds {vocabulary} (vocab_size): "
            "they do not match"
        )


@lru_cache(maxsize=8)
def _check_weights(folder: Path, files: tuple[Any, ...]) -> None:
    shapes = _named_shapes(folder)
    _check_shapes(folder, _expected_shapes(folder), shapes)
    _check_numbers(folder, len(shapes))


def _named_shapes(folder: Path) -> Shapes:
    """Return the shapes by name that the files' headers state.

    Raises:
        InputError: a file is truncated or damaged, or one that the index names is missing.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"model={folder}: {path.name} {_damage(path, str(error))}") from None
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = set(read_json(index, dict).get("weight_map", {}).values())
        if missing := sorted(name for name in named if not (folder / name).is_file()):
            raise InputError(f"model={folder}: {missing[0]} is missing, which {index.name} names: copy it again")
    return shapes


def _damage(path: Path, error: str) -> str:
    """Return an error of safetensors in words about a copied or downloaded file."""
    reason = error.removeprefix("Error while deserializing header: ")
    if reason.startswith("incomplete metadata"):
        return (
            f"has {path.stat().st_size} bytes of header and tensors, which is not what the header says: copy it again"
        )
    reason = {
        "invalid header length": "its header is longer than the file",
        "header too large": "it begins with no header, as a web page or a pointer of git-lfs does",
    }.get(reason, reason)
    return f"is no whole safetensors file: {reason}"


def check_sharing(folder: Path, longest: int, asked: str = "prefix_sharing") -> None:
    """Reject a model whose rows cannot be packed.

    Args:
        longest: maximum number of tokens of a row.
        asked: the key that requests packing.

    Raises:
        InputError: see `rl_agents.learner.prefix_attention.enable`.
    """
    enable(_empty_model(folder), str(folder), longest, asked)


def _expected_shapes(folder: Path) -> Shapes:
    """Return the shapes of the model of config.json, by the tensor names in files."""
    model = _empty_model(folder)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    tied |= {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    state = {name: value for name, value in model.state_dict().items() if name not in tied}
    return {name: tuple(value.shape) for name, value in as_in_files(model, state).items()}


def _empty_model(folder: Path) -> Any:
    """Return the model of config.json without weights.

    Raises:
        InputError: transformers does not know the causal language model.
    """
    config = _read(folder)
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, **attention(read_config(folder)))
    except Exception as error:  # the many configurations raise many types
        raise _no_language_model(folder, error) from None


def _read(folder: Path) -> Any:
    """Return a folder's configuration as read by transformers.

    Raises:
        InputError: it cannot be read, the model reads more than text, or its weights are quantized.
    """
    leave_out_sklearn()
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise _no_language_model(folder, error) from None
    if config.get_text_config() is not config:
        raise InputError(
            f"model={folder}: {config.model_type} models read images or sound in addition to text, and only text "
            "models are trained; docs/reference/models.md says how to take the text part of one out"
        )
    if getattr(config, "quantization_config", None):
        raise InputError(
            f"model={folder}: its weights are quantized, and gradients need weights of 16 or 32 bits: take the "
            "folder that it was made from"
        )
    return config


def _no_language_model(folder: Path, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"model={folder}: config.json is no causal language model's: {reason}")


def _check_shapes(folder: Path, wanted: Shapes, found: Shapes) -> None:
    for name, shape in wanted.items():
        if name in found and found[name] != shape:
            raise InputError(
                f"model={folder}: {name} is {_size(found[name])} in the weights and {_size(shape)} in config.json"
            )
    missing = [name for name in wanted if name not in found]
    if missing and len(missing) <= (1 - SAME_NAMES) * len(wanted):
        raise InputError(f"model={folder}: {len(missing)} tensors are missing from its weights, such as {missing[0]}")


def _check_numbers(folder: Path, tensors: int) -> None:
    """Reject weights that are not finite; of large tensors only the first rows are read."""
    budget = min(SAMPLED, SAMPLED_IN_ALL // max(1, tensors))
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (it is no mapping)
                part = _beginning(file.get_slice(name), budget)
                if part.is_floating_point() and not bool(torch.isfinite(part.float()).all()):
                    raise InputError(f"model={folder}: {name} holds numbers that are not finite (NaN or infinite)")


def _beginning(tensor: Any, budget: int) -> torch.Tensor:
    shape = tensor.get_shape()
    if not shape:
        whole: torch.Tensor = tensor[...]
        return whole
    row = 4
    for length in shape[1:]:
        row *= length
    rows: torch.Tensor = tensor[: max(1, min(shape[0], budget // max(1, row)))]
    return rows


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"
