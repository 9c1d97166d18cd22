"""The tokens of a step: exact ids, texts, and recorded values."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call
from rl_agents.viewer.episodes import find, samples_of
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import Run
from rl_agents.viewer.step_values import worth_of
from rl_agents.web.errors import ApiError

#: Last tokens of a prompt in the first answer.
PROMPT = 600
#: Most sampled tokens of a step.
RESPONSE = 20_000
_DECODING = threading.Lock()


def tokens(params: Params) -> dict[str, Any]:
    """Return a step's tokens; sampled ones have log-probabilities and versions."""
    run, ordinal, whole = params.run, params.whole("ordinal"), params.text("whole", "") == "1"
    with run.reader() as reader:
        stored = find(reader, params.text("session"))
        outcomes = reader.outcomes(stored.session.id)
        if not 0 <= ordinal < len(outcomes):
            raise ApiError(404, f"no step {ordinal + 1}: there are {len(outcomes)}", "unknown_step", "ordinal")
        call = _call(reader, outcomes[ordinal].call)
        worth = worth_of(reader, [stored.session.id]).get(stored.session.id, {}).get(ordinal)
        losses = {found.component: found.losses[:RESPONSE] for found in reader.token_losses(stored.session.id, ordinal)}
        if worth is None and stored.session.kind == "episode":  # a step of a search is trained on with its siblings
            sample, _ = samples_of(reader, stored.session.seed).get(str(call.id), ("", 0.0))
            worth = worth_of(reader, [sample]).get(sample, {}).get(0)
    prompt = call.prompt_ids if whole else call.prompt_ids[-PROMPT:]
    response = call.response_ids[:RESPONSE]
    pieces = texts(run, [*prompt, *response])
    return {
        "run": run.name, "session": stored.session.id, "ordinal": ordinal, "steps": len(outcomes),
        "task": stored.session.task_id, "iteration": stored.session.iteration, "decoded": pieces is not None,
        "prompt": {"ids": prompt, "texts": pieces[: len(prompt)] if pieces else None,
                   "left_out": len(call.prompt_ids) - len(prompt)},
        "response": {"ids": response, "texts": pieces[len(prompt) :] if pieces else None,
                     "left_out": len(call.response_ids) - len(response)},
        "logprobs": [round(value, 5) for value in call.logprobs[:RESPONSE]],
        "versions": _versions(call)[:RESPONSE], "version": call.policy_version, "finish": call.finish_reason,
        "losses": losses, "advantage": worth.advantage if worth else None, "value": worth.value if worth else None,
        "temperature": run.settings().get("temperature"),
    }  # fmt: skip


def _call(reader: PoolReader, name: int) -> Call:
    found = next(reader.calls([name]), None)
    if found is None:
        raise ApiError(404, "the call of this step is not in the pool", "missing_call")
    return found


def _versions(call: Call) -> list[int]:
    """Return the policy version of every sampled token."""
    if not call.version_spans:
        return [call.policy_version] * len(call.response_ids)
    return [version for version, count in call.version_spans for _ in range(count)]


def texts(run: Run, ids: Sequence[int]) -> list[str] | None:
    """Return each token's text; None if the run has no tokenizer.

    A part of a character becomes U+FFFD.
    """
    file = tokenizer_file(run)
    if file is None:
        return None
    with _DECODING:
        try:
            tokenizer = _tokenizer(str(file), file.stat().st_mtime_ns)
        except Exception:  # the library raises plain `Exception`
            return None
        known: dict[int, str] = {}
        for token in ids:
            if token not in known:
                known[token] = _text(tokenizer, token)
    return [known[token] for token in ids]


def _text(tokenizer: Any, token: int) -> str:
    text: str = tokenizer.decode([token], skip_special_tokens=False)
    raw = tokenizer.id_to_token(token)
    # Decoders remove a word's leading space.
    if raw is not None and raw[:1] in ("\u2581", "\u0120") and not text.startswith(" "):
        return f" {text}"
    return text or str(raw or "")


@lru_cache(maxsize=8)
def _tokenizer(file: str, _changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(file)


def tokenizer_file(run: Run) -> Path | None:
    """Return the tokenizer file of the run's newest checkpoint, or of its initial model."""
    if run.alone:
        return None
    model = run.settings().get("model")
    folders = [path / "hf" for _, path in run.folder.complete_checkpoints()[::-1]]
    folders += [Path(str(model))] if model else []
    return next((file for folder in folders if (file := folder / "tokenizer.json").is_file()), None)
