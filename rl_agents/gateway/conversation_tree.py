"""The tree of a session's calls, and the exact prompt of the next one.

Sampled ids are never tokenized again: the prompt of a call that continues another consists of that call's prompt, its
response, the end of turn if the response was cut at its budget, and the new messages, rendered once. The continued call
is the deepest one whose history and answer the request begins with. Messages match in every form in which clients send
them back: without thoughts, with rewritten arguments (other spaces, order of keys, 1 for 1.0), with stripped spaces,
with None for no content, or with other ids of calls. If there is no such call, the whole prompt is rendered:

- the request shares its first message (other than system messages) with an earlier call: the client has rewritten the
  history, or changed its system prompt or tools. The call is a ``rewrite`` after the last answered call on that path;
- it shares nothing: a ``root``, the beginning of a conversation, such as a subagent's.

If another branch later reads an answer, the answer joins that branch (`RecordedCall.read_by`).
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.chat.messages import Message, message_calls
from rl_agents.chat.template import ChatTemplate
from rl_agents.data.tasks import step_seed, stream_seed
from rl_agents.errors import InputError
from rl_agents.gateway.calls import ModelAnswer, Reasoning
from rl_agents.gateway.stream_view import StreamView
from rl_agents.inference.base import Completion, VersionSpans
from rl_agents.store.records import Call
from rl_agents.tools.calls import Tool, ToolCall, read_response
from rl_agents.tools.strict_json import canonical
from rl_agents.tools.thoughts import read_thoughts

#: Origin of a call's prompt: a new history (``root``), one that extends an answer (``continue``), or one that its
#: client has changed (``rewrite``).
Edge = Literal["root", "continue", "rewrite"]


@dataclass(eq=False, slots=True)
class RecordedCall:
    """A model call.

    Attributes:
        id: sampling seed.
        order: number in its session, by the time of its request.
        conversation: number of its conversation, 0 for the session's first: a root and all calls that continue or
            rewrite it.
        depth: number of calls before it in its conversation.
        parent: the call whose exact prompt and response the prompt begins with.
        after: the call that the agent continues; differs from ``parent`` after a rewrite.
        rest: the messages that are new to the conversation, as sent.
        added: the prompt's ids after the parent's prompt and response; without a parent, the whole prompt.
        prompt_tokens: length of the whole prompt.
        steered: the instruction appended to the client's messages.
        rendered_whole: the template could not render the new messages separately from the answer before them.
        read_by: the call of another branch that first read this answer.
        followers: calls whose ``after`` is this one.
        siblings: all calls with the same request, including this one.
        ended: ``ConversationTree.clock`` at the time of its answer: calls from that order on may have read it.
    """

    id: int
    order: int
    conversation: int
    depth: int
    edge: Edge
    parent: RecordedCall | None
    after: RecordedCall | None
    system: tuple[Message, ...]
    rest: tuple[Message, ...]
    tools: tuple[Tool, ...]
    added: array[int]
    prompt_tokens: int
    siblings: list[RecordedCall]
    steered: str = ""
    rendered_whole: bool = False
    response: array[int] = field(default_factory=lambda: array("i"))
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    policy_version: int = 0
    version_spans: VersionSpans = ()
    finish_reason: str = ""
    text: str = ""
    problem: str = ""
    answer: ModelAnswer | None = None
    read_by: RecordedCall | None = None
    followers: list[RecordedCall] = field(default_factory=list)
    ended: int = 0

    def prompt_ids(self) -> list[int]:
        parts: list[array[int]] = []
        call: RecordedCall | None = self
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
        """Whether the agent continued this answer, or read it in another branch."""
        return bool(self.followers) or self.read_by is not None


def completion_of(call: Call) -> Completion:
    spans = call.version_spans
    return Completion(call.response_ids, call.logprobs, call.policy_version, call.finish_reason, version_spans=spans)


def hash_of(prompt_ids: Sequence[int]) -> int:
    return int.from_bytes(hashlib.sha256(array("i", prompt_ids).tobytes()).digest()[:8], "big") >> 1


@dataclass(eq=False, slots=True)
class HistoryNode:
    """A point of a history, after one of its messages.

    Attributes:
        before: the node one message earlier.
        message: the message before this node; None at the beginning.
        depth: number of messages up to here.
        answered_by: the call that answered with this message; None: it is not an answer.
        children: nodes after messages that are not answers, by key.
        answers: nodes after answers, by every form in which a client may send them back.
        calls: the calls requested here, in their order.
        point: the same node regardless of system prompt, tools and thoughts; None: not determined yet.
    """

    before: HistoryNode | None = None
    message: Message | None = None
    depth: int = 0
    answered_by: RecordedCall | None = None
    children: dict[str, HistoryNode] = field(default_factory=dict)
    answers: dict[str, list[HistoryNode]] = field(default_factory=dict)
    calls: list[RecordedCall] = field(default_factory=list)
    point: int | None = None

    def history(self) -> list[Message]:
        messages: list[Message] = []
        node: HistoryNode | None = self
        while node is not None and node.message is not None:
            messages.append(node.message)
            node = node.before
        return messages[::-1]

    def last_answer(self) -> HistoryNode | None:
        """Return the last node up to here that follows an answer."""
        node: HistoryNode | None = self
        while node is not None and node.answered_by is None:
            node = node.before
        return node

    def walk(self, messages: Sequence[Message], as_sent: bool) -> HistoryNode:
        nodes = [self]
        for message in messages:
            key = message_key(message, as_sent)
            following = [following for node in nodes for following in node.next(message, key)]
            if not following:
                break
            nodes = following
        return max(nodes, key=lambda node: -1 if node.answered_by is None else node.answered_by.order)

    def next(self, message: Message, key: str) -> list[HistoryNode]:
        """Return the nodes after one more message: several if answers have the same text."""
        found = self.answers.get(key, []) if message["role"] == "assistant" else []
        if len(found) > 1:
            found = _meant(found, message)
        return [*found, *([self.children[key]] if key in self.children else [])]

    def extend(self, messages: Sequence[Message], as_sent: bool) -> HistoryNode:
        """Return the node after these messages, none of which is an answer; create it if it is new."""
        node = self
        for message in messages:
            key = message_key(message, as_sent)
            if key not in node.children:
                node.children[key] = HistoryNode(node, message, node.depth + 1)
            node = node.children[key]
        return node


def _meant(nodes: list[HistoryNode], message: Message) -> list[HistoryNode]:
    """Of answers with the same text, return those with the message's ids of calls, or else with its thoughts."""
    ids = [call["id"] for call in message.get("tool_calls", ())]
    by_ids = [p for p in nodes if ids and p.message and [c["id"] for c in p.message.get("tool_calls", ())] == ids]
    thoughts = str(message.get("reasoning_content") or "").strip()
    same = [p for p in nodes if thoughts and p.message and p.message.get("reasoning_content", "").strip() == thoughts]
    return by_ids or same or nodes


#: Shorter answers are found only if they are the whole message.
MIN_QUOTED = 3


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A request with its node in the tree and its exact prompt."""

    node: HistoryNode
    system: tuple[Message, ...]
    rest: tuple[Message, ...]
    tools: tuple[Tool, ...]
    edge: Edge
    parent: RecordedCall | None
    after: RecordedCall | None
    prompt_ids: list[int]
    steered: str = ""
    rendered_whole: bool = False


class ConversationTree:
    """All calls of one session."""

    def __init__(self, template: ChatTemplate, reasoning: Reasoning, seed: int) -> None:
        self.template, self.seed = template, seed
        self.calls: list[RecordedCall] = []
        self.clock = 0
        self._as_sent = reasoning == "as_sent"
        self._beginnings: dict[str, HistoryNode] = {}
        #: Points of histories regardless of system prompts, tools and thoughts, which identify rewritten histories: by
        #: the point before and a message's key (0: the beginning); the point before each; the last answered call there.
        self._points: dict[tuple[int, str], int] = {}
        self._before = [0]
        self._latest: dict[int, RecordedCall] = {}
        self._roots: dict[int, int] = {}
        self._ids: set[int] = set()
        self._after: dict[int, HistoryNode] = {}

    def reserve(self, ids: Iterable[int]) -> None:
        """Do not use these ids for new calls, since they belong to recorded answers."""
        self._ids.update(ids)

    def request(self, messages: Sequence[Message], tools: Sequence[Tool], instruction: str = "") -> CallRequest:
        """Find the node of a request and render its prompt.

        Args:
            messages: the whole history.
            instruction: appended to the last message that is not the assistant's.

        Raises:
            InputError: the chat template cannot render the messages.
        """
        node, system, body, rest, parent = self.locate(messages, tools)
        edge, after = self._edge(node, body, rest, parent)
        steered = _steered(rest, instruction)
        exact, prompt_ids = self._prompt(parent, system, body, steered, tools, len(rest))
        rendered_whole = parent is not None and exact is None
        edge = "rewrite" if rendered_whole and edge == "continue" else edge
        return CallRequest(
            node, system, rest, tuple(tools), edge, exact, after, prompt_ids, instruction, rendered_whole
        )

    def locate(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[HistoryNode, tuple[Message, ...], tuple[Message, ...], tuple[Message, ...], RecordedCall | None]:
        """Return a request's node, system messages, other messages, the new ones among them, and its parent."""
        system, body = split_header(messages)
        beginning = self._beginnings.setdefault(header_key(system, tools), HistoryNode())
        deepest = beginning.walk(body, self._as_sent)
        answered = deepest.last_answer()
        known, parent = (answered.depth, answered.answered_by) if answered is not None else (0, None)
        return deepest.extend(body[deepest.depth :], self._as_sent), system, body, body[known:], parent

    def _edge(
        self, node: HistoryNode, body: Sequence[Message], rest: Sequence[Message], parent: RecordedCall | None
    ) -> tuple[Edge, RecordedCall | None]:
        if node.calls:
            return node.calls[0].edge, node.calls[0].after
        if parent is not None and not any(message["role"] == "assistant" for message in rest):
            return "continue", parent
        point = 0
        for message in body:
            further = self._points.get((point, message_key(message, False)))
            if further is None:
                break
            point = further
        return ("rewrite", self._latest[point]) if point else ("root", None)

    def _prompt(
        self, parent: RecordedCall | None, system: Sequence[Message], body: Sequence[Message], rest: Sequence[Message],
        tools: Sequence[Tool], new: int,
    ) -> tuple[RecordedCall | None, list[int]]:  # fmt: skip
        if parent is not None:
            answer = body[len(body) - new - 1]  # with the client's own ids, which its results name
            try:
                between = self.template.between_messages(rest, answer.get("tool_calls", ()))
                closing = self.template.closing(parent.response[-1])
                return parent, [*parent.prompt_ids(), *parent.response, *closing, *between]
            except InputError:
                pass  # if the template cannot render them at all, rendering the whole prompt raises
        messages = [*system, *body[: len(body) - new], *rest]
        return None, self.template.chat_ids(messages, [tool.to_openai() for tool in tools], repair=True)

    def add(self, request: CallRequest, seed: int | None = None) -> RecordedCall:
        """Add a call for a request; ``seed``: of a recorded answer."""
        after, prompt = request.after, request.prompt_ids
        if after is not None:
            conversation = after.conversation
        else:
            conversation = self._roots.setdefault(hash_of(prompt), len(self._roots))
        depth = after.depth + 1 if after is not None else 0
        parent = request.parent
        begun = parent.prompt_tokens + len(parent.response) if parent is not None else 0
        call = RecordedCall(
            id=self._free_seed(conversation, depth, prompt) if seed is None else seed,
            order=self.clock, conversation=conversation, depth=depth, edge=request.edge, parent=parent,
            after=after, system=request.system, rest=request.rest, tools=request.tools,
            added=array("i", prompt[begun:]), prompt_tokens=len(prompt), siblings=request.node.calls,
            steered=request.steered, rendered_whole=request.rendered_whole,
        )  # fmt: skip
        self.clock += 1
        self._ids.add(call.id)
        self.calls.append(call)
        request.node.calls.append(call)
        if after is not None:
            after.followers.append(call)
        self._join(call)
        return call

    def _free_seed(self, conversation: int, depth: int, prompt_ids: Sequence[int]) -> int:
        """Return the seed of a call: the same after a restart, in whatever order calls are then requested.

        The first conversation has the seeds of the built-in loop.
        """
        if conversation == 0 and (seed := step_seed(self.seed, depth)) not in self._ids:
            return seed
        prompt, sibling = hash_of(prompt_ids), 0
        while (seed := stream_seed(self.seed, depth, prompt, sibling)) in self._ids:
            sibling += 1
        return seed

    def drop(self, call: RecordedCall) -> None:
        """Remove a call that failed; the next one at its node has the same seed."""
        self.calls.remove(call)
        self._ids.discard(call.id)
        call.siblings.remove(call)
        if call.after is not None:
            call.after.followers.remove(call)
        for other in self.calls:
            if other.read_by is call:
                other.read_by = None

    def answered(self, call: RecordedCall, view: StreamView, message: Message, node: HistoryNode) -> None:
        """Let later requests continue an answer; ``message`` is the client's view of it."""
        thoughts, raw = view.thoughts, call.text
        call.ended, call.problem = self.clock, view.problem
        after = self._after[call.id] = HistoryNode(node, message, node.depth + 1, call)
        for key in answer_keys(view.content, thoughts, view.calls, raw, self._as_sent):
            node.answers.setdefault(key, []).append(after)
        self._pass(node, answer_keys(view.content, "", view.calls, raw, False), call)

    def _pass(self, node: HistoryNode, answers: Sequence[str], call: RecordedCall) -> None:
        """Record an answered call at all points of its history, under all forms of its answer."""
        new: list[HistoryNode] = []
        while node.point is None and node.before is not None:
            new.append(node)
            node = node.before
        point = node.point or 0
        for later in reversed(new):
            assert later.message is not None
            point = later.point = self._point(point, [message_key(later.message, False)])
        point = self._point(point, answers)
        while point:
            self._latest[point] = call
            point = self._before[point]

    def _point(self, before: int, keys: Sequence[str]) -> int:
        """Return the point after a message with these keys; create it if it is new."""
        point = next((self._points[before, key] for key in keys if (before, key) in self._points), len(self._before))
        if point == len(self._before):
            self._before.append(before)
        for key in keys:
            self._points.setdefault((before, key), point)
        return point

    def history_after(self, call: RecordedCall) -> list[Message]:
        return [*call.system, *self._after[call.id].history()]

    def _join(self, reader: RecordedCall) -> None:
        texts = [str(m["content"]).strip() for m in reader.rest if m["role"] != "assistant" and m["content"]]
        for call in self.calls:
            if call.answer is not None and not call.followed:  # so it is not in the reader's own history
                said = call.answer.content.strip()
                if said and any(_contains(text, said) for text in texts):
                    call.read_by = reader


def _steered(rest: Sequence[Message], instruction: str) -> tuple[Message, ...]:
    """Append an instruction to the last message that is not the assistant's."""
    if not instruction:
        return tuple(rest)
    number = max((n for n, message in enumerate(rest) if message["role"] != "assistant"), default=-1)
    if number < 0:
        return (*rest, {"role": "user", "content": instruction})
    steered = {**rest[number], "content": f"{rest[number]['content']}\n{instruction}".strip()}
    return (*rest[:number], steered, *rest[number + 1 :])


def _contains(text: str, said: str) -> bool:
    """Return whether a message contains an answer: as it is, or inside JSON."""
    quoted = json.dumps(said, ensure_ascii=False)[1:-1]
    if len(said) < MIN_QUOTED:
        return text.strip("\"'`.()[]{} \n") == said
    return any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text) for form in {said, quoted})


def split_header(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the system messages at the beginning of a history, and the rest."""
    first = next((number for number, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return tuple(messages[:first]), tuple(messages[first:])


def header_key(system: Iterable[Message], tools: Iterable[Tool]) -> str:
    """Return the key of system messages and tools, with which every prompt of a conversation begins."""
    return canonical([[_text(message) for message in system], [tool.to_openai() for tool in tools]])


def message_key(message: Message, thoughts: bool) -> str:
    """Return the key of a message; ``thoughts``: messages with different thoughts have different keys."""
    if message["role"] != "assistant":
        return canonical([message["role"], _text(message)])
    said = str(message.get("reasoning_content") or "") if thoughts else ""
    return _assistant_key(_text(message), message_calls(message), said)


def answer_keys(content: str, thoughts: str, calls: Sequence[ToolCall], raw: str, as_sent: bool) -> tuple[str, ...]:
    """Return the keys of all forms in which a client may send an answer back, its own view first.

    Args:
        content, thoughts, calls: the client's view of the answer.
        raw: the whole sampled text, which clients may parse themselves.
        as_sent: messages with different thoughts have different keys.
    """
    spoken = read_thoughts(raw).words.strip()
    parsed = read_response(spoken)
    forms: list[tuple[str, Sequence[ToolCall]]] = [(content.strip(), calls), (spoken, ())]
    if calls:
        forms.append(("", calls))
    if parsed.calls and not parsed.problem:
        forms += [(parsed.content, parsed.calls), ("", parsed.calls)]
    said = thoughts if as_sent else ""
    return tuple(dict.fromkeys(_assistant_key(text, found, said) for text, found in forms))


def _assistant_key(text: str, calls: Sequence[ToolCall], thoughts: str) -> str:
    return canonical(["assistant", text, [[c.name, _plain(c.arguments)] for c in calls], thoughts.strip()])


def _text(message: Mapping[str, Any]) -> str:
    return str(message.get("content") or "").strip()


def _plain(value: Any) -> Any:
    """Return a value with one form of whole numbers, since JavaScript writes 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
