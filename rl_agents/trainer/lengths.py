"""Response and context lengths of a model that is no starter: measured on the environment's prompts, never guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rl_agents.chat.template import ContextPolicy
from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.trainer.prompt_length_probe import UNLIMITED, Dialogues, measure

KEYS = ("max_response_tokens", "max_model_len")
#: Responses where nobody says otherwise: what public recipes take, and the factor for models that think.
RESPONSE, THINKING = 512, 4
#: Shorter responses cut what an instructed model writes: the run is refused and the keys are named. Without a GPU they
#: are what is taken: a core samples about 100 tokens a second from 0.1 billion parameters.
SHORTEST_RESPONSE = 128
#: Context lengths are multiples of it.
ROUND = 64


def fill_lengths(settings: Settings, context: ContextPolicy, chosen: set[str], limit: int | None) -> None:
    """Fill in the lengths that nobody chose, and say in ``settings.lengths`` what they are and why.

    Args:
        settings: resolved but for the lengths.
        context: how this model's prompts are built.
        chosen: keys that somebody chose, or that the model was made for.
        limit: tokens that the model reads at most; None where it does not say.

    Raises:
        InputError: no length can work, or the chosen one does not hold a first prompt.
    """
    open_keys = [name for name in KEYS if name not in chosen]
    try:
        found = measure(settings, context, played=bool(open_keys))
    except EnvFailure as failure:
        if not open_keys:
            return  # the run says so itself, with the share of episodes
        raise InputError(
            f"{' and '.join(open_keys)} cannot be measured, {settings.env} fails: {failure}; set them"
        ) from None
    if open_keys:
        _choose(settings, found, open_keys, limit, _usual_response(context))
    if found.shortest + 1 > settings.max_model_len:
        raise InputError(
            f"max_model_len={settings.max_model_len}: the first prompt of {settings.env} has {found.shortest} tokens "
            f"and more ({found.tasks} tasks tried); it must be above {found.longest + settings.max_response_tokens}"
        )
    settings.lengths = _said(settings, found, open_keys, limit)


def _choose(settings: Settings, found: Dialogues, open_keys: list[str], limit: int | None, usual: int) -> None:
    """Set the keys that are open.

    Raises:
        InputError: the model's context does not hold an episode.
    """
    most = limit or UNLIMITED
    if "max_model_len" not in open_keys:
        fitting = found.response_in(settings.max_model_len)
        room = settings.max_model_len - found.longest
        settings.max_response_tokens = max(1, min(usual, max(fitting, SHORTEST_RESPONSE), room))
        return
    if "max_response_tokens" in open_keys:
        settings.max_response_tokens = min(usual, found.response_in(most))
        if settings.max_response_tokens < SHORTEST_RESPONSE and not found.shown:
            settings.max_response_tokens = max(1, min(usual, most - found.longest))
        elif settings.max_response_tokens < SHORTEST_RESPONSE:
            raise InputError(
                f"model={settings.model} reads {most} tokens; {found.turns} turns of {settings.env} take about "
                f"{found.need(SHORTEST_RESPONSE)} even with responses of {SHORTEST_RESPONSE}: set context=window(2), "
                "a lower max_turns, or both max_response_tokens and max_model_len"
            )
    settings.max_model_len = min(_rounded(found.need(settings.max_response_tokens)), most)


def _usual_response(context: ContextPolicy) -> int:
    import torch

    usual = RESPONSE if torch.cuda.is_available() else SHORTEST_RESPONSE
    return THINKING * usual if "<think>" in str(context.template.tokenizer.chat_template) else usual


def _rounded(tokens: int) -> int:
    return math.ceil(tokens / ROUND) * ROUND


def _said(settings: Settings, found: Dialogues, open_keys: Sequence[str], limit: int | None) -> str:
    """Return one sentence: what holds, what was measured, and what will be cut."""
    values = ", ".join(f"{name}={getattr(settings, name)}" for name in open_keys or KEYS)
    need = found.need(settings.max_response_tokens)
    text = (
        f"{values} {'measured' if open_keys else 'checked'} on {found.tasks} tasks of {settings.env}: first prompts "
        f"of {found.shortest} to {found.longest} tokens"
    )
    if not open_keys:
        return text
    turns = f"{found.turns} turn{'s' if found.turns > 1 else ''}"
    text += f", {need} for {turns}" + ("" if found.shown else " (observations are not known: assumed)")
    text += f"; the model reads {limit}" if limit else ""
    if settings.max_response_tokens == SHORTEST_RESPONSE and "max_response_tokens" in open_keys:
        text += "; short responses, as there is no GPU: set max_response_tokens for longer ones"
    if need > settings.max_model_len:
        text += "; longer episodes are cut by the context"
    return text
