"""The gateway: sessions of unmodified agents, in which every model call becomes a step with exact tokens.

Everything runs on one event loop. An answer is returned once its tokens are on disk, if there is a store. A retry gets
the earlier request's answer (see `Asked.is_meant_by`), and never creates a second branch.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any, cast

from rl_agents.chat.history import in_call_order
from rl_agents.chat.messages import Message
from rl_agents.chat.template import ChatTemplate
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step
from rl_agents.errors import InputError
from rl_agents.gateway.calls import AnsweredCall, Delta, GatewayLimits, ModelAnswer, ModelCall, Piece, Sent, Start
from rl_agents.gateway.conversation_tree import Lineage, Made, Question, completion_of, split_header
from rl_agents.gateway.sessions import Asked, OpenSession, Pieces, SessionTrace, step_of
from rl_agents.gateway.stream_view import Shown, answer_id, shown_message, written_answer
from rl_agents.inference.base import (
    Completion,
    Engine,
    EngineError,
    Extras,
    RequestRefused,
    Sampling,
    check_completion,
    least_room,
)
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Call, Exchange, Opening, Record, RewardNote
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.tools.calls import read_tools
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.security import digest

__all__ = ["Gateway", "GatewayLimits", "SessionTrace"]

#: Number of closed sessions that are remembered, to distinguish a late call from a wrong address.
CLOSED_KEPT = 10_000


class Gateway:
    """See the module docstring.

    Attributes:
        on_call: gets every answered call, with the id of its session.
        created: start of this gateway, seconds since 1970.
        ends: the answers to ends over HTTP, for retries, as long as their sessions are remembered.
    """

    def __init__(
        self, engine: Engine, template: ChatTemplate, limits: GatewayLimits, pool: PoolSink | None = None
    ) -> None:
        self.template, self.limits, self.pool = template, limits, pool
        self.on_call: Callable[[str, Step], None] | None = None
        self.created = int(time.time())
        self.sessions: dict[str, OpenSession] = {}
        self.ends: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._engine = engine
        #: Whether the engine reports tokens while it samples.
        self._streams = "on_tokens" in inspect.signature(engine.generate).parameters
        self._keys: dict[str, str] = {}
        #: Closed sessions: the hashes of their keys, and their seeds.
        self._closed: OrderedDict[str, tuple[str, int]] = OrderedDict()
        #: Seeds of open and closed sessions; the store knows those of forgotten ones.
        self._seeds: set[int] = set()
        self._reader: PoolReader | None = None

    def open(self, opening: Opening, recorded: Sequence[Call] = ()) -> str:
        """Open a session.

        Args:
            opening: its id, its position in a group, and its seed; ``key_hash`` is set here.
            recorded: answers to return again for prompts with equal ids, before sampling.

        Returns:
            The session's secret key.

        Raises:
            ApiError: 409 for an id or a seed that is or was in use, 400 for a negative seed.
        """
        if opening.seed < 0:
            raise bad_request(f"seed: must be 0 or more (got {opening.seed})", "seed")
        known = opening.session in self.sessions or opening.session in self._closed
        if known or self._is_stored("openings WHERE session = ?", opening.session):
            raise ApiError(409, f"the session {opening.session!r} exists already", "session_exists")
        # A store skips a second call with the same id, which derives from the seed.
        if opening.seed in self._seeds or self._is_stored("calls WHERE id = ?", step_seed(opening.seed, 0)):
            raise ApiError(409, f"seed: {opening.seed} is the seed of another session", "seed_exists", "seed")
        key = f"rl-{secrets.token_urlsafe(24)}"
        opening = replace(opening, key_hash=digest(key))
        self.admit(opening, recorded)
        if self.pool is not None:
            self.pool.add(opening)
        return key

    def _is_stored(self, row: str, value: str | int) -> bool:
        return self._reader is not None and self._reader.one(f"SELECT 1 FROM {row}", value) is not None

    async def written(self) -> None:
        """Wait until all records are on disk."""
        if self.pool is not None:
            await asyncio.wrap_future(self.pool.add())

    def admit(self, opening: Opening, recorded: Sequence[Call] = ()) -> OpenSession:
        session = OpenSession(opening, Lineage(self.template, self.limits.reasoning, opening.seed))
        session.lineage.reserve(call.id for call in recorded)
        for call in recorded:
            session.recorded.setdefault(tuple(call.prompt_ids), []).append(call)
        self.sessions[opening.session] = session
        self._seeds.add(opening.seed)
        self._keys[opening.key_hash] = opening.session
        return session

    def resume(self, reader: PoolReader) -> list[str]:
        """Reopen the open sessions of a store and return their ids; call it on the event loop.

        Args:
            reader: stays open as long as sessions are opened, whose ids and seeds must not be in the store.
        """
        openings, self._reader = reader.openings(), reader
        ended = {session.id for session in reader.sessions(Where(ids=[opening.session for opening in openings]))}
        left = [one for one in openings if one.session not in ended and one.session not in self.sessions]
        for opening in left:
            rebuild(self.admit(opening), reader)
        return [opening.session for opening in left]

    def session_of(self, key: str) -> str:
        """Return the id of the open or recently closed session with this key; empty: there is none."""
        return self._keys.get(digest(key), "")

    def opening(self, session: str) -> Opening:
        """Return an open session's opening; raises as `close` does."""
        return self._session(session).opening

    async def close(self, session: str, reason: str = "") -> SessionTrace:
        """End a session: wait for its running calls, refuse others, and return the result.

        Args:
            reason: why, if nothing else has ended it.

        Raises:
            ApiError: 404 or 410 for a session that is not open.
        """
        ended = self._session(session)
        why = f"the session {session!r} is closed"
        del self.sessions[session]
        self._closed[session] = ended.opening.key_hash, ended.opening.seed
        if len(self._closed) > CLOSED_KEPT:
            forgotten, (key_hash, seed) = self._closed.popitem(last=False)
            self._seeds.discard(seed)
            self._keys.pop(key_hash, None)
            self.ends.pop(forgotten, None)
        cause = ended.end or reason
        ended.end, ended.why = "closed", why
        if waiting := [asked.task for asked in ended.under_way()]:
            await asyncio.wait(waiting, timeout=self.limits.close_wait_s)
            late = [task for task in waiting if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        trace = ended.trace()
        trace.end = cause
        return trace

    def finish(self, session: str, reason: str = "") -> None:
        """Refuse further calls of a session, unless it is closed; its opener closes it. Raises `ApiError`: 404."""
        if session not in self._closed:
            self._session(session).finish(reason or "ended", f"the session {session!r} has ended")

    def reward(self, session: str, value: float, *, call: int = 0, why: str = "") -> Future[None] | None:
        """Record a reward. Rewards of a call or session with different ``why`` add up; an equal ``why`` replaces.

        Args:
            call: id of an answered call; 0: the whole session.

        Returns:
            A future that is done when the reward is on disk; None without a store.

        Raises:
            ApiError: 404 or 410 for a session that is not open, 404 for an unknown call, 400 if it is not finite.
        """
        rewarded = self._session(session)
        if not math.isfinite(value):
            raise bad_request("value: must be a finite number", "value")
        if call and all(made.id != call or made.answer is None for made in rewarded.lineage.calls):
            raise ApiError(404, f"the session {session!r} has no answered call {call}", "call_not_found", "call")
        rewarded.rewards[call, why] = value
        return None if self.pool is None else self.pool.add(RewardNote(session, value, call, why))

    def steer(self, session: str, instruction: str) -> None:
        """Append an instruction to the next call's prompt, and refuse calls after that one. Raises as `close` does."""
        self._session(session).instruction = instruction

    def count_tokens(self, session: str, call: ModelCall) -> int:
        """Return the length of a call's prompt."""
        return len(self._question(self._session(session), call, "", ends=False).prompt_ids)

    async def answer(self, session: str, call: ModelCall, sent: Sent) -> list[ModelAnswer]:
        """Answer a request, or raise an `ApiError`. If this is canceled, the call continues for a retry."""
        asked = self._ask(session, call, sent)
        try:
            answers = await asyncio.shield(asked.task)
        except asyncio.CancelledError:
            asked.broken = True
            raise
        asked.delivered = True
        return answers

    def stream(self, session: str, call: ModelCall, sent: Sent) -> AsyncGenerator[Piece, None]:
        """Answer a request piece by piece: `Start` with the first text, then the complete answers. See `answer`.

        Raises:
            ApiError: immediately if the request is refused; during iteration if sampling fails.
        """
        return self._read(self._ask(session, call, sent))

    async def _read(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        # Sent with the first text: until then, a failure can be an HTTP status, which SDKs retry.
        started = whole = False
        try:
            async for piece in asked.pieces.read():
                if not started:
                    yield start_of(asked)
                started = True
                yield piece
            answers = await asyncio.shield(asked.task)
            if not started:
                yield start_of(asked)
            for answer in answers:
                yield answer
            whole = asked.delivered = True
        finally:
            asked.broken = asked.broken or not whole

    def _session(self, session: str) -> OpenSession:
        if session in self.sessions:
            return self.sessions[session]
        if session in self._closed:
            raise ApiError(410, f"the session {session!r} is closed", "session_closed")
        raise ApiError(404, f"there is no session {session!r}", "session_not_found")

    def _ask(self, session_id: str, call: ModelCall, sent: Sent) -> Asked:
        """Return the request that this one repeats, or begin to answer this one."""
        session = self._session(session_id)
        earlier = session.earlier(sent)
        if earlier is not None:
            return earlier
        session.check_open()
        self._check_count(session, call)
        session.ignored |= call.ignored
        question = self._question(session, call, session.instruction)
        budget = self._budget(session, call, question)
        recorded = session.recorded.get(tuple(question.prompt_ids), [])
        again = [recorded.pop(0) for _ in range(min(call.count, len(recorded)))]
        made = [session.lineage.make(question, answer.id) for answer in again]
        made += [session.lineage.make(question) for _ in range(call.count - len(again))]
        if question.steered:
            session.instruction = ""
            session.finish_by_steering()
        self._note(session, call, sent, question, made, budget)
        kept = replace(call, messages=(), tools=())  # else every request of a session would keep the whole history
        asked = Asked(kept, sent, made, len(question.prompt_ids), asyncio.get_running_loop().create_future())
        # A separate task, since clients may disconnect.
        work = self._answer(session, asked, question, budget, again)
        task = asked.task = asyncio.create_task(work, name=f"gateway call {made[0].id}")
        # A failure is recorded even if no client waits for it, and must not reach the event loop.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        session.asked.setdefault(sent.digest, []).append(asked)
        return asked

    def _check_count(self, session: OpenSession, call: ModelCall) -> None:
        limits, answered = self.limits, len(session.lineage.calls)
        if limits.max_calls and answered + call.count > limits.max_calls:
            session.finish("max_calls", f"a session has at most {limits.max_calls} model calls")
            session.check_open()

    def _question(self, session: OpenSession, call: ModelCall, instruction: str, ends: bool = True) -> Question:
        messages = in_call_order(whole_history(session.lineage, call))
        if self.template.exceeds(messages, self.limits.max_model_len):
            raise self._full(session if ends else None, "the messages are longer")
        try:
            return session.lineage.ask(messages, call.tools, instruction)
        except InputError as error:
            raise bad_request(str(error), "messages", "chat_template") from None

    def _budget(self, session: OpenSession, call: ModelCall, question: Question) -> int:
        room = self.limits.max_model_len - len(question.prompt_ids)
        if room < least_room(self.limits.max_response_tokens):
            raise self._full(session, f"the prompt has {len(question.prompt_ids)}")
        wanted = call.max_tokens if call.max_tokens is not None else room
        if wanted < 1:
            raise bad_request(f"max_tokens: must be 1 or more (got {wanted})", "max_tokens")
        return min(room, self.limits.max_response_tokens, wanted)

    def _full(self, session: OpenSession | None, found: str) -> ApiError:
        why = f"the context has {self.limits.max_model_len} tokens; {found}"
        if session is not None:
            why += ": nothing is cut, the session has ended"
            session.finish("context_length", why)
        return ApiError(400, why, "context_length_exceeded", "messages")

    def _note(
        self, session: OpenSession, call: ModelCall, sent: Sent, question: Question, made: list[Made], budget: int
    ) -> None:
        """Record the request before sampling."""
        if self.pool is None:
            return
        for index, one in enumerate(made):
            one.request = request_json(call, question, made, index)
        self.pool.add(*(exchange(session, call, sent, one, budget) for one in made))

    # --- from a request to its answers: sampled or repeated, recorded, then returned ------------------------------

    async def _answer(
        self, session: OpenSession, asked: Asked, question: Question, budget: int, again: Sequence[Call]
    ) -> list[ModelAnswer]:
        try:
            shown = await self._sample(asked, question, budget, again)
            answers = model_answers(asked, shown)
            await self._commit(session, asked, answers, budget)
        except BaseException as error:
            problem = _problem(error, self.limits)
            self._failed(session, asked, problem)
            raise problem from error
        for made, answer, one in zip(asked.made, answers, shown, strict=True):
            made.answer, made.request = answer, {}
            session.lineage.answered(made, one, shown_message(answer, one), question.place)
            if self.on_call is not None:
                self.on_call(session.opening.session, step_of(made))
        asked.pieces.end()
        asked.pieces = replay(answers)
        return answers

    async def _sample(self, asked: Asked, question: Question, budget: int, again: Sequence[Call]) -> list[Shown]:
        given: list[Call | None] = [*again, *[None] * (len(asked.made) - len(again))]
        async with asyncio.timeout(self.limits.request_timeout_s), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one(asked, index, question, budget, given[index]))
                for index in range(len(asked.made))
            ]
        return [task.result() for task in tasks]

    async def _one(self, asked: Asked, index: int, question: Question, budget: int, given: Call | None) -> Shown:
        """Sample one answer and pass on its parts, or repeat a recorded one."""
        made, call, read = asked.made[index], asked.call, 0
        wants = call.logprobs is not None
        shown = Shown.of(self.template, question.prompt_ids, call.stop, question.tools, wants)

        def tell(
            token_ids: Sequence[int], logprobs: Sequence[float], top: Sequence[Any] = (), last: bool = False
        ) -> bool:
            nonlocal read
            read += len(token_ids)
            made.policy_version = made.policy_version or getattr(self._engine, "version", 0)
            delta = shown.delta(index, token_ids, logprobs, top, last)
            if delta.content or delta.thoughts or delta.logprobs:
                asked.pieces.add(delta)
            return bool(shown.stopped_by)

        if given is not None:
            completion = completion_of(given)
        else:
            hears = tell if call.stream or call.stop else None
            completion = await self._generate(question.prompt_ids, made.id, budget, call.logprobs or 0, hears)
        tell(completion.token_ids[read:], completion.logprobs[read:], completion.likeliest[read:], last=True)
        if shown.stopped_by:
            completion = completion.until(shown.tokens)
        made.take(completion, self.template.decode(completion.token_ids))
        return shown

    async def _generate(
        self, prompt_ids: list[int], seed: int, budget: int, top_logprobs: int, tell: Callable[..., bool] | None
    ) -> Completion:
        sampling = Sampling(
            max_tokens=budget,
            temperature=self.limits.temperature,
            top_p=self.limits.top_p,
            stop_token_ids=self.template.stop_token_ids,
            seed=seed,
            extras=Extras(top_logprobs=top_logprobs) if top_logprobs else None,
        )
        options: dict[str, Any] = {"on_tokens": tell} if tell is not None and self._streams else {}
        completion = await self._engine.generate(prompt_ids, sampling, **options)
        check_completion(completion, budget)
        return completion

    async def _commit(self, session: OpenSession, asked: Asked, answers: list[ModelAnswer], budget: int) -> None:
        """Record the answers and wait until they are on disk."""
        if self.pool is None:
            return
        records: list[Record] = []
        for made, answer in zip(asked.made, answers, strict=True):
            records += [made.record(), exchange(session, asked.call, asked.sent, made, budget, answer)]
        await asyncio.wrap_future(self.pool.add(*records))

    def _failed(self, session: OpenSession, asked: Asked, problem: ApiError) -> None:
        """Allow the request again, with the same seeds."""
        for made in asked.made:
            session.lineage.drop(made)
            if made.steered:
                session.instruction = made.steered
                session.reopen()
            if self.pool is not None:
                answer = {"problem": problem.message}
                self.pool.add(Exchange(made.id, session.opening.session, "failed", answer=answer))
        asked.pieces.end()


def replay(answers: Sequence[ModelAnswer]) -> Pieces:
    """Return the parts of complete answers, for retries."""
    pieces = Pieces()
    for answer in answers:
        if answer.content or answer.thoughts:
            pieces.add(Delta(answer.index, answer.content, answer.thoughts))
    pieces.end()
    return pieces


def _problem(error: BaseException, limits: GatewayLimits) -> ApiError:
    """Return the error for the client."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ApiError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ApiError(410, "the session was closed while this call was running", "session_closed")
    if isinstance(error, TimeoutError):
        return ApiError(504, f"no answer within {limits.request_timeout_s:g} seconds", "timeout")
    if isinstance(error, RequestRefused):
        return bad_request(str(error), code="unsupported_value")
    if isinstance(error, EngineError):
        return ApiError(503, f"the model cannot answer: {error}", "engine_error")
    return ApiError(500, f"the answer could not be recorded: {type(error).__name__}: {error}", "internal_error")


def start_of(asked: Asked) -> Start:
    """Return the beginning of the answers to a request, once a token of one of them is known."""
    label = f"policy-{max(made.policy_version for made in asked.made)}"
    return Start(answer_id(asked.made[0].id), asked.created, label, asked.prompt_tokens)


def model_answers(asked: Asked, shown: Sequence[Shown]) -> list[ModelAnswer]:
    """Return the answers to a request; they share the first one's id."""
    start, answers = start_of(asked), []
    for index, (made, said) in enumerate(zip(asked.made, shown, strict=True)):
        own = replace(start, label=f"policy-{made.policy_version}")
        answers.append(written_answer(said, asked.call.dialect, made.id, own, made.finish_reason, index))
    return answers


# --- requests and answers in the form for the store -----------------------------------------------------------------


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
        "logprobs": call.logprobs is not None, "steered": question.steered, "anew": question.rendered_whole,
    }  # fmt: skip
    return data | {name: value for name, value in optional.items() if value}


def exchange(
    session: OpenSession, call: ModelCall, sent: Sent, made: Made, budget: int, answer: ModelAnswer | None = None
) -> Exchange:
    """Return the record of a request before sampling, or with its ``answer``, which is sufficient for a restart.

    Before sampling, the long parts of the request are omitted. If a call is never finished, the next one at its place
    has the same id, and its request may be different.
    """
    params = dict(call.params)
    if call.max_tokens is not None and call.max_tokens > budget:
        params["max_tokens"] = call.max_tokens
    request = {name: value for name, value in made.request.items() if name not in WORDS}
    told: dict[str, Any] = {}
    if answer is not None:
        request, told = {**made.request, "ended": session.lineage.clock}, asdict(answer)
        del told["logprobs"]  # the call itself has them
    return Exchange(
        made.id, session.opening.session, "started" if answer is None else "finished", sent.digest, sent.retry,
        call.dialect, request, told, params,
    )  # fmt: skip


# --- restarts --------------------------------------------------------------------------------------------------------


def rebuild(session: OpenSession, reader: PoolReader) -> None:
    """Restore a newly opened session from its rows.

    Answered requests return their answers again until a client is known to have them. Requests without an answer are
    forgotten, so their places and seeds are free.
    """
    exchanges = reader.exchanges(session.opening.session)
    finished = [exchange for exchange in exchanges if exchange.state == "finished"]
    calls = {call.id: call for call in reader.calls([exchange.call for exchange in finished])}
    requests: dict[int, list[tuple[Exchange, Made, ModelAnswer]]] = {}
    known: dict[int, Made] = {}
    for exchange in sorted(finished, key=lambda e: int(e.request["order"])):
        called = tuple(AnsweredCall(**call) for call in exchange.answer["tool_calls"])
        answer = ModelAnswer(**{**exchange.answer, "tool_calls": called})
        made = known[exchange.call] = _made(session, exchange, calls[exchange.call], answer, known)
        made.ended = int(exchange.request["ended"])
        requests.setdefault(int(exchange.request["number"]), []).append((exchange, made, made.answer or answer))
    started = [exchange for exchange in exchanges if exchange.state == "started"]
    for exchange in started:
        if exchange.call not in known:
            session.instruction = exchange.request.get("steered", session.instruction)  # for the next call
    session.lineage.clock = max((int(e.request["order"]) + 1 for e in [*started, *finished]), default=0)
    for group in requests.values():
        _ask_again(session, group)
    for note in reader.reward_notes(session.opening.session):
        session.rewards[note.call, note.why] = note.value


def _made(session: OpenSession, exchange: Exchange, call: Call, answer: ModelAnswer, known: Mapping[int, Made]) -> Made:
    """Add an answered call to the tree with its recorded ids."""
    request, lineage = exchange.request, session.lineage
    before = known.get(int(request["follows"]))
    system: Sequence[Message] = request.get("system", before.system if before is not None else ())
    tools = read_tools(request["tools"]) if "tools" in request else before.tools if before is not None else ()
    history = lineage.history_after(before)[len(before.system) :] if before is not None else []
    place, header, _, rest, _ = lineage.locate([*system, *history, *request["messages"]], tools)
    question = Question(
        place, header, rest, tools, request["edge"], known.get(call.parent), known.get(int(request["after"])),
        call.prompt_ids, request.get("steered", ""), bool(request.get("anew")),
    )  # fmt: skip
    session.ignored |= Counter(request.get("ignored", ()))
    lineage.clock = int(request["order"])
    made = lineage.make(question, call.id)
    if request.get("steered"):
        session.finish_by_steering()
    made.take(completion_of(call), lineage.template.decode(call.response_ids))
    shown = Shown.of(lineage.template, call.prompt_ids, request.get("stop", ()), tools, request.get("logprobs", False))
    shown.delta(0, call.response_ids, call.logprobs, last=True)
    made.answer = replace(answer, logprobs=shown.logprobs)
    lineage.answered(made, shown, shown_message(answer, shown), question.place)
    return made


def _ask_again(session: OpenSession, group: Sequence[tuple[Exchange, Made, ModelAnswer]]) -> None:
    """Let an answered request return its answers to equal requests, until they are known to be delivered."""
    exchange, _, answer = group[0]
    answers = [answer for _, _, answer in group]
    done: asyncio.Future[list[ModelAnswer]] = asyncio.get_running_loop().create_future()
    done.set_result(answers)
    made = [one for _, one, _ in group]
    sent = Sent(exchange.request_hash, exchange.retry)
    call = ModelCall(cast(Any, exchange.dialect), exchange.request["model"], ())  # answered: the rest has no effect
    asked = Asked(call, sent, made, answer.prompt_tokens, done, replay(answers), created=answer.created)
    # An answer that its client continued was delivered; for the others, this is unknown.
    asked.delivered = any(one.followed for one in made)
    asked.broken = not asked.delivered
    session.asked.setdefault(sent.digest, []).append(asked)
