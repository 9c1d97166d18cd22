"""The gateway: sessions of unmodified agents, in which every model call becomes a step with exact tokens.

Everything runs on one event loop. An answer is returned once its tokens are on disk, if there is a store. A retry gets
the earlier request's answer (see `RecordedRequest.is_repeated_by`), and never creates a second branch.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.chat.template import ChatTemplate
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step
from rl_agents.gateway.answers import CONTEXT_FULL, CallServer, DeltaLog, PendingRequest
from rl_agents.gateway.calls import GatewayLimits, ModelAnswer, ModelCall, RequestIdentity
from rl_agents.gateway.conversation_tree import CallRequest, ConversationTree, completion_of, split_header
from rl_agents.gateway.recording import exchange_of, rebuild
from rl_agents.gateway.sessions import OpenSession, RecordedRequest, SessionTrace, step_of
from rl_agents.gateway.stream_view import client_message
from rl_agents.inference.base import (
    Completion,
    Engine,
    Extras,
    OnTokens,
    Sampling,
    StreamingEngine,
    check_completion,
    least_room,
)  # fmt: skip
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.store.records import Call, Exchange, Record, RewardNote, SessionStart
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.security import digest

__all__ = ["Gateway", "GatewayLimits", "SessionTrace"]

#: Number of closed sessions that are remembered, to distinguish a late call from a wrong address.
CLOSED_KEPT = 10_000


class Gateway(CallServer):
    """See the module docstring.

    Attributes:
        on_call: gets every answered call, with the id of its session.
        ends: the answers to ends over HTTP, for retries, as long as their sessions are remembered.
    """

    def __init__(
        self, engine: Engine, template: ChatTemplate, limits: GatewayLimits, pool: PoolSink | None = None
    ) -> None:
        super().__init__(template, limits)
        self.pool = pool
        self.on_call: Callable[[str, Step], None] | None = None
        self.sessions: dict[str, OpenSession] = {}
        self.ends: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._engine = engine
        #: The engine, if it reports tokens while it samples.
        self._streaming = engine if isinstance(engine, StreamingEngine) else None
        self._keys: dict[str, str] = {}
        #: Closed sessions: the hashes of their keys, and their seeds.
        self._closed: OrderedDict[str, tuple[str, int]] = OrderedDict()
        #: Seeds of open and closed sessions; the store knows those of forgotten ones.
        self._seeds: set[int] = set()
        self._reader: PoolReader | None = None

    def open(self, opening: SessionStart, recorded: Sequence[Call] = ()) -> str:
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

    def admit(self, opening: SessionStart, recorded: Sequence[Call] = ()) -> OpenSession:
        session = OpenSession(opening, ConversationTree(self.template, self.limits.reasoning, opening.seed))
        session.tree.reserve(call.id for call in recorded)
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
        ended = {session.id for session in reader.sessions(StoreQuery(ids=[opening.session for opening in openings]))}
        left = [item for item in openings if item.session not in ended and item.session not in self.sessions]
        for opening in left:
            rebuild(self.admit(opening), reader)
        return [opening.session for opening in left]

    def session_of(self, key: str) -> str:
        """Return the id of the open or recently closed session with this key; empty: there is none."""
        return self._keys.get(digest(key), "")

    def opening(self, session: str) -> SessionStart:
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
        if waiting := ended.running():
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
        if call and all(known.id != call or known.answer is None for known in rewarded.tree.calls):
            raise ApiError(404, f"the session {session!r} has no answered call {call}", "call_not_found", "call")
        rewarded.rewards[call, why] = value
        return None if self.pool is None else self.pool.add(RewardNote(session, value, call, why))

    def steer(self, session: str, instruction: str) -> None:
        """Append an instruction to the next call's prompt, and refuse calls after that one. Raises as `close` does."""
        self._session(session).instruction = instruction

    def count_tokens(self, session: str, call: ModelCall) -> int:
        """Return the length of a call's prompt."""
        return len(self._request(self._session(session), call, "").prompt_ids)

    def _session(self, session: str) -> OpenSession:
        if session in self.sessions:
            return self.sessions[session]
        if session in self._closed:
            raise ApiError(410, f"the session {session!r} is closed", "session_closed")
        raise ApiError(404, f"there is no session {session!r}", "session_not_found")

    def begin(self, session: str, call: ModelCall, identity: RequestIdentity) -> PendingRequest:
        """Return the request that this one repeats, or begin to answer this one. Raises `ApiError`: it is refused."""
        open_session = self._session(session)
        return open_session.earlier(identity) or self._begin(open_session, call, identity)

    def _begin(self, session: OpenSession, call: ModelCall, identity: RequestIdentity) -> RecordedRequest:
        session.check_open()
        self._check_count(session, call)
        session.ignored |= call.ignored
        try:
            request = self._request(session, call, session.instruction)
            budget = self.budget(call, len(request.prompt_ids), least_room(self.limits.max_response_tokens))
        except ApiError as error:
            if error.code == CONTEXT_FULL:
                error.message += ": nothing is cut, the session has ended"
                session.finish("context_length", error.message)
            raise
        recorded = session.recorded.get(tuple(request.prompt_ids), [])
        again = [recorded.pop(0) for _ in range(min(call.count, len(recorded)))]
        calls = [session.tree.add(request, answer.id) for answer in again]
        calls += [session.tree.add(request) for _ in range(call.count - len(again))]
        if request.steered:
            session.instruction = ""
            session.finish_by_steering()
        kept = replace(call, messages=(), tools=())  # else every request of a session would keep the whole history
        pending = RecordedRequest(
            call=kept, identity=identity, number=calls[0].id, prompt_tokens=len(request.prompt_ids), calls=calls,
            budget=budget,
        )  # fmt: skip
        if self.pool is not None:  # before sampling
            self.pool.add(*(exchange_of(session, pending, request, index) for index in range(call.count)))
        pending.begin(self._answer(session, pending, request, again))
        session.requests.setdefault(identity.digest, []).append(pending)
        return pending

    def _check_count(self, session: OpenSession, call: ModelCall) -> None:
        limits, answered = self.limits, len(session.tree.calls)
        if limits.max_calls and answered + call.count > limits.max_calls:
            session.finish("max_calls", f"a session has at most {limits.max_calls} model calls")
            session.check_open()

    def _request(self, session: OpenSession, call: ModelCall, instruction: str) -> CallRequest:
        history = self._history(session, call)
        return self.rendered(history, lambda messages: session.tree.request(messages, call.tools, instruction))

    def _history(self, session: OpenSession, call: ModelCall) -> list[Message]:
        """Return the messages of a request, after those of the response that it follows."""
        if not call.previous:
            return list(call.messages)
        for known in reversed(session.tree.calls):
            if known.answer is not None and known.answer.id == call.previous:
                before, (own, new) = session.tree.history_after(known), split_header(call.messages)
                system, body = split_header(before)
                return [*(own or system), *body, *new]
        message = f"the response {call.previous!r} does not exist in this session"
        raise ApiError(404, message, "previous_response_not_found", "previous_response_id")

    # --- from a request to its answers: sampled or repeated, recorded, then returned ------------------------------

    async def _answer(
        self, session: OpenSession, pending: RecordedRequest, request: CallRequest, again: Sequence[Call]
    ) -> list[ModelAnswer]:
        async def generate(index: int, on_tokens: OnTokens | None) -> Completion:
            if index < len(again):
                completion = completion_of(again[index])
            else:
                completion = await self._sample(pending, index, request.prompt_ids, on_tokens)
            pending.labels[index] = f"policy-{completion.policy_version}"
            return completion

        try:
            sampled = await self.sample(pending, request.prompt_ids, request.tools, generate)
            for call, (_, completion, _) in zip(pending.calls, sampled, strict=True):
                call.take(completion, self.template.decode(completion.token_ids))
            answers = [answer for _, _, answer in sampled]
            await self._commit(session, pending, request, answers)
        except BaseException as error:
            problem = _problem(error)
            self._failed(session, pending, problem)
            raise problem from error
        for call, (view, _, answer) in zip(pending.calls, sampled, strict=True):
            call.answer = answer
            session.tree.answered(call, view, client_message(answer, view), request.node)
            if self.on_call is not None:
                self.on_call(session.opening.session, step_of(call))
        pending.deltas.end()
        pending.deltas = DeltaLog(ended=True)  # the answers have all of it
        return answers

    async def _sample(
        self, pending: RecordedRequest, index: int, prompt_ids: list[int], on_tokens: OnTokens | None
    ) -> Completion:
        def notified(*tokens: Any) -> object:
            pending.labels.setdefault(index, f"policy-{getattr(self._engine, 'version', 0)}")
            return on_tokens(*tokens) if on_tokens is not None else None

        limits, top = self.limits, pending.call.logprobs
        sampling = Sampling(
            max_tokens=pending.budget,
            temperature=limits.temperature,
            top_p=limits.top_p,
            stop_token_ids=self.template.stop_token_ids,
            seed=pending.calls[index].id,
            extras=Extras(top_logprobs=top) if top else None,
        )
        if on_tokens is not None and self._streaming is not None:
            completion = await self._streaming.generate(prompt_ids, sampling, notified)
        else:
            completion = await self._engine.generate(prompt_ids, sampling)
        check_completion(completion, pending.budget)
        return completion

    async def _commit(
        self, session: OpenSession, pending: RecordedRequest, request: CallRequest, answers: Sequence[ModelAnswer]
    ) -> None:
        """Record the answers and wait until they are on disk."""
        if self.pool is None:
            return
        records: list[Record] = []
        for index, (call, answer) in enumerate(zip(pending.calls, answers, strict=True)):
            records += [call.record(), exchange_of(session, pending, request, index, answer)]
        await asyncio.wrap_future(self.pool.add(*records))

    def _failed(self, session: OpenSession, pending: RecordedRequest, problem: ApiError) -> None:
        """Allow the request again, with the same seeds."""
        for call in pending.calls:
            session.tree.drop(call)
            if call.steered:
                session.instruction = call.steered
                session.reopen()
            if self.pool is not None:
                answer = {"problem": problem.message}
                self.pool.add(Exchange(call.id, session.opening.session, "failed", answer=answer))


def _problem(error: BaseException) -> ApiError:
    """Return the error for the client."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ApiError(410, "the session was closed while this call was running", "session_closed")
    return ApiError(500, f"the answer could not be recorded: {type(error).__name__}: {error}", "internal_error")
