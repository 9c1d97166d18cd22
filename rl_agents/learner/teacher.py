"""The teacher's log-probabilities of sampled tokens: from a network here, or from a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl_agents.background import together, wait
from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row, teacher_rows
from rl_agents.errors import InputError
from rl_agents.web.model_server import ModelServer, ServerError

#: Limits of requests to the teacher's server.
LIMITS: dict[str, Any] = {"timeout_s": 120.0, "retries": 2, "concurrency": 16}
#: Tokens of the text by which tokenizers are compared.
PROBED = 256


def fill_teacher_logprobs(rows: Sequence[Row], score: Callable[[Sequence[Row]], Sequence[FloatArray]]) -> None:
    """Fill ``teacher_logprobs``; ``score`` gives the log-probabilities of the tokens that the teacher reads."""
    parts = [teacher_rows(row) for row in rows]
    found = iter(score([part for own in parts for part in own]))
    for row, own in zip(rows, parts, strict=True):
        row.teacher_logprobs = np.zeros(len(row), np.float32)
        row.teacher_logprobs[row.scored > 0] = np.concatenate([next(found)[part.scored > 0] for part in own])


class TeacherServer:
    """The server of ``teacher_url``: OpenAI's completions API with ``prompt_logprobs``, as vLLM's has."""

    def __init__(self, settings: Settings) -> None:
        key, self.model = settings.teacher_key_env, settings.teacher_model
        self.server = ModelServer.connect(settings.teacher_url, key_env=key, option="teacher", **LIMITS)

    def check(self, tokenizer: Any) -> None:
        """Raise `InputError` if the server returns no log-probabilities of a text, or other ids than the tokenizer."""
        chosen = list(range(0, len(tokenizer), max(1, len(tokenizer) // PROBED)))
        text = "a" + tokenizer.decode(chosen, skip_special_tokens=True)
        here = tokenizer(text, add_special_tokens=False)["input_ids"][1:]
        there = [int(next(iter(entry))) for entry in wait(self._entries(text))[1:]]
        if here != there:
            pairs = zip([*here, None], [*there, None], strict=False)
            own, other = next(pair for pair in pairs if pair[0] != pair[1])
            raise self._error(f"another tokenizer than the policy's: id {other} where the policy has {own}")

    def score(self, rows: Sequence[Row]) -> list[FloatArray]:
        """Return the log-probabilities of the tokens of rows; raises `InputError` if the server fails."""
        prompts = [row.input_ids.tolist() for row in rows]
        found = wait(together(self._entries(ids) for ids in prompts))
        pairs = (zip(ids[1:], of[1:], strict=True) for ids, of in zip(prompts, found, strict=True))
        return [np.array([0.0, *(entry[str(i)]["logprob"] for i, entry in own)], np.float32) for own in pairs]

    async def _entries(self, prompt: str | list[int]) -> list[Any]:
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}
        try:
            reply = await self.server.post("/completions", {**body, "add_special_tokens": False})
        except ServerError as error:
            raise self._error(str(error)) from None
        choices = reply.get("choices") if isinstance(reply, dict) else None
        entries = (choices[0].get("prompt_logprobs") if choices else None) or [None, None]
        if not all(isinstance(entry, dict) for entry in entries[1:]):
            raise self._error("no log-probabilities of the prompt in its reply (prompt_logprobs, as of vLLM's server)")
        return list(entries)

    def _error(self, problem: str) -> InputError:
        return InputError(f"teacher_url={self.server.url}: {problem}")
