"""Open sessions: their running calls, rewards and instructions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from rl_agents.chat.messages import Excluded
from rl_agents.gateway.calls import Delta, ModelAnswer, ModelCall, Sent
from rl_agents.gateway.conversation_tree import Lineage, Made
from rl_agents.gateway.trace import SessionTrace, steps_of
from rl_agents.store.records import Call, Opening
from rl_agents.web.errors import ApiError

#: End of a session after the answer to `Gateway.steer`.
STEERED = "steered"


class Pieces:
    """Parts of an answer for any number of readers, each of which gets all parts from the beginning."""

    def __init__(self) -> None:
        self._parts: list[Delta] = []
        self._ended = False
        self._news = asyncio.Event()

    def add(self, part: Delta) -> None:
        self._parts.append(part)
        self._tell()

    def end(self) -> None:
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def read(self) -> AsyncIterator[Delta]:
        number = 0
        while True:
            while number < len(self._parts):
                number += 1
                yield self._parts[number - 1]
            if self._ended:
                return
            await self._news.wait()


@dataclass(eq=False)
class Asked:
    """A running or answered request.

    Attributes:
        delivered: a client got the complete answer.
        broken: a client disconnected before the end.
        created: seconds since 1970.
    """

    call: ModelCall
    sent: Sent
    made: list[Made]
    prompt_tokens: int
    task: asyncio.Future[list[ModelAnswer]]
    pieces: Pieces = field(default_factory=Pieces)
    delivered: bool = False
    broken: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def failed(self) -> bool:
        """Whether the request failed; its retry is sampled again."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    def is_meant_by(self, sent: Sent) -> bool:
        """Return whether an equal request is a retry of this one.

        It is if the SDK counts it as a retry; or if the delivery failed or never happened; or if this request is still
        running and the SDK does not mark the other as new (a count of 0).
        """
        if self.failed:
            return False
        if sent.retry > 0 or (self.broken and not self.delivered):
            return True
        return not self.task.done() and sent.retry < 0


@dataclass(eq=False)
class OpenSession:
    """An open session.

    Attributes:
        asked: requests by digest, in their order.
        recorded: answers to return again, by exact prompt.
        rewards: by (call or 0 for the session, why); the last one counts.
        instruction: of `Gateway.steer`, for the next prompt.
        end: why further calls are refused; empty: calls are answered.
        why: the message of the refusal.
        ignored: see `ModelCall.ignored`; for every name the maximum over requests.
    """

    opening: Opening
    lineage: Lineage
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    recorded: dict[tuple[int, ...], list[Call]] = field(default_factory=dict)
    rewards: dict[tuple[int, str], float] = field(default_factory=dict)
    instruction: str = ""
    end: str = ""
    why: str = ""
    ignored: Excluded = field(default_factory=Counter)

    def earlier(self, sent: Sent) -> Asked | None:
        """Return the request that this one repeats, preferably one whose delivery failed."""
        meant = [asked for asked in self.asked.get(sent.digest, []) if asked.is_meant_by(sent)]
        return max(meant, key=lambda a: (a.broken and not a.delivered, not a.task.done()), default=None)

    def finish(self, end: str, why: str) -> None:
        if not self.end:
            self.end, self.why = end, why

    def finish_by_steering(self) -> None:
        """Refuse calls after the one with the instruction of `Gateway.steer`."""
        self.finish(STEERED, "the last answer of this session has been asked for; there are no further ones")

    def reopen(self) -> None:
        """Allow the last request again after it failed."""
        if self.end == STEERED:
            self.end = self.why = ""

    def check_open(self) -> None:
        """Refuse further calls of a session that has ended.

        Raises:
            ApiError: 400 after a full context, else 410 (which SDKs do not retry).
        """
        if self.end == "context_length":
            raise ApiError(400, self.why, "context_length_exceeded", "messages")
        if self.end:
            raise ApiError(410, self.why, "session_over")

    def under_way(self) -> list[Asked]:
        return [asked for group in self.asked.values() for asked in group if not asked.task.done()]

    def trace(self) -> SessionTrace:
        answered = [call for call in self.lineage.calls if call.answer is not None]
        rewards: dict[int, float] = {}
        for (call, _), value in self.rewards.items():
            rewards[call] = rewards.get(call, 0.0) + value
        steps, abandoned = steps_of(answered, rewards) if answered else ([], 0)
        return SessionTrace(
            steps=steps,
            reward=rewards.get(0),
            end=self.end,
            abandoned=abandoned,
            rewrites=sum(call.edge == "rewrite" for call in answered),
            rendered_whole=sum(call.rendered_whole for call in answered),
            ignored=dict(sorted(self.ignored.items())),
        )
