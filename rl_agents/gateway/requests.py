"""Requests: their whole history, and what the pool keeps of them before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import ModelCall, Sent
from rl_agents.gateway.canonical import split_header
from rl_agents.gateway.lineage import Lineage, Question
from rl_agents.gateway.made import Made
from rl_agents.gateway.sessions import STEERED, OpenSession
from rl_agents.pool.records import Exchange
from rl_agents.web.errors import ApiError


def whole_history(lineage: Lineage, call: ModelCall) -> list[Message]:
    """Return the messages of a request, those of the response that it follows included.

    Raises:
        ApiError: 404 for a response of another session.
    """
    if not call.previous:
        return list(call.messages)
    for made in reversed(lineage.calls):
        if made.answer is not None and made.answer.id == call.previous:
            before, (own, new) = lineage.history_after(made), split_header(call.messages)
            system, body = split_header(before)
            return [*(own or system), *body, *new]
    message = f"the response {call.previous!r} does not exist in this session"
    raise ApiError(404, message, "previous_response_not_found", "previous_response_id")


def started(
    session: OpenSession, call: ModelCall, sent: Sent, question: Question, made: Sequence[Made],
    overridden: dict[str, Any],
) -> Iterator[Exchange]:  # fmt: skip
    """Yield what the pool keeps of a request, once per answer that is to be sampled."""
    answered = question.place.last_answer()
    before = answered.by if answered is not None else None
    common: dict[str, Any] = {
        "number": sum(len(group) for group in session.asked.values()),
        "follows": before.id if before is not None else 0,
        "edge": question.edge,
        "after": question.after.id if question.after is not None else 0,
        "messages": list(question.rest),
        "model": call.model,
        "count": call.count,
        "stream": call.stream,
    }
    if before is None or (before.system, before.tools) != (question.system, question.tools):
        common |= {"system": list(question.system), "tools": [tool.to_openai() for tool in question.tools]}
    last = bool(question.steered) and session.end == STEERED
    optional: dict[str, Any] = {
        "max_tokens": call.max_tokens, "stop": list(call.stop), "ignored": list(call.ignored),
        "steered": question.steered, "last": last, "anew": question.anew,
    }  # fmt: skip
    common |= {name: value for name, value in optional.items() if value}
    for index, one in enumerate(made):
        yield Exchange(
            one.id, session.opening.session, "started", sent.digest, sent.retry, call.dialect,
            {**common, "order": one.order, "index": index}, overridden=overridden,
        )  # fmt: skip
