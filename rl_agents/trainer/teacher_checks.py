"""Checks of the model folder of a run's teacher before anything starts."""

from __future__ import annotations

from rl_agents.chat.template import load_tokenizer
from rl_agents.config import Settings
from rl_agents.config.sections import POLICY_AS_TEACHER
from rl_agents.errors import InputError
from rl_agents.inference.hub import pinned
from rl_agents.inference.model_shape import check_model_dir, context_limit, read_config


def check_local(settings: Settings, model: str) -> None:
    """Name a public teacher by its commit. Raises `InputError`: its folder cannot be used, or not with the policy's."""
    if not settings.teacher or settings.teacher == POLICY_AS_TEACHER:
        return
    try:
        folder = check_model_dir(settings.teacher)
    except InputError as error:
        raise InputError(str(error).replace("model=", "teacher=", 1)) from None
    settings.teacher, name = pinned(settings.teacher), f"teacher={settings.teacher}"
    own, theirs = (load_tokenizer(place).get_vocab() for place in (model, folder))
    if own != theirs:
        word = min((w for w in {*own, *theirs} if own.get(w) != theirs.get(w)), key=lambda w: own.get(w, len(own)))
        ids = f"{word!a} is id {own.get(word)} here and {theirs.get(word)} there"
        raise InputError(f"{name}: another tokenizer than the policy's: {ids}")
    if (limit := context_limit(config := read_config(folder))) and limit < settings.max_model_len:
        raise InputError(f"{name}: reads {limit} tokens at most, and max_model_len={settings.max_model_len}")
    if settings.teacher_kl == "full" and config.get("vocab_size") != read_config(model).get("vocab_size"):
        raise InputError(f"{name}: logits of another size than the policy's; take teacher_kl=sampled")
