"""Converts the tree of a session's calls to training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_agents.data.trajectory import Step
from rl_agents.gateway.conversation_tree import Made


@dataclass
class SessionTrace:
    """The result of a session.

    Attributes:
        steps: chain by chain; every step precedes the one that first reads its answer, and the session's last call is
            the last step. ``call`` and ``reward`` (from rewards of calls) are set, and ``next_step`` if it is not the
            next one in the list.
        reward: of the session; None: not given.
        end: why it ended: empty, ``context_length``, ``max_calls``, or the reason given to `Gateway.close`.
        abandoned: number of answers excluded from ``steps``: the agent continued another answer to the same request.
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
        return counts | ({"ignored": self.ignored} if self.ignored else {})


def step_of(call: Made, reward: float = 0.0) -> Step:
    # A rewritten history may repeat earlier messages: the observation is what follows the last answer.
    answers = [number for number, message in enumerate(call.rest) if message["role"] == "assistant"]
    new = call.rest[answers[-1] + 1 :] if answers else call.rest
    told = [str(message["content"]) for message in new if message["role"] != "system"]
    observation = "\n".join([*told, *([call.steered] if call.steered else [])])
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


def steps_of(calls: Sequence[Made], rewards: Mapping[int, float]) -> tuple[list[Step], int]:
    """Return the steps of a session, and the number of abandoned answers.

    Args:
        calls: all answered calls, in the order of their requests.
        rewards: by call.
    """
    kept = [call for call in calls if not _abandoned(call, calls[-1])]
    following = {call.id: _next(call, kept) for call in kept}
    ordered = [call for lineage in _lineages(kept, following) for call in lineage]
    places = {call.id: number for number, call in enumerate(ordered)}
    steps = [step_of(call, rewards.get(call.id, 0.0)) for call in ordered]
    for number, (call, step) in enumerate(zip(ordered, steps, strict=True)):
        after = following[call.id]
        place = -1 if after is None else places[after.id]
        last = number + 1 == len(ordered)
        step.next_step = None if place == number + 1 or (last and place < 0) else place
    return steps, len(calls) - len(kept)


def _abandoned(call: Made, last: Made) -> bool:
    """Return whether the agent continued another answer to the same request; the last call is never abandoned."""
    return call is not last and not call.followed and any(sibling.followed for sibling in call.siblings)


def _next(call: Made, kept: Sequence[Made]) -> Made | None:
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


def _lineages(kept: Sequence[Made], following: Mapping[int, Made | None]) -> list[list[Made]]:
    """Return chains of calls, each continuing the one before; the chain that ends last is last."""
    chains: dict[int, list[Made]] = {}
    for call in kept:  # a call's ``after`` precedes it
        before = call.after
        extends = before is not None and following.get(before.id) is call
        chain = chains.pop(before.id) if extends and before is not None else []
        chains[call.id] = [*chain, call]
    return sorted(chains.values(), key=lambda chain: chain[-1].order)
