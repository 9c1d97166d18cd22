"""Arguments, prompts and outputs of vLLM. Nothing here imports vLLM (10 s) before an engine is built."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Sequence
from typing import Any

from rl_agents.inference.base import Completion, EngineSettings, Extras, Likeliest, RequestRefused, Sampling, stamp
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.startup import leave_out_sklearn

GIB = 1 << 30
#: Tokens of a block of the KV cache on CPUs.
BLOCK_TOKENS = 32
#: vLLM's name of weights whose version it did not receive.
UNNAMED = "default"
#: Name of our receiver in vLLM's registry of weight transfers (`rl_agents.inference.weight_receivers`).
RECEIVER = "rl_object_store"
#: Share of a GPU that vLLM takes if it has a GPU to itself.
GPU_SHARE = 0.9
#: Guided decoding needs the texts of tokens. Without a backend, vLLM would use that of the first request for all.
GUIDED = {"skip_tokenizer_init": False, "structured_outputs_config": {"backend": "xgrammar"}}
#: Payloads of its ``update_weights``: tensors by name, the path of a file with them, or the end of a failed update.
TENSORS, FILE, ABANDON = "rl_tensors", "rl_file", "rl_abandon"


def prepare_environment() -> None:
    """Set the variables that vLLM reads when it is imported, and skip imports that it does not need. Call it before."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    leave_out_sklearn()


def engine_args(settings: EngineSettings, is_cpu: bool) -> dict[str, Any]:
    """Return the fields of vLLM's ``EngineArgs``.

    Raises:
        InputError: there is no model in ``settings.model_dir``.
    """
    read_config(settings.model_dir)
    args: dict[str, Any] = {
        "model": settings.model_dir,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no top-k or penalties from the checkpoint
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_batch,
        "seed": settings.seed,
        "logprobs_mode": "processed_logprobs",  # the default is before temperature and top-p
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "tensor_parallel_size": settings.tensor_parallel,
        "worker_extension_cls": "rl_agents.inference.weight_receivers.TransferWorker",
        "weight_transfer_config": {"backend": RECEIVER},
    }
    if is_cpu:
        # Blocks of 128 tokens, the CPU default, rarely hit in short turns. Eager mode with a given KV size skips
        # compilation and warm-up.
        args |= {"block_size": BLOCK_TOKENS, "enforce_eager": True}
        # A prompt in two chunks kills vLLM 0.32's CPU runner if its request has a seed ("CPU Generator
        # does not use offset").
        args |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(2048, settings.max_model_len)}
    if settings.kv_cache_gb is not None:
        args["kv_cache_memory_bytes"] = int(settings.kv_cache_gb * GIB)
    elif is_cpu:
        args["kv_cache_memory_bytes"] = cpu_kv_bytes(settings)
    elif 0 < settings.gpu_share < 1:
        args["gpu_memory_utilization"] = GPU_SHARE * settings.gpu_share
    if settings.sleeps:
        args["enable_sleep_mode"] = True
    return args | (GUIDED if settings.guided else {})


def cpu_kv_bytes(settings: EngineSettings) -> int:
    """Return the default KV cache of an engine on a CPU, in bytes: half a GiB, or the size of one whole context."""
    shape = model_shape(read_config(settings.model_dir))
    token = shape.kv_bytes(settings.dtype) if shape else 0
    # One more block, because vLLM rounds up and keeps one for itself.
    return max(GIB // 2, token * (settings.max_model_len + 2 * BLOCK_TOKENS))


def register_model_class(model_dir: str) -> bool:
    """Register the checkpoint's model class in this process; return whether that was possible.

    Otherwise vLLM starts a second process to inspect the class, which imports vLLM again (12 s).
    """
    from vllm import ModelRegistry

    config = read_config(model_dir)
    try:
        from vllm.model_executor.models.registry import _VLLM_MODELS

        for architecture in config["architectures"]:
            module, name = _VLLM_MODELS[architecture]
            module = module if "." in module else f"vllm.model_executor.models.{module}"
            ModelRegistry.register_model(architecture, getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return False  # private names moved, or a model outside the table: vLLM then starts its second process
    return True


def sampling_params(sampling: Sampling, stream: bool = False) -> Any:
    """Convert to vLLM's ``SamplingParams``: only our stop tokens stop.

    One final output comes back, or, with ``stream``, one after every step with all tokens so far.

    Raises:
        RequestRefused: a structure that vLLM would not enforce.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    fields: dict[str, Any] = {"logprobs": 0} if sampling.extras is None else _extra_fields(sampling.extras)
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,
        seed=sampling.seed,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY,
        skip_clone=True,  # no other code refers to it
        **fields,  # `logprobs`: 0 is the sampled token's only
    )


def _extra_fields(extras: Extras) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "logprobs": extras.top_logprobs,
        "top_k": extras.top_k,
        "min_p": extras.min_p,
        "presence_penalty": extras.presence_penalty,
        "frequency_penalty": extras.frequency_penalty,
        "repetition_penalty": extras.repetition_penalty,
        "logit_bias": dict(extras.logit_bias) or None,
    }
    if extras.structure:
        from vllm.sampling_params import StructuredOutputsParams

        _check_enforced(json.loads(extras.structure))
        fields["structured_outputs"] = StructuredOutputsParams(structural_tag=extras.structure)
    return fields


def _check_enforced(structure: Any) -> None:
    """Raise `RequestRefused` for schemas that xgrammar enforces only in part; vLLM checks bare schemas only."""
    from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

    if isinstance(structure, dict):
        schema = structure.get("json_schema")
        if structure.get("type") == "json_schema" and isinstance(schema, dict):
            if has_xgrammar_unsupported_json_features(schema):
                raise RequestRefused("the JSON schema uses keywords that vLLM's guided decoding does not enforce")
            return
        structure = list(structure.values())
    if isinstance(structure, list):
        for part in structure:
            _check_enforced(part)


def completion(output: Any, version: int) -> Completion:
    """Convert a finished ``RequestOutput``.

    Args:
        version: of the weights when sampling began, for tokens that vLLM names no version of.
    """
    tokens, logprobs = sampled(output)
    result = output.outputs[0]
    spans = result.weight_versions or ()
    names = ((version if span.version == UNNAMED else int(span.version), span) for span in spans)
    counted = [(number, span.end - span.start) for number, span in names]
    first, versions = stamp(counted) if counted else (version, ())
    reason = result.finish_reason or "abort"
    likely = likeliest(output, range(len(tokens)))
    return Completion(tokens, logprobs, first, reason, version_spans=versions, likeliest=likely)


def sampled(output: Any) -> tuple[list[int], list[float]]:
    """Return the tokens of a ``RequestOutput`` so far, and their log-probabilities.

    vLLM's lists may grow meanwhile in its own thread; positions count once their log-probabilities are complete.
    """
    result = output.outputs[0]
    flat = result.logprobs
    count = len(flat.end_indices)
    # Each position begins with the sampled token.
    return list(result.token_ids[:count]), [flat.logprobs[start] for start in flat.start_indices[:count]]


def likeliest(output: Any, places: range) -> Sequence[Likeliest]:
    """Return the likeliest tokens of these positions; empty if they were not requested.

    Tokens that could not be sampled are excluded.
    """
    flat = output.outputs[0].logprobs
    count = flat.end_indices[0] - 1 if flat.end_indices else 0  # each position begins with the sampled token
    return [_ranked(flat[place], count) for place in places] if count else ()


def _ranked(entries: Any, count: int) -> Likeliest:
    found = sorted((entry.rank, token, entry.logprob) for token, entry in entries.items())[:count]
    return tuple((token, logprob) for _, token, logprob in found if math.isfinite(logprob))
