"""Names of weights: those of a checkpoint's files, which vLLM and everybody else reads, and those of a model in memory.

transformers 5 holds the experts of a layer in one tensor, and their files one tensor for each expert and matrix. What
leaves the learner bears the files' names; the torch engine, whose model is transformers', puts them together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rl_agents.errors import InputError


def as_in_files(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors of a transformers model, by its names, as its checkpoint's files hold them."""
    from transformers.core_model_loading import revert_weight_conversion

    converted: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(tensors))
    return converted


class FileNames:
    """How one model's tensors are called and cut in its files.

    Attributes:
        changed: names in memory of tensors that files hold otherwise; empty for most models.
    """

    def __init__(self, model: Any) -> None:
        """Compare names; no weights are read.

        Raises:
            InputError: files hold several of its tensors as one, so that they cannot be sent one after the other.
        """
        self._model = model
        empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
        whole = as_in_files(model, empty)
        self.changed: frozenset[str] = frozenset()
        if whole.keys() == empty.keys():
            return
        parts = {name: as_in_files(model, {name: tensor}) for name, tensor in empty.items()}
        found = {name: tensor.shape for part in parts.values() for name, tensor in part.items()}
        if found != {name: tensor.shape for name, tensor in whole.items()}:
            raise InputError(
                f"{model.config.model_type} models are not supported: their files hold several matrices as one that "
                "transformers splits"
            )
        self.changed = frozenset(name for name, part in parts.items() if list(part) != [name])

    def parts(self, name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what files hold of a tensor, itself where they do not differ."""
        if name in self.changed:
            yield from as_in_files(self._model, {name: tensor}).items()
        else:
            yield name, tensor

    def joined(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return weights by the files' names as by the model's; those that are so already, or unknown, as they are.

        Raises:
            ValueError: a part has another shape than the model's.
        """
        found = dict(weights)
        parameters = dict(self._model.named_parameters())
        for name in self.changed - weights.keys():
            shape = parameters[name].shape
            # Where each element of a part comes from, whatever transposes and chunks lie between.
            places = as_in_files(self._model, {name: torch.arange(shape.numel()).view(shape)})
            if not places.keys() <= found.keys():
                continue
            flat = torch.empty(shape.numel(), dtype=found[next(iter(places))].dtype)
            for part, place in places.items():
                tensor = found.pop(part)
                if tensor.shape != place.shape:
                    raise ValueError(f"{part} has shape {list(tensor.shape)}, expected {list(place.shape)}")
                flat[place.flatten()] = tensor.detach().flatten().to(flat)
            found[name] = flat.view(shape)
        return found
