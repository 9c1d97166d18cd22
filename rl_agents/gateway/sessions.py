"""Open sessions (running calls, rewards and instructions), and the training steps of ended ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_agents.chat.messages import Excluded
from rl_agents.data.trajectory import ABANDONED, Step
from rl_agents.gateway.answers import PendingRequest
from rl_agents.gateway.calls import ModelAnswer, RequestIdentity
from rl_agents.gateway.conversation_tree import ConversationTree, RecordedCall
from rl_agents.store.records import Call, SessionStart
from rl_agents.web.errors import ApiError

#: End of a session after the answer to `Gateway.steer`.
STEERED = "steered"


@dataclass(eq=False, kw_only=True)
class RecordedRequest(PendingRequest):
    """A request of a session; ``budget``: of tokens per answer."""

    identity: RequestIdentity
    calls: list[RecordedCall]
    budget: int = 0

    def call_id(self, index: int) -> int:
        return self.calls[index].id

    @property
    def failed(self) -> bool:
        """Whether the request failed; its retry is sampled again."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    def is_repeated_by(self, other: RequestIdentity) -> bool:
        """Return whether an equal request is a retry of this one.

        It is if the SDK counts it as a retry; or if the delivery failed or never happened; or if this request is still
        running and the SDK does not mark the other as new (a count of 0).
        """
        if self.failed:
            return False
        if other.retry > 0 or (self.broken and not self.delivered):
            return True
        return not self.task.done() and other.retry < 0


@dataclass
class SessionTrace:
    """The result of a session.

    Attributes:
        steps: chain by chain; every step precedes the one that first reads its answer, and the session's last call is
            the last step. ``call`` and ``reward`` (from rewards of calls) are set, and ``next_step`` if it is not the
            next one in the list.
        reward: of the session; None: not given.
        end: why it ended: empty, ``context_length``, ``max_calls``, or the reason given to `Gateway.close`.
        abandoned: number of answers excluded from ``steps``: the agent continued another answer to the same request,
            and they have no reward.
        rewrites: number of calls whose history the client had changed.
        rendered_whole: number of prompts that the chat template could not extend and rendered again.
        ignored: parts of requests without effect, by name (`ModelCall.ignored`), with the maximum over requests.
    """

    steps: list[Step] = field(default_factory=list)
    reward: float | None = None
    end: str = ""
    abandoned: int = 0
    rewrites: int = 0
    rendered_whole: int = 0
    ignored: dict[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, object]:
        """Return the irregularities to report; empty if there are none."""
        names = ("abandoned", "rewrites", "rendered_whole")
        counts: dict[str, object] = {name: getattr(self, name) for name in names if getattr(self, name)}
        counts |= {"reward_without_a_call": self.reward} if self.reward and not self.steps else {}
        return counts | ({"ignored": self.ignored} if self.ignored else {})


@dataclass(eq=False)
class OpenSession:
    """An open session.

    Attributes:
        requests: by digest, in their order.
        recorded: answers to return again, by exact prompt.
        rewards: by (call or 0 for the session, why); the last one counts.
        instruction: of `Gateway.steer`, for the next prompt.
        end: why further calls are refused; empty: calls are answered.
        why: the message of the refusal.
        ignored: see `ModelCall.ignored`; for every name the maximum over requests.
    """

    opening: SessionStart
    tree: ConversationTree
    requests: dict[str, list[RecordedRequest]] = field(default_factory=dict)
    recorded: dict[tuple[int, ...], list[Call]] = field(default_factory=dict)
    rewards: dict[tuple[int, str], float] = field(default_factory=dict)
    instruction: str = ""
    end: str = ""
    why: str = ""
    ignored: Excluded = field(default_factory=Counter)

    def earlier(self, identity: RequestIdentity) -> RecordedRequest | None:
        """Return the request that this one repeats, preferably one whose delivery failed."""
        repeated = [known for known in self.requests.get(identity.digest, []) if known.is_repeated_by(identity)]
        return max(repeated, key=lambda r: (r.broken and not r.delivered, not r.task.done()), default=None)

    def finish(self, end: str, why: str) -> None:
        if not self.end:
            self.end, self.why = end, why

    def finish_by_steering(self) -> None:
        """Refuse calls after the one with the instruction of `Gateway.steer`."""
        self.finish(STEERED, "the session has given its last answer")

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

    def running(self) -> list[asyncio.Future[list[ModelAnswer]]]:
        return [known.task for group in self.requests.values() for known in group if not known.task.done()]

    def trace(self) -> SessionTrace:
        answered = [call for call in self.tree.calls if call.answer is not None]
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


# --- from the tree of calls to steps -----------------------------------------------------------------------------


def step_of(call: RecordedCall, reward: float = 0.0) -> Step:
    # A rewritten history may repeat earlier messages: the observation is what follows the last answer.
    answers = [number for number, message in enumerate(call.rest) if message["role"] == "assistant"]
    new = call.rest[answers[-1] + 1 :] if answers else call.rest
    texts = [str(message["content"]) for message in new if message["role"] != "system"]
    observation = "\n".join([*texts, *([call.steered] if call.steered else [])])
    return Step(
        prompt_ids=call.prompt_ids(),
        response_ids=list(call.response),
        logprobs=list(call.logprobs),
        policy_version=call.policy_version,
        finish_reason=call.finish_reason,
        observation=observation,
        anchor=observation,
        action=call.text,
        reward=reward,
        valid=not call.problem,
        call=call.id,
        version_spans=call.version_spans,
    )


def steps_of(calls: Sequence[RecordedCall], rewards: Mapping[int, float]) -> tuple[list[Step], int]:
    """Return the steps of a session's answered calls, and the number of abandoned answers."""
    kept = [call for call in calls if not _abandoned(call, calls[-1])]
    following = {call.id: _next(call, kept) for call in kept}
    ordered = [call for tree in _chains(kept, following) for call in tree]
    # An answer that was not continued but rewarded is trained on (`rl_agents.data.tree.credited`).
    ordered[-1:-1] = [call for call in calls if call.id not in following and rewards.get(call.id)]
    places = {call.id: number for number, call in enumerate(ordered)}
    steps = [step_of(call, rewards.get(call.id, 0.0)) for call in ordered]
    for number, (call, step) in enumerate(zip(ordered, steps, strict=True)):
        if call.id not in following:
            step.next_step = ABANDONED
            continue
        after = following[call.id]
        place = -1 if after is None else places[after.id]
        last = number + 1 == len(ordered)
        step.next_step = None if place == number + 1 or (last and place < 0) else place
    return steps, len(calls) - len(steps)


def _abandoned(call: RecordedCall, last: RecordedCall) -> bool:
    """Return whether the agent continued another answer to the same request; the last call is never abandoned."""
    return call is not last and not call.followed and any(sibling.followed for sibling in call.siblings)


def _next(call: RecordedCall, kept: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the call that continues this one; None: there is none.

    Of several continuing calls, it is the first. The end of a branch continues in the call that first read its answer.
    If no call quotes the answer, it is the next call after it: of the same conversation, of an older one (which may
    have started this one) or of a new one, but not of one that ran concurrently.
    """
    known = {id(other) for other in kept}
    for other in sorted(call.followers, key=lambda follower: follower.order):
        if id(other) in known:
            return other
    if call.read_by is not None and id(call.read_by) in known:
        return call.read_by
    own = call.conversation
    begun = {c.conversation: c.order for c in reversed(kept)}
    for other in kept:
        start = begun[other.conversation]
        if other.order >= call.ended and (start <= begun[own] or start >= call.ended):
            return other
    return None


def _chains(kept: Sequence[RecordedCall], following: Mapping[int, RecordedCall | None]) -> list[list[RecordedCall]]:
    """Return chains of calls, each continuing the one before; the chain that ends last is last."""
    chains: dict[int, list[RecordedCall]] = {}
    for call in kept:  # a call's ``after`` precedes it
        before = call.after
        extends = before is not None and following.get(before.id) is call
        chain = chains.pop(before.id) if extends and before is not None else []
        chains[call.id] = [*chain, call]
    return sorted(chains.values(), key=lambda chain: chain[-1].order)
