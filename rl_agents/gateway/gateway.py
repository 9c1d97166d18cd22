"""The gateway: sessions of agents that nobody rewrote, whose every model call becomes a step with exact tokens.

Everything runs on one event loop. An answer is given once its tokens are in the pool (where there is one); a request
that repeats an earlier one gets that one's answer (see `Asked.is_meant_by`), and never a second branch.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from rl_agents.chat.history import in_call_order
from rl_agents.chat.template import ChatTemplate
from rl_agents.data.trajectory import Step
from rl_agents.errors import InputError
from rl_agents.gateway.answers import answer_id, overridden, request_json, started, whole_history
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Piece, Sent, Start
from rl_agents.gateway.conversation_tree import Lineage, Question
from rl_agents.gateway.limits import GatewayLimits
from rl_agents.gateway.recorded_call import Made
from rl_agents.gateway.resume import open_sessions, rebuild
from rl_agents.gateway.sampling import Sampler
from rl_agents.gateway.sessions import Asked, OpenSession
from rl_agents.gateway.trace import SessionTrace
from rl_agents.inference.base import Engine, least_room
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, Opening, RewardNote
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.security import digest

__all__ = ["Gateway", "GatewayLimits", "SessionTrace"]

#: Sessions that were closed, to tell a late call from a wrong address.
CLOSED_KEPT = 10_000


class Gateway:
    """See the module docstring.

    Attributes:
        on_call: told of every answered call, with its session's id.
        created: when this gateway began, seconds since 1970.
    """

    def __init__(
        self, engine: Engine, template: ChatTemplate, limits: GatewayLimits, pool: PoolSink | None = None
    ) -> None:
        self.template, self.limits, self.pool = template, limits, pool
        self.on_call: Callable[[str, Step], None] | None = None
        self.created = int(time.time())
        self.sessions: dict[str, OpenSession] = {}
        streams = "on_tokens" in inspect.signature(engine.generate).parameters
        self._sampler = Sampler(engine, template, limits, pool, streams)
        self._keys: dict[str, str] = {}
        #: Closed sessions and the hashes of their keys.
        self._closed: OrderedDict[str, str] = OrderedDict()

    def open(self, opening: Opening, recorded: Sequence[Call] = ()) -> str:
        """Open a session.

        Args:
            opening: its id, its place in a group, and its seed; ``key_hash`` is filled in here.
            recorded: answers to give again, before anything is sampled, to prompts with the very same ids.

        Returns:
            The session's secret key.

        Raises:
            ApiError: 409 for an id that is or was in use, 400 for a seed below 0.
        """
        if opening.session in self.sessions or opening.session in self._closed:
            raise ApiError(409, f"the session {opening.session!r} exists already", "session_exists")
        if opening.seed < 0:
            raise bad_request(f"seed: must be 0 or more (got {opening.seed})", "seed")
        key = f"rl-{secrets.token_urlsafe(24)}"
        opening = replace(opening, key_hash=digest(key))
        self.admit(opening, recorded)
        if self.pool is not None:
            self.pool.add(opening)
        return key

    async def written(self) -> None:
        """Wait until all that has been noted is on disk."""
        if self.pool is not None:
            await asyncio.wrap_future(self.pool.add())

    def admit(self, opening: Opening, recorded: Sequence[Call] = ()) -> OpenSession:
        """Take calls of a session whose key is known by its hash."""
        session = OpenSession(opening, Lineage(self.template, self.limits.reasoning, opening.seed))
        session.lineage.reserve(call.id for call in recorded)
        for call in recorded:
            session.recorded.setdefault(tuple(call.prompt_ids), []).append(call)
        self.sessions[opening.session] = session
        self._keys[opening.key_hash] = opening.session
        return session

    def resume(self, reader: PoolReader) -> list[str]:
        """Open the sessions again that a pool's rows say are open; call it on the event loop. Returns their ids."""
        openings = [opening for opening in open_sessions(reader) if opening.session not in self.sessions]
        for opening in openings:
            rebuild(self.admit(opening), reader)
        return [opening.session for opening in openings]

    def session_of(self, key: str) -> str:
        """Return the id of the session with this key, open or lately closed; empty: there is none."""
        return self._keys.get(digest(key), "")

    async def close(self, session: str, reason: str = "") -> SessionTrace:
        """End a session: wait for its calls under way, answer no others, and return what came of it.

        Args:
            reason: why, where nothing else has ended it.

        Raises:
            ApiError: 404 or 410 for a session that is not open.
        """
        ended = self._session(session)
        why = f"the session {session!r} is closed"
        del self.sessions[session]
        self._closed[session] = ended.opening.key_hash
        if len(self._closed) > CLOSED_KEPT:
            self._keys.pop(self._closed.popitem(last=False)[1], None)
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
        """Answer no further call of a session; whoever opened it closes it.

        Raises:
            ApiError: 404 or 410 for a session that is not open.
        """
        self._session(session).finish(reason or "ended", f"the session {session!r} has ended")

    def reward(self, session: str, value: float, *, call: int = 0, why: str = "") -> Future[None] | None:
        """Note a reward. Rewards of one call (or of the session) add up over ``why``; the same one twice counts once.

        Args:
            call: id of an answered call; 0: the whole session.
            why: what it is for.

        Returns:
            What is done once the note is on disk; None without a pool.

        Raises:
            ApiError: 404 or 410 for a session that is not open, 404 for an unknown call, 400 for no finite number.
        """
        rewarded = self._session(session)
        if not math.isfinite(value):
            raise bad_request("value: must be a finite number", "value")
        if call and all(made.id != call or made.answer is None for made in rewarded.lineage.calls):
            raise ApiError(404, f"the session {session!r} has no answered call {call}", "call_not_found", "call")
        rewarded.rewards[call, why] = value
        return None if self.pool is None else self.pool.add(RewardNote(session, value, call, why))

    def steer(self, session: str, instruction: str, last: bool = True) -> None:
        """Append an instruction to what the next call reads; ``last``: no call is answered after that one.

        Raises:
            ApiError: 404 or 410 for a session that is not open.
        """
        steered = self._session(session)
        steered.instruction, steered.instruction_is_last = instruction, last

    def count_tokens(self, session: str, call: ModelCall) -> int:
        """Return the length of the prompt that a call would have.

        Raises:
            ApiError: as for `answer`.
        """
        return len(self._question(self._session(session), call, "").prompt_ids)

    async def answer(self, session: str, call: ModelCall, sent: Sent) -> list[ModelAnswer]:
        """Answer a request. If this coroutine is cancelled the call goes on, and a retry gets its answer.

        Raises:
            ApiError: why there is no answer.
        """
        asked = self._ask(session, call, sent)
        try:
            answers = await asyncio.shield(asked.task)
        except asyncio.CancelledError:
            asked.broken = True
            raise
        asked.delivered = True
        return answers

    def stream(self, session: str, call: ModelCall, sent: Sent) -> AsyncIterator[Piece]:
        """Answer a request piece by piece: `Start` and the first words together, the whole answers last. See `answer`.

        Raises:
            ApiError: at once where the request is refused; while it is read where sampling fails.
        """
        return self._read(self._ask(session, call, sent))

    async def _read(self, asked: Asked) -> AsyncIterator[Piece]:
        # Sent with the first words: until then a failure can still be an HTTP status, which SDKs retry.
        start: Start | None = Start(answer_id(asked.made[0].id), asked.created, prompt_tokens=asked.prompt_tokens)
        whole = False
        try:
            async for piece in asked.pieces.read():
                if start is not None:
                    yield start
                start = None
                yield piece
            answers = await asyncio.shield(asked.task)
            if start is not None:
                yield start
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
        """Return the request that this one repeats, or begin to answer it."""
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
            self._steered(session)
        self._note(session, call, sent, question, made, budget)
        return self._sampler.begin(session, call, sent, question, made, budget, again, self.on_call)

    def _check_count(self, session: OpenSession, call: ModelCall) -> None:
        limits, answered = self.limits, len(session.lineage.calls)
        if not 1 <= call.count <= limits.max_count:
            raise bad_request(f"n: must be from 1 to {limits.max_count} (got {call.count})", "n")
        if limits.max_calls and answered + call.count > limits.max_calls:
            session.finish("max_calls", f"a session has at most {limits.max_calls} model calls")
            session.check_open()

    def _question(self, session: OpenSession, call: ModelCall, instruction: str) -> Question:
        messages = in_call_order(whole_history(session.lineage, call))
        if self.template.exceeds(messages, self.limits.max_model_len):
            raise self._full(session, "the messages are longer")
        try:
            return session.lineage.ask(messages, call.tools, instruction)
        except InputError as error:
            raise bad_request(str(error), "messages", "chat_template") from None

    def _budget(self, session: OpenSession, call: ModelCall, question: Question) -> int:
        """Return how many tokens may be sampled."""
        room = self.limits.max_model_len - len(question.prompt_ids)
        if room < least_room(self.limits.max_response_tokens):
            raise self._full(session, f"the prompt has {len(question.prompt_ids)}")
        wanted = call.max_tokens if call.max_tokens is not None else room
        if wanted < 1:
            raise bad_request(f"max_tokens: must be 1 or more (got {wanted})", "max_tokens")
        return min(room, self.limits.max_response_tokens, wanted)

    def _full(self, session: OpenSession, found: str) -> ApiError:
        """End a session whose context is full."""
        why = f"the context has {self.limits.max_model_len} tokens; {found}: nothing is cut, the session has ended"
        session.finish("context_length", why)
        return ApiError(400, session.why, "context_length_exceeded", "messages")

    def _steered(self, session: OpenSession) -> None:
        session.instruction = ""
        if session.instruction_is_last:
            session.finish_by_steering()

    def _note(
        self, session: OpenSession, call: ModelCall, sent: Sent, question: Question, made: list[Made], budget: int
    ) -> None:
        """Write down what is asked, before anything is sampled."""
        if self.pool is None:
            return
        wishes = overridden(call, budget)
        for index, one in enumerate(made):
            one.request = request_json(session, call, question, made, index)
        self.pool.add(*(started(session.opening.session, call, sent, one, wishes) for one in made))
