"""The other players of a game: (chat messages, random generator) -> response, or a coroutine that returns it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.background import elsewhere
from rl_agents.chat.template import ChatTemplate, load_tokenizer
from rl_agents.errors import InputError
from rl_agents.inference.base import Sampling
from rl_agents.inference.engines import local_engine
from rl_agents.plugins import member
from rl_agents.web.model_server import ModelServer, ServerError

Opponent = Callable[[list[dict[str, Any]], random.Random], Any]
#: What precedes a list of moves in its line: one of these words, or nothing if several moves are in quotes.
LISTS = re.compile(
    r"\b(?:available|valid|legal|possible|allowed)\b[^\n\[]*(?=\[)|^[^\n]*?(?='\[[^\n]*'\[)",
    re.IGNORECASE | re.MULTILINE,
)
MOVE = re.compile(r"\[[^\[\]\n]+\]")
#: Calls of a server at once.
CONCURRENCY = 16
TIMEOUT_S, RETRIES = 60.0, 2


def opponent_of(options: Any) -> Opponent:
    """Return the opponent that ``env.opponent`` describes; raises `InputError`: there is none of that form."""
    name = options.opponent
    if name.startswith(("http://", "https://")):
        return served_model(options)
    if Path(name).is_dir():
        return local_model(options)
    if name != "random" and ":" not in name:
        forms = "random, <module>:<function>, a model folder, a URL, self or checkpoint"
        raise InputError(f"env.opponent={name}: there is no such folder; write {forms}")
    move = listed_move if name == "random" else member(name, "env.opponent")
    return lambda messages, rng: move("\n".join(one["content"] for one in messages), rng)


def listed_move(text: str, rng: random.Random) -> str:
    """Draw one of the moves that a game listed last; raises `InputError`: it lists none."""
    if not (lists := list(LISTS.finditer(text))):
        raise InputError("the game lists no moves to draw from: set another env.opponent, and model=DIR")
    return rng.choice(MOVE.findall(text[lists[-1].end() :].partition("\n")[0]))


def served_model(options: Any) -> Opponent:
    server = ModelServer.connect(
        options.opponent, key_env="", timeout_s=TIMEOUT_S, retries=RETRIES, concurrency=CONCURRENCY
    )
    fixed = {"model": options.opponent_model, "temperature": options.opponent_temperature}

    async def respond(messages: list[dict[str, Any]], rng: random.Random) -> str:
        body = {**fixed, "messages": messages, "seed": rng.getrandbits(31)}
        try:
            reply = await server.post("/chat/completions", {**body, "max_completion_tokens": options.opponent_tokens})
            return str(reply["choices"][0]["message"]["content"] or "")
        except (ServerError, LookupError, TypeError) as error:
            raise ServerError(f"env.opponent={server.url}: {error}") from error

    return respond


def local_model(options: Any) -> Opponent:
    async def respond(messages: list[dict[str, Any]], rng: random.Random) -> str:
        template, engine = _template(options.opponent), local_engine(options.opponent)
        sampling = Sampling(options.opponent_tokens, options.opponent_temperature, 1.0, template.stop_token_ids)
        prompt = template.chat_ids(messages)
        completion = await elsewhere(engine.generate(prompt, replace(sampling, seed=rng.getrandbits(31))))
        return template.action(completion.token_ids)

    return respond


@lru_cache(maxsize=4)
def _template(folder: str) -> ChatTemplate:
    return ChatTemplate(load_tokenizer(folder))
