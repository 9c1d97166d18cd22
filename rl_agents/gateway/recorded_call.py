"""One call of a session as the gateway keeps it: its exact ids, once, and its place in the tree of calls."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import ModelAnswer
from rl_agents.inference.base import Completion, VersionSpans
from rl_agents.store.records import Call
from rl_agents.tools.calls import Tool

#: How a call's prompt came about: a history that nobody asked before (``root``), one that extends an answer by what
#: the world said (``continue``), or one that its client has changed (``rewrite``).
Edge = Literal["root", "continue", "rewrite"]


@dataclass(eq=False, slots=True)
class Conversation:
    """Calls that belong to one history: a root, and all that continues or rewrites it.

    Attributes:
        number: 0 for the session's first.
    """

    number: int


@dataclass(eq=False, slots=True)
class Made:
    """A call that was made.

    Attributes:
        id: sampling seed.
        order: number in its session, by the time when it was asked.
        depth: calls before it in its conversation.
        edge: see `Edge`.
        parent: whose prompt and response the prompt begins with, exactly.
        after: the call that the agent's work goes on from; differs from ``parent`` after a rewrite.
        rest: the messages that are new to the conversation, as the client sent them.
        added: the prompt's ids after the parent's prompt and response; the whole prompt without a parent.
        prompt_tokens: length of the whole prompt.
        steered: the instruction that the prompt carries on top of the client's messages.
        anew: the template could not write the new messages apart from the answer before them.
        read_by: the call of another branch that first read this answer.
        followers: calls whose ``after`` is this one.
        siblings: calls that asked the same, this one among them.
        request: as the pool keeps it, until it does.
        ended: ``Lineage.clock`` at the time of its answer: calls from that order on may have read it.
    """

    id: int
    order: int
    conversation: Conversation
    depth: int
    edge: Edge
    parent: Made | None
    after: Made | None
    system: tuple[Message, ...]
    rest: tuple[Message, ...]
    tools: tuple[Tool, ...]
    added: array[int]
    prompt_tokens: int
    siblings: list[Made]
    steered: str = ""
    anew: bool = False
    response: array[int] = field(default_factory=lambda: array("i"))
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    policy_version: int = 0
    version_spans: VersionSpans = ()
    finish_reason: str = ""
    text: str = ""
    problem: str = ""
    answer: ModelAnswer | None = None
    read_by: Made | None = None
    followers: list[Made] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)
    ended: int = 0

    def prompt_ids(self) -> list[int]:
        parts: list[array[int]] = []
        call: Made | None = self
        while call is not None:
            parts.append(call.added)
            call = call.parent
            if call is not None:
                parts.append(call.response)
        whole = array("i")
        for part in reversed(parts):
            whole.extend(part)
        return whole.tolist()

    def take(self, completion: Completion, text: str) -> None:
        self.response, self.logprobs = array("i", completion.token_ids), array("d", completion.logprobs)
        self.policy_version, self.version_spans = completion.policy_version, completion.version_spans
        self.finish_reason, self.text = completion.finish_reason, text

    def record(self) -> Call:
        return Call(
            id=self.id,
            parent=self.parent.id if self.parent else 0,
            prompt_ids=self.prompt_ids(),
            response_ids=list(self.response),
            logprobs=list(self.logprobs),
            policy_version=self.policy_version,
            finish_reason=self.finish_reason,
            version_spans=self.version_spans,
        )

    @property
    def followed(self) -> bool:
        """Whether the agent went on from this answer, or read it elsewhere."""
        return bool(self.followers) or self.read_by is not None


def hash_of(prompt_ids: Sequence[int]) -> int:
    """Return 63 bits that name a prompt."""
    return int.from_bytes(hashlib.sha256(array("i", prompt_ids).tobytes()).digest()[:8], "big") >> 1
