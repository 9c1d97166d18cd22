"""Turns of expert traces: the state before every assistant turn, and the expert's action (PivotRL, eq. 3)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rl_agents.chat.messages import Message, action_text, inline_thoughts, message_calls
from rl_agents.tools.calls import Tool, ToolCall
from rl_agents.tools.strict_json import canonical
from rl_agents.traces.formats import Trace


@dataclass(frozen=True, slots=True)
class Turn:
    """A pivot candidate (s_t, a*_t).

    Attributes:
        turn_id: digest of state, tools and action, the same on every machine.
        trace_id, index: the trace, and the number of the assistant turn in it, from 0.
        source: FILE:LINE of the trace.
        messages: the state: everything before the turn.
        tools: available tools.
        action: the demonstrated assistant message.
        harness: see `rl_agents.traces.formats.Trace`.
    """

    turn_id: str
    trace_id: str
    index: int
    source: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    action: Message
    harness: str = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return message_calls(self.action)

    @property
    def text(self) -> str:
        """The action as a model writes it, with inline thoughts."""
        return action_text(self.action)

    @property
    def kind(self) -> str:
        """``message``, ``call`` or ``calls``."""
        count = len(self.action.get("tool_calls", ()))
        return ("message", "call")[count] if count < 2 else "calls"

    @property
    def place(self) -> str:
        return f"{self.source}: turn {self.index}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """Which turns of which traces are extracted.

    Attributes:
        min_reward: exclude traces with a lower known reward, because only successful ones are demonstrations.
        only_calls: exclude turns without a call (the paper's SWE traces).
        drop_failed_calls: exclude turns with a call whose result begins with "Error" (the paper's SWE traces).
        thoughts: ``apart``: as ``reasoning_content``, which the chat template may write or drop, and not part of a
            demonstrated action;  ``inline``: in the content, so that states show them and imitation learns them.
    """

    min_reward: float = 1.0
    only_calls: bool = False
    drop_failed_calls: bool = False
    thoughts: str = "apart"


@dataclass(frozen=True, slots=True)
class Extracted:
    """Turns, and the number of excluded traces and turns by reason."""

    turns: tuple[Turn, ...]
    left_out: Counter[str]


def extract_turns(traces: Iterable[Trace], rules: Extraction) -> Extracted:
    """Return the turns of all traces that ``rules`` keep, in order, and one of equal pairs (state, action)."""
    kept: list[Turn] = []
    left_out: Counter[str] = Counter()
    seen: set[str] = set()
    for trace in traces:
        if trace.reward is not None and trace.reward < rules.min_reward:
            left_out["traces with a low reward"] += 1
            continue
        if rules.thoughts == "inline":
            trace = replace(trace, messages=tuple(inline_thoughts(message) for message in trace.messages))
        for turn in trace_turns(trace):
            if rules.only_calls and turn.kind == "message":
                left_out["messages"] += 1
            elif rules.drop_failed_calls and _call_failed(turn, trace):
                left_out["turns whose call failed"] += 1
            elif turn.turn_id in seen:
                left_out["duplicates"] += 1
            else:
                seen.add(turn.turn_id)
                kept.append(turn)
    return Extracted(tuple(kept), left_out)


def trace_turns(trace: Trace) -> list[Turn]:
    """Return every assistant turn of a trace, or only the last if the trace is a row with an expected action."""
    places = [i for i, message in enumerate(trace.messages) if message["role"] == "assistant" and i > 0]
    turns = [_turn(trace, place, number) for number, place in enumerate(places)]
    return turns[-1:] if trace.single else turns


def turn_digest(messages: Sequence[Message], tools: Sequence[Tool], action: Message) -> str:
    """Return 16 hex digits of state, tools and action, without the action's thoughts and call ids."""
    content = [messages, [tool.to_openai() for tool in tools], action_text(action)]
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]


def statistics_table(turns: Sequence[Turn]) -> str:
    """Return a Markdown table: turns by action, with the lengths of state and action in characters."""
    by_action: dict[str, list[tuple[int, int]]] = {}
    for turn in turns:
        by_action.setdefault(action_name(turn), []).append((len(canonical(turn.messages)), len(turn.text)))
    everything = [lengths for group in by_action.values() for lengths in group]
    lines = ["| action | turns | share | characters of state: median, longest | of action |", "|---|---|---|---|---|"]
    for name, lengths in [*sorted(by_action.items(), key=lambda item: (-len(item[1]), item[0])), ("all", everything)]:
        state, action = zip(*lengths, strict=True)
        share = len(lengths) / len(everything)
        lines.append(
            f"| {name} | {len(lengths)} | {share:.0%} | {median(state):.0f}, {max(state)} "
            f"| {median(action):.0f}, {max(action)} |"
        )
    return "\n".join(lines)


def action_name(turn: Turn) -> str:
    """Return the names of the called tools, or ``(message)``."""
    return " + ".join(call.name for call in turn.calls) or "(message)"


def _turn(trace: Trace, place: int, number: int) -> Turn:
    state, action = trace.messages[:place], trace.messages[place]
    return Turn(
        turn_id=turn_digest(state, trace.tools, action),
        trace_id=trace.trace_id,
        index=number,
        source=trace.source,
        messages=state,
        tools=trace.tools,
        action=action,
        harness=trace.harness,
    )


def _call_failed(turn: Turn, trace: Trace) -> bool:
    place = len(turn.messages) + 1
    ids = {call["id"] for call in turn.action.get("tool_calls", ())}
    results = [m["content"] for m in trace.messages[place : place + len(ids)] if m.get("tool_call_id") in ids]
    return any(result.lstrip().lower().startswith("error") for result in results)
