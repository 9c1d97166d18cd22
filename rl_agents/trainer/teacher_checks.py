"""Checks of a run's teacher before anything starts."""

from __future__ import annotations

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.chat.template import load_tokenizer
from rl_agents.config import Settings
from rl_agents.config.sections import POLICY_AS_TEACHER
from rl_agents.errors import InputError
from rl_agents.inference.hub import pinned
from rl_agents.inference.model_shape import check_model_dir, context_limit, read_config


def check_teacher(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Reject keys of the teacher that contradict each other. Raises `InputError`: the first contradiction."""
    distill, full, coefficient = recipe.teacher, settings.teacher_kl == "full", settings.ref_kl_coef
    url, taught = settings.teacher_url, settings.teacher or settings.teacher_url
    problems = {
        f"algo {recipe.name} needs a teacher: set teacher=DIR, or teacher_url=URL of a server": distill and not taught,
        "teacher and teacher_url: set one of them": settings.teacher and url,
        f"a teacher has no effect on algo {recipe.name} without ref_kl_coef": taught and not (distill or coefficient),
        "teacher_kl=full needs teacher=DIR, and ref_kl_coef above 0": full and (url or not coefficient),
        f"ref_kl_coef with algo {recipe.name} counts the KL twice": distill and coefficient and not full,
        f"temperature={settings.temperature:g}: the log-probabilities of teacher_url are those of temperature=1":
            url and settings.temperature != 1,
    }  # fmt: skip
    for problem in (problem for problem, found in problems.items() if found):
        raise InputError(problem)


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
