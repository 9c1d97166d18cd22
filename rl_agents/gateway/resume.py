"""A session rebuilt from a pool's rows: its tree of calls, its requests, its rewards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.gateway.answers import answer_from_json, shown_message
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Sent
from rl_agents.gateway.recorded_call import Made
from rl_agents.gateway.sampling import replay
from rl_agents.gateway.sessions import Asked, OpenSession
from rl_agents.gateway.stream_view import Shown
from rl_agents.inference.base import Completion
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Call, Exchange, Opening
from rl_agents.tools.calls import read_tools


def open_sessions(reader: PoolReader) -> list[Opening]:
    """Return the sessions that were opened and have not ended."""
    openings = reader.openings()
    ended = {session.id for session in reader.sessions(Where(ids=[opening.session for opening in openings]))}
    return [opening for opening in openings if opening.session not in ended]


def rebuild(session: OpenSession, reader: PoolReader) -> None:
    """Bring a session that has just been opened to where its rows say it was.

    Requests that were answered give their answers again until a client is known to have them; what was asked and not
    answered is as if it had not been asked: its place, and so its seed, is free.
    """
    exchanges = reader.exchanges(session.opening.session)
    finished = [exchange for exchange in exchanges if exchange.state == "finished"]
    calls = {call.id: call for call in reader.calls([exchange.call for exchange in finished])}
    requests: dict[int, list[tuple[Exchange, Made, ModelAnswer]]] = {}
    known: dict[int, Made] = {}
    for exchange in sorted(finished, key=lambda e: int(e.request["order"])):
        answer = answer_from_json(exchange.answer)
        made = known[exchange.call] = _made(session, exchange, calls[exchange.call], answer, known)
        made.ended = int(exchange.request["ended"])
        requests.setdefault(int(exchange.request["number"]), []).append((exchange, made, answer))
    started = [exchange for exchange in exchanges if exchange.state == "started"]
    for exchange in started:
        if exchange.call not in known:
            _steer_again(session, exchange)
    session.lineage.clock = max((int(e.request["order"]) + 1 for e in [*started, *finished]), default=0)
    for group in requests.values():
        _ask_again(session, group)
    for note in reader.reward_notes(session.opening.session):
        session.rewards[note.call, note.why] = note.value


def _made(session: OpenSession, exchange: Exchange, call: Call, answer: ModelAnswer, known: Mapping[int, Made]) -> Made:
    """Add an answered call to the tree, with the very ids that it had."""
    request, lineage = exchange.request, session.lineage
    before = known.get(int(request["follows"]))
    system: Sequence[Message] = request.get("system", before.system if before is not None else ())
    tools = read_tools(request["tools"]) if "tools" in request else before.tools if before is not None else ()
    history = lineage.history_after(before)[len(before.system) :] if before is not None else []
    question = lineage.ask_again(
        [*system, *history, *request["messages"]], tools, request["edge"], known.get(call.parent),
        known.get(int(request["after"])), call.prompt_ids, request.get("steered", ""),
        bool(request.get("anew")),
    )  # fmt: skip
    session.ignored |= Counter(request.get("ignored", ()))
    lineage.clock = int(request["order"])
    made = lineage.make(question, call.id)
    if request.get("last"):
        session.finish_by_steering()
    completion = Completion(
        call.response_ids, call.logprobs, call.policy_version, call.finish_reason, version_spans=call.version_spans
    )
    made.take(completion, lineage.template.decode(call.response_ids))
    shown = Shown.of(lineage.template, call.prompt_ids, request.get("stop", ()), tools)
    shown.add(call.response_ids, last=True)
    made.answer = answer
    lineage.answered(made, shown, shown_message(answer, shown), question.place)
    return made


def _steer_again(session: OpenSession, exchange: Exchange) -> None:
    """An instruction whose call was not answered is for the next call."""
    if "steered" in exchange.request:
        session.instruction = exchange.request["steered"]
        session.instruction_is_last = bool(exchange.request.get("last"))


def _ask_again(session: OpenSession, group: Sequence[tuple[Exchange, Made, ModelAnswer]]) -> None:
    """Let a request that was answered give its answers to whoever asks the same, until they are known to be there."""
    exchange, first, answer = group[0]
    answers = [answer for _, _, answer in group]
    done: asyncio.Future[list[ModelAnswer]] = asyncio.get_running_loop().create_future()
    done.set_result(answers)
    made = [one for _, one, _ in group]
    sent, call = Sent(exchange.request_hash, exchange.retry), _call(exchange, first)
    asked = Asked(call, sent, made, answer.prompt_tokens, done, replay(answers), created=answer.created)
    # An answer that its client went on from has been delivered; of the others nobody knows.
    asked.delivered = any(one.followed for one in made)
    asked.broken = not asked.delivered
    session.asked.setdefault(sent.digest, []).append(asked)


def _call(exchange: Exchange, made: Made) -> ModelCall:
    request: Mapping[str, Any] = exchange.request
    dialect: Any = exchange.dialect
    return ModelCall(
        dialect, request["model"], tuple(made.rest), made.tools, request.get("max_tokens"), request["stream"],
        request["count"], tuple(request.get("stop", ())), wishes=exchange.overridden,
    )  # fmt: skip
