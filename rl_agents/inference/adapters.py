"""LoRA adapters of a vLLM engine: peft's folders, checked before anything starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError
from rl_agents.inference.base import Adapter, RequestRefused, Sampling

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
#: Ranks that vLLM supports.
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
#: Prefix and suffixes that peft adds to a module's name.
PREFIX, PARTS = "base_model.model.", (".lora_A.weight", ".lora_B.weight")


def read_adapter(name: str, folder: Path, label: str = "") -> Adapter:
    """Read peft's folder.

    Raises:
        InputError: it is no adapter, or of a kind that vLLM does not support.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"adapter {name}: {folder} has no {CONFIG}") from None
    except ValueError as error:
        raise InputError(f"adapter {name}: {folder / CONFIG}: {error}") from None
    if not (folder / TENSORS).is_file():
        raise InputError(f"adapter {name}: {folder} has no {TENSORS}")
    if config.get("peft_type") != "LORA" or config.get("use_dora") or config.get("modules_to_save"):
        kind = config.get("peft_type") if config.get("peft_type") != "LORA" else "DoRA, or has full modules"
        raise InputError(f"adapter {name}: {folder} is {kind}; plain LoRA is served")
    rank = max([int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values())])
    if rank > RANKS[-1]:
        raise InputError(f"adapter {name}: rank {rank} is more than vLLM's {RANKS[-1]}")
    return Adapter(name, str(folder), rank, label or folder.name)


def check_fits(adapter: Adapter, base: Mapping[str, Sequence[int]]) -> None:
    """Refuse an adapter of another base model, which would end vLLM at its first request.

    Args:
        base: shapes of the base's tensors by their names in files.

    Raises:
        InputError: a matrix does not fit; the message names the first one.
    """
    for name, shape in _shapes(adapter).items():
        part = next((part for part in PARTS if name.endswith(part)), None)
        module = name.removeprefix(PREFIX).removesuffix(part or "")
        matrix = base.get(f"{module}.weight")
        if part is None or matrix is None:
            raise InputError(
                f"adapter {adapter.name}: {module} is not a matrix in the base model's files; it may be "
                "another base, or experts, whose adapters are not served"
            )
        fits = shape[-1] == matrix[-1] if part == PARTS[0] else shape[0] == matrix[0]
        if not fits:
            raise InputError(
                f"adapter {adapter.name}: made for another base model: {name} is {list(shape)}, the base's matrix "
                f"{list(matrix)}"
            )


def _shapes(adapter: Adapter) -> dict[str, list[int]]:
    from safetensors import SafetensorError, safe_open

    path = Path(adapter.folder) / TENSORS
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged weights: {error}") from None


def vllm_fields(adapters: Sequence[Adapter], is_cpu: bool) -> dict[str, Any]:
    """Return the fields of vLLM's ``EngineArgs`` that reserve memory for all ``adapters`` at once.

    On a CPU vLLM 0.32 applies the adapter of the last slot to requests without adapter if others have one
    (``torch_ops/lora_ops.py`` reads slot -1). There is one slot more than adapters, so that the last one stays zero.
    """
    if not adapters:
        return {}
    longest = max(adapter.rank for adapter in adapters)
    slots = len(adapters) + 1 if is_cpu else len(adapters)
    return {
        "enable_lora": True,
        "max_loras": slots,
        "max_cpu_loras": slots,
        "max_lora_rank": next(rank for rank in RANKS if rank >= longest),
    }


def lora_requests(adapters: Sequence[Adapter]) -> dict[str, Any]:
    """Return vLLM's requests by the adapters' names; "" is the base model."""
    requests: dict[str, Any] = {"": None}
    if adapters:
        from vllm.lora.request import LoRARequest

        requests |= {item.name: LoRARequest(item.name, i, item.folder) for i, item in enumerate(adapters, 1)}
    return requests


def lora_of(requests: Mapping[str, Any], sampling: Sampling) -> Any:
    """Return vLLM's request for the adapter of ``sampling``; raises `RequestRefused` if the engine has none such."""
    name = sampling.extras.adapter if sampling.extras is not None else ""
    if name not in requests:
        raise RequestRefused(f"no adapter '{name}' in this engine; it holds: {', '.join(filter(None, requests))}")
    return requests[name]
