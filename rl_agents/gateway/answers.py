"""Sampled answers in the forms for clients and for the store, and requests in the form for the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rl_agents.chat.messages import Message, assistant_message
from rl_agents.gateway.calls import AnsweredCall, Dialect, Finish, ModelAnswer, ModelCall, Sent, Start
from rl_agents.gateway.conversation_tree import Lineage, Made, Question, split_header
from rl_agents.gateway.stream_view import Shown, arguments_text
from rl_agents.store.records import Exchange
from rl_agents.web.errors import ApiError

#: Prefixes of answer ids in the dialects.
ANSWER_PREFIXES = ("chatcmpl-", "resp_", "msg_")
#: Prefixes of ids of tool calls, as in each provider's own API.
CALL_PREFIX: Mapping[Dialect, str] = {"chat_completions": "call_", "responses": "call_", "messages": "toolu_"}


def answer_id(call: int) -> str:
    """Return a call's id for clients, without the dialect's prefix."""
    return f"{call:016x}"


def call_of(answer: str | int) -> int:
    """Return the call of an answer's id (with a dialect's prefix) or of a call's number; 0: there is none."""
    if isinstance(answer, int):
        return answer
    digits = answer.removeprefix(next((p for p in ANSWER_PREFIXES if answer.startswith(p)), ""))
    try:
        return int(digits, 16) if len(digits) == 16 else int(digits)
    except ValueError:
        return 0


def model_answers(
    call: ModelCall, made: Sequence[Made], shown: Sequence[Shown], created: int, prompt_tokens: int
) -> list[ModelAnswer]:
    """Return the answers to a request; they share the first one's id."""
    return [
        replace(
            written_answer(
                said, call.dialect, one.id,
                Start(answer_id(made[0].id), created, f"policy-{one.policy_version}", prompt_tokens),
                len(one.response), one.finish_reason,
            ), index=index,
        )
        for index, (one, said) in enumerate(zip(made, shown, strict=True))
    ]  # fmt: skip


def written_answer(
    shown: Shown, dialect: Dialect, call: int, start: Start, tokens: int, finish_reason: str
) -> ModelAnswer:
    """Return an answer in the form for clients.

    Args:
        call: its number, for ids of tool calls.
        start: the beginning of its stream.
        tokens: number of sampled tokens.
        finish_reason: of the engine, ``stop`` or ``length``.
    """
    calls = tuple(
        AnsweredCall(f"{CALL_PREFIX[dialect]}{call:016x}{number:02x}", called.name, arguments_text(called))
        for number, called in enumerate(shown.calls)
    )
    finish: Finish = "tool_calls" if calls else "stop" if shown.stopped_by or finish_reason == "stop" else "length"
    return ModelAnswer(
        index=0,
        call=call,
        id=start.id,
        content=shown.content,
        thoughts=shown.thoughts,
        tool_calls=calls,
        finish=finish,
        prompt_tokens=start.prompt_tokens,
        completion_tokens=tokens,
        created=start.created,
        label=start.label,
        stop=shown.stopped_by,
        thought_tokens=shown.thought_tokens,
    )


def shown_message(answer: ModelAnswer, shown: Shown) -> Message:
    """Return an answer as the message that a client sends back."""
    return assistant_message(answer.content, shown.calls, [call.id for call in answer.tool_calls], answer.thoughts)


def answer_from_json(data: Mapping[str, Any]) -> ModelAnswer:
    calls = tuple(AnsweredCall(**call) for call in data["tool_calls"])
    return ModelAnswer(**{**data, "tool_calls": calls})


def overridden(call: ModelCall, budget: int) -> dict[str, Any]:
    params = dict(call.params)
    if call.max_tokens is not None and call.max_tokens > budget:
        params["max_tokens"] = call.max_tokens
    return params


#: The parts of a request that may be long.
WORDS = ("messages", "system", "tools")


def whole_history(lineage: Lineage, call: ModelCall) -> list[Message]:
    """Return the messages of a request, after those of the response that it follows.

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


def request_json(call: ModelCall, question: Question, made: Sequence[Made], index: int) -> dict[str, Any]:
    """Return a request in the form for the store: the parts that are new since its parent, for answer ``index``."""
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
    optional: dict[str, Any] = {
        "max_tokens": call.max_tokens, "stop": list(call.stop), "ignored": dict(call.ignored),
        "steered": question.steered, "anew": question.rendered_whole,
    }  # fmt: skip
    return data | {name: value for name, value in optional.items() if value}


def started(session: str, call: ModelCall, sent: Sent, made: Made, overridden: dict[str, Any]) -> Exchange:
    """Return the record before sampling, without the long parts, which the record of the answer has.

    If a call is never finished, the next one at its place has the same id, and its request may be different.
    """
    request = {name: value for name, value in made.request.items() if name not in WORDS}
    return Exchange(made.id, session, "started", sent.digest, sent.retry, call.dialect, request, overridden=overridden)


def finished(
    session: str, call: ModelCall, sent: Sent, made: Made, ended: int, answer: ModelAnswer, overridden: dict[str, Any]
) -> Exchange:
    """Return the record of a sampled call's request and answer, which is sufficient for a restart."""
    request, told = {**made.request, "ended": ended}, asdict(answer)
    del told["logprobs"]  # the call itself has them
    return Exchange(made.id, session, "finished", sent.digest, sent.retry, call.dialect, request, told, overridden)
