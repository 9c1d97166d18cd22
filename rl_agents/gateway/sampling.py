"""Answers a request: samples (or repeats) its answers, records them, then returns them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.chat.template import ChatTemplate
from rl_agents.data.trajectory import Step
from rl_agents.gateway.answers import finished, model_answers, overridden, shown_message
from rl_agents.gateway.calls import Delta, GatewayLimits, ModelAnswer, ModelCall, Sent
from rl_agents.gateway.conversation_tree import Made, Question, completion_of
from rl_agents.gateway.sessions import Asked, OpenSession, Pieces
from rl_agents.gateway.stream_view import Shown
from rl_agents.gateway.trace import step_of
from rl_agents.inference.base import Completion, Engine, EngineError, Sampling, check_completion
from rl_agents.store.records import Call, Exchange, Record
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.web.errors import ApiError


@dataclass
class Sampler:
    """Answers requests.

    Attributes:
        streams: the engine reports tokens while it samples.
    """

    engine: Engine
    template: ChatTemplate
    limits: GatewayLimits
    pool: PoolSink | None
    streams: bool

    def begin(
        self, session: OpenSession, call: ModelCall, sent: Sent, question: Question, made: list[Made], budget: int,
        again: Sequence[Call], on_call: Callable[[str, Step], None] | None,
    ) -> Asked:  # fmt: skip
        """Begin to answer in a separate task, since clients may disconnect.

        Args:
            again: recorded answers, for the first of ``made``.
        """
        asked = Asked(call, sent, made, len(question.prompt_ids), asyncio.get_running_loop().create_future())
        work = self._answer(session, asked, question, budget, again, on_call)
        task = asyncio.create_task(work, name=f"gateway call {made[0].id}")
        # A failure is recorded even if no client waits for it, and must not reach the event loop.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        asked.task = task
        session.asked.setdefault(sent.digest, []).append(asked)
        return asked

    async def _answer(
        self, session: OpenSession, asked: Asked, question: Question, budget: int, again: Sequence[Call],
        on_call: Callable[[str, Step], None] | None,
    ) -> list[ModelAnswer]:  # fmt: skip
        try:
            shown = await self._sample(asked, question, budget, again)
            answers = model_answers(asked.call, asked.made, shown, asked.created, asked.prompt_tokens)
            await self._commit(session, asked, answers, budget)
        except BaseException as error:
            problem = _problem(error, self.limits)
            self._failed(session, asked, problem)
            raise problem from error
        for made, answer, one in zip(asked.made, answers, shown, strict=True):
            made.answer, made.request = answer, {}
            session.lineage.answered(made, one, shown_message(answer, one), question.place)
            if on_call is not None:
                on_call(session.opening.session, step_of(made))
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
        made, pieces, read = asked.made[index], asked.pieces, 0
        shown = Shown.of(self.template, question.prompt_ids, asked.call.stop, question.tools)

        def tell(token_ids: Sequence[int], last: bool = False) -> None:
            nonlocal read
            read += len(token_ids)
            content, thoughts = shown.add(token_ids, last)
            if content or thoughts:
                pieces.add(Delta(index, content, thoughts))

        if given is not None:
            completion = completion_of(given)
        else:
            completion = await self._generate(question.prompt_ids, made.id, budget, tell if asked.call.stream else None)
        made.take(completion, self.template.decode(completion.token_ids))
        tell(completion.token_ids[read:], last=True)
        return shown

    async def _generate(
        self, prompt_ids: list[int], seed: int, budget: int, tell: Callable[[Sequence[int]], None] | None
    ) -> Completion:
        sampling = Sampling(
            max_tokens=budget,
            temperature=self.limits.temperature,
            top_p=self.limits.top_p,
            stop_token_ids=self.template.stop_token_ids,
            seed=seed,
        )
        options: dict[str, Any] = {}
        if tell is not None and self.streams:
            options["on_tokens"] = lambda token_ids, _: tell(token_ids)
        completion = await self.engine.generate(prompt_ids, sampling, **options)
        check_completion(completion, budget)
        return completion

    async def _commit(self, session: OpenSession, asked: Asked, answers: list[ModelAnswer], budget: int) -> None:
        """Record the answers and wait until they are on disk."""
        if self.pool is None:
            return
        params, records = overridden(asked.call, budget), list[Record]()
        for made, answer in zip(asked.made, answers, strict=True):
            told = finished(
                session.opening.session, asked.call, asked.sent, made, session.lineage.clock, answer, params
            )
            records += [made.record(), told]
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
        return ApiError(410, "the session was closed while this call was under way", "session_closed")
    if isinstance(error, TimeoutError):
        return ApiError(504, f"no answer within {limits.request_timeout_s:g} seconds", "timeout")
    if isinstance(error, EngineError):
        return ApiError(503, f"the model cannot answer: {error}", "engine_error")
    return ApiError(500, f"the answer could not be written down: {type(error).__name__}: {error}", "internal_error")
