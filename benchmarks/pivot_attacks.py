"""Attacks on PivotRL's verifiers, on turns of the built-in help desk where the expert called a tool.

A message passes wherever the expert wrote one (except with ``exact`` and ``dialogue``), so turns without calls are
excluded.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier
from rl_agents.rewards.verifiers.tool_calls import word_similarity
from rl_agents.tools.calls import MAX_CALLS, ToolCall, write_response
from rl_agents.traces.desk import desk_turns
from rl_agents.traces.turns import Turn

VERIFIERS: tuple[dict[str, Any], ...] = (
    {"verifier": "exact"},
    {"verifier": "tool_name"},
    {"verifier": "tool_name", "parallel": "free"},
    {"verifier": "tool_call"},
    {"verifier": "tool_call", "parallel": "free"},
    {"verifier": "search"},
)
THRESHOLDS = (0.1, 0.3)
MAX_WORDS = 25

Action = Callable[[Turn, random.Random], str]


def rows() -> list[dict[str, Any]]:
    """Choose attacks on half of the turns and run them on the other half, for every verifier."""
    turns = [turn for turn in desk_turns() if turn.calls]
    train, test = turns[::2], turns[1::2]
    found = [verifier_row(options, train, test) for options in VERIFIERS]
    return found + [text_row(threshold, train, test) for threshold in THRESHOLDS]


def verifier_row(options: dict[str, Any], train: Sequence[Turn], test: Sequence[Turn]) -> dict[str, Any]:
    verifier = make_verifier(VerifierOptions(**options))
    found = {}
    for kind, attacks in _attacks(train).items():
        scores = {
            name: sum(assess(verifier, turn, act(turn, random.Random(turn.turn_id))).score for turn in test)
            for name, act in attacks.items()
        }
        best = max(scores, key=lambda name: scores[name])
        found[kind] = {"player": best, "reward": round(scores[best] / len(test), 4)}
    label = ", ".join(f"{value}" if key == "verifier" else f"{key}={value}" for key, value in options.items())
    return _row(f"{label}, turns with calls", found)


def text_row(threshold: float, train: Sequence[Turn], test: Sequence[Turn]) -> dict[str, Any]:
    """Return the share of argument texts that count as equivalent to one constant text."""
    text, texts = constant_text(_texts(train), threshold), _texts(test)
    passed = sum(word_similarity(text, other) >= threshold for other in texts) / len(texts)
    constant = {"player": f"{len(text.split())} words", "reward": round(passed, 4)}
    return _row(f"texts of arguments, threshold {threshold:g}", {"constant": constant})


def constant_text(texts: Sequence[str], threshold: float) -> str:
    """Return a text that passes for most texts: greedily add words to the two most frequent ones."""
    counts = Counter(word for text in texts for word in text.lower().split())
    best = found = [word for word, _ in counts.most_common(2)]

    def passing(words: Sequence[str]) -> tuple[int, float]:
        alike = [word_similarity(" ".join(words), text) for text in texts]
        return sum(value >= threshold for value in alike), sum(min(value, threshold) for value in alike)

    while len(found) < MAX_WORDS:
        found = max(([*found, word] for word in counts), key=passing)
        best = max(best, found, key=passing)
    return " ".join(best)


def _row(label: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"env": "pivot", "setting": label, "measure": "paper", **found}


def _texts(turns: Sequence[Turn]) -> list[str]:
    values = [value for turn in turns for call in turn.calls for value in call.arguments.values()]
    return [value for value in values if isinstance(value, str) and len(value.split()) > 1]


def _attacks(train: Sequence[Turn]) -> dict[str, dict[str, Action]]:
    call = Counter(turn.text for turn in train).most_common(1)[0][0]
    tool = Counter(turn.calls[0].name for turn in train).most_common(1)[0][0]
    text = constant_text(_texts(train), THRESHOLDS[0])
    return {
        "constant": {
            "most frequent call": lambda turn, rng: call,
            "most frequent tool, no arguments": lambda turn, rng: write_response("", [ToolCall(tool, {})]),
        },
        "copy": {"looks the order up": lambda turn, rng: write_response("", every_tool(turn, text)[:1])},
        "shotgun": {
            "every tool, no arguments": lambda turn, rng: write_response(
                "", [ToolCall(t.name, {}) for t in turn.tools]
            ),
            "every tool, one text": lambda turn, rng: write_response("", every_tool(turn, text)),
        },
        "random": {"another turn's call": lambda turn, rng: rng.choice(train).text},
    }


def every_tool(turn: Turn, text: str) -> list[ToolCall]:
    said = " ".join(str(message["content"]) for message in turn.messages if message["role"] == "user")
    order = next((word.strip(".:?") for word in said.split() if word.strip(".:?").isdigit()), "11")
    calls = []
    for tool in turn.tools:
        names = tool.parameters.get("properties", {})
        calls.append(ToolCall(tool.name, {name: order if name == "order_id" else text for name in names}))
    return calls[:MAX_CALLS]
