"""An agent's requests as turns of a dialogue: the new part of each, even if the client rewrites its history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Start
from rl_agents.gateway.conversation_tree import answer_keys, header_key, message_key, split_header
from rl_agents.gateway.stream_view import StreamView, answer_id, written_answer
from rl_agents.tools.strict_json import canonical
from rl_agents.web.text import TextStream


@dataclass(frozen=True, slots=True)
class Turn:
    """The content of an agent's request.

    Attributes:
        observation: text for people, and for the policy if it is one user message.
        anchor: equal for equal histories, thoughts excluded.
        messages, tools: at the beginning of a dialogue; empty for one user message.
        new_dialogue: the request does not continue from the last answer.
        further: messages since the last answer, if they are more than one user message.
        calls: the last answer's tool calls, for templates that write a tool's name next to its result.
    """

    observation: str
    anchor: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    new_dialogue: bool = False
    further: tuple[Message, ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()

    def info(self) -> dict[str, Any]:
        """Return the ``info`` of `reset` and `step`."""
        info: dict[str, Any] = {"anchor": self.anchor}
        if self.new_dialogue:
            info["new_dialogue"] = True
        if self.messages:
            info |= {"messages": list(self.messages), "tools": list(self.tools)}
        if self.further:
            info |= {"further_messages": list(self.further), "calls": list(self.calls)}
        return info


@dataclass
class History:
    """The last request and its answer.

    Attributes:
        as_sent: thoughts that the client drops from its history are dropped from the policy's, too.
        answered: number of answers.
    """

    as_sent: bool = False
    answered: int = 0
    _header: str = ""
    _keys: tuple[str, ...] = ()
    _answers: tuple[str, ...] = ()
    _calls: tuple[Mapping[str, Any], ...] = field(default=())

    def turn(self, call: ModelCall) -> Turn:
        """Take the next request."""
        system, body = split_header(call.messages)
        header, keys = header_key(system, call.tools), tuple(message_key(m, self.as_sent) for m in body)
        if call.previous:  # the client sends only the new messages
            header, keys, new = self._header, (*self._keys, *self._answers[:1], *keys), tuple(body)
        else:
            new = self._new(header, keys, body)
        text = canonical([header, list(keys)]).encode("utf-8", "replace")
        turn = self._turn(call, new, anchor=hashlib.sha256(text).hexdigest()[:32])
        self._header, self._keys = header, keys
        return turn

    def _new(self, header: str, keys: Sequence[str], body: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages since the last answer; none if the request does not continue from it."""
        known = len(self._keys)
        further = tuple(body[known + 1 :])
        if not (self.answered and further and header == self._header and keys[:known] == self._keys):
            return ()
        written = any(message["role"] == "assistant" for message in further)
        return () if written or keys[known] not in self._answers else further

    def _turn(self, call: ModelCall, new: tuple[Message, ...], anchor: str) -> Turn:
        if new:
            if len(new) == 1 and new[0]["role"] == "user":
                return Turn(str(new[0]["content"]), anchor)
            return Turn(_read(new), anchor, further=new, calls=self._calls)
        again = bool(self.answered)
        if len(call.messages) == 1 and call.messages[0]["role"] == "user" and not call.tools:
            return Turn(str(call.messages[0]["content"]), anchor, new_dialogue=again)
        tools = tuple(tool.to_openai() for tool in call.tools)
        return Turn(_read(call.messages[-1:]), anchor, tuple(call.messages), tools, new_dialogue=again)

    def answer(self, call: ModelCall, action: str) -> ModelAnswer:
        """Return the policy's whole response in the gateway's form; ids are the same in every replay."""
        shown = StreamView(TextStream(lambda ids: action), call.tools, inside=_inside(action), stop=call.stop)
        shown.add([0], last=True)
        self.answered += 1
        start = Start(answer_id(self.answered), created=0, label="search")
        answer = written_answer(shown, call.dialect, self.answered, start, finish_reason="stop")
        answer = replace(answer, completion_tokens=0, thought_tokens=0)  # a search does not count them
        self._answers = answer_keys(shown.content, shown.thoughts, shown.calls, action, self.as_sent)
        self._calls = tuple(
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": {}}} for c in answer.tool_calls
        )
        return answer


def _inside(action: str) -> bool:
    """Return whether the prompt has opened the thought that the response ends."""
    opened, closed = action.find("<think>"), action.find("</think>")
    return closed >= 0 and not 0 <= opened < closed


def _read(messages: Sequence[Message]) -> str:
    return "\n".join(f"[{message['role']}] {_said(message)}" for message in messages)


def _said(message: Message) -> str:
    calls = "".join(f" {json.dumps(call['function'], ensure_ascii=False)}" for call in message.get("tool_calls", ()))
    return f"{message['content']}{calls}"
