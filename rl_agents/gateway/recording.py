"""Requests and answers in the form for the store, and the restart of open sessions from it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from rl_agents.chat.messages import Message
from rl_agents.gateway.answers import DeltaLog
from rl_agents.gateway.calls import AnsweredCall, ModelAnswer, ModelCall, RequestIdentity
from rl_agents.gateway.conversation_tree import CallRequest, RecordedCall, completion_of
from rl_agents.gateway.sessions import OpenSession, RecordedRequest
from rl_agents.gateway.stream_view import StreamView, client_message
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, Exchange
from rl_agents.tools.calls import read_tools

#: The parts of a request that may be long.
WORDS = ("messages", "system", "tools")


def exchange_of(
    session: OpenSession, pending: RecordedRequest, request: CallRequest, index: int, answer: ModelAnswer | None = None
) -> Exchange:
    """Return the record of a request before sampling, or with its ``answer``, which is sufficient for a restart.

    Before sampling, the long parts of the request are omitted. If a call is never finished, the next one at its place
    has the same id, and its request may be different.
    """
    call, recorded, identity = pending.call, pending.calls[index], pending.identity
    params, data = dict(call.params), _request_json(call, request, pending.calls, index)
    if call.max_tokens is not None and call.max_tokens > pending.budget:
        params["max_tokens"] = call.max_tokens
    written: dict[str, Any] = {}
    if answer is None:
        data = {name: value for name, value in data.items() if name not in WORDS}
    else:
        data["ended"], written = session.tree.clock, asdict(answer)
        del written["logprobs"]  # the call itself has them
    return Exchange(
        recorded.id, session.opening.session, "started" if answer is None else "finished", identity.digest,
        identity.retry, call.dialect, data, written, params,
    )  # fmt: skip


def _request_json(call: ModelCall, request: CallRequest, calls: Sequence[RecordedCall], index: int) -> dict[str, Any]:
    """Return the parts of a request that are new since its parent, for answer ``index``."""
    answered = request.node.last_answer()
    before = answered.answered_by if answered is not None else None
    data: dict[str, Any] = {
        "number": calls[0].order,  # of the request: its answers share it
        "order": calls[index].order,
        "index": index,
        "follows": before.id if before is not None else 0,
        "edge": request.edge,
        "after": request.after.id if request.after is not None else 0,
        "messages": list(request.rest),
        "model": call.model,
        "count": call.count,
        "stream": call.stream,
    }
    if before is None or (before.system, before.tools) != (request.system, request.tools):
        data |= {"system": list(request.system), "tools": [tool.to_openai() for tool in request.tools]}
    optional: dict[str, Any] = {
        "max_tokens": call.max_tokens, "stop": list(call.stop), "ignored": dict(call.ignored),
        "logprobs": call.logprobs is not None, "steered": request.steered, "rendered_whole": request.rendered_whole,
    }  # fmt: skip
    return data | {name: value for name, value in optional.items() if value}


def rebuild(session: OpenSession, reader: PoolReader) -> None:
    """Restore a newly opened session from its rows.

    Answered requests return their answers again until a client is known to have them. Requests without an answer are
    forgotten, so their places and seeds are free.
    """
    exchanges = reader.exchanges(session.opening.session)
    finished = [exchange for exchange in exchanges if exchange.state == "finished"]
    sampled = {call.id: call for call in reader.calls([exchange.call for exchange in finished])}
    requests: dict[int, list[tuple[Exchange, RecordedCall]]] = {}
    known: dict[int, RecordedCall] = {}
    for exchange in sorted(finished, key=lambda e: int(e.request["order"])):
        call = known[exchange.call] = _restored(session, exchange, sampled[exchange.call], known)
        requests.setdefault(int(exchange.request["number"]), []).append((exchange, call))
    started = [exchange for exchange in exchanges if exchange.state == "started"]
    for exchange in started:
        if exchange.call not in known:
            session.instruction = exchange.request.get("steered", session.instruction)  # for the next call
    session.tree.clock = max((int(e.request["order"]) + 1 for e in [*started, *finished]), default=0)
    for group in requests.values():
        _answer_again(session, group[0][0], [call for _, call in group])
    for note in reader.reward_notes(session.opening.session):
        session.rewards[note.call, note.why] = note.value


def _restored(
    session: OpenSession, exchange: Exchange, sampled: Call, known: Mapping[int, RecordedCall]
) -> RecordedCall:
    """Add an answered call to the tree with its recorded ids."""
    data, tree = exchange.request, session.tree
    before = known.get(int(data["follows"]))
    system: Sequence[Message] = data.get("system", before.system if before is not None else ())
    tools = read_tools(data["tools"]) if "tools" in data else before.tools if before is not None else ()
    history = tree.history_after(before)[len(before.system) :] if before is not None else []
    node, header, _, rest, _ = tree.locate([*system, *history, *data["messages"]], tools)
    request = CallRequest(
        node, header, rest, tools, data["edge"], known.get(sampled.parent), known.get(int(data["after"])),
        sampled.prompt_ids, data.get("steered", ""), bool(data.get("rendered_whole")),
    )  # fmt: skip
    session.ignored |= Counter(data.get("ignored", ()))
    tree.clock = int(data["order"])
    call = tree.add(request, sampled.id)
    if request.steered:
        session.finish_by_steering()
    call.take(completion_of(sampled), tree.template.decode(sampled.response_ids))
    view = StreamView.of(tree.template, sampled.prompt_ids, data.get("stop", ()), tools, data.get("logprobs", False))
    view.delta(0, sampled.response_ids, sampled.logprobs, last=True)
    called = tuple(AnsweredCall(**item) for item in exchange.answer["tool_calls"])
    call.answer = ModelAnswer(**{**exchange.answer, "tool_calls": called, "logprobs": view.logprobs})
    tree.answered(call, view, client_message(call.answer, view), node)
    call.ended = int(data["ended"])
    return call


def _answer_again(session: OpenSession, exchange: Exchange, calls: list[RecordedCall]) -> None:
    """Let an answered request return its answers to equal requests, until they are known to be delivered."""
    answers = [call.answer for call in calls if call.answer is not None]
    identity = RequestIdentity(exchange.request_hash, exchange.retry)
    call = ModelCall(cast(Any, exchange.dialect), exchange.request["model"], ())  # answered: the rest has no effect
    # An answer that its client continued was delivered; for the others, this is unknown.
    delivered = any(call.followed for call in calls)
    pending = RecordedRequest(
        call=call, identity=identity, number=calls[0].id, prompt_tokens=answers[0].prompt_tokens, calls=calls,
        deltas=DeltaLog(ended=True), created=answers[0].created, delivered=delivered, broken=not delivered,
        labels={answer.index: answer.label for answer in answers}, task=asyncio.get_running_loop().create_future(),
    )  # fmt: skip
    pending.task.set_result(answers)
    session.requests.setdefault(identity.digest, []).append(pending)
