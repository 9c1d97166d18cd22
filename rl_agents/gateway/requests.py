"""Requests: their whole history, and what the pool keeps of them before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Sent
from rl_agents.gateway.canonical import split_header
from rl_agents.gateway.conversation_tree import Lineage, Question
from rl_agents.gateway.recorded_call import Made
from rl_agents.gateway.sessions import STEERED, OpenSession
from rl_agents.store.records import Exchange
from rl_agents.web.errors import ApiError

#: What of a request may be long.
WORDS = ("messages", "system", "tools")


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


def request_json(
    session: OpenSession, call: ModelCall, question: Question, made: Sequence[Made], index: int
) -> dict[str, Any]:
    """Return a request as the pool keeps it: what its parent's had not had, and the place of answer ``index``."""
    answered = question.place.last_answer()
    before = answered.by if answered is not None else None
    data: dict[str, Any] = {
        "number": made[0].order,  # of the request: its answers share it
        "order": made[index].order,
        "index": index,
        "follows": before.id if before is not None else 0,
        "edge": question.edge,
        "after": question.after.id if question.after is not None else 0,
        "messages": list(question.rest),
        "model": call.model,
        "count": call.count,
        "stream": call.stream,
    }
    if before is None or (before.system, before.tools) != (question.system, question.tools):
        data |= {"system": list(question.system), "tools": [tool.to_openai() for tool in question.tools]}
    last = bool(question.steered) and session.end == STEERED
    optional: dict[str, Any] = {
        "max_tokens": call.max_tokens, "stop": list(call.stop), "ignored": dict(call.ignored),
        "steered": question.steered, "last": last, "anew": question.anew,
    }  # fmt: skip
    return data | {name: value for name, value in optional.items() if value}


def started(session: str, call: ModelCall, sent: Sent, made: Made, overridden: dict[str, Any]) -> Exchange:
    """Return what is written down before an answer is sampled: all but the words, which its answer's row has.

    A call that was started and never finished leaves its id to the next one in its place, which may ask another thing.
    """
    request = {name: value for name, value in made.request.items() if name not in WORDS}
    return Exchange(made.id, session, "started", sent.digest, sent.retry, call.dialect, request, overridden=overridden)


def finished(
    session: str, call: ModelCall, sent: Sent, made: Made, ended: int, answer: ModelAnswer, overridden: dict[str, Any]
) -> Exchange:
    """Return what is written down beside a sampled call; it is all that a restart needs."""
    request, told = {**made.request, "ended": ended}, asdict(answer)
    del told["logprobs"]  # the call itself has them
    return Exchange(made.id, session, "finished", sent.digest, sent.retry, call.dialect, request, told, overridden)
