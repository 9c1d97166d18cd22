"""The help desk: a tiny world of tools with traces of a scripted expert, to try PivotRL without a download.

A customer wants to cancel, return, move or find an order. The expert looks the order up, does what its status allows,
and reports it. Reasons are a few words, and several wordings are equivalent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from rl_agents.tools.calls import ToolCall, write_response
from rl_agents.traces.formats import read_trace
from rl_agents.traces.turns import Extraction, Turn, extract_turns

BUILT_IN_TRACES = 400
SYSTEM = "You help with orders."
STATUSES = ("pending", "shipped", "delivered")
ORDERS = tuple(str(number) for number in range(11, 41))
STREETS = ("Hill", "Lake", "Mill", "Park", "Rose")
#: Wordings of one reason share a word, and those of different reasons share none. The expert writes the first.
CANCEL_REASONS = (
    ("no longer needed", "not needed now", "needed by nobody"),
    ("ordered by mistake", "my own mistake", "mistake in amount"),
    ("found it cheaper", "cheaper elsewhere today", "much cheaper online"),
)
RETURN_REASONS = (
    ("arrived broken", "broken glass inside", "already broken"),
    ("wrong size", "size does not fit", "another size sent"),
    ("bad colour", "colour looks different", "ugly colour"),
)
ALL_REASONS = (*CANCEL_REASONS, *RETURN_REASONS)
REFUSAL = "I cannot do that."


def _tool(name: str, description: str, *arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": list(arguments), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _tool("get_order", "Show an order.", "order_id"),
    _tool("cancel_order", "Cancel a pending order.", "order_id", "reason"),
    _tool("return_order", "Take back a delivered order.", "order_id", "reason"),
    _tool("move_order", "Send a pending order elsewhere.", "order_id", "address"),
)
#: Request -> the status that allows it.
ALLOWED = {"cancel": "pending", "return": "delivered", "move": "pending"}


def desk_record(number: int, seed: int = 0) -> dict[str, Any]:
    """Return trace ``number`` as a record in OpenAI's chat form."""
    rng = random.Random(f"desk/{seed}/{number}")
    request = rng.choice(("cancel", "cancel", "return", "return", "find", "move"))
    order, status = rng.choice(ORDERS), rng.choice(STATUSES)
    if request in ALLOWED and rng.random() < 0.6:
        status = ALLOWED[request]
    detail, wish = _wish(request, order, rng)
    said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": wish}]
    said += _exchange(ToolCall("get_order", {"order_id": order}), {"status": status}, "a")
    if request == "find":
        said.append({"role": "assistant", "content": f"Order {order} is {status}."})
    elif status != ALLOWED[request]:
        said.append({"role": "assistant", "content": f"Sorry, order {order} is {status}."})
    else:
        argument = "address" if request == "move" else "reason"
        said += _exchange(ToolCall(f"{request}_order", {"order_id": order, argument: detail}), {"done": "yes"}, "b")
        said.append({"role": "assistant", "content": f"Order {order}: done."})
    said += [{"role": "user", "content": "Thanks!"}, {"role": "assistant", "content": "You are welcome."}]
    return {"id": f"desk-{seed}-{number}", "reward": 1.0, "messages": said, "tools": list(TOOLS)}


@cache
def desk_turns(traces: int = BUILT_IN_TRACES) -> list[Turn]:
    records = [read_trace(desk_record(number), f"desk:{number + 1}") for number in range(traces)]
    return list(extract_turns(records, Extraction()).turns)


def beginner_action(turn: Turn, rng: random.Random) -> str:
    """Return the action of the clerk whom the warm-start model imitates.

    The clerk writes the expert's messages, but sometimes does not look an order up, takes a wrong tool, number or
    reason, uses other wordings of reasons, and cannot move orders.
    """
    if not turn.calls:
        return turn.text
    call = turn.calls[0]
    if call.name == "move_order":
        return REFUSAL
    if call.name == "get_order":
        return write_response("", [_wrong_look(call, rng) if rng.random() < 0.3 else call])
    return write_response("", [_wrong_act(call, rng) if rng.random() < 0.5 else _reworded(call, rng)])


def _wish(request: str, order: str, rng: random.Random) -> tuple[str, str]:
    """Return the detail in the expert's call for a request, and the customer's message."""
    if request == "find":
        return "", f"Where is order {order}?"
    if request == "move":
        address = f"{rng.randint(2, 9)} {rng.choice(STREETS)} Street"
        return address, f"Please move order {order} to {address}."
    wordings = rng.choice(CANCEL_REASONS if request == "cancel" else RETURN_REASONS)
    return wordings[0], f"Please {request} order {order}: {rng.choice(wordings)}."


def _exchange(call: ToolCall, result: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    calls = [{"id": name, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": name, "content": json.dumps(dict(result))},
    ]


def _wrong_look(call: ToolCall, rng: random.Random) -> ToolCall:
    order = call.arguments["order_id"]
    if rng.random() < 0.5:
        return ToolCall("get_order", {"order_id": rng.choice([o for o in ORDERS if o != order])})
    return ToolCall(rng.choice(("cancel_order", "return_order")), {"order_id": order, "reason": _any_reason(rng)})


def _wrong_act(call: ToolCall, rng: random.Random) -> ToolCall:
    kind, arguments = rng.random(), dict(call.arguments)
    if kind < 0.4:
        swapped = "return_order" if call.name == "cancel_order" else "cancel_order"
        return ToolCall(swapped, {**arguments, "reason": _any_reason(rng)})
    if kind < 0.7:
        return ToolCall("get_order", {"order_id": arguments["order_id"]})
    return ToolCall(call.name, {**arguments, "reason": _any_reason(rng)})


def _reworded(call: ToolCall, rng: random.Random) -> ToolCall:
    reason = call.arguments["reason"]
    wordings = next(group for group in ALL_REASONS if reason in group)
    return ToolCall(call.name, {**call.arguments, "reason": rng.choice(wordings)})


def _any_reason(rng: random.Random) -> str:
    return rng.choice(rng.choice(ALL_REASONS))
